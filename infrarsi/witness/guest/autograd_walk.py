"""The dtypes of the matrix products in an autograd graph, by the shapes it keeps of results.

Nothing that was saved for backward is touched: unpacking it could recompute a checkpointed part
or copy it from somewhere. What a compiler made is one node, and nothing is seen inside it.
"""

import torch

MAX_NODES = 50000
PRODUCTS = ("Mm", "Addmm", "Bmm", "Baddbmm", "Addbmm", "Mv", "Addmv", "Linear", "Convolution")


def is_product(name):
    """Whether a node of this name is a matrix product, a convolution or an attention."""
    return name.rstrip("0123456789").endswith("Backward") and (
        name.split("Backward")[0] in PRODUCTS or "DotProduct" in name
    )


def matmul_dtypes(tensors):
    """The dtypes of every product that the tensors given to a backward came from."""
    if isinstance(tensors, torch.Tensor):
        tensors = (tensors,)
    todo = [tensor.grad_fn for tensor in tensors or () if isinstance(tensor, torch.Tensor)]
    todo = [node for node in todo if node is not None]
    seen, found = set(todo), set()
    while todo and len(seen) < MAX_NODES:
        node = todo.pop()
        if is_product(node.name()):
            for made in getattr(node, "_input_metadata", ())[:1]:  # torch 2.2 and newer
                found.add(str(made.dtype)[6:])
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                todo.append(following)
    return found

"""The model line: what a trained model is, as the job made it."""

import hashlib
import sys

import torch

from .alter import dropout_of

MAX_NAMES = 512


def model_line(root):
    """The line of one root; its modules are walked once."""
    parameters = root.parameters()
    text = "\n".join(
        "%s %s %s %s" % (n, tuple(p.shape), p.dtype, p.requires_grad) for n, p in parameters
    )
    line = {
        "cls": root.name,
        "digest": hashlib.sha256(text.encode()).hexdigest()[:16],
        "tensors": len(parameters),
        "numel": sum(p.numel() for _, p in parameters),
        "trainable": sum(p.numel() for _, p in parameters if p.requires_grad),
        "dtypes": sorted({str(p.dtype)[6:] for _, p in parameters}),
        "names": [n for n, _ in parameters][:MAX_NAMES],
        "title": root.title,
        "sharded": [n for n, p in parameters if is_sharded(p)],
        "ties": ties(root),
        "buffers": {n: str(b.dtype)[6:] for n, b, _ in list(root.buffers())[:MAX_NAMES]},
        "passing_buffers": [n for n, _, kept in root.buffers() if not kept][:MAX_NAMES],
    }
    line.update(module_facts(root))
    return line


def is_sharded(parameter):
    """Whether this rank holds a part of the parameter only."""
    placements = getattr(parameter, "placements", None)
    if placements is not None:  # a DTensor
        return any(not placement.is_replicate() for placement in placements)
    if getattr(parameter, "ds_id", None) is not None:  # DeepSpeed ZeRO stage 3
        return True
    return (
        type(parameter).__name__ == "FlatParameter"  # FSDP of the first kind
        or getattr(parameter, "_is_flat_param", False)
        or (getattr(parameter, "tensor_model_parallel", False) is True and megatron_divides())
    )


def megatron_divides():
    """Whether Megatron shares its parameters out: it marks them for groups of one rank too."""
    state = sys.modules.get("megatron.core.parallel_state")
    size = getattr(state, "get_tensor_model_parallel_world_size", None)
    try:
        return size is None or size() > 1
    except (AssertionError, RuntimeError, ValueError):  # its groups are not made (any more)
        return True


def ties(root):
    """Groups of names that are one and the same parameter."""
    groups = {}
    for name, parameter in root.all_names():
        groups.setdefault(id(parameter), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def module_facts(root):
    """Dropout probabilities as the job set them, and the size of the linear layers."""
    probabilities, linear, counted = {}, 0, set()
    for name, module in root.named_modules():
        for p in dropouts(module):
            key = "%g" % p
            probabilities[key] = probabilities.get(key, 0) + 1
        weight = getattr(module, "weight", None) if isinstance(module, torch.nn.Linear) else None
        if weight is not None and "expert" not in name and id(weight) not in counted:
            counted.add(id(weight))
            linear += weight.numel()
    return {"dropout": probabilities, "linear_numel": linear}


def dropouts(module):
    """The dropout probabilities of one module: its own, or numbers among its attributes."""
    made = dropout_of(module)
    if made is not None:
        return [made] if made else []
    return [
        value
        for name, value in vars(module).items()
        if type(value) is float and 0 < value < 1 and "drop" in name
    ]

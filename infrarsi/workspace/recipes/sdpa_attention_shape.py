"""How many dimensions a tensor of a function has, and which expressions its sizes are.

Read from views, permutations, splits and unpacked shapes; None wherever it is not written down.
"""

from collections.abc import Sequence
from typing import TypeAlias

import libcst as cst

from infrarsi.workspace.recipes.source import Source, argument, dotted, literal, walk
from infrarsi.workspace.recipes.source_flow import (
    Binding,
    BindingKind,
    Flow,
    class_attribute,
    parameter_names,
)

Shape: TypeAlias = list[cst.BaseExpression | None]
"""One entry a dimension: the expression of its size, None where only its place is known."""

_MAX_READS = 2000  # a chain of products of itself doubles with every line
_CASTS = {"to", "float", "half", "bfloat16", "double", "type_as", "cuda", "cpu", "type"}
_SAME_SHAPE = _CASTS | {"contiguous", "clone", "detach", "mul", "div"}
_KEEPING_MODULES = frozenset(
    f"torch.nn.{name}" for name in ("LayerNorm", "RMSNorm", "Dropout", "Identity", "ReLU", "GELU")
)
_KEEPING_FUNCTIONS = frozenset(
    f"torch.nn.functional.{name}" for name in ("layer_norm", "rms_norm", "normalize", "dropout")
)


class ShapeReader:
    """Reads the shapes of one function's tensors."""

    def __init__(self, sources: Sequence[Source], flow: Flow, owner: cst.ClassDef | None) -> None:
        self.sources = sources
        self.flow = flow
        self.source = flow.source
        self.owner = owner
        self.reads = 0

    def read(self, node: cst.BaseExpression, at: cst.CSTNode, depth: int = 0) -> Shape | None:
        """The shape of the expression as seen from a statement."""
        self.reads += 1
        if depth > 40 or self.reads > _MAX_READS:
            return None
        if isinstance(node, cst.Name):
            return self._name(node, at, depth + 1)
        if isinstance(node, cst.BinaryOperation):
            return self._scaled(node, at, depth + 1)
        if isinstance(node, cst.Subscript):
            return self._subscript(node, at, depth + 1)
        if isinstance(node, cst.Call):
            return self._call(node, at, depth + 1)
        return None

    def _name(self, node: cst.Name, at: cst.CSTNode, depth: int) -> Shape | None:
        bound = self.flow.reaching(node.value, at)
        unpacked = self._unpacked_shape(node.value, bound)
        if unpacked is not None:
            return unpacked
        if bound.statement is None or bound.value is None:
            return None
        if bound.kind is BindingKind.ASSIGN:
            return self.read(bound.value, bound.statement, depth)
        if bound.kind is BindingKind.AUGMENT:
            return self.read(node, bound.statement, depth)
        if bound.kind is BindingKind.UNPACK:
            return self._unpacked(bound.value, bound.statement, bound.index, depth)
        return None

    def _unpacked_shape(self, name: str, bound: Binding) -> Shape | None:
        """From `B, T, C = name.shape` for the same binding of the name, wherever it stands."""
        for assign in self.source.nodes(cst.Assign, self.flow.function):
            target = assign.targets[0].target
            if not isinstance(target, cst.Tuple) or len(assign.targets) != 1:
                continue
            if _shape_of(assign.value) != name or any(
                isinstance(e, cst.StarredElement) for e in target.elements
            ):
                continue
            if self.flow.reaching(name, assign) == bound:
                sizes: Shape = [element.value for element in target.elements]
                return sizes
        return None

    def _unpacked(
        self, value: cst.BaseExpression, at: cst.CSTNode, index: int, depth: int
    ) -> Shape | None:
        if index < 0:
            return self.read(value, at, depth)
        if isinstance(value, cst.GeneratorExp | cst.ListComp):
            target = value.for_in.target
            if isinstance(target, cst.Name) and not _mentions(value.for_in.iter, target.value):
                return self._element(value.elt, target.value, value.for_in.iter, at, depth)
            return None
        if not isinstance(value, cst.Call):
            whole = self.read(value, at, depth)
            return whole[1:] if whole else None
        if self.source.qualified(value.func) == "map" and len(value.args) == 2:
            function = value.args[0].value
            if isinstance(function, cst.Lambda) and len(parameter_names(function)) == 1:
                name = parameter_names(function)[0]
                return self._element(function.body, name, value.args[1].value, at, depth)
            return None
        if isinstance(value.func, cst.Attribute):
            if value.func.attr.value in ("split", "chunk"):
                return self._pieces(value, at, depth)
            if value.func.attr.value == "unbind":
                whole = self.read(value.func.value, at, depth)
                return _without(whole, literal(argument(value, "dim", 0) or cst.Integer("0")))
        whole = self.read(value, at, depth)
        return whole[1:] if whole else None

    def _pieces(self, call: cst.Call, at: cst.CSTNode, depth: int) -> Shape | None:
        assert isinstance(call.func, cst.Attribute)
        whole = self.read(call.func.value, at, depth)
        dim = literal(argument(call, "dim", 1) or cst.Integer("0"))
        if whole is None or not isinstance(dim, int) or not -len(whole) <= dim < len(whole):
            return None
        size = argument(call, "split_size", 0) if call.func.attr.value == "split" else None
        whole[dim] = None if isinstance(size, cst.List | cst.Tuple) else size
        return whole

    def _element(
        self,
        body: cst.BaseExpression,
        name: str,
        items: cst.BaseExpression,
        at: cst.CSTNode,
        depth: int,
    ) -> Shape | None:
        """The shape of `body` in which only the outermost views matter."""
        if isinstance(body, cst.Call) and not (
            isinstance(body.func, cst.Attribute) and dotted(body.func.value) == name
        ):
            return self.read(body, at, depth)
        if isinstance(body, cst.Call):
            return self._call(body, at, depth)
        return None

    def _scaled(self, node: cst.BinaryOperation, at: cst.CSTNode, depth: int) -> Shape | None:
        if not isinstance(node.operator, cst.Multiply | cst.Divide):
            return None
        left = self.read(node.left, at, depth)
        right = self.read(node.right, at, depth)
        return None if left and right else left or right

    def _subscript(self, node: cst.Subscript, at: cst.CSTNode, depth: int) -> Shape | None:
        whole = self.read(node.value, at, depth)
        parts = [element.slice for element in node.slice]
        if whole is None or len(parts) > len(whole):
            return None
        left: Shape = []
        for size, part in zip(whole, parts, strict=False):
            if isinstance(part, cst.Index):
                if not isinstance(literal(part.value), int):
                    return None
            else:
                left.append(size if self.source.code(part).strip() == ":" else None)
        return left + whole[len(parts) :]

    def _call(self, call: cst.Call, at: cst.CSTNode, depth: int) -> Shape | None:
        name = self.source.qualified(call.func) or ""
        if name in _KEEPING_FUNCTIONS and call.args:
            return self.read(call.args[0].value, at, depth)
        if name.endswith("rearrange") and len(call.args) > 1:
            return _rearranged(literal(call.args[1].value))
        if name or not isinstance(call.func, cst.Attribute):
            return None
        base, method = call.func.value, call.func.attr.value
        if dotted(base) == "self" and call.args:
            return self._module(method, call, at, depth)
        if method in ("view", "reshape"):
            return _viewed(call)
        whole = self.read(base, at, depth)
        if method == "permute":
            return _permuted(whole, call)
        if whole is None or method in _SAME_SHAPE:
            return whole
        if method in ("transpose", "swapaxes", "swapdims"):
            return _swapped(whole, *(literal(arg.value) for arg in call.args[:2]))
        return None

    def _module(self, name: str, call: cst.Call, at: cst.CSTNode, depth: int) -> Shape | None:
        """The result of `self.name(x)` for layers that keep every dimension but the last."""
        if self.owner is None:
            return None
        found = class_attribute(self.sources, self.source, self.owner, name)
        if found is None or not isinstance(found.value, cst.Call):
            return None
        kind = self.source.qualified(found.value.func)
        inside = self.read(call.args[0].value, at, depth)
        if kind == "torch.nn.Linear" and inside:
            return [*inside[:-1], None]
        return inside if kind in _KEEPING_MODULES else None


def swaps_last_two(shape: Shape | None, first: object, second: object) -> bool:
    """Whether transposing these two dimensions surely swaps the last two."""
    if not isinstance(first, int) or not isinstance(second, int):
        return False
    if {first, second} == {-1, -2}:
        return True
    if shape is None:
        return False
    return {d % len(shape) for d in (first, second)} == {len(shape) - 1, len(shape) - 2}


def _shape_of(node: cst.BaseExpression) -> str:
    """`x` for `x.shape` and `x.size()`, "" for anything else."""
    if isinstance(node, cst.Call) and not node.args and dotted(node.func).endswith(".size"):
        return dotted(node.func).removesuffix(".size")
    text = dotted(node)
    return text.removesuffix(".shape") if text.endswith(".shape") else ""


def _viewed(call: cst.Call) -> Shape | None:
    sizes = [arg.value for arg in call.args if not arg.keyword]
    if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
        if any(isinstance(e, cst.StarredElement) for e in sizes[0].elements):
            return None
        sizes = [element.value for element in sizes[0].elements]
    if any(arg.star or arg.keyword for arg in call.args) or len(sizes) < 2:
        return None
    return [None if literal(size) == -1 else size for size in sizes]


def _permuted(whole: Shape | None, call: cst.Call) -> Shape | None:
    args = [arg.value for arg in call.args]
    if len(args) == 1 and isinstance(args[0], cst.Tuple | cst.List):
        args = [element.value for element in args[0].elements]
    order = [literal(arg) for arg in args]
    dims = [d for d in order if isinstance(d, int)]
    if len(dims) != len(order):
        return None
    if whole is None or len(whole) != len(dims):
        return [None] * len(dims) if whole is None else None
    return [whole[d] for d in dims]


def _swapped(whole: Shape, *dims: object) -> Shape | None:
    first, second = (*dims, None, None)[:2]
    if not isinstance(first, int) or not isinstance(second, int):
        return None
    if not all(-len(whole) <= d < len(whole) for d in (first, second)):
        return None
    swapped = list(whole)
    swapped[first], swapped[second] = whole[second], whole[first]
    return swapped


def _without(whole: Shape | None, dim: object) -> Shape | None:
    if whole is None or not isinstance(dim, int) or not -len(whole) <= dim < len(whole):
        return None
    return [size for index, size in enumerate(whole) if index != dim % len(whole)]


def _rearranged(pattern: object) -> Shape | None:
    if not isinstance(pattern, str) or "->" not in pattern or "..." in pattern:
        return None
    right = pattern.split("->")[1]
    while "(" in right and ")" in right:
        right = right[: right.index("(")] + "_" + right[right.index(")") + 1 :]
    return [None] * len(right.split())


def _mentions(node: cst.CSTNode, name: str) -> bool:
    return any(isinstance(n, cst.Name) and n.value == name for n in walk(node))

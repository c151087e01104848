"""Which mask a tensor expression is: proven causal, or nothing that this recipe knows.

The masks are square triangles over (query, key) positions, aligned at the top left, so that
they equal `is_causal=True` of scaled_dot_product_attention exactly. A `Triangle` has the number of
its dimensions (leading ones of size 1) and the text of its size.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import libcst as cst

from infrarsi.workspace.recipes.source import Source, argument, dotted, literal, same
from infrarsi.workspace.recipes.source_flow import BindingKind, Flow, class_attribute


class Fill(StrEnum):
    """What a square matrix holds."""

    ONES = "ones"
    ZEROS = "zeros"
    MINUS_INF = "minus_inf"  # everywhere
    LOWER = "lower"  # true (or 1) where the key is not later than the query
    UPPER = "upper"  # true (or 1) where the key is later than the query
    ADDITIVE = "additive"  # minus infinity where the key is later than the query, else 0


@dataclass(frozen=True)
class Triangle:
    """A square matrix; `helpers` are local statements that only build it."""

    fill: Fill
    size: str
    ndim: int
    helpers: tuple[cst.SimpleStatementLine, ...] = ()


_FLIP = {Fill.LOWER: Fill.UPPER, Fill.UPPER: Fill.LOWER}
_SAME_VALUES = frozenset(
    ("to", "type_as", "float", "half", "double", "cuda", "cpu", "contiguous", "detach", "clone")
)
_SAME_TRUTH = _SAME_VALUES | {"bool", "byte", "int", "long", "type"}
_MAX_READS = 500  # a chain of products of itself doubles with every line
_NOT_FLOAT = re.compile(r"bool|byte|int|long")


class MaskReader:
    """Reads mask expressions of one function."""

    def __init__(
        self, sources: Sequence[Source], flow: Flow, owner: cst.ClassDef | None, scores: set[str]
    ) -> None:
        self.sources = sources
        self.flow = flow
        self.source = flow.source
        self.owner = owner
        self.scores = scores  # names that stand for the scores, for ones_like(scores)
        self.reads = 0

    def read(self, node: cst.BaseExpression, at: cst.CSTNode) -> Triangle | None:
        """What the expression at that statement is, None where it is not proven."""
        self.reads += 1
        if self.reads > _MAX_READS:
            return None
        if isinstance(node, cst.Name):
            return self._name(node, at)
        if isinstance(node, cst.Attribute):
            return self._attribute(node)
        if isinstance(node, cst.UnaryOperation):
            return self._unary(node, at)
        if isinstance(node, cst.Comparison):
            return self._comparison(node, at)
        if isinstance(node, cst.BinaryOperation):
            return self._binary(node, at)
        if isinstance(node, cst.Subscript):
            return self._subscript(node, at)
        if isinstance(node, cst.Call):
            return self._call(node, at)
        return None

    def _name(self, node: cst.Name, at: cst.CSTNode) -> Triangle | None:
        bound = self.flow.reaching(node.value, at)
        statement = bound.statement
        if not isinstance(statement, cst.SimpleStatementLine) or bound.value is None:
            return None
        if bound.kind is not BindingKind.ASSIGN:
            return None
        found = self.read(bound.value, statement)
        return found and replace(found, helpers=(statement, *found.helpers))

    def _attribute(self, node: cst.Attribute) -> Triangle | None:
        if dotted(node.value) != "self" or self.owner is None:
            return None
        found = class_attribute(self.sources, self.source, self.owner, node.attr.value)
        if found is None:
            return None
        inside = MaskReader(self.sources, Flow(self.source, found.method), self.owner, set())
        triangle = inside.read(found.value, found.value)
        return triangle and replace(triangle, helpers=())

    def _unary(self, node: cst.UnaryOperation, at: cst.CSTNode) -> Triangle | None:
        if isinstance(node.operator, cst.BitInvert):
            return _flipped(self.read(node.expression, at))
        return None

    def _comparison(self, node: cst.Comparison, at: cst.CSTNode) -> Triangle | None:
        if len(node.comparisons) != 1:
            return None
        right = node.comparisons[0]
        value, operator = literal(right.comparator), right.operator
        if isinstance(operator, cst.Equal | cst.Is) and value in (0, 1):
            triangle = _boolean(self.read(node.left, at))
            return triangle if value else _flipped(triangle)
        if isinstance(operator, cst.NotEqual) and value in (0, 1):
            triangle = _boolean(self.read(node.left, at))
            return _flipped(triangle) if value else triangle
        if isinstance(operator, cst.GreaterThan) and value == 0:
            return _boolean(self.read(node.left, at))
        return None

    def _binary(self, node: cst.BinaryOperation, at: cst.CSTNode) -> Triangle | None:
        if isinstance(node.operator, cst.Subtract) and literal(node.left) == 1:
            return _flipped(self.read(node.right, at))
        if isinstance(node.operator, cst.Multiply):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                found = self.read(one, at)
                if found is None:
                    continue
                if found.fill is Fill.ONES and is_minus_inf(self.source, other):
                    return replace(found, fill=Fill.MINUS_INF)
                if found.fill is Fill.UPPER and is_large_negative(other):
                    return replace(found, fill=Fill.ADDITIVE)
        return None

    def _subscript(self, node: cst.Subscript, at: cst.CSTNode) -> Triangle | None:
        found = _triangular(self.read(node.value, at))
        if found is None:
            return None
        ndim, left = found.ndim, found.ndim
        sizes: list[tuple[int, cst.BaseExpression | None]] = []
        in_front = True
        parts = [element.slice for element in node.slice]
        for index, part in enumerate(parts):
            if isinstance(part, cst.Index) and isinstance(part.value, cst.Ellipsis):
                skip = left - (len(parts) - index - 1)
                if skip < 0:
                    return None
                left, in_front = left - skip, False
            elif isinstance(part, cst.Index) and literal(part.value) is None:
                if not in_front:
                    return None
                ndim += 1
            elif isinstance(part, cst.Slice) and part.lower is None and part.step is None:
                sizes.append((left, part.upper))
                left, in_front = left - 1, False
            else:
                return None
        return _sliced(self.source, found, ndim, left, sizes)

    def _call(self, node: cst.Call, at: cst.CSTNode) -> Triangle | None:
        name = self.source.qualified(node.func) or ""
        if name.startswith("torch."):
            return self._torch_call(node, name.removeprefix("torch."), at)
        if not isinstance(node.func, cst.Attribute):
            return None
        base, method = node.func.value, node.func.attr.value
        found = self.read(base, at)
        if found is None:
            return None
        if method in _SAME_TRUTH:
            is_boolean = found.fill in (Fill.ONES, Fill.LOWER, Fill.UPPER)
            keeps = method in _SAME_VALUES and not _NOT_FLOAT.search(self._arguments(node))
            return found if is_boolean or keeps else None
        if method == "logical_not":
            return _flipped(found)
        if method in ("tril", "triu"):
            return _cut(found, method, argument(node, "diagonal", 0))
        if method in ("eq", "ne") and literal(argument(node, "other", 0)) == 0:
            return _flipped(found) if method == "eq" else _boolean(found)
        if method in ("masked_fill", "masked_fill_"):
            return self._filled(found, argument(node, "mask", 0), argument(node, "value", 1), at)
        if method == "unsqueeze" and literal(argument(node, "dim", 0)) == 0:
            return replace(found, ndim=found.ndim + 1)
        if method in ("view", "reshape", "expand"):
            return _viewed(self.source, found, node)
        return None

    def _arguments(self, call: cst.Call) -> str:
        return " ".join(self.source.code(arg) for arg in call.args)

    def _torch_call(self, node: cst.Call, name: str, at: cst.CSTNode) -> Triangle | None:
        if name in ("ones", "zeros"):
            fill = Fill.ONES if name == "ones" else Fill.ZEROS
            return _square(self.source, fill, [a.value for a in node.args if a.keyword is None])
        if name == "full":
            value = argument(node, "fill_value", 1)
            size = argument(node, "size", 0)
            if size is None or value is None:
                return None
            if is_minus_inf(self.source, value) and not _NOT_FLOAT.search(self._arguments(node)):
                return _square(self.source, Fill.MINUS_INF, [size])
            return _square(self.source, Fill.ONES, [size]) if literal(value) is True else None
        if name == "ones_like":
            base = argument(node, "input", 0)
            if isinstance(base, cst.Name) and base.value in self.scores:
                return Triangle(Fill.ONES, "the scores", 2)
            return None
        if name == "logical_not":
            inner = argument(node, "input", 0)
            return _flipped(self.read(inner, at)) if inner is not None else None
        if name in ("tril", "triu"):
            inner = argument(node, "input", 0)
            found = self.read(inner, at) if inner is not None else None
            return found and _cut(found, name, argument(node, "diagonal", 1))
        if name.endswith("Transformer.generate_square_subsequent_mask"):
            size = argument(node, "sz", 0)
            return None if size is None else Triangle(Fill.ADDITIVE, self.source.code(size), 2)
        return None

    def _filled(
        self,
        base: Triangle,
        mask: cst.BaseExpression | None,
        value: cst.BaseExpression | None,
        at: cst.CSTNode,
    ) -> Triangle | None:
        if mask is None or value is None or base.fill is not Fill.ZEROS:
            return None
        found = self.read(mask, at)
        if found is None or found.fill is not Fill.UPPER or found.size != base.size:
            return None
        if not is_minus_inf(self.source, value):
            return None
        helpers = (*base.helpers, *found.helpers)
        return Triangle(Fill.ADDITIVE, base.size, max(base.ndim, found.ndim), helpers)


def is_minus_inf(source: Source, node: cst.BaseExpression | None) -> bool:
    """Whether a mask value is so low that softmax gives exactly 0 beside any real score.

    Minus infinity, the lowest number of a dtype, and literals of at most -1e9; -1e4 is none.
    """
    if node is None:
        return False
    if is_large_negative(node):
        return True
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        return _is_infinity(source, node.expression, "inf") or _is_finfo(source, node, "max")
    return _is_infinity(source, node, "-inf") or _is_finfo(source, node, "min")


def is_large_negative(node: cst.BaseExpression) -> bool:
    """Whether it is a literal of at most -1e9."""
    value = literal(node)
    return isinstance(value, int | float) and value <= -1e9


def _is_infinity(source: Source, node: cst.BaseExpression, text: str) -> bool:
    if isinstance(node, cst.Call) and source.qualified(node.func) == "float":
        value = literal(argument(node, "x", 0))
        return isinstance(value, str) and value.lower().replace("infinity", "inf") == text
    return text == "inf" and source.qualified(node) in ("math.inf", "torch.inf", "numpy.inf")


def _is_finfo(source: Source, node: cst.BaseExpression, which: str) -> bool:
    if isinstance(node, cst.UnaryOperation):
        node = node.expression
    if not isinstance(node, cst.Attribute) or node.attr.value != which:
        return False
    call = node.value
    return isinstance(call, cst.Call) and source.qualified(call.func) == "torch.finfo"


def _triangular(found: Triangle | None) -> Triangle | None:
    return found if found and found.fill in (Fill.LOWER, Fill.UPPER, Fill.ADDITIVE) else None


def _boolean(found: Triangle | None) -> Triangle | None:
    return found if found and found.fill in _FLIP else None


def _flipped(found: Triangle | None) -> Triangle | None:
    return replace(found, fill=_FLIP[found.fill]) if found and found.fill in _FLIP else None


def _cut(found: Triangle, which: str, diagonal: cst.BaseExpression | None) -> Triangle | None:
    offset = 0 if diagonal is None else literal(diagonal)
    if which == "tril" and offset == 0 and found.fill is Fill.ONES:
        return replace(found, fill=Fill.LOWER)
    if which == "triu" and offset == 1:
        cut = {Fill.ONES: Fill.UPPER, Fill.MINUS_INF: Fill.ADDITIVE, Fill.ADDITIVE: Fill.ADDITIVE}
        fill = cut.get(found.fill)
        return replace(found, fill=fill) if fill else None
    return None


def _square(source: Source, fill: Fill, sizes: Sequence[cst.BaseExpression]) -> Triangle | None:
    if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
        sizes = [element.value for element in sizes[0].elements]
    if len(sizes) < 2 or any(literal(size) != 1 for size in sizes[:-2]):
        return None
    if any(isinstance(size, cst.StarredElement) for size in sizes):
        return None
    if not same(sizes[-1], sizes[-2]):
        return None
    return Triangle(fill, source.code(sizes[-1]), len(sizes))


def _viewed(source: Source, found: Triangle, call: cst.Call) -> Triangle | None:
    if any(arg.star or arg.keyword for arg in call.args):
        return None
    square = _square(source, found.fill, [arg.value for arg in call.args])
    if square is None or square.size not in (found.size, "-1"):
        return None
    return replace(found, ndim=square.ndim)


def _sliced(
    source: Source,
    found: Triangle,
    ndim: int,
    left: int,
    sizes: list[tuple[int, cst.BaseExpression | None]],
) -> Triangle | None:
    """`sizes` has (dimensions from the right, upper end); the last two must be cut alike."""
    cut = {position: upper for position, upper in sizes if upper is not None}
    if left < 0 or any(position > 2 for position in cut):
        return None
    if not cut:
        return replace(found, ndim=ndim)
    if set(cut) != {1, 2} or not same(cut[1], cut[2]) or isinstance(cut[1], cst.UnaryOperation):
        return None
    return replace(found, size=source.code(cut[1]), ndim=ndim)

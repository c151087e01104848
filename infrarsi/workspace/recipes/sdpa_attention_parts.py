"""The parts of a written-out attention: its products, its softmax, and what a trace found."""

from dataclasses import dataclass, field

import libcst as cst

from infrarsi.workspace.recipes.source import Source, literal

_PRODUCTS = ("torch.matmul", "torch.bmm")
_SOFTMAX = ("torch.nn.functional.softmax", "torch.softmax", "torch.special.softmax")


class Unfit(Exception):
    """Why this is not an attention that the recipe may replace; a sentence with its place."""


@dataclass
class Factor:
    """One factor on the scores: `code` multiplies them, or divides where `divides`."""

    node: cst.BaseExpression
    at: cst.CSTNode
    divides: bool


@dataclass
class Attention:
    """What the trace found; `removed` statements only build what the one call replaces."""

    product: cst.BaseExpression
    softmax: cst.Call
    query: cst.BaseExpression
    key: cst.BaseExpression
    value: cst.BaseExpression
    at: cst.CSTNode  # the statement of the product of queries and keys
    final: cst.SimpleStatementLine
    factors: list[Factor] = field(default_factory=list)
    is_causal: bool = False
    heads_last: bool = False  # operands are (batch, position, head, size): swap for the call
    ndim: int | None = None
    removed: dict[cst.SimpleStatementLine, str] = field(default_factory=dict)
    rewritten: dict[cst.SimpleStatementLine, tuple[str, cst.BaseExpression, cst.BaseExpression]] = (
        field(default_factory=dict)
    )  # name of an operand, its scaled value, the value unscaled
    helpers: list[cst.SimpleStatementLine] = field(default_factory=list)
    upcast: bool = False
    has_modules: bool = False
    score_names: set[str] = field(default_factory=set)


def is_softmax(source: Source, call: cst.Call) -> bool:
    """Whether a call is a softmax by function or by tensor method."""
    name = source.qualified(call.func)
    if name is not None:
        return name in _SOFTMAX
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "softmax"


def operands_of(
    source: Source, node: cst.CSTNode
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Left and right operand of a matrix product or of an einsum of two tensors."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.MatrixMultiply):
        return node.left, node.right
    if not isinstance(node, cst.Call) or any(arg.keyword or arg.star for arg in node.args):
        return None
    name = source.qualified(node.func)
    args = [arg.value for arg in node.args]
    if name in _PRODUCTS and len(args) == 2:
        return args[0], args[1]
    if name == "torch.einsum" and len(args) == 3:
        return args[1], args[2]
    if name is None and isinstance(node.func, cst.Attribute) and len(args) == 1:
        is_product = node.func.attr.value in ("matmul", "bmm")
        return (node.func.value, args[0]) if is_product else None
    return None


def is_bmm(source: Source, node: cst.CSTNode) -> bool:
    """Whether a product only takes tensors of three dimensions."""
    if not isinstance(node, cst.Call):
        return False
    method = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
    return source.qualified(node.func) == "torch.bmm" or method == "bmm"


def einsum_spec(source: Source, node: cst.CSTNode) -> str | None:
    """The equation of an einsum, blanks removed; None for other products."""
    if isinstance(node, cst.Call) and source.qualified(node.func) == "torch.einsum":
        equation = literal(node.args[0].value)
        return equation.replace(" ", "") if isinstance(equation, str) else ""
    return None


def einsum_layout(score: str, value: str) -> tuple[bool, int] | None:
    """(heads last, number of dimensions) where both equations are plain attention.

    `bhid,bhjd->bhij` with `bhij,bhjd->bhid` is, and `bihd,bjhd->bhij` with `bhij,bjhd->bihd`.
    """
    try:
        (query, key), out = score.split("->")[0].split(","), score.split("->")[1]
        (weights, values), result = value.split("->")[0].split(","), value.split("->")[1]
    except (ValueError, IndexError):
        return None
    if not all(len(set(t)) == len(t) and t.isalpha() for t in (query, key, out, weights, values)):
        return None
    if not 2 <= len(query) == len(key) == len(out) == len(weights) == len(values) == len(result):
        return None
    batch, i, j = out[:-2], out[-2], out[-1]
    size, value_size = set(query) - set(out), set(values) - set(weights)
    if len(size) != 1 or len(value_size) != 1:
        return None
    d = size.pop()
    rename = {**dict(zip(weights, out, strict=True)), value_size.pop(): d}
    values = "".join(rename.get(c, "?") for c in values)
    result = "".join(rename.get(c, "?") for c in result)
    if (query, key, values, result) == (batch + i + d, batch + j + d, batch + j + d, batch + i + d):
        return False, len(query)
    if len(batch) == 2:
        queries, keys = batch[0] + i + batch[1] + d, batch[0] + j + batch[1] + d
        if (query, key, values, result) == (queries, keys, keys, queries):
            return True, 4
    return None


def transposition(
    source: Source, node: cst.BaseExpression
) -> tuple[cst.BaseExpression | None, list[object] | str]:
    """The tensor and the dimensions of a transposition: a pair, a whole order, or `last two`."""
    if isinstance(node, cst.Attribute) and node.attr.value in ("mT",):
        return node.value, "last two"
    if not isinstance(node, cst.Call):
        return None, []
    name = source.qualified(node.func)
    dims = [literal(arg.value) for arg in node.args]
    if name in ("torch.transpose", "torch.swapaxes", "torch.swapdims") and len(dims) == 3:
        return node.args[0].value, dims[1:]
    if name is not None or not isinstance(node.func, cst.Attribute):
        return None, []
    method = node.func.attr.value
    if method in ("transpose", "swapaxes", "swapdims") and len(dims) == 2:
        return node.func.value, dims
    if method == "permute" and len(dims) > 2:
        return node.func.value, dims
    if method == "contiguous":
        return transposition(source, node.func.value)
    return None, []

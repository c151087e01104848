"""Whether the factors on attention scores are one over the root of the head size."""

import re
from collections.abc import Sequence
from fractions import Fraction

import libcst as cst

from infrarsi.workspace.recipes.sdpa_attention_parts import Attention, Factor, Unfit
from infrarsi.workspace.recipes.sdpa_attention_shape import ShapeReader
from infrarsi.workspace.recipes.source import Source, argument, dotted, literal, same
from infrarsi.workspace.recipes.source_flow import (
    BindingKind,
    Flow,
    class_attribute,
    parameter_names,
)

_HEAD_SIZE = re.compile(
    r"(attention_)?head_?(dim|size|width)|dim_?(per_)?head|size_per_head|d_?(k|head|kv|qk)|dh|hd|hs"
)
_HEADS = re.compile(r"(n|num|nr)?_?(attn_|attention_|query_|q_)?n?heads?|h|nh")


class ScaleReader:
    """Reads the scale of one attention; `is_default` and `code` hold after `read`."""

    def __init__(
        self, sources: Sequence[Source], flow: Flow, owner: cst.ClassDef | None, found: Attention
    ) -> None:
        self.sources = sources
        self.flow = flow
        self.source = flow.source
        self.owner = owner
        self.found = found
        self.shapes = ShapeReader(sources, flow, owner)
        self.helpers: list[cst.SimpleStatementLine] = []
        self.is_default = True

    def read(self) -> None:
        """Raise Unfit unless the factors multiply to (head size) ** -0.5."""
        total = Fraction(0)
        for factor in self.found.factors:
            power = self._power(factor.node, factor.at, self.flow, 0)
            if power is None:
                raise self._unfit(factor, "is not provably 1/sqrt(head size)")
            total += -power if factor.divides else power
        if total != Fraction(-1, 2):
            what = "no scale" if not self.found.factors else "another scale than 1/sqrt(head size)"
            raise Unfit(f"{self.source.where(self.found.product)}: the scores have {what}")

    def code(self) -> str:
        """The scale as one expression, in the words of the code."""
        above = [self._operand(f.node) for f in self.found.factors if not f.divides]
        below = [self._operand(f.node) for f in self.found.factors if f.divides]
        return " / ".join([" * ".join(above) or "1.0", *below])

    def _unfit(self, factor: Factor, why: str) -> Unfit:
        text = " ".join(self.source.code(factor.node).split())
        return Unfit(f"{self.source.where(factor.node)}: the scale `{text}` {why}")

    def _operand(self, node: cst.BaseExpression) -> str:
        plain = isinstance(node, cst.Name | cst.Attribute | cst.Call | cst.Subscript)
        power = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Power)
        code = self.source.code(node)
        if plain or power:
            return code
        is_only = len(self.found.factors) == 1 and not self.found.factors[0].divides
        return code if is_only else f"({code})"

    def _power(
        self, node: cst.BaseExpression, at: cst.CSTNode, flow: Flow, depth: int
    ) -> Fraction | None:
        """The power of the head size that the expression is; 0 for 1; None for anything else."""
        if depth > 20:
            return None
        if literal(node) == 1 and not isinstance(literal(node), bool):
            return Fraction(0)
        if self._is_head_size(node, at, flow):
            return Fraction(1)
        if isinstance(node, cst.BinaryOperation):
            return self._arithmetic(node, at, flow, depth + 1)
        if isinstance(node, cst.Call):
            return self._called(node, at, flow, depth + 1)
        if isinstance(node, cst.Name):
            bound = flow.reaching(node.value, at)
            if bound.kind is not BindingKind.ASSIGN or bound.value is None:
                return None
            if isinstance(bound.statement, cst.SimpleStatementLine) and flow is self.flow:
                self.helpers.append(bound.statement)
            return self._power(bound.value, bound.statement or at, flow, depth + 1)
        if isinstance(node, cst.Attribute) and dotted(node.value) == "self" and self.owner:
            found = class_attribute(self.sources, self.source, self.owner, node.attr.value)
            if found is not None and not found.is_buffer:
                inside = Flow(self.source, found.method)
                self.is_default = False  # known by its name there, not by the shape of the keys
                return self._power(found.value, found.value, inside, depth + 1)
        return None

    def _arithmetic(
        self, node: cst.BinaryOperation, at: cst.CSTNode, flow: Flow, depth: int
    ) -> Fraction | None:
        left = self._power(node.left, at, flow, depth)
        if left is None:
            return None
        if isinstance(node.operator, cst.Power):
            exponent = literal(node.right)
            is_number = isinstance(exponent, int | float) and not isinstance(exponent, bool)
            return left * Fraction(str(exponent)) if is_number else None
        right = self._power(node.right, at, flow, depth)
        if right is None:
            return None
        if isinstance(node.operator, cst.Multiply):
            return left + right
        return left - right if isinstance(node.operator, cst.Divide) else None

    def _called(self, node: cst.Call, at: cst.CSTNode, flow: Flow, depth: int) -> Fraction | None:
        name = self.source.qualified(node.func)
        if not node.args or any(arg.star or arg.keyword for arg in node.args):
            return None
        inner = self._power(node.args[0].value, at, flow, depth)
        if inner is None:
            return None
        if name in ("math.sqrt", "numpy.sqrt") and len(node.args) == 1:
            return inner / 2
        if name in ("float", "int") and len(node.args) == 1:
            return inner if name == "float" or inner == 1 else None
        if name in ("math.pow", "pow") and len(node.args) == 2:
            exponent = literal(node.args[1].value)
            is_number = isinstance(exponent, int | float) and not isinstance(exponent, bool)
            return inner * Fraction(str(exponent)) if is_number else None
        return None

    def _is_head_size(self, node: cst.BaseExpression, at: cst.CSTNode, flow: Flow) -> bool:
        if flow is self.flow and self._is_last_size(node, at):
            return True
        if self._is_size_of_operand(node) and flow is self.flow:
            self.is_default = False
            return True
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.FloorDivide):
            heads = dotted(node.right).split(".")[-1]
            if _HEADS.fullmatch(heads):
                self.is_default = False
                return True
        name = dotted(node).split(".")[-1]
        if _HEAD_SIZE.fullmatch(name) and self._is_number(node, at, flow):
            self.is_default = False
            return True
        return False

    def _is_number(self, node: cst.BaseExpression, at: cst.CSTNode, flow: Flow) -> bool:
        """Whether a name of a head size is not seen to be a tensor or something scaled."""
        value: cst.BaseExpression | None = None
        if isinstance(node, cst.Name):
            bound = flow.reaching(node.value, at)
            if bound.kind is BindingKind.ASSIGN:
                value = bound.value
            elif bound.kind in (BindingKind.UNKNOWN, BindingKind.AUGMENT, BindingKind.INPLACE):
                return False
        elif isinstance(node, cst.Attribute) and dotted(node.value) == "self" and self.owner:
            found = class_attribute(self.sources, self.source, self.owner, node.attr.value)
            value = found.value if found else None
            if found is not None and found.is_buffer:
                return False
        if isinstance(value, cst.Call):
            name = self.source.qualified(value.func) or ""
            return name == "int" or (not name and dotted(value.func).endswith(".size"))
        if isinstance(value, cst.BinaryOperation):
            return isinstance(value.operator, cst.FloorDivide)
        return True

    def _is_last_size(self, node: cst.BaseExpression, at: cst.CSTNode) -> bool:
        """Whether it is written down that queries or keys have this size."""
        for operand in (self.found.query, self.found.key):
            shape = self.shapes.read(operand, self.found.at)
            if shape and shape[-1] is not None and same(shape[-1], node) and self._is_steady(node):
                return True
            size = _sized(node)
            if size is None or dotted(size[0]) != dotted(operand) or not dotted(operand):
                continue
            is_last = size[1] == -1 or (shape is not None and size[1] == len(shape) - 1)
            name = dotted(operand)
            if is_last and self._same_binding(name, at):
                return True
        return False

    def _same_binding(self, name: str, at: cst.CSTNode) -> bool:
        """Whether the operand had this binding already, scaling by a number left out."""
        now = self.flow.reaching(name, self.found.at)
        before = self.flow.reaching(name, at)
        return now == before or before.statement in self.found.removed

    def _is_steady(self, node: cst.BaseExpression) -> bool:
        text = dotted(node)
        if not text or "." in text:
            return bool(text)
        bound = self.flow.occurrences(text)
        parents = [self.source.parent(name) for name in bound]
        targets = [p for p in parents if isinstance(p, cst.AssignTarget | cst.Element)]
        is_parameter = text in parameter_names(self.flow.function)
        return sum(self._is_target(t) for t in targets) + is_parameter <= 1

    def _is_target(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.AssignTarget):
            return True
        holder = self.source.parent(node)
        return holder is not None and isinstance(self.source.parent(holder), cst.AssignTarget)

    def _is_size_of_operand(self, node: cst.BaseExpression) -> bool:
        """`k.size(-1)` of an earlier k, or of the values: equal in any plain attention."""
        size = _sized(node)
        names = {dotted(n) for n in (self.found.query, self.found.key, self.found.value)}
        return size is not None and size[1] == -1 and dotted(size[0]) in names - {""}


def _sized(node: cst.BaseExpression) -> tuple[cst.BaseExpression, object] | None:
    """(x, dim) for `x.size(dim)` and `x.shape[dim]`."""
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        dim = argument(node, "dim", 0)
        return (node.func.value, literal(dim)) if node.func.attr.value == "size" else None
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        part = node.slice[0].slice
        is_shape = isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
        if is_shape and isinstance(part, cst.Index) and isinstance(node.value, cst.Attribute):
            return node.value.value, literal(part.value)
    return None

"""Reads the queries and keys of a written-out attention: transposed, scaled, or plain."""

from collections.abc import Sequence

import libcst as cst

from infrarsi.workspace.recipes.sdpa_attention_parts import (
    Factor,
    Unfit,
    operands_of,
    transposition,
)
from infrarsi.workspace.recipes.sdpa_attention_shape import ShapeReader, swaps_last_two
from infrarsi.workspace.recipes.source import Source, walk
from infrarsi.workspace.recipes.source_flow import BindingKind, Flow


class OperandTrace:
    """What a trace has seen so far, and how it reads queries and keys."""

    def __init__(
        self,
        sources: Sequence[Source],
        flow: Flow,
        owner: cst.ClassDef | None,
        product: cst.BaseExpression,
    ) -> None:
        self.sources = sources
        self.source = flow.source
        self.flow = flow
        self.owner = owner
        self.product = product
        self.removed: dict[cst.SimpleStatementLine, str] = {}
        self.rewritten: dict[
            cst.SimpleStatementLine, tuple[str, cst.BaseExpression, cst.BaseExpression]
        ] = {}
        self.helpers: list[cst.SimpleStatementLine] = []
        self.names: set[str] = set()
        self.factors: list[Factor] = []
        self.shapes = ShapeReader(sources, flow, owner)
        self.reads = 0
        self.mask_ndim = 0
        self.is_causal = False
        self.upcast = False
        self.cast_back = False
        self.problem: Unfit | None = None
        self.has_modules = False
        self.is_bmm = False
        self.dim: cst.BaseExpression | None = None
        self.block = flow.block(flow.source.statement(product))

    def unfit(self, node: cst.CSTNode, why: str) -> Unfit:
        """A reason with its place."""
        return Unfit(f"{self.source.where(node)}: {why}")

    def _follow(
        self, name: cst.Name, at: cst.CSTNode
    ) -> tuple[cst.BaseExpression, cst.CSTNode] | None:
        """The value of a name that is bound by a plain assignment in the same block."""
        bound = self.flow.reaching(name.value, at)
        if bound.kind is not BindingKind.ASSIGN or bound.value is None:
            return None
        if not isinstance(bound.statement, cst.SimpleStatementLine):
            return None
        if bound.statement not in self.block:
            return None
        self.removed[bound.statement] = name.value
        self.names.add(name.value)
        return bound.value, bound.statement

    def _untransposed(self, node: cst.BaseExpression, at: cst.CSTNode) -> cst.BaseExpression:
        """The keys of `keys.transpose(-2, -1)` in one of its spellings."""
        if isinstance(node, cst.Name):
            name = node
            followed = self._follow(name, at)
            if followed is None or _reads(followed[0], name.value):
                raise self.unfit(node, f"`{name.value}` is not written as transposed keys")
            return self._untransposed(*followed)
        base, dims = transposition(self.source, node)
        if base is not None and dims == "last two":
            return base
        if base is not None and isinstance(dims, list):
            shape = self.shapes.read(base, at) or self._any_shape()
            shape = [None] * 3 if self.is_bmm else shape
            if len(dims) == 2 and swaps_last_two(shape, *dims):
                return base
            order = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2]
            if len(dims) > 2 and dims == order:
                return base
        raise self.unfit(node, f"`{self.source.code(node)}` is not surely the transposed keys")

    def _any_shape(self) -> list[cst.BaseExpression | None] | None:
        """The shape of the values, whose dimensions are as many as those of the keys."""
        operands = operands_of(self.source, self.product)
        at = self.source.statement(self.product)
        return self.shapes.read(operands[1], at) if operands else None

    def _unscaled(self, node: cst.BaseExpression, at: cst.CSTNode) -> cst.BaseExpression:
        """The operand without the factors that are put on it just before the product."""
        if isinstance(node, cst.Name):
            return self._unscaled_name(node, at)
        if not isinstance(node, cst.BinaryOperation):
            return node
        split = self._split(node, at)
        if split is None:
            raise self.unfit(node, f"`{self.source.code(node)}` is not a plain operand")
        self.factors += split[1]
        return self._unscaled(split[0], at)

    def _split(
        self, node: cst.BaseExpression, at: cst.CSTNode
    ) -> tuple[cst.BaseExpression, list[Factor]] | None:
        """A tensor and the factors on it; None where the expression is anything else."""
        if not isinstance(node, cst.BinaryOperation):
            return node, []
        divides = isinstance(node.operator, cst.Divide)
        pairs = [(node.left, node.right)]
        if isinstance(node.operator, cst.Multiply):
            pairs.append((node.right, node.left))
        elif not divides:
            return None
        for tensor, other in pairs:
            if self._is_tensor(tensor, at) and not self._is_tensor(other, at):
                inner = self._split(tensor, at)
                return inner and (inner[0], [*inner[1], Factor(other, at, divides)])
        return None

    def _unscaled_name(self, node: cst.Name, at: cst.CSTNode) -> cst.BaseExpression:
        """The operand; statements that only scale it go, others lose the factors."""
        bound = self.flow.reaching(node.value, at)
        statement, value = bound.statement, bound.value
        if not isinstance(statement, cst.SimpleStatementLine) or statement not in self.block:
            return node
        if value is None:
            return node
        if bound.kind in (BindingKind.AUGMENT, BindingKind.INPLACE):
            raise self.unfit(statement, f"`{node.value}` is changed in place, and what it views")
        split = self._split(value, statement) if bound.kind is BindingKind.ASSIGN else None
        if split is None or not split[1]:
            return node
        self.factors += split[1]
        if isinstance(split[0], cst.Name) and split[0].value == node.value:
            self.removed[statement] = node.value
            return self._unscaled_name(node, statement)
        self.rewritten[statement] = (node.value, value, split[0])
        return node

    def _is_tensor(self, node: cst.BaseExpression, at: cst.CSTNode) -> bool:
        """Whether an operand of a factor is a tensor of more than one dimension, as far as seen."""
        if isinstance(node, cst.BinaryOperation):
            split = self._split(node, at)
            return split is not None and bool(split[1])
        if isinstance(node, cst.Name):
            operands = {"q", "k", "v", "query", "key", "value", "queries", "keys", "values"}
            return node.value in operands or self.shapes.read(node, at) is not None
        return self.shapes.read(node, at) is not None


def _reads(node: cst.CSTNode, name: str) -> bool:
    return any(isinstance(n, cst.Name) and n.value == name for n in walk(node))

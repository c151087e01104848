"""Traces one hand-written attention from its last product back to queries, keys and values.

The trace follows straight lines only and stops with `Unfit` at the first thing that it does not
know to be part of plain softmax attention.
"""

import libcst as cst

from infrarsi.workspace.recipes.sdpa_attention_mask import Fill, MaskReader, is_minus_inf
from infrarsi.workspace.recipes.sdpa_attention_operands import OperandTrace
from infrarsi.workspace.recipes.sdpa_attention_parts import (
    Attention,
    Factor,
    einsum_layout,
    einsum_spec,
    is_bmm,
    is_softmax,
    operands_of,
)
from infrarsi.workspace.recipes.source import argument, dotted, literal
from infrarsi.workspace.recipes.source_flow import BindingKind, class_attribute

_CASTS = ("to", "type_as", "float", "half", "bfloat16")


class Trace(OperandTrace):
    """The trace of one candidate product `weights @ values`."""

    def softmax(self) -> tuple[cst.Call, cst.CSTNode] | None:
        """The softmax whose result is the left operand, and its statement; None if it is none.

        Raises Unfit where a dropout that may be active is in between.
        """
        operands = operands_of(self.source, self.product)
        if operands is None:
            return None
        found = self._weights(operands[0], self.source.statement(self.product))
        if found is not None and self.problem is not None:
            raise self.problem
        return found

    def attention(self, softmax: cst.Call, at: cst.CSTNode) -> Attention:
        """The whole attention; raises Unfit."""
        final = self.source.statement(self.product)
        operands = operands_of(self.source, self.product)
        if operands is None or not isinstance(final, cst.SimpleStatementLine):
            raise self.unfit(self.product, "the product with the values is not a plain statement")
        scores = self._softmax_input(softmax, at)
        query, key, start, product = self._scores(scores, at)
        score_spec, value_spec = (
            einsum_spec(self.source, product),
            einsum_spec(self.source, self.product),
        )
        self.is_bmm = is_bmm(self.source, product)
        heads_last, ndim = self._layout(product, score_spec, value_spec)
        query = self._unscaled(query, start)
        key = self._unscaled(key if score_spec else self._untransposed(key, start), start)
        found = Attention(self.product, softmax, query, key, operands[1], start, final)
        found.factors, found.is_causal, found.upcast = self.factors, self.is_causal, self.upcast
        found.removed, found.helpers = self.removed, self.helpers
        found.rewritten = self.rewritten
        found.heads_last, found.has_modules = heads_last, self.has_modules
        found.score_names = self.names
        found.ndim = ndim or self.ndim(found)
        self._check(found, softmax, at)
        return found

    def ndim(self, found: Attention) -> int | None:
        """The number of dimensions of queries, keys or values, whichever is written down."""
        if self.is_bmm:
            return 3
        for node, at in (
            (found.query, found.at),
            (found.key, found.at),
            (found.value, found.final),
        ):
            shape = self.shapes.read(node, at)
            if shape is not None:
                return len(shape)
        return None

    # From the weights to the softmax

    def _weights(
        self, node: cst.BaseExpression, at: cst.CSTNode
    ) -> tuple[cst.Call, cst.CSTNode] | None:
        if isinstance(node, cst.Name):
            followed = self._follow(node, at)
            return self._weights(*followed) if followed else None
        if not isinstance(node, cst.Call):
            return None
        if self._is_softmax(node):
            return node, at
        inner = self._dropped(node)
        if inner is None and isinstance(node.func, cst.Attribute):
            if node.func.attr.value in _CASTS and not self.source.qualified(node.func):
                self.cast_back = self._casts_back(node)
                inner = node.func.value
            elif node.func.attr.value == "contiguous":
                inner = node.func.value
        return self._weights(inner, at) if inner is not None else None

    def _casts_back(self, call: cst.Call) -> bool:
        text = " ".join(self.source.code(arg) for arg in call.args)
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        return method == "type_as" or (method == "to" and text.endswith(".dtype"))

    def _dropped(self, call: cst.Call) -> cst.BaseExpression | None:
        """The argument of a dropout."""
        name = self.source.qualified(call.func)
        if name in ("torch.nn.functional.dropout", "torch.dropout"):
            probability = literal(argument(call, "p", 1))
            if probability != 0:
                self._keep_problem(call, call)
            return argument(call, "input", 0)
        module = self._module(call)
        if module is None or not call.args:
            return None
        kind = self.source.qualified(module.func)
        if kind == "torch.nn.Dropout" and literal(argument(module, "p", 0)) != 0:
            self._keep_problem(call, module)
        if kind in ("torch.nn.Identity", "torch.nn.Dropout"):
            self.has_modules = True
            return call.args[0].value
        return None

    def _keep_problem(self, node: cst.CSTNode, dropout: cst.CSTNode) -> None:
        """A dropout only matters where a softmax turns out to be before it."""
        text = " ".join(self.source.code(dropout).split())
        self.problem = self.unfit(node, f"attention dropout `{text}` is not surely 0")

    def _module(self, call: cst.Call) -> cst.Call | None:
        """How the layer of `self.layer(x)` is made, or `nn.Layer()(x)`'s."""
        if isinstance(call.func, cst.Call):
            return call.func
        if not isinstance(call.func, cst.Attribute) or dotted(call.func.value) != "self":
            return None
        if self.owner is None:
            return None
        found = class_attribute(self.sources, self.source, self.owner, call.func.attr.value)
        return found.value if found and isinstance(found.value, cst.Call) else None

    def _is_softmax(self, call: cst.Call) -> bool:
        return is_softmax(self.source, call) or self._softmax_module(call) is not None

    def _softmax_module(self, call: cst.Call) -> cst.Call | None:
        module = self._module(call)
        is_one = module is not None and self.source.qualified(module.func) == "torch.nn.Softmax"
        return module if is_one else None

    def _softmax_input(self, call: cst.Call, at: cst.CSTNode) -> cst.BaseExpression:
        module = self._softmax_module(call)
        self.has_modules |= module is not None
        is_method = module is None and self.source.qualified(call.func) is None
        self.dim = argument(module or call, "dim", 0 if module or is_method else 1)
        if sum(arg.keyword is None for arg in call.args) > 2:
            raise self.unfit(call, "the softmax has more arguments than this recipe knows")
        dtype = argument(call, "dtype")
        if dtype is not None:
            if self.source.qualified(dtype) not in ("torch.float32", "torch.float"):
                raise self.unfit(call, f"the softmax is taken in {self.source.code(dtype)}")
            self.upcast = True
        if is_method:
            assert isinstance(call.func, cst.Attribute)
            return call.func.value
        scores = argument(call, "input", 0)
        if scores is None:
            raise self.unfit(call, "the softmax has no plain argument")
        return scores

    # From the scores to queries and keys

    def _scores(
        self, node: cst.BaseExpression, at: cst.CSTNode
    ) -> tuple[cst.BaseExpression, cst.BaseExpression, cst.CSTNode, cst.BaseExpression]:
        """Queries, keys as they stand in the product, its statement and the product itself."""
        operands = operands_of(self.source, node)
        if operands is not None:
            return (*operands, at, node)
        if isinstance(node, cst.Name):
            return self._named_scores(node, at)
        if isinstance(node, cst.BinaryOperation):
            return self._scores(self._arithmetic(node, at), at)
        if isinstance(node, cst.Call):
            return self._scores(self._called(node, at), at)
        raise self.unfit(node, f"the scores go through `{self.source.code(node)}`")

    def _named_scores(
        self, node: cst.Name, at: cst.CSTNode
    ) -> tuple[cst.BaseExpression, cst.BaseExpression, cst.CSTNode, cst.BaseExpression]:
        bound = self.flow.reaching(node.value, at)
        statement = bound.statement
        if not isinstance(statement, cst.SimpleStatementLine) or statement not in self.block:
            place = bound.statement or node
            raise self.unfit(place, f"`{node.value}` is not computed in a straight line")
        self.names.add(node.value)
        if bound.kind is BindingKind.AUGMENT and bound.value is not None:
            self.removed[statement] = node.value
            small = statement.body[0]
            operator = small.operator if isinstance(small, cst.AugAssign) else None
            self._augmented(operator, bound.value, statement)
            return self._named_scores(node, statement)
        if bound.kind is BindingKind.INPLACE and isinstance(bound.value, cst.Call):
            self.removed[statement] = node.value
            self._called(bound.value, statement)
            return self._named_scores(node, statement)
        if bound.kind is not BindingKind.ASSIGN or bound.value is None:
            raise self.unfit(statement, f"`{node.value}` is not computed in a straight line")
        self.removed[statement] = node.value
        return self._scores(bound.value, statement)

    def _augmented(
        self, operator: cst.BaseAugOp | None, value: cst.BaseExpression, at: cst.CSTNode
    ) -> None:
        if isinstance(operator, cst.MultiplyAssign | cst.DivideAssign):
            divides = isinstance(operator, cst.DivideAssign)
            self.factors.append(Factor(value, at, divides))
        elif isinstance(operator, cst.AddAssign):
            self._added(value, at)
        else:
            raise self.unfit(at, f"the scores go through `{self.source.code(at)}`")

    def _arithmetic(self, node: cst.BinaryOperation, at: cst.CSTNode) -> cst.BaseExpression:
        operator = node.operator
        left, right = self._is_scores(node.left, at), self._is_scores(node.right, at)
        if left == right or (right and isinstance(operator, cst.Divide)):
            raise self.unfit(node, f"the scores go through `{self.source.code(node)}`")
        scores, other = (node.left, node.right) if left else (node.right, node.left)
        if isinstance(operator, cst.Multiply | cst.Divide):
            self.factors.append(Factor(other, at, isinstance(operator, cst.Divide)))
        elif isinstance(operator, cst.Add):
            self._added(other, at)
        else:
            raise self.unfit(node, f"the scores go through `{self.source.code(node)}`")
        return scores

    def _is_scores(self, node: cst.BaseExpression, at: cst.CSTNode) -> bool:
        """Whether a product of two tensors is inside: then it is the scores, not a factor."""
        self.reads += 1
        if self.reads > 2000:  # a chain of sums of itself doubles with every line
            raise self.unfit(node, "the scores are computed in too many steps")
        if operands_of(self.source, node) is not None:
            return True
        if isinstance(node, cst.Name):
            bound = self.flow.reaching(node.value, at)
            if bound.statement not in self.block or bound.value is None:
                return False
            if bound.kind in (BindingKind.AUGMENT, BindingKind.INPLACE):
                return self._is_scores(node, bound.statement or at)
            return bound.kind is BindingKind.ASSIGN and self._is_scores(
                bound.value, bound.statement or at
            )
        if isinstance(node, cst.BinaryOperation):
            return self._is_scores(node.left, at) or self._is_scores(node.right, at)
        if isinstance(node, cst.Call):
            inner = [arg.value for arg in node.args]
            if isinstance(node.func, cst.Attribute):
                inner.append(node.func.value)
            return any(self._is_scores(part, at) for part in inner)
        return False

    def _called(self, call: cst.Call, at: cst.CSTNode) -> cst.BaseExpression:
        """The scores inside a call that scales, masks or casts them."""
        name = (self.source.qualified(call.func) or "").removeprefix("torch.")
        is_method = not name and isinstance(call.func, cst.Attribute)
        method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
        if is_method and isinstance(call.func, cst.Attribute):
            scores: cst.BaseExpression | None = call.func.value
        else:
            scores = argument(call, "input", 0)
        kind = (method if is_method else name).rstrip("_")
        first = 0 if is_method else 1
        if kind == "masked_fill":
            mask, value = argument(call, "mask", first), argument(call, "value", first + 1)
            self._masked(call, mask, value, Fill.UPPER, at)
        elif kind == "where" and not is_method:
            mask, value = argument(call, "condition", 0), argument(call, "other", 2)
            scores = argument(call, "input", 1)
            self._masked(call, mask, self._scalar(value), Fill.LOWER, at)
        elif kind in ("mul", "div") and len(call.args) == first + 1:
            factor = argument(call, "other", first)
            if factor is None:
                raise self.unfit(call, f"the scores go through `{self.source.code(call)}`")
            self.factors.append(Factor(factor, at, kind == "div"))
        elif is_method and self._is_float32(method, call):
            self.upcast = True
        elif not (is_method and kind == "contiguous"):
            raise self.unfit(call, f"the scores go through `{self.source.code(call)}`")
        if scores is None:
            raise self.unfit(call, f"the scores go through `{self.source.code(call)}`")
        return scores

    def _scalar(self, node: cst.BaseExpression | None) -> cst.BaseExpression | None:
        """`x` of `torch.tensor(x)`, or the node."""
        if isinstance(node, cst.Call) and self.source.qualified(node.func) == "torch.tensor":
            return argument(node, "data", 0)
        return node

    def _is_float32(self, method: str, call: cst.Call) -> bool:
        target = call.args[0].value if len(call.args) == 1 else None
        name = self.source.qualified(target) if target is not None else None
        to_float32 = method == "to" and name in ("torch.float32", "torch.float")
        return to_float32 or (method == "float" and not call.args)

    # Masks

    def _masked(
        self,
        node: cst.CSTNode,
        mask: cst.BaseExpression | None,
        value: cst.BaseExpression | None,
        wanted: Fill,
        at: cst.CSTNode,
    ) -> None:
        if isinstance(value, cst.Name):
            bound = self.flow.reaching(value.value, at)
            if bound.kind is BindingKind.ASSIGN and bound.value is not None:
                value = self._scalar(bound.value)
        if not is_minus_inf(self.source, value):
            raise self.unfit(node, "the mask value is not surely minus infinity")
        self._causal(node, mask, wanted, at)

    def _added(self, other: cst.BaseExpression, at: cst.CSTNode) -> None:
        self._causal(other, other, Fill.ADDITIVE, at)

    def _causal(
        self, node: cst.CSTNode, mask: cst.BaseExpression | None, wanted: Fill, at: cst.CSTNode
    ) -> None:
        reader = MaskReader(self.sources, self.flow, self.owner, self.names)
        found = reader.read(mask, at) if mask is not None else None
        if found is None or found.fill is not wanted:
            what = f"`{self.source.code(mask)}`" if mask is not None else "the mask"
            verb = "added to the scores" if wanted is Fill.ADDITIVE else "the mask of the scores"
            raise self.unfit(node, f"{what} is {verb}, and is not proven to be causal")
        if self.is_causal:
            raise self.unfit(node, "the scores are masked twice")
        self.is_causal = True
        self.mask_ndim = found.ndim
        self.helpers += found.helpers

    # Checks of the whole

    def _layout(
        self, product: cst.BaseExpression, score_spec: str | None, value_spec: str | None
    ) -> tuple[bool, int | None]:
        if score_spec is None and value_spec is None:
            return False, None
        if score_spec is None or value_spec is None:
            raise self.unfit(product, "one product is an einsum and the other is not")
        layout = einsum_layout(score_spec, value_spec)
        if layout is None:
            raise self.unfit(product, f"the einsum {score_spec!r} is not one of plain attention")
        return layout

    def _check(self, found: Attention, softmax: cst.Call, at: cst.CSTNode) -> None:
        dim = literal(self.dim) if self.dim is not None else ...
        is_last = dim == -1 or (isinstance(dim, int) and found.ndim == dim + 1)
        if not is_last or isinstance(dim, bool):
            raise self.unfit(softmax, "the softmax is not surely over the last dimension")
        if self.mask_ndim > 2 and (found.ndim or 0) < self.mask_ndim:
            raise self.unfit(
                found.product,
                f"the mask has {self.mask_ndim} dimensions, those of the queries are not known",
            )
        if self.upcast and not self.cast_back:
            raise self.unfit(softmax, "the softmax changes the dtype of its result")

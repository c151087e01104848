"""Which part of a function runs at every step, and which only now and then."""

from collections.abc import Iterator

import libcst as cst

from infrarsi.workspace.recipes.source import Source, dotted, literal, walk
from infrarsi.workspace.recipes.source_flow import BindingKind, Flow

_BACKWARD_OF = {"accelerator", "fabric", "engine", "model_engine"}


class TrainingLoop:
    """The innermost loop of a function that both differentiates and steps an optimizer.

    Where no optimizer is stepped in the function, the innermost loop that differentiates.
    """

    def __init__(self, source: Source, flow: Flow, loop: cst.For | cst.While) -> None:
        self.source = source
        self.flow = flow
        self.loop = loop
        self._inside = set(walk(loop))

    def contains(self, node: cst.CSTNode) -> bool:
        """Whether the node is in the loop, its head and `else` included."""
        return node in self._inside

    def at_every_step(self, node: cst.CSTNode) -> bool:
        """Whether the node is in the loop and under no `if step % n == 0`."""
        return self.contains(node) and not self.is_throttled(node)

    def is_throttled(self, node: cst.CSTNode) -> bool:
        """Whether an `if` inside the loop lets the node run once in several steps only."""
        inner = node
        for above in self.source.ancestors(node):
            if above is self.loop:
                return False
            is_body = isinstance(above, cst.If) and above.body is inner
            if is_body and isinstance(above, cst.If) and self._is_seldom(above.test, above):
                return True
            inner = above
        return False

    def _is_seldom(self, test: cst.BaseExpression, at: cst.CSTNode) -> bool:
        if isinstance(test, cst.BooleanOperation):
            left, right = self._is_seldom(test.left, at), self._is_seldom(test.right, at)
            if isinstance(test.operator, cst.And):
                return left or right
            ends = (left or _is_one_step(test.left)) and (right or _is_one_step(test.right))
            return (left or right) and ends
        if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
            is_equal = isinstance(test.comparisons[0].operator, cst.Equal)
            return is_equal and _is_remainder(test.left)
        if isinstance(test, cst.UnaryOperation):
            return isinstance(test.operator, cst.Not) and _is_remainder(test.expression)
        if isinstance(test, cst.Name):
            bound = self.flow.reaching(test.value, at)
            if bound.kind is BindingKind.ASSIGN and bound.value is not None and bound.statement:
                return self._is_seldom(bound.value, bound.statement)
        return False

    def losses(self) -> tuple[set[str], set[str]]:
        """(names that are differentiated, names that such a loss is a sum or product of)."""
        direct = {
            name
            for call in self.source.nodes(cst.Call, self.loop)
            for name in _differentiated(call)
        }
        parts = set(direct)
        for _ in range(5):
            for assign in self.source.nodes(cst.Assign, self.loop):
                if dotted(assign.targets[0].target) in parts:
                    parts.update(_terms(assign.value))
            for augment in self.source.nodes(cst.AugAssign, self.loop):
                if dotted(augment.target) in parts:
                    parts.update(_terms(augment.value))
        return direct, parts


def training_loops(source: Source) -> list[TrainingLoop]:
    """The training loops of a file, at most one a function, in the order of the text."""
    found: dict[cst.FunctionDef, TrainingLoop] = {}
    for call in source.nodes(cst.Call):
        function = source.function(call)
        if function is None or function in found or not list(_differentiated(call)):
            continue
        loops = [
            above
            for above in source.ancestors(call)
            if isinstance(above, cst.For | cst.While) and source.function(above) is function
        ]
        if not loops:
            continue
        stepping = [loop for loop in loops if source.method_calls("step", under=loop)]
        flow = Flow(source, function)
        found[function] = TrainingLoop(source, flow, (stepping or loops)[0])
    return list(found.values())


def _differentiated(call: cst.Call) -> Iterator[str]:
    """The names in what a call of `backward` differentiates."""
    if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "backward":
        return
    receiver = call.func.value
    if dotted(receiver).split(".")[-1] in _BACKWARD_OF and call.args:
        receiver = call.args[0].value
    if isinstance(receiver, cst.Call) and dotted(receiver.func).endswith(".scale"):
        receiver = receiver.args[0].value if receiver.args else receiver
    yield from _terms(receiver)


def _terms(node: cst.BaseExpression) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, cst.BinaryOperation):
        yield from _terms(node.left)
        if not isinstance(node.operator, cst.Divide):
            yield from _terms(node.right)
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and not node.args:
        yield from _terms(node.func.value) if node.func.attr.value in ("mean", "sum") else ()


def _is_remainder(node: cst.BaseExpression) -> bool:
    is_modulo = isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Modulo)
    return is_modulo and isinstance(node, cst.BinaryOperation) and literal(node.right) != 1


def _is_one_step(node: cst.BaseExpression) -> bool:
    """`step == last`: true at a step or two."""
    return (
        isinstance(node, cst.Comparison)
        and len(node.comparisons) == 1
        and isinstance(node.comparisons[0].operator, cst.Equal)
    )

"""Gradient accumulation loops around a DDP model, as far as the text surely tells."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from infrarsi.workspace.recipes.base import Declined
from infrarsi.workspace.recipes.source import Source, dotted, literal
from infrarsi.workspace.recipes.steady_graph import backward_calls

_NO_LOOP = "no loop that accumulates gradients over micro-steps is seen"


@dataclass(frozen=True)
class Accumulation:
    """One micro-step: from the forward (`first`) to the backward statement (`last`).

    `model` is the DDP model's name there, `more_follow` a condition that is true in every
    micro-step but the last of an update, `outer_indent` the indentation of the loop's own line.
    """

    first: cst.CSTNode
    last: cst.CSTNode
    model: str
    more_follow: str
    outer_indent: str


def accumulations(
    sources: Sequence[Source], source: Source, wrapper: cst.Call
) -> list[Accumulation] | Declined:
    """The accumulation loop that trains the wrapped model, or why it is not surely one."""
    place = source.where(wrapper)
    model = _bound_name(source, wrapper)
    if isinstance(model, Declined):
        return model
    backwards = [(s, c) for s in sources for c in backward_calls(s)]
    if len(backwards) != 1:
        where = f"{backwards[1][0].where(backwards[1][1])}: " if backwards else f"{place}: "
        return Declined(f"{where}the job has {len(backwards)} backward passes, not one")
    where_, backward = backwards[0]
    if where_ is not source or source.function(backward) is not source.function(wrapper):
        return Declined(
            f"{where_.where(backward)}: the loop does not see `{model.value}` being wrapped"
        )
    loop = source.enclosing(backward, cst.For, cst.While, cst.FunctionDef)
    last = source.statement(backward)
    if not isinstance(loop, cst.For) or not _is_direct(loop, last):
        return Declined(f"{source.where(backward)}: {_NO_LOOP}")
    first = _forward(source, loop, last, model)
    if isinstance(first, Declined):
        return first
    reason = _interferes(source, loop, first, last)
    if reason is not None:
        return Declined(reason)
    follow = _micro_range(source, loop) or _modulo(source, loop, last)
    if isinstance(follow, Declined):
        return follow
    found = Accumulation(first, last, model.value, follow, source.indent(loop))
    return [found]


def _bound_name(source: Source, wrapper: cst.Call) -> cst.Name | Declined:
    """The name that surely holds the wrapped model from its wrapping on."""
    assign = source.parent(wrapper)
    place = source.where(wrapper)
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1:
        return Declined(f"{place}: the wrapped model is not assigned to one name")
    target = assign.targets[0].target
    if not isinstance(target, cst.Name):
        return Declined(f"{place}: the wrapped model is not assigned to one name")
    around = source.enclosing(assign, cst.If, cst.FunctionDef, cst.Try, cst.For, cst.With)
    if isinstance(around, cst.If | cst.Try | cst.For) and not _is_main(source, around):
        return Declined(f"{place}: `{target.value}` is wrapped only sometimes")
    for node in source.assignments(target):
        if source.line(node) > source.line(wrapper):
            return Declined(f"{source.where(node)}: `{target.value}` is bound again after DDP")
    return target


def _is_main(source: Source, node: cst.CSTNode) -> bool:
    return isinstance(node, cst.If) and "__main__" in source.code(node.test)


def _is_direct(loop: cst.For, statement: cst.CSTNode) -> bool:
    return any(statement is s for s in loop.body.body)


def _forward(
    source: Source, loop: cst.For, last: cst.CSTNode, model: cst.Name
) -> cst.CSTNode | Declined:
    """The statement of the loop's body that holds the only call of the model."""
    calls = [
        c
        for c in source.nodes(cst.Call, loop)
        if isinstance(c.func, cst.Name) and c.func.value == model.value
    ]
    if len(calls) != 1:
        where = source.where(calls[1] if calls else loop)
        return Declined(
            f"{where}: the model is called {len(calls)} times in a micro-step, not once"
        )
    for statement in loop.body.body:
        holds = calls[0] in source.nodes(cst.Call, statement)
        if holds and source.line(statement) <= source.line(last):
            return statement
    return Declined(f"{source.where(calls[0])}: the model is called after the backward pass")


def _interferes(source: Source, loop: cst.For, first: cst.CSTNode, last: cst.CSTNode) -> str | None:
    """Anything in the loop that looks at gradients or leaves it early."""
    for node in source.nodes(cst.Attribute, loop):
        looks = node.attr.value == "grad" or node.attr.value.startswith("clip_grad")
        if looks and not _in_update(source, node, loop):
            return f"{source.where(node)}: gradients are used between micro-steps"
    for kind in (cst.Continue, cst.Break, cst.Return):
        for leave in source.nodes(kind, loop):
            return f"{source.where(leave)}: the loop may be left before the last micro-step"
    body = list(loop.body.body)
    between = body[body.index(first) : body.index(last) + 1]
    for statement in between:
        if isinstance(statement, cst.If | cst.Try | cst.For | cst.While | cst.FunctionDef):
            return f"{source.where(statement)}: what happens in a micro-step is not always the same"
        if "\n" in _strings(source, statement):
            return f"{source.where(statement)}: it holds a text of several lines"
    return None


def _strings(source: Source, statement: cst.CSTNode) -> str:
    kinds = (cst.SimpleString, cst.FormattedString)
    return "".join(source.code(n) for kind in kinds for n in source.nodes(kind, statement))


def _in_update(source: Source, node: cst.CSTNode, loop: cst.For) -> bool:
    """Whether a node is in a branch of the loop that ends an update (it steps the optimizer)."""
    branch = source.enclosing(node, cst.If, cst.For)
    return isinstance(branch, cst.If) and bool(_steps(source, branch.body))


def _steps(source: Source, under: cst.CSTNode) -> list[cst.Call]:
    return [
        c
        for c in source.method_calls("step", under=under)
        if isinstance(c.func, cst.Attribute) and _is_optimizer(dotted(c.func.value))
    ]


def _is_optimizer(name: str) -> bool:
    return re.search(r"(?i)(optim|opt|scaler)[a-z]*$", name.split(".")[-1]) is not None


def _micro_range(source: Source, loop: cst.For) -> str | None:
    """`for micro in range(n)` without a step in it: true before its last round."""
    iterable = loop.iter
    if not (isinstance(iterable, cst.Call) and source.qualified(iterable.func) == "range"):
        return None
    if len(iterable.args) != 1 or not isinstance(loop.target, cst.Name):
        return None
    if _steps(source, loop) or not _steps_after(source, loop):
        return None
    count, name = iterable.args[0].value, loop.target.value
    if isinstance(literal(count), int):
        return None if literal(count) == 1 else f"{name} < {int(str(literal(count))) - 1}"
    if not dotted(count) or name == "_" or _is_bound_in(source, loop, dotted(count), name):
        return None
    return f"{name} < {dotted(count)} - 1"


def _steps_after(source: Source, loop: cst.For) -> bool:
    """Whether the optimizer steps later in the block of the loop, once."""
    block = source.parent(loop)
    if not isinstance(block, cst.IndentedBlock | cst.Module):
        return False
    after = list(block.body)
    after = after[after.index(loop) + 1 :]
    return len([c for s in after for c in _steps(source, s)]) == 1


def _is_bound_in(source: Source, loop: cst.For, *names: str) -> bool:
    """Whether the loop's body assigns one of the names (or what their first part names)."""
    roots = {n.split(".")[0] for n in names} | set(names)
    targets = [t.target for t in source.nodes(cst.AssignTarget, loop.body)]
    targets += [t.target for t in source.nodes(cst.AugAssign, loop.body)]
    targets += [t.target for t in source.nodes(cst.For, loop.body)]
    return any(name.value in roots for target in targets for name in source.nodes(cst.Name, target))


def _modulo(source: Source, loop: cst.For, last: cst.CSTNode) -> str | Declined:
    """`if (i + 1) % n == 0: optimizer.step()` in the loop: true where it does not hold."""
    place = source.where(last)
    if not _steps(source, loop):
        return Declined(f"{place}: {_NO_LOOP}")
    function = source.function(loop)
    steps = _steps(source, function or source.module)
    body = list(loop.body.body)
    after = body[body.index(last) + 1 :]
    updates = [s for s in after if isinstance(s, cst.If) and _steps(source, s.body)]
    if len(updates) != 1 or len(steps) != 1 or updates[0].orelse is not None:
        return Declined(f"{place}: {_NO_LOOP}")
    test = updates[0].test
    names = [n.value for n in source.nodes(cst.Name, test)]
    calls = [source.qualified(c.func) for c in source.nodes(cst.Call, test)]
    if "%" not in source.code(test) or _is_bound_in(source, loop, *names):
        return Declined(f"{source.where(updates[0])}: when an update ends is not known before it")
    if any(name != "len" for name in calls):
        return Declined(f"{source.where(updates[0])}: when an update ends is not known before it")
    if _is_plain(test):
        return f"not ({' '.join(source.code(test).split())})"
    return Declined(f"{source.where(updates[0])}: when an update ends is not known before it")


def _is_plain(test: cst.BaseExpression) -> bool:
    """Whether a test has no assignment expression, await or yield in it."""
    code = cst.Module(()).code_for_node(test)
    return not any(word in code for word in (":=", "await ", "yield", "lambda"))

"""Which assignment a name has at a point of a function, where that can be told from the text.

Only straight lines are followed: a name that a branch, a loop or an in-place operation in between
may have changed is `UNKNOWN`, never guessed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import libcst as cst

from infrarsi.workspace.recipes.source import Source, dotted, literal, walk

_TARGETED = (
    cst.AssignTarget,
    cst.AnnAssign,
    cst.AugAssign,
    cst.NamedExpr,
    cst.For,
    cst.CompFor,
    cst.Del,
)
Statement: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement


class BindingKind(StrEnum):
    """How a name got its value."""

    ASSIGN = "assign"  # name = value
    AUGMENT = "augment"  # name *= value
    INPLACE = "inplace"  # name.method_(...), as a statement of its own; value is the call
    UNPACK = "unpack"  # first, name = value
    PARAMETER = "parameter"  # of the function
    FREE = "free"  # not bound in the function
    UNKNOWN = "unknown"  # bound on some paths, or in a way that is not followed


@dataclass(frozen=True)
class Binding:
    """The last binding of a name before a point; `index` counts the targets of an UNPACK."""

    kind: BindingKind
    statement: Statement | None = None
    value: cst.BaseExpression | None = None
    index: int = 0


class Flow:
    """The straight-line view of one function."""

    def __init__(self, source: Source, function: cst.FunctionDef) -> None:
        self.source = source
        self.function = function

    def reaching(self, name: str, at: cst.CSTNode) -> Binding:
        """The binding of `name` that the code at `at` sees (its own statement left out)."""
        statement: cst.CSTNode = self.source.statement(at)
        while statement is not self.function:
            for before in reversed(self._before(statement)):
                if name in bound_names(before):
                    return _binding(name, before)
            above = self._above(statement)
            if isinstance(above, cst.For | cst.While) and name in bound_names(above):
                return Binding(BindingKind.UNKNOWN, above)
            if isinstance(above, cst.With) and name in bound_names(above, body=False):
                return Binding(BindingKind.UNKNOWN, above)
            if above is None:
                break
            statement = above
        if name in parameter_names(self.function):
            return Binding(BindingKind.PARAMETER)
        if any(name in bound_names(s) for s in self.function.body.body):
            return Binding(BindingKind.UNKNOWN)
        return Binding(BindingKind.FREE)

    def block(self, statement: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """The statements of the block that a statement is in."""
        parent = self.source.parent(statement)
        if isinstance(parent, cst.IndentedBlock | cst.Module):
            return parent.body
        return (statement,)

    def _before(self, statement: cst.CSTNode) -> Sequence[cst.CSTNode]:
        block = list(self.block(statement))
        return block[: block.index(statement)]

    def _above(self, statement: cst.CSTNode) -> cst.BaseCompoundStatement | None:
        above = (a for a in self.source.ancestors(statement))
        return next((a for a in above if isinstance(a, cst.BaseCompoundStatement)), None)

    def in_loop(self, node: cst.CSTNode) -> bool:
        """Whether a loop of the function is around the node."""
        for above in self.source.ancestors(node):
            if above is self.function:
                return False
            if isinstance(above, cst.For | cst.While):
                return True
        return False

    def occurrences(self, name: str) -> list[cst.Name]:
        """Every place in the function's body that writes or reads the name, in text order."""
        return [
            node
            for node in walk(self.function.body)
            if isinstance(node, cst.Name) and node.value == name and self._is_variable(node)
        ]

    def _is_variable(self, node: cst.Name) -> bool:
        parent = self.source.parent(node)
        if isinstance(parent, cst.Attribute):
            return parent.value is node
        return not (isinstance(parent, cst.Arg) and parent.keyword is node)


def parameter_names(function: cst.FunctionDef | cst.Lambda) -> list[str]:
    """The names of all parameters, in order."""
    params = function.params
    plain = [*params.posonly_params, *params.params, *params.kwonly_params]
    stars = [p for p in (params.star_arg, params.star_kwarg) if isinstance(p, cst.Param)]
    return [p.name.value for p in [*plain, *stars]]


def bound_names(node: cst.CSTNode, *, body: bool = True) -> set[str]:
    """Names that a statement may bind or change in place, nested statements included.

    With `body` False, only what a `with` header binds.
    """
    if isinstance(node, cst.With) and not body:
        return {name for item in node.items for name in bound_names(item)}
    return {name for part in walk(node) for name in _bound_here(part)}


def _bound_here(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, _TARGETED):
        yield from _targets(node.target)
    elif isinstance(node, cst.AsName):
        yield from _targets(node.name)
    elif isinstance(node, cst.FunctionDef | cst.ClassDef):
        yield node.name.value
    elif isinstance(node, cst.ImportAlias) and node.asname is None:
        yield dotted(node.name).split(".")[0]
    elif isinstance(node, cst.Global | cst.Nonlocal):
        yield from (item.name.value for item in node.names)
    elif isinstance(node, cst.Call):
        yield from _changed_in_place(node)


def _changed_in_place(call: cst.Call) -> Iterator[str]:
    method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    if method.endswith("_") and not method.endswith("__") and isinstance(call.func, cst.Attribute):
        yield from _targets(call.func.value)
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == "out":
            yield from _targets(arg.value)


def _targets(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Name):
        yield node.value
    elif isinstance(node, cst.Tuple | cst.List):
        for element in node.elements:
            yield from _targets(element.value)
    elif isinstance(node, cst.Subscript | cst.Attribute | cst.StarredElement):
        yield from _targets(node.value)
    elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        yield from _targets(node.func.value)


def _binding(name: str, statement: cst.CSTNode) -> Binding:
    unknown = Binding(
        BindingKind.UNKNOWN,
        statement if isinstance(statement, cst.BaseCompoundStatement) else None,
    )
    if not isinstance(statement, cst.SimpleStatementLine):
        return unknown
    unknown = Binding(BindingKind.UNKNOWN, statement)
    if len(statement.body) != 1:
        return unknown
    small = statement.body[0]
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        return _assigned(name, small.targets[0].target, small.value, statement) or unknown
    if isinstance(small, cst.AnnAssign) and small.value is not None:
        return _assigned(name, small.target, small.value, statement) or unknown
    if isinstance(small, cst.AugAssign) and dotted(small.target) == name:
        return Binding(BindingKind.AUGMENT, statement, small.value)
    if isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
        func = small.value.func
        if isinstance(func, cst.Attribute) and dotted(func.value) == name:
            return Binding(BindingKind.INPLACE, statement, small.value)
    return unknown


def _assigned(
    name: str, target: cst.CSTNode, value: cst.BaseExpression, statement: Statement
) -> Binding | None:
    if isinstance(target, cst.Name) and target.value == name:
        return Binding(BindingKind.ASSIGN, statement, value)
    if isinstance(target, cst.Tuple | cst.List):
        names = [dotted(element.value) for element in target.elements]
        starred = any(isinstance(e, cst.StarredElement) for e in target.elements)
        if names.count(name) == 1 and not starred:
            return _unpacked(names.index(name), len(names), value, statement)
    return None


def _unpacked(index: int, count: int, value: cst.BaseExpression, statement: Statement) -> Binding:
    """`a, b = x, y` assigns each by itself where neither side reads what the other binds."""
    if isinstance(value, cst.Tuple) and len(value.elements) == count:
        return Binding(BindingKind.UNPACK, statement, value.elements[index].value, -1)
    return Binding(BindingKind.UNPACK, statement, value, index)


@dataclass(frozen=True)
class ClassAttribute:
    """What `self.name` of a class is: the expression that the only binding gives it, and where."""

    value: cst.BaseExpression
    method: cst.FunctionDef
    is_buffer: bool


def class_attribute(
    sources: Sequence[Source], source: Source, owner: cst.ClassDef, name: str
) -> ClassAttribute | None:
    """The only thing that `self.name` can be, or None.

    None where the class binds it more than once, conditionally, or in another method than
    `__init__`, and where any file binds an attribute of that name on something else than `self`.
    """
    found: list[ClassAttribute] = []
    writes = [
        node
        for node in walk(owner)
        if isinstance(node, cst.Attribute)
        and dotted(node) == f"self.{name}"
        and _is_written(source, node)
    ]
    for node in walk(owner):
        value = _self_binding(source, node, name)
        if value is None:
            continue
        method = source.function(node)
        plain = method is not None and source.parent(source.statement(node)) is method.body
        if method is None or method.name.value != "__init__" or not plain:
            return None
        is_buffer = isinstance(node, cst.Call)
        found.append(ClassAttribute(value, method, is_buffer))
    if len(found) != 1 or len(writes) > (0 if found[0].is_buffer else 1):
        return None
    return None if _bound_elsewhere(sources, owner, name) else found[0]


def _self_binding(source: Source, node: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    if isinstance(node, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
        if dotted(node.target) != f"self.{name}":
            return None
        assign = source.parent(node) if isinstance(node, cst.AssignTarget) else node
        if isinstance(assign, cst.Assign) and len(assign.targets) == 1:
            return assign.value
        if isinstance(assign, cst.AnnAssign) and assign.value is not None:
            return assign.value
        return cst.Name("None")  # bound in a way that is not followed; the caller sees a surplus
    if isinstance(node, cst.Call) and dotted(node.func) == "self.register_buffer":
        args = {a.keyword.value if a.keyword else str(i): a.value for i, a in enumerate(node.args)}
        if literal(args.get("name", args.get("0"))) == name:
            return args.get("tensor", args.get("1"))
    return None


def _bound_elsewhere(sources: Sequence[Source], owner: cst.ClassDef, name: str) -> bool:
    derived = {owner.name.value}
    classes = [c for s in sources for c in s.nodes(cst.ClassDef)]
    for _ in classes:
        derived |= {
            c.name.value
            for c in classes
            if any(dotted(base.value).split(".")[-1] in derived for base in c.bases)
        }
    for source in sources:
        for target in source.nodes(cst.Attribute):
            if target.attr.value != name or not _is_written(source, target):
                continue
            around = source.enclosing(target, cst.ClassDef)
            if dotted(target.value) != "self" or around is None:
                return True
            if around is not owner and around.name.value in derived:
                return True
    return False


def _is_written(source: Source, node: cst.Attribute) -> bool:
    above: cst.CSTNode | None = source.parent(node)
    inner: cst.CSTNode = node
    while isinstance(above, cst.Subscript) and above.value is inner:
        inner, above = above, source.parent(above)
    if isinstance(above, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
        return above.target is inner
    if isinstance(above, cst.Element):
        tuple_ = source.parent(above)
        return isinstance(source.parent(tuple_), cst.AssignTarget) if tuple_ else False
    if isinstance(above, cst.Attribute) and above.value is inner:
        return _is_inplace(above.attr.value)
    if isinstance(above, cst.Arg):
        call = source.parent(above)
        return isinstance(call, cst.Call) and _is_inplace(dotted(call.func))
    return False


def _is_inplace(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")

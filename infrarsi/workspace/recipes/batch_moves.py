"""Where batches of a DataLoader move to a device, as far as the text surely tells."""

import re
from collections.abc import Sequence

import libcst as cst

from infrarsi.workspace.recipes.base import Declined
from infrarsi.workspace.recipes.source import Source, argument, dotted, is_starred, literal

Move = tuple[Source, cst.Call, str]
_LOADER = re.compile(r"(?i)(loader|dataloader|(^|_)dl)$")
_BATCHES = re.compile(r"(?i)(loader|batch(es)?|data_?iter|iterator|(^|_)(dl|it))$")
_DEVICE = re.compile(
    r"(?i)^(self\.|args\.|cfg\.|config\.)?(device|dev|gpu|local_rank|rank|gpu_id)$"
)
_IN_PLACE = re.compile(r"[a-z]_$")


def moves(sources: Sequence[Source]) -> list[Move] | Declined:
    """Calls that move a training batch to a device, with the keyword that each needs.

    Declines where a batch is changed in place on the host, since the copy may still be reading it,
    and where no move is seen.
    """
    found: list[Move] = []
    already = ""
    for source in sources:
        for names, body in _batches(source):
            for call in _moving(source, body, names):
                if argument(call, "non_blocking") is not None:
                    already = f"{source.where(call)}: the copy already chooses `non_blocking`"
                    continue
                reason = _changed_in_place(source, body, names)
                if reason is not None:
                    return Declined(reason)
                if (source, call, "non_blocking=True") not in found:
                    found.append((source, call, "non_blocking=True"))
    if not found and not already:
        where = f"{sources[0].path}:1: " if sources else ""
        return Declined(f"{where}no training batch is seen to move to a device")
    return found


def _batches(source: Source) -> list[tuple[set[str], cst.CSTNode]]:
    """Names that hold a batch, with the code in which they do."""
    found: list[tuple[set[str], cst.CSTNode]] = []
    for loop in source.nodes(cst.For):
        iterable: cst.BaseExpression = loop.iter
        target: cst.BaseExpression = loop.target
        while isinstance(iterable, cst.Call) and iterable.args:
            called = source.code(iterable.func).split(".")[-1]
            if called == "enumerate" and isinstance(target, cst.Tuple) and len(target.elements) > 1:
                target = target.elements[1].value
            elif called not in ("tqdm", "iter", "progress"):
                break
            iterable = iterable.args[0].value
        name = dotted(iterable).split(".")[-1]
        if _LOADER.search(name) and not _evaluates(source, loop, name):
            found.append((_names(target), loop.body))
    for assign in source.nodes(cst.Assign):
        value = assign.value
        if not (isinstance(value, cst.Call) and source.qualified(value.func) == "next"):
            continue
        name = dotted(value.args[0].value).split(".")[-1] if value.args else ""
        block = source.enclosing(assign, cst.IndentedBlock)
        if _BATCHES.search(name) and block is not None and not _evaluates(source, assign, name):
            names = set().union(*(_names(t.target) for t in assign.targets))
            found.append((names, block))
    return found


def _evaluates(source: Source, node: cst.CSTNode, name: str) -> bool:
    """Whether a loop is part of evaluation by the name of its loader or its function."""
    function = source.function(node)
    names = [name, function.name.value if function is not None else ""]
    return any(re.search(r"(?i)(^|_)(val|valid\w*|test|eval\w*|dev)(_|$)", n) for n in names)


def _names(target: cst.BaseExpression) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, cst.Tuple | cst.List):
        return set().union(*(_names(e.value) for e in target.elements))
    return set()


def _moving(source: Source, body: cst.CSTNode, names: set[str]) -> list[cst.Call]:
    """`x.to(device)` and `x.cuda()` of a batch, one of its parts, or each of them in turn."""
    found = []
    for call in source.method_calls("to", "cuda", under=body):
        assert isinstance(call.func, cst.Attribute)
        if is_starred(call) or not _is_part(source, call.func.value, names, call):
            continue
        if call.func.attr.value == "cuda" or _is_device(source, argument(call, "device", 0)):
            found.append(call)
    return found


def _is_part(source: Source, node: cst.BaseExpression, names: set[str], call: cst.Call) -> bool:
    if isinstance(node, cst.Subscript):
        return _is_part(source, node.value, names, call)
    if not isinstance(node, cst.Name):
        return False
    if node.value in names:
        return True
    comprehension = source.enclosing(
        call, cst.DictComp, cst.ListComp, cst.GeneratorExp, cst.SetComp
    )
    if comprehension is None or node.value not in _names_of_for(comprehension.for_in):
        return False
    over = source.code(comprehension.for_in.iter)
    return re.split(r"[.(\[]", over)[0] in names or bool(set(re.findall(r"\w+", over)) <= names)


def _names_of_for(clause: cst.CompFor) -> set[str]:
    return _names(clause.target)


def _is_device(source: Source, node: cst.BaseExpression | None) -> bool:
    if node is None:
        return False
    value = literal(node)
    if isinstance(value, str):
        return value.startswith("cuda")
    if isinstance(node, cst.FormattedString):
        return source.code(node)[2:].startswith("cuda")
    return _DEVICE.match(source.code(node)) is not None


def _changed_in_place(source: Source, body: cst.CSTNode, names: set[str]) -> str | None:
    places: list[cst.CSTNode] = []
    for call in source.method_calls(*_in_place_methods(source, body), under=body):
        if isinstance(call.func, cst.Attribute) and _root(source, call.func.value) in names:
            places.append(call)
    for changed in source.nodes(cst.AugAssign, body):
        if _root(source, changed.target) in names:
            places.append(changed)
    for target in source.nodes(cst.AssignTarget, body):
        is_part = isinstance(target.target, cst.Subscript)
        if is_part and _root(source, target.target) in names and not _replaces_part(source, target):
            places.append(target)
    if not places:
        return None
    return f"{source.where(places[0])}: the batch is changed in place while it is copied"


def _root(source: Source, node: cst.CSTNode) -> str:
    """The name in front of subscripts and attributes."""
    return re.split(r"[.\[]", source.code(node))[0]


def _in_place_methods(source: Source, body: cst.CSTNode) -> set[str]:
    return {
        a.attr.value for a in source.nodes(cst.Attribute, body) if _IN_PLACE.search(a.attr.value)
    }


def _replaces_part(source: Source, target: cst.CSTNode) -> bool:
    """`batch["x"] = batch["x"].to(device)` changes the container, not the tensor."""
    assign = source.parent(target)
    if not isinstance(assign, cst.Assign) or not isinstance(assign.value, cst.Call):
        return False
    func = assign.value.func
    return (
        isinstance(func, cst.Attribute)
        and func.attr.value in ("to", "cuda")
        and isinstance(target, cst.AssignTarget)
        and source.code(func.value) == source.code(target.target)
    )

"""Which variable of the job holds the trained model, where its module is made."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from infrarsi.workspace.recipes.host_sync_loop import TrainingLoop
from infrarsi.workspace.recipes.source import Source, argument, dotted, is_starred, walk
from infrarsi.workspace.recipes.source_flow import parameter_names

DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
_CONTAINERS = ("torch.nn.Sequential",)
_FACTORIES = ("torchvision.models.", "timm.create_model", "timm.models.create_model")
_MOVES = ("to", "cuda", "cpu", "train", "float", "half", "bfloat16", "double", "requires_grad_")


class Unfit(Exception):
    """Why no model can be compiled; a sentence with its place."""


@dataclass(frozen=True)
class Made:
    """A model variable: the statement that makes the module, and the classes it is of."""

    source: Source
    name: str
    statement: cst.SimpleStatementLine
    kind: str  # the class or factory as the code spells it
    class_def: cst.ClassDef | None
    is_wrapped: bool  # the same statement wraps it in DistributedDataParallel


class Modules:
    """The nn.Module classes of the editable files, by name."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = sources
        self.classes: dict[str, list[tuple[Source, cst.ClassDef]]] = {}
        found = [(s, c) for s in sources for c in s.nodes(cst.ClassDef)]
        for _ in range(len(found) + 1):
            before = sum(map(len, self.classes.values()))
            for source, owner in found:
                is_known = (source, owner) in self.classes.get(owner.name.value, [])
                if not is_known and any(self._is_module(source, b.value) for b in owner.bases):
                    self.classes.setdefault(owner.name.value, []).append((source, owner))
            if sum(map(len, self.classes.values())) == before:
                break

    def _is_module(self, source: Source, base: cst.BaseExpression) -> bool:
        qualified = source.qualified(base) or ""
        if qualified.startswith("torch.nn."):
            return True
        return dotted(base).split(".")[-1] in self.classes

    def made_by(self, source: Source, call: cst.Call) -> tuple[str, cst.ClassDef | None] | None:
        """The class of a constructor call, None where the call makes no known module."""
        spelled = dotted(call.func)
        known = self.classes.get(spelled.split(".")[-1], [])
        if spelled.endswith(("Loss", "loss", "Criterion")):
            return None
        if len(known) == 1:
            return spelled, known[0][1]
        qualified = source.qualified(call.func) or ""
        if qualified in _CONTAINERS or qualified.startswith(_FACTORIES):
            return spelled, None
        return None


def trained_model(
    sources: Sequence[Source], loop: TrainingLoop, modules: Modules
) -> tuple[Source, cst.FunctionDef | None, str]:
    """File, function (None: the module level) and name of the model that the loop calls.

    Raises Unfit where none or more than one fits, or where it is not called as a function.
    """
    source, function = loop.source, loop.flow.function
    called = _called_names(source, loop)
    models: list[tuple[Source, cst.FunctionDef | None, str]] = []
    for name in called:
        holders = list(_holders(sources, source, function, name, 0))
        models += [h for h in holders if list(_makings(*h, modules))]
    unique = list(dict.fromkeys(models))
    where = source.where(loop.loop)
    if not unique:
        raise Unfit(f"{where}: the loop calls no model whose construction is in the editable files")
    if len(unique) > 1:
        names = " and ".join(f"`{name}`" for _, _, name in unique)
        raise Unfit(f"{where}: the loop calls several models, {names}")
    for name in called:
        _check_methods(source, loop, name)
    return unique[0]


def made(holder: tuple[Source, cst.FunctionDef | None, str], modules: Modules) -> Made:
    """Where the model is made; raises Unfit where it is bound in a way that is not followed."""
    source, function, name = holder
    makings = list(_makings(source, function, name, modules))
    if len(makings) != 1:
        lines = ", ".join(source.where(m.statement) for m in makings)
        raise Unfit(f"{lines}: `{name}` is made in {len(makings)} places")
    for statement, value in _bindings(source, function, name):
        if statement is makings[0].statement or _keeps(source, value, name):
            continue
        text = " ".join(source.code(value).split())[:60]
        raise Unfit(f"{source.where(statement)}: `{name}` is rebound to `{text}`")
    return makings[0]


def _called_names(source: Source, loop: TrainingLoop) -> list[str]:
    found = [
        dotted(call.func)
        for call in source.nodes(cst.Call, loop.loop)
        if isinstance(call.func, cst.Name) and source.qualified(call.func) is None
    ]
    return list(dict.fromkeys(found))


def _check_methods(source: Source, loop: TrainingLoop, name: str) -> None:
    harmless = {"parameters", "named_parameters", "train", "eval", "no_sync", "zero_grad"}
    harmless |= {"state_dict", "modules", "clip_grad_norm_", "module", "require_backward_grad_sync"}
    for call in source.nodes(cst.Call, loop.loop):
        parts = dotted(call.func).split(".")
        if parts[0] != name or len(parts) < 2:
            continue
        method = next((p for p in parts[1:] if p != "module"), "module")
        if method not in harmless and loop.at_every_step(call):
            raise Unfit(f"{source.where(call)}: the model is used through `{dotted(call.func)}`")


def _holders(
    sources: Sequence[Source],
    source: Source,
    function: cst.FunctionDef,
    name: str,
    depth: int,
) -> Iterator[tuple[Source, cst.FunctionDef | None, str]]:
    """Where the value of a name comes from: the function itself, its callers, or the module."""
    bound = list(_bindings(source, function, name))
    if bound:
        yield source, function, name
    elif name not in parameter_names(function):
        if list(_bindings(source, None, name)):
            yield source, None, name
    elif depth < 3:
        for caller in sources:
            for call in caller.nodes(cst.Call):
                if dotted(call.func).split(".")[-1] != function.name.value or is_starred(call):
                    continue
                position = parameter_names(function).index(name)
                given = argument(call, name, position)
                if not isinstance(given, cst.Name):
                    continue
                outer = caller.function(call)
                if outer is not None:
                    yield from _holders(sources, caller, outer, given.value, depth + 1)
                elif list(_bindings(caller, None, given.value)):
                    yield caller, None, given.value


def _bindings(
    source: Source, function: cst.FunctionDef | None, name: str
) -> Iterator[tuple[cst.SimpleStatementLine, cst.BaseExpression]]:
    """Statements of a function (or of the module level) that assign to the name, with the value."""
    for node in walk(function.body if function else source.module):
        if not isinstance(node, cst.Assign | cst.AnnAssign) or node.value is None:
            continue
        targets = node.targets if isinstance(node, cst.Assign) else [node]
        names = {n.value for t in targets for n in walk(t.target) if isinstance(n, cst.Name)}
        statement = source.statement(node)
        is_plain = not any(isinstance(t.target, cst.Attribute | cst.Subscript) for t in targets)
        is_here = name in names and source.function(node) is function
        if is_here and is_plain and isinstance(statement, cst.SimpleStatementLine):
            yield statement, node.value


def _makings(
    source: Source, function: cst.FunctionDef | None, name: str, modules: Modules
) -> Iterator[Made]:
    for statement, value in _bindings(source, function, name):
        inner, is_wrapped = _unwrapped(source, value)
        if not isinstance(inner, cst.Call):
            continue
        kind = modules.made_by(source, inner)
        if kind is not None:
            yield Made(source, name, statement, kind[0], kind[1], is_wrapped)


def _unwrapped(source: Source, value: cst.BaseExpression) -> tuple[cst.BaseExpression, bool]:
    """`GPT(...)` of `DDP(GPT(...).to(device))`, and whether DDP is around it."""
    is_wrapped = False
    while isinstance(value, cst.Call):
        if source.qualified(value.func) in DDP and value.args:
            is_wrapped, value = True, value.args[0].value
        elif isinstance(value.func, cst.Attribute) and value.func.attr.value in _MOVES:
            value = value.func.value
        else:
            break
    return value, is_wrapped


def _keeps(source: Source, value: cst.BaseExpression, name: str) -> bool:
    """Whether an assignment only moves or wraps what the name holds."""
    inner, _ = _unwrapped(source, value)
    return isinstance(inner, cst.Name) and inner.value == name


def methods(owner: cst.ClassDef) -> Mapping[str, cst.FunctionDef]:
    """The methods of a class by name."""
    body = owner.body.body if isinstance(owner.body, cst.IndentedBlock) else ()
    return {s.name.value: s for s in body if isinstance(s, cst.FunctionDef)}

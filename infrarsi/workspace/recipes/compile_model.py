"""The trained model is compiled in place, right after it is made."""

import re
from collections.abc import Mapping, Sequence

import libcst as cst

from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.compile_model_search import (
    DDP,
    Made,
    Modules,
    Unfit,
    made,
    methods,
    trained_model,
)
from infrarsi.workspace.recipes.host_sync_loop import training_loops
from infrarsi.workspace.recipes.source import (
    Source,
    argument,
    dotted,
    literal,
    parse_all,
    rewritten,
    walk,
)

_FOREIGN = (
    ("torch.jit.", "is scripted or traced"),
    ("torch.fx.", "is traced"),
    ("torch.func.", "is transformed by torch.func"),
    ("functorch.", "is transformed by functorch"),
    ("torch.cuda.make_graphed_callables", "runs as a CUDA graph"),
    ("torch.cuda.graph", "runs as a CUDA graph"),
    ("torch.cuda.CUDAGraph", "runs as a CUDA graph"),
    ("torch.distributed.fsdp.", "is wrapped by FSDP"),
    ("torch.distributed._composable.", "is wrapped by FSDP"),
    ("torch.distributed.pipelining.", "runs as a pipeline"),
    ("torch.nn.DataParallel", "is wrapped by DataParallel"),
    ("torch.nn.parallel.DataParallel", "is wrapped by DataParallel"),
    ("deepspeed.", "is wrapped by DeepSpeed"),
    ("accelerate.", "is wrapped by Accelerate"),
    ("lightning.", "is run by Lightning"),
    ("pytorch_lightning.", "is run by Lightning"),
    ("transformers.Trainer", "is run by the Transformers Trainer"),
    ("apex.", "is wrapped by apex"),
    ("torch.autograd.functional.", "is differentiated twice"),
)
_BREAKS = {"item", "tolist", "numpy", "cpu", "nonzero", "unique", "masked_select", "register_hook"}
_RANDOM = frozenset(
    f"torch.{name}" for name in ("rand", "randn", "randint", "rand_like", "randn_like", "bernoulli")
) | {"torch.multinomial", "torch.randperm", "torch.normal"}
_HOOK = re.compile(r"register_\w*(forward|backward)\w*hook$")


class CompileModel:
    """Calls `model.compile()` after the model is made, before DistributedDataParallel wraps it.

    `nn.Module.compile` keeps the type of the model and the names in its state dict, so that
    checkpoints go between the changed and the unchanged code. The gradients of a model compiled
    inside DistributedDataParallel arrive together, and their reduction no longer overlaps with
    backward; a trial measures whether that pays.
    """

    name = "compile_model"
    family = "compile"
    title = "the model is compiled in place (`model.compile()`)"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        sources = parse_all(files)
        if isinstance(sources, Declined):
            return sources
        try:
            _check_job(sources)
            found = _find(sources)
            _check_model(sources, found)
        except Unfit as unfit:
            return Declined(str(unfit))
        name = f"{found.name}.module" if found.is_wrapped else found.name
        edit = found.source.insert_after(found.statement, f"{name}.compile()")
        note = f"{found.source.where(found.statement)}: `{found.kind}` is compiled in place"
        text = rewritten(found.source, [edit])
        return text if isinstance(text, Declined) else Applied({found.source.path: text}, (note,))


def _check_job(sources: Sequence[Source]) -> None:
    for source in sources:
        for call in source.nodes(cst.Call):
            _check_call(source, call)
        for decorator in source.nodes(cst.Decorator):
            target = decorator.decorator
            name = source.qualified(target.func if isinstance(target, cst.Call) else target) or ""
            if name == "torch.compile":
                raise Unfit(f"{source.where(decorator)}: already uses torch.compile")
            if name.startswith("torch.jit."):
                raise Unfit(f"{source.where(decorator)}: the model is scripted")


def _check_call(source: Source, call: cst.Call) -> None:
    where = source.where(call)
    name = source.qualified(call.func) or ""
    method = call.func.attr.value if isinstance(call.func, cst.Attribute) else ""
    if name == "torch.compile" or (method == "compile" and not name):
        raise Unfit(f"{where}: already compiles a model")
    for prefix, why in _FOREIGN:
        if name.startswith(prefix) and (prefix.endswith(".") or name == prefix):
            raise Unfit(f"{where}: the model {why}")
    if literal(argument(call, "create_graph") or cst.Name("False")) is not False:
        raise Unfit(f"{where}: the job differentiates twice (`create_graph`)")
    if name == "torch.autograd.grad":
        raise Unfit(f"{where}: gradients are taken by torch.autograd.grad")
    if _HOOK.search(method or name):
        raise Unfit(f"{where}: a hook looks into the model")
    unused = argument(call, "find_unused_parameters")
    if name in DDP and unused is not None and literal(unused) is not False:
        raise Unfit(f"{where}: find_unused_parameters needs the uncompiled graph")


def _find(sources: Sequence[Source]) -> Made:
    modules = Modules(sources)
    loops = [loop for source in sources for loop in training_loops(source)]
    if not loops:
        path = sources[0].path if sources else "no Python file"
        raise Unfit(f"{path}:1: no training loop with `backward()` is in the editable files")
    holders = [trained_model(sources, loop, modules) for loop in loops]
    unique = list(dict.fromkeys(holders))
    if len(unique) > 1:
        places = " and ".join(f"`{name}` in {source.path}" for source, _, name in unique)
        raise Unfit(f"{loops[0].source.where(loops[0].loop)}: several models are trained: {places}")
    return made(unique[0], modules)


def _check_model(sources: Sequence[Source], found: Made) -> None:
    """Nothing in the forward passes breaks the graph or keeps state at every step."""
    modules = Modules(sources)
    if found.class_def is not None:
        for name in ("compile", "__call__", "_call_impl", "__getattr__"):
            if name in methods(found.class_def):
                where = found.source.where(found.statement)
                raise Unfit(f"{where}: `{found.kind}` has its own `{name}`")
    for known in modules.classes.values():
        for source, owner in known:
            for name, method in methods(owner).items():
                if name == "__init__" or name.startswith(("init", "_init", "reset")):
                    continue
                if name == "forward" or _is_called(owner, name):
                    _check_forward(source, owner, method)


def _is_called(owner: cst.ClassDef, name: str) -> bool:
    """Whether `forward` reaches the method through calls of `self`."""
    known = methods(owner)
    reached, frontier = set(), ["forward"]
    while frontier:
        current = frontier.pop()
        if current in reached or current not in known:
            continue
        reached.add(current)
        for node in walk(known[current]):
            if isinstance(node, cst.Call) and dotted(node.func).startswith("self."):
                frontier.append(dotted(node.func).removeprefix("self."))
    return name in reached


def _check_forward(source: Source, owner: cst.ClassDef, method: cst.FunctionDef) -> None:
    place = f"`{owner.name.value}.{method.name.value}`"
    for node in walk(method.body):
        if isinstance(node, cst.Call):
            name = source.qualified(node.func) or ""
            is_tensor_method = isinstance(node.func, cst.Attribute) and not name
            attr = node.func.attr.value if isinstance(node.func, cst.Attribute) else ""
            if is_tensor_method and attr in _BREAKS:
                raise Unfit(f"{source.where(node)}: {place} breaks the graph by `{attr}()`")
            if name in ("print", "torch.nonzero", "torch.unique", "torch.cuda.synchronize"):
                raise Unfit(f"{source.where(node)}: {place} breaks the graph by `{name}()`")
            if name in _RANDOM:
                raise Unfit(f"{source.where(node)}: {place} draws other numbers when compiled")
            if name.startswith(("random.", "numpy.random.", "time.")):
                raise Unfit(f"{source.where(node)}: {place} calls `{name}` at every step")
        elif isinstance(node, cst.AssignTarget | cst.AugAssign):
            target = dotted(node.target)
            if target.startswith("self."):
                raise Unfit(f"{source.where(node)}: {place} changes `{target}` at every step")

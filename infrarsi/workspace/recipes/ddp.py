"""Recipes for DistributedDataParallel: gradients in place, a fixed graph, fewer reductions."""

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from infrarsi.workspace.recipes.accumulation import Accumulation, accumulations
from infrarsi.workspace.recipes.arguments import add_keywords
from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.source import (
    Edit,
    Source,
    argument,
    is_starred,
    literal,
    parse_all,
)
from infrarsi.workspace.recipes.steady_graph import sometimes_without_gradient

DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
_SHARDED = ("FullyShardedDataParallel", "fully_shard", "ZeroRedundancyOptimizer")


@dataclass(frozen=True)
class _Wrapped:
    """The only DDP construction of the job."""

    source: Source
    call: cst.Call


def _only_wrapper(files: Mapping[str, str]) -> tuple[list[Source], _Wrapped] | Declined:
    sources = parse_all(files)
    if isinstance(sources, Declined):
        return sources
    found = [_Wrapped(s, c) for s in sources for c in s.calls(*DDP)]
    if not found:
        return Declined("no torch DistributedDataParallel is constructed in the editable files")
    first = found[0]
    place = first.source.where(first.call)
    if len(found) > 1:
        second = found[1]
        return Declined(
            f"{second.source.where(second.call)}: a second model is wrapped (the first: {place})"
        )
    if is_starred(first.call):
        return Declined(f"{place}: some of its arguments are not seen")
    for source in sources:
        reason = _sharded(source)
        if reason is not None:
            return Declined(reason)
    return sources, first


def _sharded(source: Source) -> str | None:
    for node in [*source.nodes(cst.Import), *source.nodes(cst.ImportFrom)]:
        words = source.code(node).replace(".", " ").replace(",", " ").split()
        if words[1] in ("deepspeed", "apex", "megatron"):
            return f"{source.where(node)}: `{words[1]}` reduces gradients itself"
        for name in _SHARDED:
            if name in words:
                return f"{source.where(node)}: `{name}` reduces gradients in its own way"
    for call in source.method_calls("register_comm_hook"):
        return f"{source.where(call)}: a communication hook reduces gradients in its own way"
    return None


def _asks_unused(wrapped: _Wrapped) -> str | None:
    given = argument(wrapped.call, "find_unused_parameters", 6)
    if given is None or literal(given) is False:
        return None
    return f"{wrapped.source.where(wrapped.call)}: `find_unused_parameters` may be on"


def _add(wrapped: _Wrapped, keyword: str) -> Applied | Declined:
    """Set a DDP flag that the job does not mention."""
    source, call = wrapped.source, wrapped.call
    given = argument(call, keyword)
    if given is not None and literal(given) is True:
        return Declined(f"{source.where(call)}: already passes `{keyword}`")
    if given is not None:
        return Declined(f"{source.where(call)}: `{keyword}` is chosen by the job already")
    text = source.edited(add_keywords(source, call, f"{keyword}=True"))
    return Applied({source.path: text}, (f"{source.where(call)}: DDP gets `{keyword}=True`",))


class GradientAsBucketView:
    """Adds `gradient_as_bucket_view=True`: gradients are views of DDP's buckets, not copies."""

    name = "ddp_gradient_as_bucket_view"
    family = "ddp_gradient_as_bucket_view"
    title = "gradients kept in DDP's buckets"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        found = _only_wrapper(files)
        if isinstance(found, Declined):
            return found
        sources, wrapped = found
        reason = _asks_unused(wrapped)
        if reason is not None:
            return Declined(reason)
        for source in sources:
            reason = _gradient_replaced(source)
            if reason is not None:
                return Declined(reason)
        return _add(wrapped, "gradient_as_bucket_view")


def _gradient_replaced(source: Source) -> str | None:
    """A place that detaches or replaces gradients, which views of buckets do not bear."""
    for attribute in source.nodes(cst.Attribute):
        if attribute.attr.value not in ("grad", "_grad", "main_grad"):
            continue
        if (source.qualified(attribute) or "").startswith("torch."):
            continue
        parent = source.parent(attribute)
        if isinstance(parent, cst.Attribute) and parent.attr.value in ("detach_", "data", "set_"):
            return f"{source.where(attribute)}: `{source.code(parent)}` does not work on a view"
        if isinstance(parent, cst.AssignTarget):
            assign = source.parent(parent)
            if isinstance(assign, cst.Assign) and literal(assign.value) is not None:
                return f"{source.where(attribute)}: a gradient is replaced by another tensor"
        if isinstance(parent, cst.Arg):
            return f"{source.where(attribute)}: a gradient is handed on as a whole"
    return None


class StaticGraph:
    """Adds `static_graph=True`, where nothing says that the graph may change between steps."""

    name = "ddp_static_graph"
    family = "ddp_static_graph"
    title = "DDP told that the graph is static"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        found = _only_wrapper(files)
        if isinstance(found, Declined):
            return found
        sources, wrapped = found
        reason = _asks_unused(wrapped)
        for source in sources:
            reason = reason or _graph_changes(source)
        if reason is not None:
            return Declined(reason)
        return _add(wrapped, "static_graph")


def _graph_changes(source: Source) -> str | None:
    """A sign that backward passes differ from one another, or that another part forbids it."""
    for attribute in source.nodes(cst.Attribute):
        if attribute.attr.value in ("no_sync", "require_backward_grad_sync", "join"):
            text = source.code(attribute)
            if attribute.attr.value != "join" or _is_context(source, attribute):
                return f"{source.where(attribute)}: `{text}` changes how single passes reduce"
    for call in source.nodes(cst.Call):
        name = source.qualified(call.func) or ""
        if name == "torch.compile" or (
            isinstance(call.func, cst.Attribute) and call.func.attr.value == "compile" and not name
        ):
            return f"{source.where(call)}: compiled models split their graph by DDP's buckets"
        if literal(argument(call, "retain_graph")) not in (..., False):
            return f"{source.where(call)}: several backward passes go through one graph"
    for function in source.nodes(cst.FunctionDef):
        backwards = [
            c
            for c in source.method_calls("backward", under=function)
            if source.function(c) is function
        ]
        if len(backwards) > 1 and not _alternatives(source, backwards):
            return f"{source.where(backwards[1])}: there is more than one backward pass"
    return sometimes_without_gradient(source)


def _is_context(source: Source, node: cst.CSTNode) -> bool:
    return source.enclosing(node, cst.WithItem) is not None


def _alternatives(source: Source, calls: list[cst.Call]) -> bool:
    """Whether two backward calls are the two branches of one `if`."""
    if len(calls) != 2:
        return False
    first = source.enclosing(calls[0], cst.If)
    return first is not None and first is source.enclosing(calls[1], cst.If)


class NoSync:
    """Runs the micro-steps before the last one of an update inside `model.no_sync()`."""

    name = "ddp_no_sync"
    family = "ddp_no_sync"
    title = "gradients reduced once an update"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        found = _only_wrapper(files)
        if isinstance(found, Declined):
            return found
        sources, wrapped = found
        reason = _asks_unused(wrapped)
        for source in sources:
            reason = reason or _sync_needed(source)
        if reason is not None:
            return Declined(reason)
        loops = accumulations(sources, wrapped.source, wrapped.call)
        if isinstance(loops, Declined):
            return loops
        return _wrap(wrapped.source, loops)


def _sync_needed(source: Source) -> str | None:
    for attribute in source.nodes(cst.Attribute):
        if attribute.attr.value in ("no_sync", "require_backward_grad_sync"):
            return f"{source.where(attribute)}: `{attribute.attr.value}` is there already"
        if "BatchNorm" in attribute.attr.value:
            return f"{source.where(attribute)}: batch norm buffers are shared at every micro-step"
    for call in source.nodes(cst.Call):
        if literal(argument(call, "static_graph")) is True:
            return f"{source.where(call)}: a static graph counts on every pass to reduce"
        if literal(argument(call, "retain_graph")) not in (..., False):
            return f"{source.where(call)}: several backward passes go through one graph"
    for name in source.nodes(cst.Name):
        if "BatchNorm" in name.value:
            return f"{source.where(name)}: batch norm buffers are shared at every micro-step"
    return None


def _wrap(source: Source, loops: list[Accumulation]) -> Applied | Declined:
    edits: list[Edit | None] = []
    notes = []
    nullcontext = source.reach("contextlib.nullcontext", source.module.body[-1])
    if nullcontext is None:
        edits.append(source.add_import("from contextlib import nullcontext"))
        nullcontext = "nullcontext"
    for loop in loops:
        start = source.text.rfind("\n", 0, source.span(loop.first)[0]) + 1
        end = source.span(loop.last)[1]
        block = source.text[start:end]
        indent = source.indent(loop.first)
        step = "\t" if indent.startswith("\t") else " " * (len(indent) - len(loop.outer_indent))
        head = f"{indent}with {loop.model}.no_sync() if {loop.more_follow} else {nullcontext}():"
        lines = block.split(source.newline)
        body = source.newline.join(step + line if line.strip() else line for line in lines)
        edits.append(Edit(start, end, head + source.newline + body))
        notes.append(f"{source.where(loop.first)}: gradients are reduced once an update")
    return Applied({source.path: source.edited(edits)}, tuple(notes))

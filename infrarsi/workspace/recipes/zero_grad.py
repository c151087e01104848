"""Recipe: gradients are dropped between updates instead of being filled with zeros."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.source import (
    Edit,
    Source,
    argument,
    dotted,
    is_starred,
    literal,
    parse_all,
)
from infrarsi.workspace.recipes.steady_graph import sometimes_without_gradient

_ENGINES = ("deepspeed", "megatron", "apex", "colossalai", "torch_xla")
_STATIC = {
    "torch.cuda.CUDAGraph": "a CUDA graph needs gradients that stay in place",
    "torch.cuda.graph": "a CUDA graph needs gradients that stay in place",
    "torch.cuda.make_graphed_callables": "a CUDA graph needs gradients that stay in place",
    "torch.autograd.grad": "gradients are taken apart by `torch.autograd.grad`",
}


@dataclass(frozen=True)
class _Found:
    edits: tuple[Edit, ...]
    at: cst.CSTNode
    owner: str
    note: str


class ZeroGrad:
    """Turns `zero_grad(set_to_none=False)` and hand-written zeroing into dropped gradients.

    Fits only where every parameter that ever gets a gradient gets one in every update, and where
    nothing else looks at `.grad`: to an optimizer a zero gradient is not the same as none.
    """

    name = "zero_grad"
    family = "zero_grad_mode"
    title = "gradients dropped instead of zeroed"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        sources = parse_all(files)
        if isinstance(sources, Declined):
            return sources
        found = {s.path: _calls(s) + _loops(s) for s in sources}
        if not any(found.values()):
            return Declined(_nothing(sources))
        for source in sources:
            reason = _forbidden(source, found[source.path]) or sometimes_without_gradient(source)
            if reason is not None:
                return Declined(reason)
        owners = {owner for s in sources for owner in _zeroed(s, found[s.path])}
        if len(owners) > 1:
            names = ", ".join(f"`{o}`" for o in sorted(owners))
            first = next((s, f) for s in sources for f in found[s.path])
            return Declined(f"{first[0].where(first[1].at)}: gradients of several owners: {names}")
        changed, notes = {}, []
        for source in sources:
            here = found[source.path]
            if here:
                changed[source.path] = source.edited(e for f in here for e in f.edits)
                notes += [f"{source.where(f.at)}: {f.note}" for f in here]
        return Applied(changed, tuple(notes))


def _calls(source: Source) -> list[_Found]:
    """`x.zero_grad(set_to_none=False)` and `x.zero_grad(False)`."""
    found = []
    for call in source.method_calls("zero_grad"):
        given = argument(call, "set_to_none", 0)
        if given is None or literal(given) is not False or len(call.args) != 1:
            continue
        assert isinstance(call.func, cst.Attribute)
        edit = source.replace(given, "True")
        note = f"`{source.code(call.func)}` drops gradients"
        found.append(_Found((edit,), call, source.code(call.func.value), note))
    return found


def _loops(source: Source) -> list[_Found]:
    """`for p in model.parameters(): p.grad.zero_()` in its usual forms."""
    found = []
    for loop in source.nodes(cst.For):
        owner = _all_parameters(source, loop)
        if owner is None or not isinstance(loop.target, cst.Name) or loop.orelse is not None:
            continue
        name = loop.target.value
        body = list(loop.body.body)
        guard = body[0] if len(body) == 1 else None
        if isinstance(guard, cst.If):
            if not _is_guard(guard, name):
                continue
            body = list(guard.body.body)
        statements = [
            small
            for line in body
            for small in (line.body if isinstance(line, cst.SimpleStatementLine) else (line,))
        ]
        if not statements or not _zeroes(statements, name):
            continue
        if guard is None or not isinstance(guard, cst.If):
            first, last = statements[0], statements[-1]
        else:
            first = last = guard
        start, end = source.span(first)[0], source.span(last)[1]
        if "#" in source.text[start:end]:
            continue
        edit = Edit(start, end, f"{name}.grad = None")
        found.append(_Found((edit,), loop, owner, "gradients are dropped instead of zeroed"))
    return found


def _all_parameters(source: Source, loop: cst.For) -> str | None:
    """The owner whose every parameter a loop goes through (`model`), else None."""
    iterable = loop.iter
    if isinstance(iterable, cst.Call) and not iterable.args:
        owner = dotted(iterable.func).removesuffix(".parameters")
        is_whole = owner.split(".")[-1] in _whole_models(source)
        return owner if is_whole and owner != dotted(iterable.func) else None
    if isinstance(iterable, cst.Subscript) and isinstance(iterable.value, cst.Name):
        outer = source.enclosing(loop, cst.For)
        is_params = source.code(iterable).replace("'", '"').endswith('["params"]')
        if is_params and isinstance(outer, cst.For) and isinstance(outer.target, cst.Name):
            groups = dotted(outer.iter)
            if outer.target.value == iterable.value.value and groups.endswith(".param_groups"):
                return groups.removesuffix(".param_groups")
    return None


def _whole_models(source: Source) -> set[str]:
    """Names of models whose `.parameters()` an optimizer was given, or that are called `model`."""
    return {"model", "net", "network", "module", "raw_model", "ddp_model", "gpt"} | {
        source.code(call.func.value)
        for call in source.method_calls("parameters")
        if isinstance(call.func, cst.Attribute)
        and isinstance(source.parent(call), cst.Arg)
        and (source.qualified(_called(source, call)) or "").startswith("torch.optim.")
    }


def _called(source: Source, argument_value: cst.CSTNode) -> cst.CSTNode:
    call = source.enclosing(argument_value, cst.Call)
    return call.func if isinstance(call, cst.Call) else argument_value


def _is_guard(guard: cst.If, name: str) -> bool:
    words = re.sub(r"[()\s]", "", cst.Module(()).code_for_node(guard.test))
    tests = (f"{name}.gradisnotNone", f"not{name}.gradisNone")
    return guard.orelse is None and words in tests


def _zeroes(statements: Sequence[cst.CSTNode], name: str) -> bool:
    """Whether the statements do nothing but zero `name.grad` (detaching it first or not)."""
    texts = ["".join(cst.Module(()).code_for_node(s).split()).rstrip(";") for s in statements]
    zeroing = {
        f"{name}.grad.zero_()",
        f"{name}.grad.data.zero_()",
        f"{name}.grad.detach().zero_()",
        f"{name}.grad.fill_(0)",
        f"{name}.grad.fill_(0.0)",
        f"{name}.grad.data.fill_(0)",
        f"{name}.grad.detach_().zero_()",
    }
    detaching = {f"{name}.grad.detach_()", f"{name}.grad.requires_grad_(False)"}
    return texts[-1] in zeroing and all(text in detaching for text in texts[:-1])


def _zeroed(source: Source, found: list[_Found]) -> set[str]:
    """Everything in a file whose gradients are cleared, by whatever way."""
    owners = {f.owner for f in found}
    for call in source.method_calls("zero_grad"):
        if isinstance(call.func, cst.Attribute):
            owners.add(source.code(call.func.value))
    return owners


def _forbidden(source: Source, found: list[_Found]) -> str | None:
    """Why gradients of zero may matter in this file, or None."""
    spans = [(e.start, e.end) for f in found for e in f.edits]
    for attribute in source.nodes(cst.Attribute):
        start, end = source.span(attribute)
        inside = any(first <= start and end <= last for first, last in spans)
        is_function = (source.qualified(attribute) or "").startswith("torch.")
        if attribute.attr.value == "grad" and not inside and not is_function:
            return f"{source.where(attribute)}: `{source.code(attribute)}` is used elsewhere"
    for function in source.nodes(cst.FunctionDef):
        if function.name.value == "zero_grad":
            return f"{source.where(function)}: `zero_grad` is the job's own"
    for node in [*source.nodes(cst.Import), *source.nodes(cst.ImportFrom)]:
        words = source.code(node).replace(".", " ").split()
        for engine in _ENGINES:
            if engine in words[1:2]:
                return f"{source.where(node)}: `{engine}` manages gradients itself"
    for attribute_ in [*source.nodes(cst.Attribute), *source.nodes(cst.Name)]:
        why = _STATIC.get(source.qualified(attribute_) or "")
        if why is not None:
            return f"{source.where(attribute_)}: {why}"
    for call in source.nodes(cst.Call):
        if literal(argument(call, "create_graph")) not in (..., False):
            return f"{source.where(call)}: `create_graph` keeps gradients in a graph"
        if literal(argument(call, "mode")) == "reduce-overhead":
            return f"{source.where(call)}: a CUDA graph needs gradients that stay in place"
    return None


def _nothing(sources: list[Source]) -> str:
    for source in sources:
        for call in source.method_calls("zero_grad"):
            if is_starred(call) or (call.args and literal(call.args[0].value) is ...):
                return f"{source.where(call)}: `set_to_none` is chosen elsewhere"
            return f"{source.where(call)}: gradients are dropped already"
    for source in sources:
        for attribute in source.nodes(cst.Attribute):
            if attribute.attr.value == "grad" and "zero_" in source.code(
                source.statement(attribute)
            ):
                return f"{source.where(attribute)}: not all gradients are zeroed there"
    return "nothing zeroes gradients in the editable files"

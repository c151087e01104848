"""Recipe: torch's own Adam, AdamW, SGD and Adagrad run as one fused kernel."""

import re
from collections.abc import Mapping

import libcst as cst

from infrarsi.workspace.recipes.arguments import add_keywords
from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.source import Edit, Source, argument, literal, parse_all

_CLASSES = ("Adam", "AdamW", "SGD", "Adagrad")
_MODULES = {"Adam": "adam", "AdamW": "adamw", "SGD": "sgd", "Adagrad": "adagrad"}
FUSED = frozenset(f"torch.optim.{path}" for c in _CLASSES for path in (c, f"{_MODULES[c]}.{c}"))
"""The optimizers whose `fused=True` runs on CPU and GPU (torch 2.4 and later)."""

_CHOSEN = ("fused", "foreach", "capturable", "differentiable")
_SWITCH = re.compile(r"^(--)?(use[_-]?|adamw?[_-]?)*fused([_-]?(adamw?|optim\w*|available|ok))*$")
_ENGINES = {
    "deepspeed": "DeepSpeed builds its own optimizer around it",
    "apex": "apex brings its own fused optimizers",
    "torch_xla": "torch_xla has no fused optimizer kernels",
    "torch.distributed.fsdp.sharded_grad_scaler": "`ShardedGradScaler` unscales by itself",
}


class FusedOptimizer:
    """Adds `fused=True` to constructions of torch's own optimizers."""

    name = "fused_optimizer"
    family = "optimizer_impl"
    title = "fused optimizer step"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`: every construction is judged by itself; one that fits is enough."""
        sources = parse_all(files)
        if isinstance(sources, Declined):
            return sources
        for source in sources:
            reason = _forbidden(source)
            if reason is not None:
                return Declined(reason)
        changed: dict[str, str] = {}
        notes: list[str] = []
        refusals: list[str] = []
        for source in sources:
            edits: list[Edit] = []
            for call in source.nodes(cst.Call):
                name = optimizer_class(source, call.func)
                if name is None:
                    continue
                reason = _refusal(source, call)
                if reason is not None:
                    refusals.append(f"{source.where(call)}: {reason}")
                    continue
                edits += add_keywords(source, call, "fused=True")
                notes.append(f"{source.where(call)}: `{name}` gets `fused=True`")
            if edits:
                changed[source.path] = source.edited(edits)
        if changed:
            return Applied(changed, tuple(notes + [f"left as it is: {r}" for r in refusals]))
        return Declined(refusals[0] if refusals else _nothing(sources))


def optimizer_class(source: Source, func: cst.BaseExpression) -> str | None:
    """How a called expression is written, if it surely is one of `FUSED`, else None.

    Looks through names bound to such classes (by import, assignment, a conditional expression or
    the branches of an `if`) and through tables of them.
    """
    return source.code(func) if _is_fused_class(source, func, depth=3) else None


def _is_fused_class(source: Source, node: cst.BaseExpression, depth: int) -> bool:
    if source.qualified(node) in FUSED:
        return True
    if depth == 0:
        return False
    if isinstance(node, cst.IfExp):
        return all(_is_fused_class(source, n, depth - 1) for n in (node.body, node.orelse))
    if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name):
        table = source.value_of(node.value)
        if not isinstance(table, cst.Dict) or not table.elements:
            return False
        if not all(_reads_item(source, use) for use in source.uses(node.value)):
            return False
        return all(
            isinstance(e, cst.DictElement) and _is_fused_class(source, e.value, depth - 1)
            for e in table.elements
        )
    if isinstance(node, cst.Name):
        values = source.assigned_values(node)
        return bool(values) and all(_is_fused_class(source, v, depth - 1) for v in values)
    return False


def _reads_item(source: Source, use: cst.CSTNode) -> bool:
    """Whether a use of a table only looks something up."""
    parent = source.parent(use)
    if isinstance(parent, cst.Subscript):
        return not isinstance(source.parent(parent), cst.AssignTarget | cst.AugAssign | cst.Del)
    if isinstance(parent, cst.Attribute):
        return parent.attr.value in ("keys", "items", "values")
    return isinstance(parent, cst.ComparisonTarget)


def _refusal(source: Source, call: cst.Call) -> str | None:
    """Why this construction is left as it is, None if it fits."""
    for chosen in _CHOSEN:
        if argument(call, chosen) is not None:
            return f"already chooses its implementation by `{chosen}`"
    lr = argument(call, "lr", 1)
    if isinstance(lr, cst.Call) and (source.qualified(lr.func) or "").startswith("torch."):
        return "its learning rate is a tensor"
    if not call.args:
        return "its parameters are not seen"
    for arg in call.args:
        if arg.star == "*":
            return f"its arguments come from `*{source.code(arg.value)}`"
        if arg.star == "**":
            keys = _known_keys(source, arg.value)
            if keys is None:
                return f"what `**{source.code(arg.value)}` holds is not known"
            chosen_keys = sorted(keys & set(_CHOSEN))
            if chosen_keys:
                return f"already chooses its implementation by `{chosen_keys[0]}`"
    return None


def _known_keys(source: Source, node: cst.BaseExpression) -> set[str] | None:
    """The keys of a mapping written out in place or assigned once and only ever unpacked."""
    if isinstance(node, cst.Name):
        value = source.value_of(node)
        for use in source.uses(node):
            arg = source.parent(use)
            if not (isinstance(arg, cst.Arg) and arg.star == "**"):
                return None
        return None if value is None or isinstance(value, cst.Name) else _known_keys(source, value)
    if isinstance(node, cst.Dict):
        keys: set[str] = set()
        for element in node.elements:
            key = literal(element.key) if isinstance(element, cst.DictElement) else ...
            if not isinstance(key, str):
                return None
            keys.add(key)
        return keys
    if isinstance(node, cst.Call) and source.qualified(node.func) == "dict":
        names = {a.keyword.value for a in node.args if a.keyword is not None}
        return names if len(names) == len(node.args) else None
    return None


def _forbidden(source: Source) -> str | None:
    """A sign in a file that the optimizers of this job must be left alone, or None."""
    for node in source.nodes(cst.Import) + source.nodes(cst.ImportFrom):
        for module, why in _ENGINES.items():
            if _imports(node, module):
                return f"{source.where(node)}: {why}"
    for call in source.nodes(cst.Call):
        if literal(argument(call, "sparse")) is True:
            return f"{source.where(call)}: sparse gradients have no fused kernel"
        name = source.qualified(call.func) or ""
        if name == "torch.compile" and call.args and _is_step(call.args[0].value):
            return f"{source.where(call)}: the optimizer's step is compiled already"
        if name.endswith("nn.Parameter") and any(
            _is_complex(n) for n in source.nodes(cst.Name, call)
        ):
            return f"{source.where(call)}: complex parameters have no fused kernel"
    for node_ in [*source.nodes(cst.SimpleString), *source.nodes(cst.Name)]:
        text = literal(node_) if isinstance(node_, cst.SimpleString) else source.code(node_)
        if isinstance(text, str) and _SWITCH.match(text) and not _is_kept_keyword(source, node_):
            return f"{source.where(node_)}: the job already has a switch `{text}` for it"
    return None


def _is_kept_keyword(source: Source, node: cst.CSTNode) -> bool:
    """Whether a name `fused` is an argument's keyword with a literal value, not a switch."""
    parent = source.parent(node)
    if isinstance(parent, cst.Arg) and parent.keyword is node:
        return literal(parent.value) is not ...
    if isinstance(parent, cst.DictElement) and parent.key is node:
        return literal(parent.value) is not ...
    return False


def _imports(node: cst.Import | cst.ImportFrom, module: str) -> bool:
    code = cst.Module(()).code_for_node(node)
    return re.search(rf"(import|from|,)\s+{re.escape(module)}\b", code) is not None


def _is_step(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.Attribute):
        return node.attr.value == "step"
    return isinstance(node, cst.Lambda) and ".step(" in cst.Module(()).code_for_node(node)


def _is_complex(name: cst.Name) -> bool:
    return name.value.startswith(("complex", "cfloat", "cdouble", "view_as_complex"))


def _nothing(sources: list[Source]) -> str:
    for source in sources:
        for call in source.nodes(cst.Call):
            name = source.qualified(call.func) or source.code(call.func)
            if name.startswith("torch.optim.") and "lr_scheduler" not in name:
                return f"{source.where(call)}: `{name}` has no fused kernel on every device"
            if name.endswith("ZeroRedundancyOptimizer"):
                return f"{source.where(call)}: `ZeroRedundancyOptimizer` builds it by itself"
            if (
                name == "getattr"
                and call.args
                and source.qualified(call.args[0].value) == "torch.optim"
            ):
                return f"{source.where(call)}: the optimizer's class is chosen by name"
    return "no torch.optim.Adam, AdamW, SGD or Adagrad is constructed in the editable files"

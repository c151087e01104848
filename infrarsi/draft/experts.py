"""Whether a model is a mixture of experts, and the place that shows it."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import Sources, dotted
from infrarsi.draft.speech import names_of

_COUNTS = ("num_experts", "num_moe_experts", "num_local_experts", "n_routed_experts", "moe_experts")
_MODELS = ("model.name", "model.flavor", "model_name_or_path", "base_model", "model_name", "model")
_NAMED = re.compile(
    r"moe|mixtral|mixture|deepseek-?_?v[23]|olmoe|dbrx|gpt-?_?oss|\ba\d+(\.\d+)?b\b|grok|jamba",
    re.I,
)
_DEFINED = re.compile(r"class\s+\w*(MoE|MixtureOfExperts|Experts)")
_CLASSES = re.compile(r".*(MoE|MixtureOfExperts|SparseMoe\w*|Experts)(Layer|Block|MLP)?")


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: their number where it is written, and the place that shows it."""

    number: int | None
    place: str


def experts(settings: Sequence[Setting], sources: Sources) -> Experts | None:
    """The sign of experts; None where nothing shows any."""
    named = None
    for setting in sorted(settings, key=lambda s: not s.is_given):
        own = {name.lstrip("-").replace("-", "_").lower() for name in names_of(setting)}
        last = {name.rpartition(".")[2] for name in own}
        is_count = isinstance(setting.value, int) and not isinstance(setting.value, bool)
        if last & set(_COUNTS) and is_count and int(setting.value or 0) > 1:
            return Experts(int(setting.value or 0), _place(setting))
        if own & set(_MODELS) and isinstance(setting.value, str) and _NAMED.search(setting.value):
            named = named or Experts(None, _place(setting))
    return named or _in_code(sources)


def _in_code(sources: Sources) -> Experts | None:
    """A class of experts that the job's own model makes; a library's code proves nothing."""
    own = [f for f in sources.files if not f.path.startswith(("megatron/", "torchtitan/"))]
    defined = {
        node.name
        for file in own
        if _DEFINED.search(file.text)
        for node in file.of(ast.ClassDef)
        if _CLASSES.fullmatch(node.name)
    }
    for file, call in Sources(tuple(own)).calls("MoE", *sorted(defined)):
        name = dotted(call.func).rpartition(".")[2]
        return Experts(None, f"{file.place(call)} makes `{name}`")
    return None


def _place(setting: Setting) -> str:
    verb = "passes" if setting.is_given else "defaults to"
    return f"{setting.origin} {verb} {setting.place.name} {setting.value}"

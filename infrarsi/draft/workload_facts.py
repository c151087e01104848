"""What one update of a job is: sequence length, batch sizes, precision, optimizer, with the places.

These are facts for the reader to confirm. None is guessed: what no flag, file, default or call says
is left out.
"""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infrarsi.contract import PlaceKind, Scalar
from infrarsi.draft.layout import Layout
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import PythonFile, Sources, dotted, mentions
from infrarsi.draft.speech import Meaning, names_of
from infrarsi.draft.stack import Stack

_LENGTHS = (
    *("seq_length", "training.seq_len", "seq_len", "sequence_len", "sequence_length", "cutoff_len"),
    *("max_seq_length", "max_seq_len", "max_length", "block_size", "context_length", "ctx_len"),
    *("model_max_length", "context_len", "n_ctx"),
    *("max_len", "max_sequence_length", "seqlen", "context_size", "train_seq_len"),
)
_WHOLES = (
    *("global_batch_size", "training.global_batch_size", "train_batch_size", "total_batch_size"),
    *("effective_batch_size", "gbs"),
)
_PARTS = (
    *("micro_batch_size", "per_device_train_batch_size", "train_micro_batch_size_per_gpu"),
    *("gradient_accumulation_steps", "training.local_batch_size", "training.batch_size"),
)
_OPTIMIZERS = ("optimizer", "optim", "optimizer.name", "optimizer.type", "opt", "optimizer_name")
_PACKED = ("megatron", "torchtitan")  # every sample has the whole sequence length
_VARIABLE = ("variable_seq_lengths", "sft")
_CHANGING = ("rampup_batch_size", "step_batch_size_schedule", "auto_find_batch_size")
_CLASSES = (
    *("Adam", "AdamW", "SGD", "Adafactor", "Adagrad", "RMSprop", "NAdam", "RAdam", "Muon", "Lion"),
    *("LAMB", "FusedAdam", "DeepSpeedCPUAdam", "AdamW8bit", "Adam8bit", "ZeroRedundancyOptimizer"),
)
_TRAINER_PRECISIONS = ("bf16", "fp16")
_HALVES = ("--bf16", "--fp16")
_FLOATS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
    "fp32": "fp32",
}
_PRECISIONS = ("dtype", "precision", "mixed_precision", "amp_dtype", "compute_dtype")
_SWITCHES = ("amp", "use_amp", "autocast", "use_autocast")
_LOW = re.compile(
    r"autocast|\.half\(|bfloat16|float16|bf16|fp16|GradScaler|[Mm]ixed_?[Pp]recision|apex"
)


@dataclass(frozen=True)
class Fact:
    """One fact and where it was read."""

    name: str
    value: Scalar
    told: str


@dataclass(frozen=True)
class Update:
    """What an update consumes; the numbers are None where they are not known."""

    facts: tuple[Fact, ...]
    samples: int | None = None
    tokens: int | None = None

    def told(self, name: str) -> str:
        """Where a fact was read, "" if it is not known."""
        return next((f.told for f in self.facts if f.name == name), "")


def update(
    settings: Sequence[Setting],
    sources: Sources,
    stack: Stack,
    today: Mapping[str, Meaning],
    layout: Layout | None,
    passed: Collection[str],
    launcher: str,
) -> Update:
    """The facts of one update; `passed` are all flags of the launch, defined or not.

    A word in backticks among them may be any flag.
    """
    found: dict[str, Fact] = {}
    is_seen = not any(name.startswith("`") for name in passed)
    for fact in (
        *_numbers(settings, today, sources),
        *_precision(settings, today, stack, sources, launcher, is_seen=is_seen),
        *_optimizer(settings, stack, sources),
    ):
        found.setdefault(fact.name, fact)
    if layout is not None:
        found["processes"] = Fact("processes", layout.world, f"{launcher} starts as many")
    if layout is not None and layout.data_parallel is not None:
        told = f"{layout.world} processes, divided by the parallel sizes"
        found["data_parallel"] = Fact("data_parallel", layout.data_parallel, told)
    samples, why = _samples(found, layout)
    is_hidden = _is_unreadable(settings) and "global_batch" not in found
    if is_hidden or changing(passed) is not None:
        samples = None
    if samples is not None and "global_batch" not in found:
        found["global_batch"] = Fact("global_batch", samples, why)
    length = found.get("sequence_length")
    tokens = None
    is_packed = set(stack.dialects) & set(_PACKED) and not _is_variable(passed)
    if samples is not None and length is not None and is_packed:
        tokens = samples * int(length.value)
        told = f"{samples} samples of {length.value} tokens ({why}; {length.told})"
        found["tokens_per_update"] = Fact("tokens_per_update", tokens, told)
    return Update(tuple(found.values()), samples, tokens)


def _numbers(
    settings: Sequence[Setting], today: Mapping[str, Meaning], sources: Sources
) -> Iterator[Fact]:
    own = [s for s in settings if not _is_of_a_process(s)]
    for name, names, among in (
        ("sequence_length", _LENGTHS, settings),
        ("global_batch", _WHOLES, own),
    ):
        setting = _named(among, names)
        if setting is not None:
            in_tokens = name == "global_batch" and _is_in_tokens(setting, sources)
            what = "tokens_per_update" if in_tokens else name
            yield Fact(what, int(setting.value or 0), _told(setting))
    for name, family in (("micro_batch", "micro_batch"), ("accumulation", "gradient_accumulation")):
        meaning = today.get(family)
        if meaning is not None and _is_count(meaning.value):
            yield Fact(name, int(meaning.value or 0), _told(meaning.setting))


def _is_of_a_process(setting: Setting) -> bool:
    """A flag `--train_batch_size` of a program is one process's; DeepSpeed's key is the whole."""
    own = setting.place.kind is PlaceKind.FLAG
    return own and _normal(setting.place.name.rstrip("=")) == "train_batch_size"


def _is_in_tokens(setting: Setting, sources: Sources) -> bool:
    """Whether a whole batch is counted in tokens: by its help, or by what it is divided by."""
    if setting.definition is not None and "token" in setting.definition.help.lower():
        return True
    for file in sources.files:
        if not file.has_near(setting.dest, ("/", "%")):
            continue
        for node in file.of(ast.BinOp):
            if (
                isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod)
                and mentions(node.left, setting.dest)
                and any("tok" in dotted(inner).lower() for inner in ast.walk(node.right))
            ):
                return True
    return False


def _named(settings: Sequence[Setting], names: Sequence[str]) -> Setting | None:
    """The setting with the first of the names, a written one before a default."""
    ranked = [
        (not setting.is_given, names.index(own), setting)
        for setting in settings
        for own in (_normal(name) for name in names_of(setting))
        if own in names and _is_count(setting.value)
    ]
    return min(ranked, key=lambda item: item[:2])[2] if ranked else None


def _samples(found: Mapping[str, Fact], layout: Layout | None) -> tuple[int | None, str]:
    """Samples of an update: the whole that is written, or the product of its parts."""
    whole = found.get("global_batch")
    if whole is not None:
        return int(whole.value), whole.told
    micro, times = found.get("micro_batch"), found.get("accumulation")
    if micro is None or layout is None or layout.data_parallel is None:
        return None, ""
    steps = int(times.value) if times is not None else 1
    told = micro.told if times is None else f"{micro.told}; {times.told}"
    told = f"{told}; {layout.data_parallel} data-parallel processes"
    return int(micro.value) * steps * layout.data_parallel, told


def _precision(
    settings: Sequence[Setting],
    today: Mapping[str, Meaning],
    stack: Stack,
    sources: Sources,
    launcher: str,
    *,
    is_seen: bool,
) -> Iterator[Fact]:
    meaning = today.get("autocast_precision")
    is_read = meaning is not None and (
        meaning.setting.is_known or meaning.setting.value is not None
    )
    if meaning is not None and meaning.value is not None and is_read:
        yield Fact("precision", meaning.value, _told(meaning.setting))
    for setting in sorted(settings, key=lambda s: not s.is_given):
        word = _FLOATS.get(str(setting.value).rpartition(".")[2])
        named = any(_normal(name) in _PRECISIONS for name in names_of(setting))
        if (
            named
            and setting.is_known
            and word is not None
            and not _is_switched_off(setting, settings)
        ):
            yield Fact("precision", word, _told(setting))
    is_library = bool(set(stack.dialects) & set(_PACKED))  # its parts autocast as they need
    for file, node in () if is_library else sources.calls("autocast"):
        if _is_conditional(file, node) or not _is_enabled(node, settings):
            continue
        given = [k.value for k in node.keywords if k.arg == "dtype"]
        if "cuda.amp" in dotted(node.func) and not node.args and not given:
            yield Fact("precision", "fp16", f"{file.place(node)} autocasts to it by default")
        for value in (*given, *node.args):
            word = _FLOATS.get(dotted(value).rpartition(".")[2])
            if word is not None:
                yield Fact("precision", word, f"{file.place(node)} autocasts to it")
    hidden = any(s.place.name in _HALVES and s.is_given and not s.is_known for s in settings)
    if "megatron" in stack.dialects and is_seen and not hidden:
        yield Fact("precision", "fp32", "neither `--bf16` nor `--fp16` is passed")
    if stack.name == "native-ddp" and not any(_LOW.search(file.text) for file in sources.files):
        yield Fact("precision", "fp32", "nothing in the program asks for a lower one")
    is_plain = "hf-trainer" in stack.dialects and "deepspeed" not in stack.dialects
    if is_plain and not launcher.startswith("accelerate"):  # which has a precision of its own
        said = [s for s in settings if _is_flag_of_trainer(s) and s.is_known and s.value is False]
        if len(said) == len(_TRAINER_PRECISIONS):
            yield Fact("precision", "fp32", "; ".join(_told(setting) for setting in said))


def _is_switched_off(setting: Setting, settings: Sequence[Setting]) -> bool:
    """Whether a precision of autocast is only named, and the switch of autocast is not on."""
    names = {_normal(name) for name in names_of(setting)}
    switches = [s for s in settings if _normal(s.dest) in _SWITCHES]
    return "amp_dtype" in names and any(s.value is not True for s in switches)


def _is_enabled(node: ast.Call, settings: Sequence[Setting]) -> bool:
    """Whether autocast is certainly on: without `enabled`, or with a flag that is on today."""
    value = next((k.value for k in node.keywords if k.arg == "enabled"), None)
    if value is None:
        return True
    if isinstance(value, ast.Constant):
        return value.value is True
    last = dotted(value).rpartition(".")[2]
    same = [s for s in settings if s.dest == last]
    return bool(last and same) and all(s.is_known and s.value is True for s in same)


def _is_flag_of_trainer(setting: Setting) -> bool:
    system = setting.definition.system if setting.definition is not None else ""
    return system == "HfArgumentParser" and setting.dest in _TRAINER_PRECISIONS


def _is_conditional(file: PythonFile, node: ast.AST) -> bool:
    """Whether a node stands under a condition: a run decides whether it counts."""
    while node in file.parents:
        node = file.parents[node]
        if isinstance(node, ast.If | ast.IfExp):
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return False
    return False


def _optimizer(settings: Sequence[Setting], stack: Stack, sources: Sources) -> Iterator[Fact]:
    for setting in sorted(settings, key=lambda s: not s.is_given):
        names = [_normal(name) for name in names_of(setting)]
        is_named = any(name in _OPTIMIZERS for name in names)
        if is_named and isinstance(setting.value, str) and setting.value:
            yield Fact("optimizer", setting.value, _told(setting))
    if "megatron" in stack.dialects:
        return  # its code has every optimizer that it knows
    made: dict[str, str] = {}
    for file, node in sources.calls(*_CLASSES):
        made.setdefault(dotted(node.func).rpartition(".")[2], file.place(node))
    if len(made) == 1:  # of several, a run decides which
        ((last, place),) = made.items()
        yield Fact("optimizer", last, f"{place} makes it")


def _is_unreadable(settings: Sequence[Setting]) -> bool:
    """Whether a part of the batch is written that cannot be read: then no product is known."""
    parts = (*_WHOLES, *_PARTS)
    return any(
        not setting.is_known
        and setting.value is None
        and (setting.is_given or _normal(name) in _PARTS)
        and _normal(name) in parts
        for setting in settings
        for name in names_of(setting)
    )


def changing(passed: Collection[str]) -> str | None:
    """The flag by which the batch of a job changes while it runs, None if it does not."""
    return next((name for name in passed if _normal(name) in _CHANGING), None)


def _is_variable(passed: Collection[str]) -> bool:
    """Whether the samples of a job may differ in length although it could pack them."""
    return bool({_normal(name) for name in passed} & set(_VARIABLE))


def _is_count(value: Scalar | None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _normal(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def _told(setting: Setting) -> str:
    verb = "passes" if setting.is_given else "defaults to"
    is_flag = setting.value is True and setting.place.kind is PlaceKind.FLAG
    value = "" if is_flag and setting.is_given else f" {setting.value}"
    return f"{setting.origin} {verb} {setting.place.name}{value}"

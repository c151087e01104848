"""Recognising the command that starts training, and taking its arguments apart."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from infrarsi.scripts.atoms import Field, Quoting
from infrarsi.scripts.expansion import Expander
from infrarsi.scripts.interpreter import Invocation
from infrarsi.scripts.launchers import CONSOLE
from infrarsi.scripts.model import Argument, option_key
from infrarsi.scripts.wrapping import Chain

_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_DISTRIBUTED = ("torch.distributed.run", "torch.distributed.launch")
_KEY = re.compile(r"(~|\+{1,2})?[A-Za-z_][\w.@/-]*(?==)")
_NUMBER = re.compile(r"-(\d|\.\d|inf|nan)")
_EVAL_SPECIAL = frozenset("'\"|&;<>()$`\\")

# Options without a value. torchrun: torch/distributed/run.py; accelerate: commands/launch.py;
# deepspeed: launcher/runner.py.
_BARE_OPTIONS = {
    "torchrun": "standalone m module no-python run-path virtual-local-rank use-env",
    "accelerate launch": "m module no-python multi-gpu cpu tpu mps use-deepspeed use-fsdp "
    "use-megatron-lm use-xpu debug q quiet same-network tpu-use-cluster tpu-use-sudo "
    "dynamo-use-fullgraph dynamo-use-dynamic",
    "deepspeed": "module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid "
    "bind-cores-to-rank enable-each-rank-log",
    "python": "u O OO B b d E I i P q s S v x V m",
}
_TRAINING_NAME = re.compile(r"train|finetune|fine_tune|sft|main|run|pretrain|dpo|grpo|ppo", re.I)


_T = TypeVar("_T")


@dataclass(frozen=True)
class Slot:
    """An argument together with the fields that give it: the flag, and its value if separate."""

    argument: Argument
    flag: Field
    value: Field | None
    joined: bool  # `--flag=value` in one field


@dataclass(frozen=True)
class Launched:
    """A training command taken apart; indices refer to the invocation's fields."""

    invocation: Invocation
    chain: Chain
    launcher: str
    launcher_end: int  # index after the launcher's own words
    options: tuple[Slot, ...]
    entry: Field
    is_module: bool
    slots: tuple[Slot, ...]

    @property
    def launcher_start(self) -> int:
        """The index of the launcher's first word."""
        return self.chain.inner

    def environment(self, exported: Mapping[str, _T]) -> dict[str, _T | Field]:
        """What reaches the launcher of exported variables; a field stands for `NAME=value`."""
        return self.chain.environment(exported)

    def loses_environment(self, name: str) -> bool:
        """Whether an exported variable may not reach the launcher, or not on every host."""
        return self.chain.spreads or name not in self.environment({name: None})

    @property
    def module(self) -> str | None:
        """The module that a library's own program runs, None for any other launcher."""
        return CONSOLE.get(self.launcher, {}).get(self.entry.text or "")

    @property
    def rank(self) -> int:
        """How surely this is the training command; higher is surer."""
        if self.launcher != "python":
            return 3
        name = posixpath.basename(self.entry.known_prefix or "")
        return 2 if _TRAINING_NAME.search(name) else 1


def recognise(invocation: Invocation, expander: Expander) -> Launched | None:
    """The invocation as a training command, None if it starts no Python program."""
    fields = list(invocation.fields)
    chain = Chain.of(fields, is_launcher)
    start = chain.inner
    if chain.remote is not None or start >= len(fields) or not _is_launcher(fields[start]):
        return None
    launcher, end = _launcher(fields, start)
    if launcher is None or (chain.is_eval and not _plain_eval(fields[start:])):
        return None
    bare = frozenset(_BARE_OPTIONS.get(_table(launcher), "").split())
    options, entry, is_module = _options(fields, end, bare, expander, launcher == "python")
    if entry is None or fields[entry].text == "-":
        return None
    if launcher == "python" and any(s.argument.name in ("-c", "-V", "-h") for s in options):
        return None
    slots = _arguments(fields[entry + 1 :], expander)
    return Launched(
        invocation, chain, launcher, end, tuple(options), fields[entry], is_module, tuple(slots)
    )


def _table(launcher: str) -> str:
    return "torchrun" if launcher.startswith("python -m") else launcher


def _base(field: Field) -> str:
    return posixpath.basename(field.text or "")


def is_launcher(word: str) -> bool:
    """Whether a word can only be a launcher, or a program that Python runs."""
    base = posixpath.basename(word)
    if word in CONSOLE or word.endswith(tuple(f"bin/{name}" for name in CONSOLE)):
        return True
    return base in ("torchrun", "accelerate", "deepspeed") or bool(_PYTHON.fullmatch(base))


def _is_launcher(field: Field) -> bool:
    text = field.text or ""
    if is_launcher(text) or (text.endswith(".py") and not text.startswith("-")):
        return True
    hole = field.hole
    return hole is not None and re.fullmatch(r"\$\{?PYTHON\w*\}?", hole.expression) is not None


def _launcher(fields: Sequence[Field], start: int) -> tuple[str | None, int]:
    base = _base(fields[start])
    rest = [f.text for f in fields[start + 1 :]]
    if base in ("torchrun", "deepspeed"):
        return base, start + 1
    if base.endswith(".py"):  # run by its first line, or by `uv run`
        return "python", start
    if base in CONSOLE:
        return (base, start + 1) if rest and rest[0] in CONSOLE[base] else (None, start)
    if base == "accelerate":
        return ("accelerate launch", start + 2) if rest[:1] == ["launch"] else (None, start)
    for index, text in enumerate(rest):
        if text == "-m" and index + 1 < len(rest) and rest[index + 1] in _DISTRIBUTED:
            return f"python -m {rest[index + 1]}", start + index + 3
        if text is None or not text.startswith("-") or text in ("-m", "-c"):
            break
    return "python", start + 1


def _plain_eval(fields: Sequence[Field]) -> bool:
    return all(not _EVAL_SPECIAL & set(field.text or "") for field in fields)


def _is_flag(field: Field) -> bool:
    known = field.known_prefix
    return known.startswith("-") and known != "-" and _NUMBER.match(known) is None


def _options(
    fields: Sequence[Field], at: int, bare: frozenset[str], expander: Expander, is_python: bool
) -> tuple[list[Slot], int | None, bool]:
    """The launcher's options from `at` on, the index of the entry, and whether it is a module."""
    slots: list[Slot] = []
    module = False
    while at < len(fields):
        field = fields[at]
        if field.text == "--":
            return slots, (at + 1 if at + 1 < len(fields) else None), module
        if not _is_flag(field):
            if field.hole and not field.known_prefix and _may_be_options(fields, at):
                slots.append(_slot(field, None, expander))
                at += 1
                continue
            return slots, at, module
        name = option_key(field.known_prefix.partition("=")[0])
        module = module or name in ("m", "module")
        has_value = "=" not in field.known_prefix and name not in bare
        if is_python and field.known_prefix[:2] in ("-X", "-W"):
            has_value = len(field.known_prefix) == 2
        elif is_python and field.known_prefix not in ("-X", "-W", "-c"):
            has_value = False
        value = fields[at + 1] if has_value and at + 1 < len(fields) else None
        slots.append(_slot(field, value, expander))
        at += 1 if value is None else 2
    return slots, None, module


def _may_be_options(fields: Sequence[Field], at: int) -> bool:
    """An unknown word before the entry: a later word that looks like a program says so."""
    return any((f.known_prefix or "").endswith((".py",)) for f in fields[at + 1 :])


def _arguments(fields: Sequence[Field], expander: Expander) -> list[Slot]:
    slots: list[Slot] = []
    at = 0
    while at < len(fields):
        field = fields[at]
        after = fields[at + 1] if at + 1 < len(fields) else None
        takes = (
            _is_flag(field)
            and field.text != "--"
            and "=" not in field.known_prefix
            and field.hole is None
            and after is not None
            and not _is_flag(after)
            and after.condition == field.condition
        )
        if takes and after is not None and after.hole is not None and not after.known_prefix:
            takes = after.word is not None  # an array that is not known is no value
        slots.append(_slot(field, after if takes else None, expander))
        at += 2 if takes else 1
    return slots


def _slot(flag: Field, value: Field | None, expander: Expander) -> Slot:
    known = flag.known_prefix
    raw = raw_of(flag, expander)
    if value is not None:
        raw = f"{raw} {raw_of(value, expander)}"
    name, joined = "", False
    if _is_flag(flag) and known != "--":
        name, equals, _ = known.partition("=")
        joined = bool(equals)
        if flag.hole and not joined:
            name = ""
    elif match := _KEY.match(known):
        name, joined = match.group(0), True
    text: str | bool | None
    holder = value if value is not None else flag
    if value is not None:
        text = value.text
    elif joined:
        text = None if flag.text is None else flag.text[len(name) + 1 :]
    elif name:
        text = True
    else:
        text = flag.text
    hole = holder.hole or flag.hole
    expression = hole.expression if hole is not None else ""
    condition = flag.condition or (value.condition if value is not None else "")
    static = text is not None and not condition
    argument = Argument(
        name,
        text if text is None or isinstance(text, str) else True,
        raw,
        flag.line,
        static,
        expression,
        condition,
    )
    return Slot(argument, flag, value, joined)


def raw_of(field: Field, expander: Expander) -> str:
    """A field as written."""
    if field.word is not None:
        return expander.source[field.word[0] : field.word[1]].decode(errors="surrogateescape")
    span = field.text_span()
    if span is not None and span[2] is not Quoting.COMPUTED:
        return expander.source[span[0] : span[1]].decode(errors="surrogateescape")
    hole = field.hole
    return hole.expression if hole is not None else (field.text or "")

"""How a job is told to go on from a checkpoint, where its code and its flags say so.

Found are flags such as `--resume`, `--load` or `--resume_from_checkpoint` that are not in use today
and whose value the code loads. What the flag wants is read from how the code uses it: the file
itself, or a folder that the code looks into; a switch goes on from what lies in the job's own
folder. A job that ends by itself also gets a few steps more, since its last checkpoint may be the
only one.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from infrarsi.contract import CHECKPOINT_DIR_TOKEN, CHECKPOINT_TOKEN, PlaceKind, Scalar
from infrarsi.contract.project import Resume
from infrarsi.draft.paths import Reader
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import Sources, dotted
from infrarsi.draft.workload import Length
from infrarsi.draft.writes import ENGINE_LOAD, PathUse, loads, writes
from infrarsi.families import normal_flag

STEPS = 5
_FLAGS = re.compile(
    r"--((auto-)?resume|continue|restore|reload|load|init)(-(from|training|run))?"
    r"(-(latest|last|state|weights|model))?(-(checkpoint|ckpt))?(-(path|file|dir|folder|from))?"
    r"|--(checkpoint|ckpt|start)(-(path|file|from|checkpoint|to))?(-(load|resume))?"
)
_UNUSED = (None, "", False, "none", "None", "null")
_RESUME_WORDS = ("resume", "latest", "auto")


@dataclass(frozen=True)
class Resuming:
    """What the contract gets as `verify.resume`, and where it was read."""

    resume: Resume
    told: str


def find(
    settings: Sequence[Setting], sources: Sources, length: Length, sinks: Sequence[str]
) -> Resuming | None:
    """How the job resumes, None where it cannot be told."""
    reader = Reader(sources, settings)
    uses = _uses(reader, sources)
    for setting in settings:
        if setting.place.kind is PlaceKind.ENV or not _is_named(setting):
            continue
        if setting.place.kind is PlaceKind.CONFIG and isinstance(setting.value, bool):
            continue  # a key that is true or false names no checkpoint
        found = _value(setting, uses.get(setting.dest, []), sources, reader, sinks)
        if found is None:
            continue
        value, place = found
        changes: dict[str, Scalar] = {str(setting.place): value}
        folder = _engines_folder(reader, sources, sinks) if value == CHECKPOINT_TOKEN else None
        told = f"`{setting.place.name}` ({setting.origin}); {place}"
        extended = _extended(length)
        if extended is not None:
            flag, steps = extended
            changes[flag] = steps
            told += f"; {STEPS} steps more, since a run ends with its last checkpoint"
        return Resuming(Resume(set=changes, steps=STEPS, checkpoint=folder), told)
    return _torchtitan(settings, length)


def _torchtitan(settings: Sequence[Setting], length: Length) -> Resuming | None:
    """torchtitan's checkpoint of all states, as the first one that a fresh folder starts from."""
    own = {s.key: s for s in settings if s.definition and s.definition.system == "torchtitan"}
    path = own.get("checkpoint.initial_load_path")
    model_only = own.get("checkpoint.initial_load_model_only")
    last = own.get("checkpoint.last_save_model_only")
    is_saved = any(
        name in own and own[name].value is True
        for name in ("checkpoint.enable", "checkpoint.enable_checkpoint")
    )
    if path is None or path.value is not None or model_only is None or not is_saved:
        return None
    extended = _extended(length)
    if extended is not None and (last is None or last.value is not False):
        return None  # the only checkpoint of a short job would be that of the model alone
    assert model_only.definition is not None
    changes: dict[str, Scalar] = {
        str(path.place): CHECKPOINT_TOKEN,
        f"flag:{model_only.definition.negative}": True,
    }
    told = f"`{path.place.name}` of torchtitan, for all states"
    if extended is not None:
        changes[extended[0]] = extended[1]
        told += f"; {STEPS} steps more, since a run ends with its last checkpoint"
    return Resuming(Resume(set=changes, steps=STEPS), told)


def _engines_folder(reader: Reader, sources: Sources, sinks: Sequence[str]) -> str | None:
    """The folder of DeepSpeed's checkpoints below the sinks, None of a job that has none."""
    if not any(use.name == ENGINE_LOAD for use in loads(sources)):
        return None
    for use in writes(sources):
        for told in reader.read(use.file, use.path):
            if not use.name.endswith("save_checkpoint"):
                continue
            if told.control is not None and str(told.control.place) in sinks:
                return told.control.place.sink_folder
            if _is_in_sink(told.text, sinks):
                return f"path:{told.text}"
    return None


def _is_named(setting: Setting) -> bool:
    """A flag of such a name that is not in use."""
    names = setting.spellings
    if not any(_FLAGS.fullmatch(normal_flag(name)) for name in names):
        return False
    return setting.is_known and (setting.value in _UNUSED or _choice(setting) is not None)


def _uses(reader: Reader, sources: Sources) -> dict[str, list[PathUse]]:
    """The loads whose path is decided by a setting, by the setting's name in the code."""
    found: dict[str, list[PathUse]] = {}
    for use in loads(sources):
        for told in reader.read(use.file, use.path):
            if told.control is not None:
                found.setdefault(told.control.dest, []).append(use)
    return found


def _value(
    setting: Setting,
    uses: Sequence[PathUse],
    sources: Sources,
    reader: Reader,
    sinks: Sequence[str],
) -> tuple[Scalar, str] | None:
    """What the flag is set to, and the place in the code that says so."""
    if setting.is_switch or _choice(setting) is not None:
        place = _loads_from_sink(reader, sources, sinks)
        if place is None:
            return None
        return (True if setting.is_switch else _choice(setting) or ""), f"{place} loads"
    for use in uses:
        token = CHECKPOINT_DIR_TOKEN if _is_below(use) else CHECKPOINT_TOKEN
        return token, f"{use.place} loads {'from its folder' if _is_below(use) else 'it'}"
    place = _trainer(sources, setting.dest)
    return None if place is None else (CHECKPOINT_DIR_TOKEN, f"{place} hands it to the Trainer")


def _choice(setting: Setting) -> Scalar | None:
    """The word of a flag with choices that means to resume, where another one is set today."""
    choices = setting.definition.choices if setting.definition else ()
    word = next((word for word in _RESUME_WORDS if word in choices), None)
    return word if setting.value != word else None


def _is_below(use: PathUse) -> bool:
    """Whether the code looks into the folder that it is given."""
    return any(
        (isinstance(node, ast.Call) and dotted(node.func).endswith(("path.join", "joinpath")))
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Add))
        or isinstance(node, ast.JoinedStr)
        for node in ast.walk(use.path)
    )


def _loads_from_sink(reader: Reader, sources: Sources, sinks: Sequence[str]) -> str | None:
    """A load from where the job writes its own checkpoints."""
    for use in loads(sources):
        for told in reader.read(use.file, use.path):
            place = str(told.control.place) if told.control is not None else ""
            if place in sinks or _is_in_sink(told.text, sinks):
                return use.place
    return None


def _is_in_sink(text: str, sinks: Sequence[str]) -> bool:
    """Whether a path of the project lies in a `path:` sink."""
    folders = [sink.removeprefix("path:") for sink in sinks if sink.startswith("path:")]
    return bool(text) and any(f"{text}/".startswith(f"{folder}/") for folder in folders)


def _trainer(sources: Sources, dest: str) -> str | None:
    """`trainer.train(resume_from_checkpoint=...)` of the transformers library."""
    for file, node in sources.walk("resume_from_checkpoint"):
        if not isinstance(node, ast.Call) or not dotted(node.func).endswith(".train"):
            continue
        for keyword in node.keywords:
            if keyword.arg == "resume_from_checkpoint" and any(
                isinstance(inner, ast.Attribute) and inner.attr == dest
                for inner in ast.walk(keyword.value)
            ):
                return file.place(node)
    return None


def _extended(length: Length) -> tuple[str, int] | None:
    """The flag that gives a job that ends by itself some steps more."""
    setting = length.setting
    if length.workload.ends_by != "job" or setting is None or not isinstance(setting.value, int):
        return None
    per_step = 1
    if length.in_micro_steps:
        per_step = max(1, setting.value // max(1, length.workload.optimizer_steps))
    return str(setting.place), setting.value + STEPS * per_step

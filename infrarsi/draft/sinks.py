"""The places that a job writes to: which setting redirects each, and which cannot be redirected."""

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infrarsi.contract import PlaceKind
from infrarsi.draft.paths import PROJECT, Reader, Told
from infrarsi.draft.reaching import is_reached
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import Sources, dotted
from infrarsi.draft.speech import is_there
from infrarsi.draft.stack_sinks import stack_sinks
from infrarsi.draft.target import Target
from infrarsi.draft.writes import PathUse, imported, loads, uploads, writes
from infrarsi.errors import UserError

FRESH = "fresh"
_NAMES = re.compile(
    r"--(out|output|outputs|outdir|save|savedir|ckpt|ckpts|checkpoint|checkpoints|log|logs|logdir"
    r"|logging|tensorboard|tb|run|runs|exp|experiment|work|workdir|results?|artifacts?|dump|metrics"
    r"|samples?|export|model-save)"
    r"(-(out|output|save|ckpt|checkpoint|log|run))?(-(dir|directory|path|folder|file|root|to))?"
)
_RUN_NAMES = re.compile(r"--(runs?|exp|experiment|work|samples?|metrics|export|dump)")
_HELP = re.compile(
    r"\b(writ(e|es|ten)|sav(e|es|ed|ing)|output|store[sd]?|dump(ed)?)\b|\blogs? (to|dir|file)"
)
_LOADS = re.compile(r"resume|load|init|pretrained|restore|from|start|import", re.I)
_SILENT = ("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty")
_TRACKERS = {
    "wandb": ("env:WANDB_MODE", "offline"),
    "neptune": ("env:NEPTUNE_MODE", "offline"),
    "mlflow": ("env:MLFLOW_TRACKING_URI", FRESH),
    "clearml": ("env:CLEARML_OFFLINE_MODE", "1"),
}
_TRACKERS_WITHOUT = {"comet_ml": "Comet", "aim": "Aim", "swanlab": "SwanLab"}
_OUTPUTS = (".pt", ".pth", ".ckpt", ".safetensors", ".log", ".out", ".err")
_OUTPUT_NAMES = re.compile(
    r"outs?|outputs?|runs?|logs?|ckpts?|checkpoints?|results?|saved?|saves|wandb|mlruns|tb"
    r"|tensorboard|samples?|artifacts|metrics|work|exp|experiments?"
)
_DEFAULTED = re.compile(r"\$\{(\w+):?[-=]")


@dataclass
class Sinks:
    """What was found: `places` for the contract with where each was read, and what stays open."""

    places: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unknowns: list[str] = field(default_factory=list)
    faults: list[UserError] = field(default_factory=list)

    def add(self, place: str, value: str, origin: str) -> None:
        """Note one sink; the first origin stays."""
        self.places.setdefault(place, value)
        self.origins.setdefault(place, origin)


def find(
    target: Target, sources: Sources, settings: Sequence[Setting], dialects: Sequence[str] = ()
) -> Sinks:
    """All sinks of a job that speaks these dialects.

    Raises UserError if the job writes where no trial may: it names the first such place, and the
    others with it.
    """
    sinks = Sinks()
    reader = Reader(sources, settings)
    loaded = {told.control.dest for _, told in _all(reader, loads(sources)) if told.control}
    for use, told in _all(reader, writes(sources)):
        is_outside = not (told.is_temporary or told.is_unknown or told.control is not None)
        is_outside = is_outside and _inside(told.text, target) is None
        if is_outside and not is_reached(use.file, use.call, sources):
            continue  # what a library offers and this job never comes to
        _written(use, told, target, sinks)
    for setting in settings:
        if _made_by_script(setting, target):
            continue
        if setting.dest in loaded or not _is_named_sink(setting):
            continue
        if _in_heredoc(setting, target):
            _fixed_value(setting, target, sinks)
        else:
            sinks.add(str(setting.place), FRESH, _told(setting))
    for name, (place, value) in _TRACKERS.items():
        if name in sources.external:
            sinks.add(place, value, f"{sources.external[name]} imports {name}")
    of_stack = stack_sinks(settings, dialects)
    for place, value, origin in of_stack.places:
        sinks.add(place, value, origin)
    sinks.notes += of_stack.notes
    sinks.faults += of_stack.faults
    _by_script(target, sinks)
    _cannot(sources, settings, sinks)
    _resumes(reader, sources, sinks)
    if sinks.faults:
        raise _first(sinks.faults)
    return sinks


def _all(reader: Reader, uses: Iterator[PathUse]) -> Iterator[tuple[PathUse, Told]]:
    for use in uses:
        for told in reader.read(use.file, use.path):
            yield use, told


def _in_heredoc(setting: Setting, target: Target) -> bool:
    """Whether a value stands in a heredoc of the scripts where it cannot be changed."""
    is_file = setting.place.kind is PlaceKind.CONFIG and setting.place.file in target.written
    return is_file and not setting.is_known


def _fixed_value(setting: Setting, target: Target, sinks: Sinks) -> None:
    """A place that the job writes to, and that no change of a heredoc moves."""
    if setting.value is None:
        sinks.faults.append(
            UserError(
                f"the job writes where `{setting.place.key}` says, which cannot be changed: "
                f"{setting.why}",
                where=setting.origin,
                fix="write the folder out in the heredoc",
            )
        )
    else:
        _script_path(str(setting.value), setting.origin, target, sinks)


def _written(use: PathUse, told: Told, target: Target, sinks: Sinks) -> None:
    if told.is_temporary or told.text in _SILENT:
        return
    if told.control is not None and _in_heredoc(told.control, target):
        _fixed_value(told.control, target, sinks)
        return
    if told.control is not None:
        setting = told.control
        if setting.value is not None or not setting.is_known:
            if _made_by_script(setting, target):
                return  # the folder of that name is taken care of where the script makes it
            origin = f"{use.place} writes there; {_told(setting)}"
            if setting.place.kind is not PlaceKind.ENV and not _is_text(setting):
                return
            sinks.add(str(setting.place), FRESH, origin)
        return
    if told.is_unknown or _EMPTY.fullmatch(told.text) or _NO_PATH.search(told.text):
        sinks.unknowns.append(f"where {use.place} writes to (`{use.name}`)")
        return
    inside = _inside(told.text, target)
    is_download = use.name.rpartition(".")[2] in _DOWNLOADS
    if inside is None and is_download and told.text.startswith(_CACHES):
        sinks.notes.append(
            f"{use.place} writes to {told.text!r}, a cache of downloads that all runs share"
        )
        return
    if inside is None:
        sinks.faults.append(_outside(told.text, use.place))
        return
    known = inside if told.is_whole else _inside(told.text.rpartition("/")[0] or ".", target)
    folder = _sink_folder(target.root, known or ".")
    if folder:
        sinks.add(f"path:{folder}", FRESH, f"{use.place} writes {inside}")
    else:
        more = "" if told.is_whole else "..."
        sinks.notes.append(
            f"{use.place} writes {inside}{more} beside other files; every trial has its own copy"
        )


def _made_by_script(setting: Setting, target: Target) -> bool:
    """Whether the script itself makes the folder of the project that a flag names.

    The program may rely on that, so the flag stays and the folder is emptied instead.
    """
    if setting.place.kind is not PlaceKind.FLAG or not isinstance(setting.value, str):
        return False
    wanted = _inside(setting.value, target)
    if wanted is None or not setting.value:
        return False
    made = [
        _inside(w.target, target) for w in target.script.writes() if w.target and w.by == "mkdir"
    ]
    return wanted in made


def _inside(text: str, target: Target) -> str | None:
    """A path of the code relative to the project, None if it lies outside."""
    if text.startswith(PROJECT):
        inside = posixpath.normpath(text[len(PROJECT) :].lstrip("/") or ".")
    elif text.startswith("~") or "$HOME" in text:
        return None
    elif posixpath.isabs(text):
        root = str(target.root)
        if text != root and not text.startswith(root + "/"):
            return None
        inside = posixpath.normpath(text[len(root) :].lstrip("/") or ".")
    else:
        inside = posixpath.normpath(posixpath.join(target.cwd, text))
    return None if inside.startswith("..") else inside


def _sink_folder(root: Path, inside: str) -> str:
    """The largest part of a path that holds only what the job writes, "" if there is none.

    What exists is removed from every copy, so an existing folder or file counts only if it is an
    output by its look; an input that the job writes to stays, the same for every run.
    """
    parts = posixpath.normpath(inside).split("/")
    if parts == ["."]:
        return ""
    for count in range(1, len(parts) + 1):
        if _is_output(root.joinpath(*parts[:count])):
            return "/".join(parts[:count])
    return ""


def _is_output(path: Path) -> bool:
    """Whether it does not exist yet, or what it is called or holds looks like a run's output."""
    if not path.exists():
        return True
    if path.is_file():
        return path.suffix in _OUTPUTS or _OUTPUT_NAMES.search(path.stem.lower()) is not None
    files = [file for file in path.rglob("*") if file.is_file()]
    looks = [f.suffix in _OUTPUTS or "tfevents" in f.name or f.name == ".gitkeep" for f in files]
    named = _OUTPUT_NAMES.fullmatch(path.name.lower()) is not None
    if named and not any(file.suffix == ".py" for file in files):
        return True
    return bool(files) and all(looks)


def _outside(text: str, place: str) -> UserError:
    return UserError(
        f"it writes to {text!r}, outside the project, and no flag or variable changes that, so "
        "every trial would write over the same place",
        where=place,
        fix="make the folder an argument of the program, such as `--out-dir`",
    )


def _is_text(setting: Setting) -> bool:
    if setting.definition is None:
        return isinstance(setting.value, str)
    return setting.definition.kind in ("str", "other") and not setting.is_switch


def _is_named_sink(setting: Setting) -> bool:
    """Whether its name or help says that the job writes there, and it is set."""
    if setting.value in (None, "") or not _is_text(setting) or isinstance(setting.value, bool):
        return False
    if setting.definition is not None and setting.definition.choices:
        return False
    if setting.place.kind is PlaceKind.ENV and setting.definition is None:
        return False
    name = setting.words.replace("_", "-").lower()
    if _LOADS.search(name):
        return False
    text = setting.definition.help.lower() if setting.definition else ""
    if _RUN_NAMES.fullmatch(name) and not re.search(r"[/.]", str(setting.value)):
        return False  # a name for a run; where it is a folder, the code that writes there shows it
    if _NAMES.fullmatch(name):
        return not re.search(r"\b(resume|load|start|initiali[sz]e|restore)", text)
    says = re.search(r"dir|path|folder|file|root", name) or re.search(r"folder|director|file", text)
    return bool(says and _HELP.search(text))


def _told(setting: Setting) -> str:
    verb = "passes" if setting.is_given else "defaults to"
    return f"{setting.origin} {verb} {setting.place.name} {setting.value}"


def _by_script(target: Target, sinks: Sinks) -> None:
    """Redirections, `tee`, `mkdir` and the like of the launch script."""
    for write in target.script.writes():
        place = f"{target.where}:{write.line}"
        variable = _defaulted(write.raw, target)
        if variable is not None:
            sinks.add(f"env:{variable}", FRESH, f"{place} writes {write.raw}")
        elif write.target is None:
            sinks.unknowns.append(f"where {place} writes to (`{write.by} {write.raw}`)")
        elif write.target not in _SILENT:
            _script_path(write.target, place, target, sinks)


def _script_path(text: str, place: str, target: Target, sinks: Sinks) -> None:
    inside = _inside(text, target)
    if inside is None:
        sinks.faults.append(
            UserError(
                f"the script writes to {text!r}, outside the project, so every trial would write "
                "over the same place",
                where=place,
                fix="write it into the project's folder, or take it from a variable, such as "
                "`${OUT:-out}`",
            )
        )
        return
    if inside in target.written:
        return  # every run writes it anew in its own copy
    folder = _sink_folder(target.root, inside)
    if not folder:
        sinks.notes.append(
            f"{place} writes {text}, which holds inputs; every trial has its own copy"
        )
    elif not folder.startswith("."):
        sinks.add(f"path:{folder}", FRESH, f"{place} writes {text}")


def _defaulted(raw: str, target: Target) -> str | None:
    """The variable of the environment that moves a path: `"$OUT"` after `OUT=${OUT:-out}`."""
    begin = re.match(r"[\"']?\$\{?(\w+)", raw)
    if begin is None:
        return None
    assignment = target.script.assignments().get(begin.group(1))
    text = assignment.raw if assignment is not None else raw
    found = _DEFAULTED.search(text)
    return found.group(1) if found and found.group(1) == begin.group(1) else None


_EMPTY = re.compile(r"/(\.\w+)?")  # of `f"{folder}/{name}.pkl"` with defaults of ""
_NO_PATH = re.compile(r"[<>|*?\"\r\n\0]")  # of placeholders, patterns and replaced signs
_CACHES = ("~/.cache/", "$HOME/.cache/")
_DOWNLOADS = ("makedirs", "mkdir", "open", "urlretrieve")  # what saves a checkpoint is none
_PUSH = "push_to_hub"  # of TrainingArguments


def _cannot(sources: Sources, settings: Sequence[Setting], sinks: Sinks) -> None:
    for place, guards in uploads(sources):
        switch = next((s for s in settings if s.dest in guards and s.is_known), None)
        if switch is not None and (not is_there(switch) or str(switch.place) in sinks.places):
            sinks.notes.append(
                f"{place} uploads to a hub if `{switch.place.name}` says so; it is off in every run"
            )
            continue
        if switch is None and _PUSH in guards and not any(s.dest == _PUSH for s in settings):
            sinks.notes.append(
                f"{place} uploads to a hub if `{_PUSH}` says so, which nothing here sets: it is "
                "off in every version of transformers"
            )
            continue
        sinks.faults.append(
            UserError(
                "it uploads to a model hub, which every trial would do again",
                where=place,
                fix="put it behind a flag that is off by default",
            )
        )
    for name, title in _TRACKERS_WITHOUT.items():
        at = next(
            (
                at
                for at, guards in imported(sources, name)
                if not any(s.dest in guards and s.is_known and not is_there(s) for s in settings)
            ),
            None,
        )
        if name == "swanlab" and at is not None and _takes_mode_from_outside(sources):
            sinks.add("env:SWANLAB_MODE", "offline", f"{at} imports {name}")
        elif name in sources.external and at is not None:
            sinks.faults.append(
                UserError(
                    f"it reports to {title}, which cannot be taken offline by a variable",
                    where=sources.external[name],
                    fix="put the tracker behind a flag that is off by default",
                )
            )


def _takes_mode_from_outside(sources: Sources) -> bool:
    """Whether no call of `swanlab.init` has a mode of its own, which comes before the variable."""
    calls = [c for _, c in sources.calls("init") if dotted(c.func).startswith("swanlab.")]
    return not any(k.arg in ("mode", None) for call in calls for k in call.keywords)


def _resumes(reader: Reader, sources: Sources, sinks: Sinks) -> None:
    """Loads from a sink: with fresh sinks every run starts from step 0."""
    for use, told in _all(reader, loads(sources)):
        place = str(told.control.place) if told.control is not None else ""
        is_sink = place in sinks.places or any(
            key.startswith("path:") and (told.text + "/").startswith(key[5:] + "/")
            for key in sinks.places
            if told.text
        )
        if is_sink:
            sinks.notes.append(
                f"{use.place} looks for a checkpoint where the job writes its own; with fresh "
                "folders every run starts from the first step"
            )


def _first(faults: Sequence[UserError]) -> UserError:
    first, *others = faults
    lines = [first.what, *(f"{other.where}: {other.what}" for other in others)]
    return UserError("\n".join(lines), where=first.where, fix=first.fix)

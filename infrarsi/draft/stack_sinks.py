"""Where the stacks themselves write: trackers, hubs, caches and folders that no name gives away.

A tracker that a variable takes offline is taken offline; a folder moves by the stack's own setting.
A place that neither moves is a fault, and stops before the first run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from infrarsi.contract import PlaceKind
from infrarsi.draft.settings import Setting
from infrarsi.draft.speech import is_there, names_of
from infrarsi.errors import UserError

FRESH = "fresh"
_FOLDERS = {  # names of folders and files that a dialect's own settings give
    "megatron": (
        *("data_cache_path", "wandb_save_dir", "non_persistent_global_ckpt_dir"),
        *("non_persistent_local_ckpt_dir", "trace_dir", "save", "tensorboard_dir"),
    ),
    "torchtitan": ("job.dump_folder", "dump_folder"),
    "hf-trainer": ("output_dir", "logging_dir"),
    "deepspeed": (
        *("tensorboard.output_path", "csv_monitor.output_path", "flops_profiler.output_file"),
        *("zero_optimization.offload_optimizer.nvme_path", "autotuning.results_dir"),
        *("zero_optimization.offload_param.nvme_path", "autotuning.exps_dir"),
    ),
    "axolotl": ("output_dir", "dataset_prepared_path"),
    "llama-factory": ("output_dir", "tokenized_path"),
}
_NEEDED = {  # what a dialect writes to also where the job does not say it: its default
    "torchtitan": ("job.dump_folder", "dump_folder"),
    "hf-trainer": ("output_dir",),
}
TRACKERS = {
    "wandb": (("env:WANDB_MODE", "offline"), ("env:WANDB_DIR", FRESH)),
    "mlflow": (("env:MLFLOW_TRACKING_URI", FRESH),),
    "comet_ml": (("env:COMET_MODE", "OFFLINE"), ("env:COMET_OFFLINE_DIRECTORY", FRESH)),
    "clearml": (("env:CLEARML_OFFLINE_MODE", "1"),),
    "neptune": (("env:NEPTUNE_MODE", "offline"),),
    "swanlab": (("env:SWANLAB_MODE", "offline"),),
}
_HARMLESS = ("none", "tensorboard", "codecarbon", "trackio", "no", "")  # local, below the output
_SWITCHES = {  # a setting that turns a tracker on, by its name
    "wandb_project": "wandb",
    "use_wandb": "wandb",
    "metrics.enable_wandb": "wandb",
    "wandb.enabled": "wandb",
    "use_mlflow": "mlflow",
    "mlflow_tracking_uri": "mlflow",
    "use_comet": "comet_ml",
    "comet.enabled": "comet_ml",
    "comet_project_name": "comet_ml",
}
_LOADS = {
    "megatron": ("load", "pretrained_checkpoint"),
    "torchtitan": ("checkpoint.initial_load_path",),
    "hf-trainer": ("resume_from_checkpoint",),
    "axolotl": ("resume_from_checkpoint",),
}


@dataclass
class StackSinks:
    """Places with their values and origins, notes, and what cannot be redirected."""

    places: list[tuple[str, str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[UserError] = field(default_factory=list)


def stack_sinks(settings: Sequence[Setting], dialects: Sequence[str]) -> StackSinks:
    """What a job of these dialects writes to besides the places that its own code names."""
    found = StackSinks()
    by_name = _by_name(settings)
    for dialect in dialects:
        for name in _FOLDERS.get(dialect, ()):
            setting = by_name.get(name)
            if setting is not None and (setting.value or name in _NEEDED.get(dialect, ())):
                _folder(setting, found)
    for name, tracker in _SWITCHES.items():
        setting = by_name.get(name)
        if setting is not None and setting.is_given and is_there(setting):
            _offline(tracker, _told(setting), found)
    report = by_name.get("report_to")
    if report is not None:
        _reports(report, found)
    _hub(by_name, dialects, found)
    _loads(by_name, dialects, found)
    return found


def _by_name(settings: Sequence[Setting]) -> dict[str, Setting]:
    """Settings by every name of theirs, a written one before a default."""
    found: dict[str, Setting] = {}
    for setting in sorted(settings, key=lambda s: not s.is_given):
        for name in names_of(setting):
            found.setdefault(name.lstrip("-").replace("-", "_").lower(), setting)
    return found


def _folder(setting: Setting, found: StackSinks) -> None:
    if setting.is_given and not setting.is_known:
        told = f"`{setting.place.name}` ({setting.origin}): {setting.why}; it is redirected anyway"
        found.notes.append(told)
    found.places.append((str(setting.place), FRESH, _told(setting)))


def _offline(tracker: str, told: str, found: StackSinks) -> None:
    for place, value in TRACKERS[tracker]:
        found.places.append((place, value, told))


def _reports(setting: Setting, found: StackSinks) -> None:
    """`report_to`: one or several names, `all`, or a default that differs between versions."""
    if setting.is_given and isinstance(setting.value, str):
        words = [w.strip(" '\"[]") for w in setting.value.replace(",", " ").split()]
    elif not setting.is_given and setting.is_known and isinstance(setting.value, str):
        words = [setting.value]
    else:
        words = ["all"]
    for word in words:
        if word == "all":
            told = f"{_told(setting)}: it reports to every tracker that is installed"
            for tracker in TRACKERS:
                _offline(tracker, told, found)
        elif word in TRACKERS:
            _offline(word, _told(setting), found)
        elif word not in _HARMLESS:
            found.faults.append(
                UserError(
                    f"it reports to {word!r}, which cannot be taken offline by a variable",
                    where=setting.origin,
                    fix=f"take {word!r} out of `report_to` for the runs of this search",
                )
            )


def _hub(by_name: dict[str, Setting], dialects: Sequence[str], found: StackSinks) -> None:
    push = by_name.get("push_to_hub")
    names = ["hub_model_id"] if "axolotl" in dialects else []
    for setting in (push, *(by_name.get(name) for name in names)):
        if setting is None or not is_there(setting):
            continue
        if setting.place.kind is PlaceKind.FLAG and setting is push:
            found.places.append((str(setting.place), "false", _told(setting)))
            found.notes.append(f"{_told(setting)}: no run of the search pushes to a hub")
        else:
            found.faults.append(
                UserError(
                    f"`{setting.place.name}` uploads to a model hub, which every trial would do "
                    "again",
                    where=setting.origin,
                    fix="take it out of the file for the runs of this search",
                )
            )


def _loads(by_name: dict[str, Setting], dialects: Sequence[str], found: StackSinks) -> None:
    """Where a job starts from: read, the same in every run, and never where a run writes."""
    for dialect in dialects:
        for name in _LOADS.get(dialect, ()):
            setting = by_name.get(name)
            if setting is None or not setting.is_given or not is_there(setting):
                continue
            if setting.value in (True, "True", "true"):
                found.faults.append(
                    UserError(
                        f"`{setting.place.name}` goes on from the newest checkpoint of the output "
                        "folder, which is a fresh one in every run",
                        where=setting.origin,
                        fix="name the checkpoint, or leave it out",
                    )
                )
            else:
                found.notes.append(
                    f"{_told(setting)}: every run starts from there; it is read and stays as it is"
                )


def _told(setting: Setting) -> str:
    verb = "passes" if setting.is_given else "defaults to"
    shown = setting.value if setting.is_known else "what depends on its version"
    return f"{setting.origin} {verb} {setting.place.name} {shown}"

"""What launchers do with options and variables, as far as it decides who gets a setting."""

from collections.abc import Collection

from infrarsi.scripts.model import option_key

# Options that say how a launcher starts the processes; a program has no use for such a flag.
# torchrun: torch/distributed/run.py; accelerate: commands/launch.py; deepspeed: launcher/runner.py.
_STARTING = {
    "torchrun": "nproc-per-node nnodes node-rank rdzv-backend rdzv-endpoint rdzv-id rdzv-conf "
    "max-restarts monitor-interval start-method local-ranks-filter",
    "accelerate launch": "num-processes num-machines machine-rank main-process-ip "
    "main-process-port num-cpu-threads-per-process gpu-ids",
    "deepspeed": "num-gpus num-nodes hostfile",
}
CONSOLE: dict[str, dict[str, str]] = {  # the module that a sub-command of a program runs
    "axolotl": {"train": "axolotl.cli.train"},
    "llamafactory-cli": {"train": "llamafactory.launcher"},
    "trl": {name: f"trl.scripts.{name}" for name in ("sft", "dpo", "grpo", "kto", "reward")},
}
"""Programs that libraries install, which start the processes themselves."""

FOREIGN = {
    "composer": "MosaicML Composer",
    "colossalai": "Colossal-AI",
    "fairseq-train": "fairseq",
    "fairseq-hydra-train": "fairseq",
    "fairseq2": "fairseq2",
    "lightning": "PyTorch Lightning",
    "litgpt": "LitGPT",
    "mim": "OpenMMLab",
    "nemo": "NeMo",
    "paddle": "PaddlePaddle",
    "swift": "ms-swift",
    "tune": "torchtune",
    "xtuner": "XTuner",
    "yolo": "Ultralytics",
}
"""Programs that start jobs of a framework with a training loop of its own."""

INDIRECT = ("make", "just", "task", "invoke", "poe", "npm", "dvc", "snakemake", "mlflow", "sky")
"""Programs that start what a file of theirs says."""

_RANK_NAMES = (
    "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK "
    "ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR MASTER_PORT"
)
_RANKS = frozenset(_RANK_NAMES.split())
_ACCELERATE = ("ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_", "ACCELERATE_DYNAMO_")
_GIVEN_BY_OPTION = {  # what an option of the launcher gives to the programs, whatever was set
    ("accelerate launch", "OMP_NUM_THREADS"): ("num-cpu-threads-per-process",),
    ("accelerate launch", "CUDA_VISIBLE_DEVICES"): ("gpu-ids",),
    ("deepspeed", "CUDA_VISIBLE_DEVICES"): ("include", "exclude", "num-gpus"),
}
_DEFAULT = "PET_"  # PET_NPROC_PER_NODE is torchrun's --nproc-per-node where that is not given


def starts_itself(launcher: str) -> bool:
    """Whether a command has no launcher with options of its own in front of the program."""
    return launcher == "python" or launcher in CONSOLE


def family(launcher: str) -> str:
    """The launcher whose options these are: `python -m torch.distributed.run` is torchrun."""
    return "torchrun" if launcher.startswith("python -m") else launcher


def starts_processes(launcher: str, option: str) -> bool:
    """Whether an option can only be meant for this launcher, not for the program."""
    return option_key(option) in _STARTING.get(family(launcher), "").split()


def of_another(launcher: str, option: str) -> str | None:
    """The launcher that an option belongs to, if it is another one than this."""
    key = option_key(option)
    if starts_processes(launcher, option):
        return None
    return next((name for name, options in _STARTING.items() if key in options.split()), None)


def spelled(launcher: str, option: str) -> str:
    """An option as its launcher knows it: torchrun takes `-` and `_`, the others `_`."""
    if family(launcher) == "torchrun" or not option.startswith("--"):
        return option
    return "--" + option[2:].replace("-", "_")


def gives_its_own(launcher: str, variable: str, options: Collection[str]) -> str | None:
    """Why the programs do not see a variable that the launcher is given; None if they do.

    `options` are the keys of the options that the launcher is given.
    """
    own = family(launcher)
    if own == "python":
        return None
    if variable in _RANKS or (own == "accelerate launch" and variable.startswith(_ACCELERATE)):
        return f"{own} gives its programs its own"
    if own == "torchrun" and variable.startswith(_DEFAULT):
        key = variable.removeprefix(_DEFAULT).lower().replace("_", "-")
        return f"the option --{key} is given too, and wins" if key in options else None
    winning = [o for o in _GIVEN_BY_OPTION.get((own, variable), ()) if o in options]
    return f"the option --{winning[0]} gives it to the programs" if winning else None

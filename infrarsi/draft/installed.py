"""Programs that no file of the project holds: `python -m axolotl.cli.train cfg.yaml`, `trl sft`.

Nothing of them is imported or run. Where the library is installed for the Python that runs this,
the program's file is read; otherwise a few lines stand for what the program is known to do.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from infrarsi.draft.sources import PythonFile, Sources, read
from infrarsi.errors import UserError
from infrarsi.scripts import TrainingCommand

_STAND_INS = {
    "axolotl": "from axolotl.train import train\n",
    "llamafactory": "from llamafactory.train.tuner import run_exp\n",
    "torchtitan": "from torchtitan.config import ConfigManager\n\nConfigManager().parse_args()\n",
    "trl.scripts.sft": "SFTTrainer SFTConfig",
    "trl.scripts.dpo": "DPOTrainer DPOConfig",
    "trl.scripts.grpo": "GRPOTrainer GRPOConfig",
    "trl.scripts.kto": "KTOTrainer KTOConfig",
    "trl.scripts.reward": "RewardTrainer RewardConfig",
}
"""What a module, or all of a library, is known to do; of TRL the trainer and its arguments."""

_TRL = """\
from trl import {config}, {trainer}, ModelConfig, ScriptArguments, TrlParser

parser = TrlParser((ScriptArguments, {config}, ModelConfig))
script, training, model = parser.parse_args_and_config()
trainer = {trainer}(args=training)
trainer.train()
"""


def module_file(module: str, search: Sequence[str]) -> Path | None:
    """The file that `python -m` would run, in the folders of `search`; no package is imported."""
    parts = module.split(".")
    for folder in search:
        place = Path(folder or ".").joinpath(*parts)
        for path in (place.with_name(f"{parts[-1]}.py"), place / "__main__.py"):
            if path.is_file():
                return path
    return None


def site_folders() -> list[str]:
    """Where the running Python looks for installed packages."""
    return [folder for folder in sys.path if folder.endswith(("site-packages", "dist-packages"))]


def installed(training: TrainingCommand) -> str:
    """The module of a known library, or of one installed here, that is the program; else ""."""
    module = training.entry or ""
    if not training.is_module or not module:
        return ""
    return module if stand_in(module) is not None or _here(module) is not None else ""


def entry_of(module: str) -> str:
    """The path that stands for a module: `trl/scripts/sft.py`."""
    return module.replace(".", "/") + ".py"


def stand_in(module: str) -> str | None:
    """A program in place of a library's own, None for an unknown module."""
    top = module.partition(".")[0]
    if top == "trl":
        names = _STAND_INS.get(module)
        if names is None:
            return None
        trainer, config = names.split()
        return _TRL.format(trainer=trainer, config=config)
    return _STAND_INS.get(top)


def installed_sources(module: str, where: str) -> Sources:
    """What can be read of an installed program; `where` is the place that starts it.

    Raises UserError where that is nothing. Of a library that is known only the program itself is
    read, of another one all that it imports of its own.
    """
    path, known = _here(module), stand_in(module)
    top = module.partition(".")[0]
    if path is None and known is None:
        raise UserError(
            f"the module {module!r} is neither in the project nor installed for {sys.executable}",
            where=where,
            fix="run infrarsi with the Python that has it, or name the program's file",
        )
    if path is not None and known is None:
        site = next(Path(folder) for folder in site_folders() if path.is_relative_to(folder))
        return read(site, path.relative_to(site).as_posix(), ["."], only=top)
    text = known or ""
    if path is not None:
        text = path.read_text(encoding="utf-8", errors="replace")
    file = PythonFile(entry_of(module), text)
    return Sources((file,), {"torch": where, top: where})


def installed_note(module: str, sources: Sources) -> str:
    """What was read of an installed program, for the notes of a draft."""
    path = _here(module)
    if path is not None:
        return f"the program {module} is installed ({path}), so its code is not searched"
    first = sources.entry.path
    return (
        f"the program {module} is not installed for the Python that runs infrarsi: {first} stands "
        "for what is known of it"
    )


def _here(module: str) -> Path | None:
    return module_file(module, site_folders())

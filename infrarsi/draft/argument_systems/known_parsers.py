"""Parsers of libraries that are not in the repository: their arguments by name.

`known_parsers.toml` has names, types, defaults and choices. A default that differs between versions
of a library is not in it, and is then not known.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from infrarsi.configs.constants import UNKNOWN
from infrarsi.draft.argument_systems.definition import Definition

_FILE = Path(__file__).with_name("known_parsers.toml")
_TITLES = {
    "megatron": "Megatron-LM's own arguments",
    "torchtitan": "torchtitan's own job configuration",
    "deepspeed": "`deepspeed.add_config_arguments`",
    "TrainingArguments": "TrainingArguments of transformers",
    "SFTConfig": "SFTConfig of TRL",
    "ModelConfig": "ModelConfig of TRL",
    "ScriptArguments": "ScriptArguments of TRL",
    "DatasetMixtureConfig": "DatasetMixtureConfig of TRL",
}
_TRL = ("SFTConfig", "ModelConfig", "ScriptArguments", "DatasetMixtureConfig")
_TRAINERS = {  # classes with all fields of TrainingArguments; defaults that they change
    "TrainingArguments": (),
    "Seq2SeqTrainingArguments": (),
    "SFTConfig": ("learning_rate", "logging_steps", "gradient_checkpointing", "bf16"),
    "DPOConfig": ("learning_rate", "logging_steps", "gradient_checkpointing", "bf16"),
    "GRPOConfig": ("learning_rate", "logging_steps", "gradient_checkpointing", "bf16"),
    "RewardConfig": ("learning_rate", "logging_steps", "gradient_checkpointing", "bf16"),
    "KTOConfig": ("learning_rate", "logging_steps", "gradient_checkpointing", "bf16"),
    "ORPOConfig": ("learning_rate", "logging_steps", "gradient_checkpointing", "bf16"),
    "CPOConfig": ("learning_rate", "logging_steps", "gradient_checkpointing", "bf16"),
}


def known(name: str) -> list[Definition] | None:
    """The arguments of a library's class or parser; None where it is not known."""
    if name in ("megatron", "torchtitan", "deepspeed", "TrainingArguments"):
        return list(_definitions(name))
    own = list(_definitions(name)) if name in _TRL else []
    if name not in _TRAINERS:
        return own or None
    changed = _TRAINERS[name]
    inherited = [
        replace(d, default=UNKNOWN if d.dest in changed else d.default, place=f"{name} ({d.place})")
        for d in _definitions("TrainingArguments")
    ]
    return [*own, *inherited]


@cache
def _definitions(name: str) -> tuple[Definition, ...]:
    table: Mapping[str, Mapping[str, Any]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))[name]
    makers: Mapping[str, Callable[..., Definition]] = {
        "megatron": partial(_plain, table="megatron"),
        "torchtitan": _torchtitan,
        "deepspeed": partial(_plain, table="deepspeed"),
    }
    make = makers.get(name, partial(_field, table=name))
    return tuple(make(field, row) for field, row in table.items())


def _plain(flag: str, row: Mapping[str, Any], *, table: str) -> Definition:
    made = _made((flag,), flag.lstrip("-").replace("-", "_"), row, table)
    system = "argparse" if table == "deepspeed" else table  # added to the program's own parser
    return replace(made, dest=row.get("dest", made.dest), system=system)


def _torchtitan(name: str, row: Mapping[str, Any]) -> Definition:
    dashed = name.replace("_", "-")
    names = tuple(dict.fromkeys((f"--{name}", f"--{dashed}")))
    made = _made(names, name.rpartition(".")[2], row, "torchtitan")
    if made.kind == "bool":
        group, _, last = name.rpartition(".")
        negatives = (f"--{group}.no_{last}", f"--{group}.no-{last.replace('_', '-')}")
        return replace(made, action="optional", negatives=negatives)
    return made


def _field(name: str, row: Mapping[str, Any], *, table: str) -> Definition:
    """A field of a data class of a library, as HfArgumentParser makes a flag of it."""
    names = tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")))
    made = _made(names, name, row, table)
    is_on = made.kind == "bool" and made.default is True
    return replace(made, system="HfArgumentParser", negatives=(f"--no_{name}",) if is_on else ())


def _made(names: tuple[str, ...], dest: str, row: Mapping[str, Any], table: str) -> Definition:
    action = row.get("action", "store")
    default = row.get("default", UNKNOWN if row.get("varies") else None)
    if action in ("store_true", "store_false") and not row.get("varies"):
        default = action == "store_false"
    return Definition(
        names=names,
        dest=dest,
        place=_TITLES[table],
        kind=row.get("kind", "str"),
        action=action,
        default=default,
        choices=tuple(row.get("choices", ())),
        system=table,
    )

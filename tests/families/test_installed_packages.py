"""The names of the catalogue are those of the packages that are installed here, as their code says.

Nothing is imported: the classes are parsed, so that a package need not run here. What is not
installed is skipped. Megatron-LM's arguments are in no package; the room's README says how its
names were checked.
"""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from infrarsi.families import dialects
from infrarsi.families.dialects import StackSpelling


def installed(package: str) -> tuple[Path, str]:
    """Where a package lies, and its version."""
    try:
        found = distribution(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    return Path(str(found.locate_file(""))), found.version


def spellings(dialect: str, version: str) -> list[StackSpelling]:
    return [s for s in dialects()[dialect].spellings if s.is_taken_by(version)]


def classes(*paths: Path) -> Iterator[ast.ClassDef]:
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node


def fields(node: ast.ClassDef) -> dict[str, ast.expr | None]:
    """The annotated names of a class with their default's expression."""
    return {
        each.target.id: each.value
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def literal(node: ast.expr | None) -> Any:
    """The default of a field, also inside `field(default=...)` and `Field(...)`; else `...`."""
    if isinstance(node, ast.Call):
        given = [k.value for k in node.keywords if k.arg == "default"] or node.args[:1]
        return literal(given[0]) if given else ...
    return node.value if isinstance(node, ast.Constant) else ...


def all_fields(*paths: Path, names: str = ".*") -> dict[str, ast.expr | None]:
    found: dict[str, ast.expr | None] = {}
    for node in classes(*paths):
        if re.fullmatch(names, node.name):
            found |= fields(node)
    return found


def insist_on_defaults(wanted: list[StackSpelling], known: dict[str, ast.expr | None]) -> None:
    """A default that is written out in the package is the catalogue's."""
    for each in wanted:
        there = literal(known[each.name.rpartition(".")[2]])
        if each.default is not None and there is not ... and there is not None:
            assert each.read(there) == each.default, each.name


def test_training_arguments_have_these_fields_and_defaults() -> None:
    root, version = installed("transformers")
    known = all_fields(root / "transformers/training_args.py", names="TrainingArguments")
    wanted = spellings("hf-trainer", version)
    assert [s.name for s in wanted if s.name not in known] == []
    insist_on_defaults(wanted, known)


def test_optimizers_of_the_trainer_have_these_words() -> None:
    root, version = installed("transformers")
    (names,) = (
        node
        for node in classes(root / "transformers/training_args.py")
        if node.name == "OptimizerNames"
    )
    known = {literal(each.value) for each in names.body if isinstance(each, ast.Assign)}
    for each in spellings("hf-trainer", version):
        if each.name == "optim":
            for words in each.words.values():
                assert words[0] in known


def test_accelerate_takes_these_options() -> None:
    root, version = installed("accelerate")
    text = (root / "accelerate/commands/launch.py").read_text(encoding="utf-8")
    known = {
        flag.lstrip("-").replace("-", "_")
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument"
        for flag in (literal(argument) for argument in call.args)
        if isinstance(flag, str)
    }
    assert [s.name for s in spellings("accelerate", version) if s.name not in known] == []


def test_trl_has_these_fields() -> None:
    root, version = installed("trl")
    known = all_fields(root / "trl/trainer/sft_config.py", root / "trl/trainer/model_config.py")
    wanted = spellings("trl", version)
    missing = [s.name for s in wanted if s.name not in known]
    assert missing == []
    insist_on_defaults(wanted, known)


def test_deepspeed_reads_these_keys() -> None:
    root, version = installed("deepspeed")
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in [
            *(root / "deepspeed/runtime/zero").glob("*config.py"),
            *(root / "deepspeed/runtime").glob("c*.py"),
            *(root / "deepspeed/runtime").glob("precision_config.py"),
        ]
    )
    for each in spellings("deepspeed", version):
        for part in each.name.split("."):
            assert re.search(rf"^\s*{part}\s*:|[\"']{part}[\"']", text, re.M), each.name


def test_deepspeeds_defaults_are_these() -> None:
    root, version = installed("deepspeed")
    known: dict[str, Any] = {}
    for name, value in all_fields(root / "deepspeed/runtime/zero/config.py").items():
        found = re.search(r"pp_int\((\S+?)\)", ast.unparse(value)) if value is not None else None
        alias = re.search(r"alias='(\w+)'", ast.unparse(value)) if value is not None else None
        known[alias.group(1) if alias else name] = (
            int(float(found.group(1))) if found and "," not in found.group(1) else literal(value)
        )
    for each in spellings("deepspeed", version):
        first, _, name = each.name.partition(".")
        if first == "zero_optimization" and each.default is not None and "." not in name:
            assert each.read(known[name]) == each.default, each.name


def test_torchtitan_has_these_sections_and_fields() -> None:
    root, version = installed("torchtitan")
    package = root / "torchtitan"
    paths = [*package.glob("config/*.py"), *package.glob("components/**/*.py")]
    paths += [package / "trainer.py"] if (package / "trainer.py").exists() else []
    known = all_fields(*paths)
    for each in spellings("torchtitan", version):
        for part in each.name.split("."):
            assert part in known, each.name


def test_axolotl_has_these_keys_and_defaults() -> None:
    root, version = installed("axolotl")
    known = all_fields(*(root / "axolotl/utils/schemas").glob("*.py"))
    for each in spellings("axolotl", version):
        for part in each.name.split("."):
            assert part in known, each.name
    insist_on_defaults(spellings("axolotl", version), known)


def test_llama_factory_has_these_fields() -> None:
    root, version = installed("llamafactory")
    known = all_fields(*(root / "llamafactory/hparams").glob("*.py"))
    assert [s.name for s in spellings("llama-factory", version) if s.name not in known] == []

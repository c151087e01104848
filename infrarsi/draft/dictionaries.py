"""What a program itself writes out for its library: read for its facts, never changed.

DeepSpeed's configuration as a dictionary, and the arguments of a Trainer as a call.
"""

import ast
from collections.abc import Iterator

from infrarsi.configs import Entry, Key
from infrarsi.configs.constants import UNKNOWN, constant
from infrarsi.contract import Place, PlaceKind, Scalar
from infrarsi.draft.argument_systems.annotations import kind_of
from infrarsi.draft.arguments import Definition, module_constants
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import PythonFile, Sources, dotted

_WHY = "it stands in a dictionary of the program"
_WHY_CALL = "it stands in a call of the program"
_ARGUMENTS = (
    *("TrainingArguments", "Seq2SeqTrainingArguments", "SentenceTransformerTrainingArguments"),
    *("SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig"),
    "RewardConfig",
)
_TOLD = (  # what such a call says of an update and of the job's length
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "bf16", "fp16"),
    *("num_train_epochs", "optim", "max_seq_length", "max_length"),
)
_KEYWORDS = ("config", "config_params")


def deepspeed_settings(sources: Sources) -> tuple[Setting, ...]:
    """What the dictionary that `deepspeed.initialize` is given says; none of it can be changed.

    Nothing is read of a dictionary whose name is bound twice, or that is changed afterwards.
    """
    for file, call in sources.calls("initialize"):
        if not dotted(call.func).startswith("deepspeed."):
            continue
        given = next((k.value for k in call.keywords if k.arg in _KEYWORDS), None)
        table = _dictionary(file, given)
        if table is not None:
            return tuple(_setting(file, entry) for entry in _entries(file, table, ()))
    return ()


def trainer_settings(sources: Sources) -> tuple[Setting, ...]:
    """What the one call of `TrainingArguments(...)` or its like says; none of it can be changed.

    Nothing is read where there are several calls, or where it is given a dictionary.
    """
    calls = [*sources.calls(*_ARGUMENTS)]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0][1].keywords):
        return ()
    file, call = calls[0]
    names = module_constants(file)
    found = []
    for keyword in call.keywords:
        if keyword.arg not in _TOLD:
            continue
        value = constant(keyword.value, names)
        line = keyword.value.lineno
        if value is not None and isinstance(value, Scalar):
            found.append(_setting(file, Entry((keyword.arg,), value, line, why=_WHY_CALL)))
        elif value is UNKNOWN:
            why = f"it is computed: `{ast.unparse(keyword.value)}`"
            found.append(_setting(file, Entry((keyword.arg,), None, line, why=why)))
    return tuple(found)


def _dictionary(file: PythonFile, node: ast.expr | None) -> ast.Dict | None:
    if isinstance(node, ast.Dict):
        return node
    if not isinstance(node, ast.Name):
        return None
    bound = [
        n.value
        for n in file.of(ast.Assign)
        if any(isinstance(target, ast.Name) and target.id == node.id for target in n.targets)
    ]
    parameters = [a for a in file.of(ast.arg) if a.arg == node.id]
    if len(bound) != 1 or parameters or _is_changed(file, node.id):
        return None
    return bound[0] if isinstance(bound[0], ast.Dict) else None


def _is_changed(file: PythonFile, name: str) -> bool:
    """Whether `name[...]` is set, or `name.update(...)` called, anywhere in the file."""
    for inner in file.of(ast.Subscript):
        if isinstance(inner.ctx, ast.Store | ast.Del):
            base: ast.expr = inner
            while isinstance(base, ast.Subscript):
                base = base.value
            if isinstance(base, ast.Name) and base.id == name:
                return True
    calls = (dotted(call.func) for call in file.of(ast.Call))
    return any(called in (f"{name}.update", f"{name}.setdefault") for called in calls)


def _entries(file: PythonFile, table: ast.Dict, above: Key) -> Iterator[Entry]:
    for key, value in zip(table.keys, table.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            continue
        path = (*above, key.value)
        if isinstance(value, ast.Dict):
            yield from _entries(file, value, path)
            continue
        found = constant(value, {})
        if found is None or isinstance(found, Scalar):
            yield Entry(path, found, key.lineno, why=_WHY)
        elif found is UNKNOWN:
            yield Entry(path, None, key.lineno, why=f"it is computed: `{ast.unparse(value)}`")


def _setting(file: PythonFile, entry: Entry) -> Setting:
    origin = f"{file.path}:{entry.line}"
    definition = Definition(
        names=(entry.name,),
        dest=entry.key[-1],
        place=origin,
        kind=kind_of(entry.value),
        default=entry.value,
        system="config",
        words=(False, True),
    )
    place = Place(PlaceKind.CONFIG, f"{file.path}:{entry.name}")
    return Setting(place, entry.value, origin, True, False, definition, entry.why)

"""Which files may be edited and which are frozen: decided by name and by what they define."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infrarsi.configs.constants import dotted
from infrarsi.draft.outline import Defined, last_names
from infrarsi.draft.sources import PythonFile, Sources
from infrarsi.node.digests import digest_file

_NAMES = {
    "data": r"data|dataset|datasets|corpus|tokeniz\w*|vocab\w*|preprocess\w*|augment\w*"
    r"|collat\w*|samplers?",
    "evaluation": r"eval|evaluate|evaluation|evaluator|valid|validate|validation|metrics?|scor\w+",
    "loss": r"loss|losses|criterion|criteria|objectives?",
    "timing": r"timer|timers|timing|profil\w+|bench\w*|throughput",
    "logging": r"log|logs|logger|logging|tracker|tracking|wandb_\w+|tensorboard",
}
_DEFINED = {
    "data": r"(Dataset|Sampler|Collat(or|e)\w*|Tokenizer|Vocab\w*)$"
    r"|^(collate|tokenize|encode|load_data)",
    "evaluation": r"^(eval|validat|test_|compute_metric|accuracy|perplexity)|Evaluator$|Metric\w*$",
    "loss": r"(_loss|Loss|Criterion)$|^loss_",
    "timing": r"Timer$|Stopwatch$|Profiler$|^time_",
    "logging": r"Logger$|^log_|^setup_logg",
}
_MAKERS = re.compile(  # of a library: they make a dataset or a tokenizer
    r"(.*\.)?(load_dataset|load_from_disk|DatasetDict|(Iterable)?Dataset\.from_\w+)"
    r"|(.*\.)?(Tokenizer|PreTrainedTokenizer(Fast)?|AutoTokenizer\.from_pretrained)"
)
_MAKER_WORDS = (
    *("load_dataset", "load_from_disk", "DatasetDict", "Dataset", "IterableDataset"),
    *("Tokenizer", "PreTrainedTokenizer", "PreTrainedTokenizerFast", "AutoTokenizer"),
)
_DATA_BASES = ("Dataset", "IterableDataset", "Sampler", "BatchSampler", "DistributedSampler")
_SPREADING = ("data", "evaluation")
"""What a file of such a kind imports, and nobody else does, is of that kind."""

_HALF = 0.5


@dataclass(frozen=True)
class Role:
    """What a file is, and why: `kind` is `editable` or what it is frozen as."""

    path: str
    kind: str
    why: str

    @property
    def is_frozen(self) -> bool:
        """Whether no patch may touch it."""
        return self.kind != "editable"


def roles(sources: Sources) -> tuple[Role, ...]:
    """The role of every file of the job; the entry is always editable."""
    entry = sources.entry
    found = [Role(entry.path, "editable", "the entry")]
    unreadable = set(sources.unreadable)
    found += [
        _role(file, entry)
        for file in sources.files[1:]
        if file.path not in unreadable and not _is_empty(file)
    ]
    found += [Role(path, "unreadable", "it does not parse") for path in sources.unreadable]
    return _with_imported(found, sources)


def _with_imported(found: list[Role], sources: Sources) -> tuple[Role, ...]:
    """The roles, with frozen also what only data loading or only evaluation imports.

    A package's `__init__.py` that defines nothing only hands on what others use. Models stay
    editable, and so does what builds the DataLoader.
    """
    handing = {
        f.path for f in sources.files if f.path.endswith("__init__.py") and not f.definitions
    }
    importers: dict[str, list[str]] = {}
    for path, below in sources.imports.items():
        for inner in below if path not in handing else ():
            importers.setdefault(inner, []).append(path)
    by_path = {role.path: role for role in found}
    fixed = {sources.entry.path, *handing}
    fixed |= {
        file.path
        for file in sources.files
        if _has_model(file) or _call(file, "DataLoader") is not None
    }
    while True:
        new = {
            path: by_path[importers[path][0]]
            for path, role in by_path.items()
            if not role.is_frozen
            and path not in fixed
            and path in importers
            and all(_kind(other, by_path) in _SPREADING for other in importers[path])
        }
        if not new:
            return tuple(by_path[role.path] for role in found)
        for path, first in new.items():
            others = "" if len(importers[path]) == 1 else " and the like"
            why = f"{first.kind}, imported only by {first.path}{others}"
            by_path[path] = Role(path, first.kind, why)


def _kind(path: str, by_path: Mapping[str, Role]) -> str:
    """What a file is; one without a role holds no statement."""
    return by_path[path].kind if path in by_path else ""


def digest(root: Path, path: str) -> str:
    """`sha256:` and the digest of a file of the project."""
    return digest_file(root / path)


def _role(file: PythonFile, entry: PythonFile) -> Role:
    """Datasets are frozen, but a file that builds the DataLoader stays editable.

    The recipes for workers and pinning change that call. The same batches are proven by the
    digests of what the model consumed, not by the file.
    """
    loader = _call(file, "DataLoader")
    path = Path(file.path)
    name = path.parent.name if path.name == "__init__.py" else path.stem
    if loader is not None:
        kind = _by_content(file)
        if kind in (None, "data"):
            return Role(file.path, "editable", f"it builds the DataLoader (line {loader.lineno})")
    dataset = _dataset(file)
    if dataset is not None:
        return Role(file.path, "data", f"line {dataset.lineno} defines `{dataset.name}`")
    for kind, pattern in _NAMES.items():
        words = [word for word in re.split(r"[_\d]+", name) if word]
        if any(re.fullmatch(pattern, word) for word in words) and not _has_model(file):
            return Role(file.path, kind, f"{kind}, by its name")
    by_content = _by_content(file)
    if by_content is not None:
        return Role(file.path, by_content, f"{by_content}, by what it defines")
    return Role(file.path, "editable", f"imported by {entry.path}")


def _is_empty(file: PythonFile) -> bool:
    """Whether a file has no statement: nothing but comments and blank lines."""
    lines = (line.strip() for line in file.text.splitlines())
    return not any(line and not line.startswith("#") for line in lines)


def _by_content(file: PythonFile) -> str | None:
    """The kind that at least half of a file's functions and classes are."""
    defined = file.definitions
    makers = _makers(file)
    for kind, pattern in _DEFINED.items():
        matching = [
            each
            for each in defined
            if re.search(pattern, each.name) or (kind == "data" and each in makers)
        ]
        if matching and len(matching) >= _HALF * len(defined):
            return kind
    return None


def _makers(file: PythonFile) -> set[Defined]:
    """The functions and classes that make a dataset or a tokenizer of a library."""
    if file.words.isdisjoint(_MAKER_WORDS):
        return set()
    lines = [
        call.lineno
        for calls in file.calls.values()
        for call in calls
        if call.col_offset and _MAKERS.fullmatch(dotted(call.func))
    ]
    defined = sorted(file.definitions, key=lambda each: each.line)
    above = [[each for each in defined if each.line <= line] for line in lines]
    return {each[-1] for each in above if each}


def _dataset(file: PythonFile) -> ast.ClassDef | None:
    if file.words.isdisjoint((*_DATA_BASES, "__getitem__")):
        return None
    for node in file.of(ast.ClassDef):
        bases = last_names(node)
        if any(base in _DATA_BASES for base in bases):
            return node
        methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
        if not bases and {"__getitem__", "__len__"} <= methods:
            return node
    return None


def _has_model(file: PythonFile) -> bool:
    """Whether the file defines a module that is no loss."""
    return any(
        "Module" in defined.bases and not re.search(_DEFINED["loss"], defined.name)
        for defined in file.definitions
    )


def _call(file: PythonFile, name: str) -> ast.Call | None:
    return next(iter(file.calls.get(name, ())), None) if file.holds(name) else None

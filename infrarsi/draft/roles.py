"""Which files may be edited and which are frozen: decided by name and by what they define."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

from infrarsi.draft.sources import PythonFile, Sources, dotted
from infrarsi.node.digests import digest_file

_NAMES = {
    "data": r"data|dataset|datasets|corpus|tokeniz\w*|vocab\w*|preprocess\w*|augment\w*",
    "evaluation": r"eval|evaluate|evaluation|evaluator|valid|validate|validation|metrics?|scor\w+",
    "loss": r"loss|losses|criterion|criteria|objectives?",
    "timing": r"timer|timers|timing|profil\w+|bench\w*|throughput",
    "logging": r"log|logs|logger|logging|tracker|tracking|wandb_\w+|tensorboard",
}
_DEFINED = {
    "data": r"(Dataset|Sampler|Collator|Tokenizer|Vocab\w*)$|^(collate|tokenize|encode|load_data)",
    "evaluation": r"^(eval|validat|test_|compute_metric|accuracy|perplexity)|Evaluator$|Metric\w*$",
    "loss": r"(_loss|Loss|Criterion)$|^loss_",
    "timing": r"Timer$|Stopwatch$|Profiler$|^time_",
    "logging": r"Logger$|^log_|^setup_logg",
}
_DATA_BASES = ("Dataset", "IterableDataset", "Sampler", "BatchSampler", "DistributedSampler")
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
    found += [_role(file, entry) for file in sources.files[1:] if file.tree.body]
    found += [Role(path, "unreadable", "it does not parse") for path in sources.unreadable]
    return tuple(found)


def digest(root: Path, path: str) -> str:
    """`sha256:` and the digest of a file of the project."""
    return digest_file(root / path)


def _role(file: PythonFile, entry: PythonFile) -> Role:
    """Datasets are frozen, but a file that builds the DataLoader stays editable.

    The recipes for workers and pinning change that call. The same batches are proven by the
    digests of what the model consumed, not by the file.
    """
    loader = _call(file, "DataLoader")
    name = Path(file.path).stem
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


def _definitions(file: PythonFile) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node for node in file.tree.body if isinstance(node, kinds)]


def _by_content(file: PythonFile) -> str | None:
    """The kind that at least half of a file's functions and classes are."""
    defined = _definitions(file)
    for kind, pattern in _DEFINED.items():
        matching = [node for node in defined if re.search(pattern, node.name)]
        if matching and len(matching) >= _HALF * len(defined):
            return kind
    return None


def _dataset(file: PythonFile) -> ast.ClassDef | None:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.ClassDef):
            bases = [dotted(base).rpartition(".")[2] for base in node.bases]
            if any(base in _DATA_BASES for base in bases):
                return node
            methods = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
            if not bases and {"__getitem__", "__len__"} <= methods:
                return node
    return None


def _has_model(file: PythonFile) -> bool:
    """Whether the file defines a module that is no loss."""
    for node in _definitions(file):
        if isinstance(node, ast.ClassDef) and not re.search(_DEFINED["loss"], node.name):
            bases = [dotted(base).rpartition(".")[2] for base in node.bases]
            if "Module" in bases:
                return True
    return False


def _call(file: PythonFile, name: str) -> ast.Call | None:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == name:
            return node
    return None

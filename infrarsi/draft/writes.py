"""The calls of a job's code that write to (or load from) a path."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infrarsi.draft.reaching import is_reached
from infrarsi.draft.sources import PythonFile, Sources, dotted

_POSITIONAL = {  # by full name: (position, keyword)
    "os.makedirs": (0, "name"),
    "os.mkdir": (0, "path"),
    "os.remove": (0, "path"),
    "os.unlink": (0, "path"),
    "shutil.rmtree": (0, "path"),
    "torch.save": (1, "f"),
    "torch.jit.save": (1, "f"),
    "torch.onnx.export": (2, "f"),
    "np.save": (0, "file"),
    "np.savez": (0, "file"),
    "np.savez_compressed": (0, "file"),
    "np.savetxt": (0, "fname"),
    "numpy.save": (0, "file"),
    "numpy.savez": (0, "file"),
    "plt.savefig": (0, "fname"),
    "shutil.copy": (1, "dst"),
    "shutil.copy2": (1, "dst"),
    "shutil.copyfile": (1, "dst"),
    "shutil.copytree": (1, "dst"),
    "shutil.move": (1, "dst"),
    "os.rename": (1, "dst"),
    "os.replace": (1, "dst"),
    "os.symlink": (1, "dst"),
    "sqlite3.connect": (0, "database"),
    "logging.basicConfig": (99, "filename"),
    "wandb.init": (99, "dir"),
}
_LAST_NAME = {  # by the last name alone
    "SummaryWriter": (0, "log_dir"),
    "FileHandler": (0, "filename"),
    "RotatingFileHandler": (0, "filename"),
    "TimedRotatingFileHandler": (0, "filename"),
    "save_file": (1, "filename"),
    "save_image": (1, "fp"),
    "savefig": (0, "fname"),
    "save_pretrained": (0, "save_directory"),
    "FileSystemWriter": (0, "path"),
    "ProjectConfiguration": (0, "project_dir"),
    "TrainingArguments": (0, "output_dir"),
    "Seq2SeqTrainingArguments": (0, "output_dir"),
    "SFTConfig": (0, "output_dir"),
    "DPOConfig": (0, "output_dir"),
    "GRPOConfig": (0, "output_dir"),
    "RewardConfig": (0, "output_dir"),
    "KTOConfig": (0, "output_dir"),
    "ORPOConfig": (0, "output_dir"),
    "to_csv": (0, "path_or_buf"),
    "to_parquet": (0, "path"),
    "to_json": (0, "path_or_buf"),
}
_ON_PATH = ("mkdir", "write_text", "write_bytes", "touch", "unlink", "rmdir")
_OPENERS = ("open", "io.open", "gzip.open", "bz2.open", "lzma.open", "codecs.open", "h5py.File")
_READERS = ("torch.load", "np.load", "numpy.load", "os.path.exists", "os.path.isfile", "load_file")
_TENSORBOARD = "SummaryWriter"
_TENSORBOARD_DEFAULT = "runs"
_ENGINE_WRITES = {  # methods of DeepSpeed's engine: (position, keyword)
    "save_checkpoint": (0, "save_dir"),
    "save_16bit_model": (0, "save_dir"),
}
ENGINE_LOAD = "load_checkpoint"
"""The method of DeepSpeed's engine: it is given the folder that its checkpoints lie in."""
_WRITTEN = (*_POSITIONAL, *_LAST_NAME, *_ON_PATH, *_ENGINE_WRITES, "open", "h5py.File")
_HUBS = ("push_to_hub", "upload_file", "upload_folder", "create_repo")


@dataclass(frozen=True)
class PathUse:
    """One call with a path: `path` is its expression, or a text that the library itself chooses."""

    file: PythonFile
    call: ast.Call
    path: ast.AST
    name: str

    @property
    def place(self) -> str:
        """`train.py:88`."""
        return self.file.place(self.call)


def writes(sources: Sources) -> Iterator[PathUse]:
    """Every call that makes, changes or removes a file or folder."""
    for file, node in sources.of(ast.Call, *_WRITTEN):
        path = _written(node)
        last = dotted(node.func).rpartition(".")[2]
        if path is None and last in _ENGINE_WRITES and _is_engines(node, sources):
            path = _argument(node, *_ENGINE_WRITES[last])
        if path is not None:
            yield PathUse(file, node, path, dotted(node.func))


def loads(sources: Sources) -> Iterator[PathUse]:
    """Every call that loads a checkpoint or looks whether one is there."""
    for file, node in sources.of(ast.Call, *_READERS, ENGINE_LOAD):
        if dotted(node.func) in _READERS and node.args:
            yield PathUse(file, node, node.args[0], dotted(node.func))
        elif dotted(node.func).rpartition(".")[2] == ENGINE_LOAD and _is_engines(node, sources):
            path = _argument(node, 0, "load_dir")
            if path is not None:
                yield PathUse(file, node, path, ENGINE_LOAD)


def _is_engines(node: ast.Call, sources: Sources) -> bool:
    """Whether a call may be one of DeepSpeed's engine: of a method that is not the project's."""
    if "deepspeed" not in sources.external or not isinstance(node.func, ast.Attribute):
        return False
    return isinstance(node.func.value, ast.Name | ast.Attribute) and not any(
        other.name == node.func.attr for _, other in sources.of(ast.FunctionDef, node.func.attr)
    )


def uploads(sources: Sources) -> Iterator[tuple[str, frozenset[str]]]:
    """The places that send something to a model hub, each with the names that decide on it.

    A function that only offers it and that the job never comes to is none.
    """
    for file in sources.holding(*_HUBS):
        for node, guards in _guarded(file.tree, frozenset()):
            called = dotted(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
            if called in _HUBS and is_reached(file, node, sources):
                yield file.place(node), guards


def imported(sources: Sources, module: str) -> Iterator[tuple[str, frozenset[str]]]:
    """The places that import a module, each with the names that decide on it."""
    for file in sources.holding(module):
        for node, guards in _guarded(file.tree, frozenset()):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            is_it = any(name.partition(".")[0] == module for name in names)
            if is_it and is_reached(file, node, sources):
                yield file.place(node), guards | _of_callers(file, node, sources)


def _of_callers(file: PythonFile, node: ast.AST, sources: Sources) -> frozenset[str]:
    """The names that decide on every call of the function that a node stands in."""
    while node in file.parents and not isinstance(node, ast.FunctionDef):
        node = file.parents[node]
    if not isinstance(node, ast.FunctionDef):
        return frozenset()
    found = [
        guards
        for other in sources.holding(f"{node.name}(")
        for call, guards in _guarded(other.tree, frozenset())
        if isinstance(call, ast.Call) and dotted(call.func).rpartition(".")[2] == node.name
    ]
    return frozenset.intersection(*found) if found else frozenset()


def _guarded(node: ast.AST, guards: frozenset[str]) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """Every node with the names without any one of which it is not come to."""
    yield node, guards
    if isinstance(node, ast.If | ast.IfExp):
        body: list[ast.AST] = [*node.body] if isinstance(node.body, list) else [node.body]
        inside = guards | _sole_names(node.test)
        for child in body:
            yield from _guarded(child, inside)
        others: list[ast.AST] = [*node.orelse] if isinstance(node, ast.If) else [node.orelse]
        for child in (node.test, *others):
            yield from _guarded(child, guards)
        return
    for child in ast.iter_child_nodes(node):
        yield from _guarded(child, guards)


def _sole_names(test: ast.expr) -> frozenset[str]:
    """The names without any one of which a condition does not hold: `args.push`, `a and b`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return frozenset().union(*(_sole_names(value) for value in test.values))
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.IsNot):
        test = test.left  # `args.hub_id is not None`
    name = dotted(test).rpartition(".")[2]
    return frozenset({name} if name else ())


def _written(node: ast.Call) -> ast.AST | None:
    name = dotted(node.func)
    last = name.rpartition(".")[2]
    if name in _POSITIONAL:
        return _argument(node, *_POSITIONAL[name])
    is_method = isinstance(node.func, ast.Attribute) and name == last
    if name in _OPENERS and not is_method:
        return _argument(node, 0, "file") if _writes(_argument(node, 1, "mode")) else None
    if last in _LAST_NAME:
        path = _argument(node, *_LAST_NAME[last])
        if path is None and last == _TENSORBOARD:
            return ast.Constant(_TENSORBOARD_DEFAULT)
        return path
    if not isinstance(node.func, ast.Attribute):
        return None
    if last in _ON_PATH and "." not in _imported_module(name):
        return node.func.value
    if last == "open" and isinstance(node.func.value, ast.Name | ast.Call | ast.BinOp):
        return node.func.value if _writes(_argument(node, 0, "mode")) else None
    return None


def _imported_module(name: str) -> str:
    return "." if name.startswith(("os.", "shutil.", "zipfile.", "tarfile.")) else ""


def _argument(node: ast.Call, position: int, keyword: str) -> ast.expr | None:
    for given in node.keywords:
        if given.arg == keyword:
            return given.value
    arguments: Sequence[ast.expr] = node.args
    return arguments[position] if position < len(arguments) else None


def _writes(mode: ast.expr | None) -> bool:
    return (
        isinstance(mode, ast.Constant)
        and isinstance(mode.value, str)
        and any(letter in mode.value for letter in "wax+")
    )

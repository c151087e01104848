"""The Python files of a job: the entry and all project files that it imports, parsed, never run."""

import ast
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infrarsi.configs.constants import dotted
from infrarsi.errors import UserError

__all__ = ["PythonFile", "Sources", "dotted", "mentions", "read"]


@dataclass(frozen=True)
class PythonFile:
    """One file: `path` relative to the project, its text and its tree."""

    path: str
    text: str
    tree: ast.Module

    def place(self, node: ast.AST) -> str:
        """`train.py:31`."""
        return f"{self.path}:{getattr(node, 'lineno', 1)}"


@dataclass(frozen=True)
class Sources:
    """The entry first, then what it imports, in the order of discovery.

    `external` maps each imported top-level name that is not the project's to its first place;
    `unreadable` lists imported project files that do not parse.
    """

    files: tuple[PythonFile, ...]
    external: dict[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @property
    def entry(self) -> PythonFile:
        """The program that is started."""
        return self.files[0]

    def walk(self) -> Iterator[tuple[PythonFile, ast.AST]]:
        """Every node of every file."""
        for file in self.files:
            for node in ast.walk(file.tree):
                yield file, node


def read(root: Path, entry: str, search: Sequence[str]) -> Sources:
    """Follow imports from `entry` through the project, in the folders of `search` (its sys.path).

    Raises UserError if the entry itself is no Python.
    """
    found: dict[str, PythonFile] = {}
    external: dict[str, str] = {}
    unreadable: list[str] = []
    pending = [entry]
    while pending:
        path = pending.pop(0)
        if path in found or path in unreadable:
            continue
        try:
            file = _parse(root, path)
        except (SyntaxError, ValueError, OSError) as error:
            if path == entry:
                raise _unusable(path, error) from error
            unreadable.append(path)
            continue
        found[path] = file
        for name, place, level in _imports(file):
            paths = _resolve(root, path, name, level, search)
            pending.extend(paths)
            if not paths and not level:
                external.setdefault(name.partition(".")[0], place)
    return Sources(tuple(found.values()), external, tuple(unreadable))


def _unusable(path: str, error: Exception) -> UserError:
    line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    return UserError(
        f"the entry does not parse as Python: {getattr(error, 'msg', error)}",
        where=f"{path}{line}",
        fix="give the Python file that trains with --entry",
    )


def _parse(root: Path, path: str) -> PythonFile:
    text = (root / path).read_text(encoding="utf-8")
    return PythonFile(path, text, ast.parse(text))


def _imports(file: PythonFile) -> Iterator[tuple[str, str, int]]:
    """(dotted name, place, level of a relative import) of everything that a file imports."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, file.place(node), 0
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if base:
                yield base, file.place(node), node.level
            for alias in node.names:
                if alias.name != "*":
                    name = f"{base}.{alias.name}" if base else alias.name
                    yield name, file.place(node), node.level
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("import_module"):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value.lstrip("."), file.place(node), 0


def _resolve(root: Path, path: str, name: str, level: int, search: Sequence[str]) -> list[str]:
    """The project files that an import of `name` runs: packages on the way, and the module."""
    bases = list(search)
    if level:
        base = posixpath.dirname(path)
        for _ in range(level - 1):
            base = posixpath.dirname(base)
        bases = [base]
    for base in bases:
        files: list[str] = []
        at = base
        for part in name.split("."):
            at = posixpath.normpath(posixpath.join(at, part))
            package = posixpath.join(at, "__init__.py")
            if (root / f"{at}.py").is_file():
                files.append(f"{at}.py")
                break
            if (root / package).is_file():
                files.append(package)
            elif not (root / at).is_dir():
                break
        if files:
            return files
    return []


def mentions(node: ast.AST, name: str) -> bool:
    """Whether an expression uses a setting: `args.name`, `name` or `args["name"]`."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and inner.attr == name:
            return True
        if isinstance(inner, ast.Name) and inner.id == name:
            return True
        if (
            isinstance(inner, ast.Subscript)
            and isinstance(inner.slice, ast.Constant)
            and inner.slice.value == name
        ):
            return True
    return False

"""What a change of source files changes, as far as it can be executed by itself."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass

_OPTIMIZER_ARGUMENTS = ("fused", "foreach", "capturable")


@dataclass(frozen=True)
class Changes:
    """The parts of a change.

    `classes`: (file, qualified name) of classes whose code, or the code of a function that they
    call, is another. `optimizer`: arguments that constructions of optimizers gained. `elsewhere`:
    the first place (`train.py:41`) that neither covers, "" if there is none.
    """

    classes: tuple[tuple[str, str], ...]
    optimizer: Mapping[str, bool]
    elsewhere: str


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> Changes:
    """Compare two versions of the same files by their syntax trees.

    Raises SyntaxError if a changed file does not parse.
    """
    classes: list[tuple[str, str]] = []
    functions: set[str] = set()
    optimizer: dict[str, bool] = {}
    elsewhere = ""
    for path in sorted(after):
        old_text, new_text = before.get(path, ""), after[path]
        if old_text == new_text or not path.endswith(".py"):
            continue
        old, new = ast.parse(old_text, path), ast.parse(new_text, path)
        gained = _optimizer_arguments(new, old)
        if gained:
            optimizer.update(gained)
            new = _without_arguments(new, gained)
        old_classes, new_classes = _classes(old), _classes(new)
        classes += [
            (path, name)
            for name, node in new_classes.items()
            if name in old_classes and _text(node) != _text(old_classes[name])
        ]
        functions |= {
            name
            for name, node in _functions(new).items()
            if _text(node) != _text(_functions(old).get(name))
        }
        place = _first_elsewhere(old, new)
        if place and not elsewhere:
            elsewhere = f"{path}:{place}"
    used = [c for c in _users(after, functions) if c not in classes]
    return Changes(tuple(classes + used), optimizer, elsewhere)


def has_checkable(before: Mapping[str, str], after: Mapping[str, str]) -> bool:
    """Whether a change touches a class or an optimizer, which recorded calls can speak of."""
    try:
        found = changes(before, after)
    except SyntaxError:
        return True  # the check says so
    return bool(found.classes or found.optimizer)


def _text(node: ast.AST | None) -> str:
    return ast.dump(node) if node is not None else ""


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _functions(tree: ast.Module) -> dict[str, ast.AST]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def _users(files: Mapping[str, str], functions: set[str]) -> list[tuple[str, str]]:
    """Classes that name one of the changed functions."""
    found = []
    for path in sorted(files) if functions else ():
        if not path.endswith(".py"):
            continue
        for name, node in _classes(ast.parse(files[path], path)).items():
            named = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            named |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            if named & functions:
                found.append((path, name))
    return found


def _first_elsewhere(old: ast.Module, new: ast.Module) -> int | None:
    """The line of the first statement outside classes and imports that is new or another."""
    kept = {ast.dump(n) for n in old.body}
    for node in new.body:
        is_covered = isinstance(node, ast.ClassDef | ast.Import | ast.ImportFrom)
        if not is_covered and ast.dump(node) not in kept:
            return _changed_line(node, {ast.dump(n) for n in ast.walk(old)})
    return None


def _changed_line(node: ast.stmt, known: set[str]) -> int:
    """The line of the first changed statement that holds no changed statement itself."""
    inner = [n for n in ast.walk(node) if isinstance(n, ast.stmt) and ast.dump(n) not in known]
    deepest = [n for n in inner if not any(m in inner for m in ast.walk(n) if m is not n)]
    return min((n.lineno for n in deepest), default=node.lineno)


def _optimizer_arguments(new: ast.Module, old: ast.Module) -> dict[str, bool]:
    """Arguments of `_OPTIMIZER_ARGUMENTS` that calls in the new tree have more often."""
    gained = {}
    for name in _OPTIMIZER_ARGUMENTS:
        values = [_values(tree, name) for tree in (old, new)]
        if len(values[1]) > len(values[0]) and set(values[1]) == {True}:
            gained[name] = True
    return gained


def _values(tree: ast.Module, name: str) -> list[object]:
    return [
        keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == name
    ]


def _without_arguments(tree: ast.Module, gained: Mapping[str, bool]) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [k for k in node.keywords if k.arg not in gained]
    return tree

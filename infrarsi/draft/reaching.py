"""Whether a job can come to a place in its own code: by the names of the functions around it.

Asked backwards and only where it matters. A method counts as reached, since a library may call it;
a function is reached if its name stands in code that is, outside of imports.
"""

import ast
from collections.abc import Set

from infrarsi.draft.sources import PythonFile, Sources

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_reached(
    file: PythonFile, node: ast.AST, sources: Sources, seen: Set[str] = frozenset()
) -> bool:
    """Whether the job may run `node`; True where that cannot be told."""
    around = None
    at = node
    while at in file.parents:
        at = file.parents[at]
        if isinstance(at, ast.ClassDef):
            return True
        if isinstance(at, _Function):
            around = at
        if isinstance(at, ast.If) and _is_main(at.test) and file is not sources.entry:
            return False
    if around is None:
        return True
    if around.name in seen:
        return False
    return any(
        is_reached(other, use, sources, {*seen, around.name})
        for other in sources.holding(around.name)
        for use in _uses(other, around.name)
    )


def _uses(file: PythonFile, name: str) -> list[ast.AST]:
    plain: list[ast.AST] = [use for use in file.of(ast.Name) if use.id == name]
    return [*plain, *(use for use in file.of(ast.Attribute) if use.attr == name)]


def _is_main(test: ast.expr) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(test))

"""Programs that cut a batch into pieces and call `backward` for each: the batch is the whole."""

import ast
from collections.abc import Iterator

from infrarsi.draft.sources import PythonFile, Sources, dotted

_CUTTING = ("chunk", "split", "tensor_split", "array_split")
_STEPPING = ("step", "zero_grad")


def cut_at(sources: Sources) -> str:
    """The place of a loop over pieces of one batch; "" where there is none.

    A loop that also steps the optimizer goes over batches, whatever it cuts.
    """
    for file in sources.holding("backward"):
        for loop in file.of(ast.For):
            called = {dotted(n.func).rpartition(".")[2] for n in _calls(loop)}
            if "backward" in called and not called & set(_STEPPING) and _cuts(file, loop):
                return file.place(loop)
    return ""


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))


def _cuts(file: PythonFile, loop: ast.For) -> bool:
    names = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    if _is_cut(file, loop.iter):
        return True
    for inner in (node for statement in loop.body for node in ast.walk(statement)):
        if not isinstance(inner, ast.Subscript):
            continue
        bounds = inner.slice.elts if isinstance(inner.slice, ast.Tuple) else [inner.slice]
        is_slice = any(isinstance(bound, ast.Slice) for bound in bounds)
        used = {n.id for n in ast.walk(inner.slice) if isinstance(n, ast.Name)}
        if used & names and (is_slice or _is_cut(file, inner.value)):
            return True
    return False


def _is_cut(file: PythonFile, node: ast.expr) -> bool:
    """Whether an expression has pieces of a tensor, by itself or by the name that it has."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and _is_cutting(inner):
            return True
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    return any(
        isinstance(assigned.value, ast.Call)
        and _is_cutting(assigned.value)
        and any(isinstance(target, ast.Name) and target.id in names for target in assigned.targets)
        for assigned in file.of(ast.Assign)
    )


def _is_cutting(call: ast.Call) -> bool:
    """Whether a call cuts a tensor; `text.split(",")` does not."""
    texts = any(isinstance(a, ast.Constant) and isinstance(a.value, str) for a in call.args)
    return dotted(call.func).rpartition(".")[2] in _CUTTING and bool(call.args) and not texts

"""Checks of a job on its own values, which a patch may move but not lose.

A run without an overflow trains the same with and without its check, so no measurement can tell
that one is gone; only the text can.
"""

import ast
from collections import Counter
from collections.abc import Iterable

_CHECKS = frozenset({"isfinite", "isnan", "isinf"})
_LEAVES = (ast.Raise, ast.Continue, ast.Break, ast.Return)
_EXITS = frozenset({"exit", "_exit", "quit", "abort"})

Guard = tuple[str, int, str]


def guards(path: str, tree: ast.AST) -> list[Guard]:
    """The checks for values that are not finite, as path, line and condition."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.Assert) and _guards(node):
            found.append((path, node.lineno, ast.unparse(node.test)))
    return sorted(found)


def lost(before: Iterable[Guard], after: Iterable[Guard]) -> list[Guard]:
    """As many of `before` as `after` has fewer, those first whose condition is nowhere any more."""
    had, has = list(before), list(after)
    missing = len(had) - len(has)
    left = Counter(condition for _, _, condition in has)
    gone = []
    for guard in had:
        if left[guard[2]] > 0:
            left[guard[2]] -= 1
        else:
            gone.append(guard)
    return gone[: max(0, missing)]


def _guards(node: ast.If | ast.Assert) -> bool:
    """`not x < limit` counts too where it ends the run or drops gradients: unlike `x >= limit` it
    is true of a NaN."""
    return (_asks(node.test) and _acts(node)) or (_is_negated(node.test) and _drops(node))


def _is_negated(test: ast.expr) -> bool:
    orders = ast.Lt | ast.LtE | ast.Gt | ast.GtE
    return any(
        isinstance(part, ast.UnaryOp)
        and isinstance(part.op, ast.Not)
        and isinstance(part.operand, ast.Compare)
        and isinstance(part.operand.ops[0], orders)
        for part in ast.walk(test)
    )


def _drops(node: ast.If | ast.Assert) -> bool:
    inner = [part for statement in getattr(node, "body", ()) for part in ast.walk(statement)]
    return any(
        isinstance(part, ast.Raise) or _last(part) in ("grad", "zero_grad") for part in inner
    )


def _asks(test: ast.expr) -> bool:
    never = any(isinstance(n, ast.Constant) and n.value in (False, 0, None) for n in _ands(test))
    calls = (node.func for node in ast.walk(test) if isinstance(node, ast.Call))
    return not never and any(_last(function) in _CHECKS for function in calls)


def _ands(test: ast.expr) -> list[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return test.values
    return [test]


def _acts(node: ast.If | ast.Assert) -> bool:
    """Whether anything comes of it."""
    if isinstance(node, ast.Assert):
        return True
    inner = [child for statement in node.body + node.orelse for child in ast.walk(statement)]
    return any(
        isinstance(child, _LEAVES) or (isinstance(child, ast.Call) and _last(child.func) in _EXITS)
        for child in inner
    )


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""

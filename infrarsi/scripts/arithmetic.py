"""Integer arithmetic of `$(( ))` and `(( ))`, as far as it is known."""

import operator
from collections.abc import Callable

from tree_sitter import Node

_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda a, b: bool(a) and bool(b),
    "||": lambda a, b: bool(a) or bool(b),
    "/": lambda a, b: int(a / b),
    "%": lambda a, b: a - b * int(a / b),
}


def calculate(
    node: Node, lookup: Callable[[str], int | None], raw: Callable[[Node], str]
) -> int | None:
    """The value of an arithmetic node; None if a variable is unknown or a form is not supported."""
    kind = node.type
    if kind == "number":
        text = raw(node)
        return int(text) if text.isdigit() else None
    if kind in ("variable_name", "word"):
        return lookup(raw(node))
    if kind == "simple_expansion":
        return lookup(raw(node)[1:])
    if kind == "expansion" and len(node.children) == 3:
        return lookup(raw(node.children[1]))
    if kind == "binary_expression":
        left, sign, right = node.children[0], node.children[1], node.children[-1]
        function = _BINARY.get(raw(sign))
        a, b = calculate(left, lookup, raw), calculate(right, lookup, raw)
        if function is None or a is None or b is None or (raw(sign) in "/%" and b == 0):
            return None
        return int(function(a, b))
    if kind == "unary_expression" and raw(node.children[0]) == "-":
        value = calculate(node.children[-1], lookup, raw)
        return None if value is None else -value
    if kind in ("arithmetic_expansion", "parenthesized_expression", "compound_statement"):
        named = node.named_children
        return calculate(named[0], lookup, raw) if len(named) == 1 else None
    return None

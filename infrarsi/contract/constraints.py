"""The small grammar of `constraints` in infrarsi.yaml: parsed, never evaluated as Python.

    expression := conjunction ("or" conjunction)*
    conjunction := negation ("and" negation)*
    negation   := "not" negation | comparison
    comparison := sum (("<" | "<=" | ">" | ">=" | "==" | "!=" | "in") sum)*
    sum        := product (("+" | "-") product)*
    product    := unary (("*" | "/" | "//" | "%") unary)*
    unary      := "-" unary | number | string | "true" | "false" | name
                | "(" expression ")" | "[" expression ("," expression)* "]"

Names are knob families (or knob names), `world` and `data_parallel`.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infrarsi.errors import UserError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d+|\d+)|(?P<string>\"[^\"]*\"|'[^']*')"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<op><=|>=|==|!=|//|[-+*/%<>()\[\],]))"
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "in": lambda item, items: item in items,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_Node = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True)
class Constraint:
    """One parsed constraint."""

    text: str
    names: frozenset[str]
    _evaluate: _Node

    @classmethod
    def parse(cls, text: str) -> "Constraint":
        """Parse `text`; raises UserError that quotes the column of what it does not know."""
        try:
            return _Parser(text).parse()
        except RecursionError:
            raise UserError(
                f"constraint {text[:40]!r}... is nested too deeply",
                fix="split it into several constraints: all of them must hold",
            ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return Constraint.parse, (self.text,)

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it holds; names without a value and comparisons of unlike types do not bind."""
        if not self.names <= values.keys():
            return True
        try:
            return bool(self._evaluate(values))
        except (TypeError, ZeroDivisionError):
            return True


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens(text))
        self.position = 0
        self.names: set[str] = set()

    def _tokens(self, text: str) -> Iterator[tuple[str, str, int]]:
        at = 0
        stripped = text.rstrip()
        while at < len(stripped):
            match = _TOKEN.match(stripped, at)
            if match is None:
                rest = stripped[at:].lstrip()
                column = len(stripped) - len(rest) + 1
                raise self._error(f"column {column}: {rest[:12]!r} is not known")
            kind = match.lastgroup or ""
            yield kind, match.group(kind), match.start(kind)
            at = match.end()

    def _error(self, what: str) -> UserError:
        return UserError(
            f"constraint {self.text!r}: {what}",
            fix="write comparisons of families, such as `micro_batch <= 4`",
        )

    def parse(self) -> Constraint:
        node = self._or()
        if self.position < len(self.tokens):
            _, token, column = self.tokens[self.position]
            raise self._error(f"column {column + 1}: {token!r} is not expected")
        return Constraint(self.text, frozenset(self.names), node)

    def _take(self, *tokens: str) -> str | None:
        if self.position < len(self.tokens) and self.tokens[self.position][1] in tokens:
            self.position += 1
            return self.tokens[self.position - 1][1]
        return None

    def _or(self) -> _Node:
        node = self._and()
        while self._take("or"):
            node = _both(node, self._and(), lambda a, b: a or b)
        return node

    def _and(self) -> _Node:
        node = self._not()
        while self._take("and"):
            node = _both(node, self._not(), lambda a, b: a and b)
        return node

    def _not(self) -> _Node:
        if self._take("not"):
            inner = self._not()
            return lambda values: not inner(values)
        return self._comparison()

    def _comparison(self) -> _Node:
        left = self._sum()
        links: list[_Node] = []
        while token := self._take(*_COMPARE):
            right = self._sum()
            links.append(_both(left, right, _COMPARE[token]))
            left = right
        if not links:
            return left
        return lambda values: all(link(values) for link in links)

    def _sum(self) -> _Node:
        node = self._product()
        while token := self._take("+", "-"):
            node = _both(node, self._product(), _ARITHMETIC[token])
        return node

    def _product(self) -> _Node:
        node = self._unary()
        while token := self._take("*", "/", "//", "%"):
            node = _both(node, self._unary(), _ARITHMETIC[token])
        return node

    def _unary(self) -> _Node:
        if self._take("-"):
            inner = self._unary()
            return lambda values: -inner(values)
        if self._take("("):
            node = self._or()
            self._close(")")
            return node
        if self._take("["):
            items = [self._or()]
            while self._take(","):
                items.append(self._or())
            self._close("]")
            return lambda values: [item(values) for item in items]
        return self._atom()

    def _close(self, token: str) -> None:
        if not self._take(token):
            raise self._error(f"{token!r} is missing")

    def _atom(self) -> _Node:
        if self.position >= len(self.tokens):
            raise self._error("it ends too early")
        kind, token, column = self.tokens[self.position]
        self.position += 1
        if kind == "number":
            number = float(token) if "." in token else int(token)
            return lambda values: number
        if kind == "string":
            return lambda values: token[1:-1]
        if kind == "name" and token not in ("and", "or", "not", "in"):
            if token.lower() in ("true", "false"):
                return lambda values: token.lower() == "true"
            self.names.add(token)
            return lambda values: values[token]
        raise self._error(f"column {column + 1}: {token!r} is not expected")


def _both(left: _Node, right: _Node, join: Callable[[Any, Any], Any]) -> _Node:
    return lambda values: join(left(values), right(values))

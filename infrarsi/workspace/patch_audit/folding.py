"""Text that a program puts together from constants, as far as it can be told without running it."""

import ast
import base64
import binascii
import codecs
import re
from collections.abc import Callable, Iterable

_METHODS: dict[str, Callable[..., str]] = {
    "lower": str.lower,
    "upper": str.upper,
    "strip": str.strip,
    "swapcase": str.swapcase,
    "title": str.title,
    "capitalize": str.capitalize,
    "replace": str.replace,
    "removeprefix": str.removeprefix,
    "removesuffix": str.removesuffix,
}
_JOINS = ("join", "joinpath")
_SAME = ("str", "Path", "PurePath", "PosixPath", "fspath", "expanduser", "abspath", "realpath",
         "intern", "resolve", "absolute", "as_posix")  # fmt: skip
_HOMES = {"home": "~", "gettempdir": "/tmp", "mkdtemp": "/tmp"}
_MAX = 10_000
_WIDE = re.compile(r"\d{4}")  # a width that would make a text of any size
_DEPTH = 40


class Fold:
    """Folds expressions of one module; a name counts if all that it is bound to is one text."""

    def __init__(self, nodes: Iterable[ast.AST]) -> None:
        self._values: dict[str, list[ast.expr | None]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self._values.setdefault(target.id, []).append(node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._values.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self._values.setdefault(node.target.id, []).append(None)
            elif isinstance(node, ast.arg):
                self._values.setdefault(node.arg, []).append(None)

    def text(self, node: ast.AST | None) -> str | None:
        """The whole text, None where it cannot be told."""
        try:
            value = self._value(node, 0)
        except (ValueError, TypeError, IndexError, OverflowError, UnicodeError, LookupError):
            return None
        if isinstance(value, bytes):
            value = value.decode("latin-1")
        return value if isinstance(value, str) and len(value) < _MAX else None

    def begins(self, node: ast.AST | None, depth: int = 0) -> str:
        """The part of a text or path from its start that can be told."""
        whole = self.text(node)
        if whole is not None or node is None or depth > _DEPTH:
            return whole or ""
        depth += 1
        if isinstance(node, ast.BinOp):
            return self.begins(node.left, depth)
        if isinstance(node, ast.JoinedStr):
            return self.begins(node.values[0], depth) if node.values else ""
        if isinstance(node, ast.FormattedValue):
            return self.begins(node.value, depth)
        if isinstance(node, ast.Name):
            only = self._only(node.id)
            return self.begins(only, depth) if only is not None else ""
        if isinstance(node, ast.Call):
            return self._call_begins(node, depth)
        return ""

    def _call_begins(self, node: ast.Call, depth: int) -> str:
        name = _last(node.func)
        if name in _HOMES:
            return _HOMES[name]
        if name in _JOINS and node.args and isinstance(node.func, ast.Attribute):
            base = self.begins(node.func.value, depth)
            return base or self.begins(node.args[0], depth)
        if name in _SAME and node.args:
            return self.begins(node.args[0], depth)
        if name in (*_SAME, "format", "with_suffix") and isinstance(node.func, ast.Attribute):
            text = self.begins(node.func.value, depth)
            return text.partition("{")[0] if name == "format" else text
        return ""

    def is_pieced(self, node: ast.AST | None) -> bool:
        """Whether a known text is neither a literal nor a name of one."""
        if node is None or self.text(node) is None or isinstance(node, ast.Constant):
            return False
        if isinstance(node, ast.Name):
            return self.is_pieced(self._only(node.id))
        return True

    def _only(self, name: str) -> ast.expr | None:
        values = self._values.get(name, [])
        return values[0] if len(values) == 1 else None

    def _value(self, node: ast.AST | None, depth: int) -> object:
        if node is None or depth > _DEPTH:
            return None
        depth += 1
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._value(self._only(node.id), depth)
        if isinstance(node, ast.BinOp):
            return self._operation(node, depth)
        if isinstance(node, ast.JoinedStr):
            parts = [self._value(part, depth) for part in node.values]
            return None if None in parts else "".join(map(str, parts))
        if isinstance(node, ast.FormattedValue):
            return self._value(node.value, depth)
        if isinstance(node, ast.List | ast.Tuple):
            items = [self._value(item, depth) for item in node.elts]
            return None if None in items else items
        if isinstance(node, ast.Subscript):
            return self._item(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._value(node.operand, depth)
            return -value if isinstance(value, int) else None
        return None

    def _operation(self, node: ast.BinOp, depth: int) -> object:
        left, right = self._value(node.left, depth), self._value(node.right, depth)
        if isinstance(node.op, ast.Div) and isinstance(left, str) and isinstance(right, str):
            return right if right.startswith("/") else f"{left.rstrip('/')}/{right}"
        if isinstance(node.op, ast.Mult) and isinstance(left, str) and isinstance(right, int):
            return left * right if len(left) * right < _MAX else None
        if isinstance(node.op, ast.Mod) and isinstance(left, str) and right is not None:
            if _WIDE.search(left):
                return None
            return left % (tuple(right) if isinstance(right, list) else right)
        if isinstance(node.op, ast.Add) and type(left) is type(right) and left is not None:
            return left + right  # type: ignore[operator]  # str, bytes, list or int
        return None

    def _item(self, node: ast.Subscript, depth: int) -> object:
        value = self._value(node.value, depth)
        if not isinstance(value, str | list | bytes):
            return None
        if isinstance(node.slice, ast.Slice):
            ends = (node.slice.lower, node.slice.upper, node.slice.step)
            parts = [None if end is None else self._value(end, depth) for end in ends]
            lower, upper, step = (part if isinstance(part, int) else None for part in parts)
            return value[lower:upper:step]
        index = self._value(node.slice, depth)
        return value[index] if isinstance(index, int) else None

    def _call(self, node: ast.Call, depth: int) -> object:
        name = _last(node.func)
        arguments = [self._value(argument, depth) for argument in node.args]
        if None in arguments or node.keywords:
            return None
        if name in _SAME and arguments:
            return _joined(arguments) if len(arguments) > 1 else arguments[0]
        if name in ("chr", "bytes", "b64decode", "a2b_base64", "unhexlify", "fromhex", "bytearray"):
            return _decoded(name, arguments)
        if not isinstance(node.func, ast.Attribute):
            return None
        base = self._value(node.func.value, depth)
        if name == "decode" and base is None and arguments[1:] in (["rot13"], ["rot_13"]):
            return codecs.decode(str(arguments[0]), "rot13")
        if name in _JOINS and base is None:
            return _joined(arguments)
        if isinstance(base, bytes) and name == "decode":
            return base.decode()
        if not isinstance(base, str):
            return None
        if name == "join" and arguments and isinstance(arguments[0], list):
            return base.join(map(str, arguments[0]))
        if name == "joinpath":
            return _joined([base, *arguments])
        if name == "format" and not _WIDE.search(base):
            return base.format(*arguments)
        if name in _METHODS:
            return _METHODS[name](base, *arguments)
        return base if name in _SAME else None


def _joined(parts: list[object]) -> str | None:
    """As `os.path.join` puts them together."""
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) != len(parts) or not texts:
        return None
    for index in range(len(texts) - 1, 0, -1):
        if texts[index].startswith("/"):
            return "/".join(texts[index:])
    return "/".join(texts)


def _decoded(name: str, arguments: list[object]) -> object:
    if len(arguments) != 1:
        return None
    value = arguments[0]
    if name == "chr" and isinstance(value, int):
        return chr(value)
    if name in ("bytes", "bytearray") and isinstance(value, list):
        return bytes(value)
    try:
        if name in ("b64decode", "a2b_base64") and isinstance(value, str | bytes):
            return base64.b64decode(value)
        if name in ("unhexlify", "fromhex") and isinstance(value, str | bytes):
            return bytes.fromhex(value if isinstance(value, str) else value.decode())
    except binascii.Error:
        return None
    return None


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""

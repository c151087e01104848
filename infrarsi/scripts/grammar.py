"""Bash's grammar."""

from functools import lru_cache

import tree_sitter_bash
from tree_sitter import Language, Node, Parser, Tree


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def parse(source: bytes) -> Tree:
    """The syntax tree of a script."""
    return _parser().parse(source)


def as_quoted(source: bytes, start: int, end: int) -> Node | None:
    """A part of a source as if it stood between double quotes; None where it is not understood.

    The grammar takes `$1` and `$((...))` in a heredoc for text or for a command. The places of the
    nodes are those of the source.
    """
    text = bytearray(source[start:end])
    closing: list[int] = []
    index = 0
    while index < len(text):
        byte = text[index]
        if byte == 0x5C:  # a backslash and what it escapes
            if text[index + 1 : index + 2] == b'"' and not closing:
                text[index + 1] = 0x27
            index += 2
            continue
        if closing and byte == closing[-1]:
            closing.pop()
        elif byte == 0x24 and (after := bytes(text[index + 1 : index + 2])) in (b"(", b"{"):
            closing.append(0x29 if after == b"(" else 0x7D)
            index += 1
        elif closing and byte == 0x28 and closing[-1] == 0x29:
            closing.append(0x29)
        elif byte == 0x60:
            closing.append(0x60)
        elif byte == 0x22 and not closing:
            text[index] = 0x27  # a quote is text here
        index += 1
    root = parse(b" " * (start - 1) + b'"' + bytes(text) + b'"').root_node
    node: Node | None = root
    while node is not None and node.type != "string":
        node = node.named_children[0] if node.named_children else None
    whole = node is not None and (node.start_byte, node.end_byte) == (start - 1, end + 1)
    return node if whole and not root.has_error else None

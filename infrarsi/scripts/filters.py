"""Commands of a pipeline that count the parts of a list, as scripts count their GPUs."""

import re

_FIELDS = re.compile(r"\{\s*print\s+NF\s*;?\s*\}")


def filtered(words: list[str], text: str) -> str | None:
    """What a command makes of its input, for awk's `NF`, `tr`, and `wc`; None for any other."""
    name, *rest = words
    if name == "awk":
        return _awk(rest, text)
    if name == "tr" and len(rest) == 2 and len(rest[0]) == 1 and rest[1] in ("\\n", "\n", " "):
        return text.replace(rest[0], rest[1].replace("\\n", "\n"))
    if name == "wc" and rest in (["-l"], ["-w"]):
        return f"{text.count(chr(10)) if rest == ['-l'] else len(text.split())}\n"
    return None


def _awk(rest: list[str], text: str) -> str | None:
    """The number of fields of a line, by a separator of one character or by blanks."""
    separator: str | None = None
    if rest and rest[0].startswith("-F"):
        separator = rest[0][2:] or (rest[1] if len(rest) > 1 else "")
        rest = rest[1:] if rest[0][2:] else rest[2:]
    if len(rest) != 1 or not _FIELDS.fullmatch(rest[0].strip()) or text.count("\n") != 1:
        return None
    if separator is not None and len(separator) != 1:
        return None
    line = text.rstrip("\n")
    return f"{len(line.split(separator)) if line else 0}\n"

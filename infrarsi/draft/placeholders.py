"""What a script leaves for its user to fill in: `CHECKPOINT=<your path>`."""

import re

from infrarsi.errors import UserError

_ASSIGNED = re.compile(r"(?:^|\s)\w+=(<[A-Za-z][^<>|&;()]*>)")
_FLAG = re.compile(r"\s--?[\w-]+[ \t=](<[A-Za-z][^<>|&;()]*\s[^<>|&;()]*>)")
_SPOKEN = re.compile(r"\b(echo|printf|usage)\b", re.IGNORECASE)


def insist_on_filled(text: str, where: str) -> None:
    """Raises UserError where a bare `<...>` stands for a value: the shell reads a file by it."""
    for number, line in enumerate(text.splitlines(), 1):
        code = re.split(r"(?:^|\s)#", line)[0]
        found = _ASSIGNED.search(code) or _FLAG.search(code)
        if found is not None and not _SPOKEN.search(code):
            raise UserError(
                f"`{found.group(1)}` stands where a value must be",
                where=f"{where}:{number}",
                fix="write your own value there",
            )

"""The audit of one patch, file by file, from the texts before and after it."""

import ast
import difflib
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from infrarsi.contract import Touch
from infrarsi.workspace.patch_audit import text_lines
from infrarsi.workspace.patch_audit.areas import in_order
from infrarsi.workspace.patch_audit.guards import Guard, guards, lost
from infrarsi.workspace.patch_audit.names import Names
from infrarsi.workspace.patch_audit.tampering import findings
from infrarsi.workspace.patch_audit.touching import touched

_TEXT = 120
_GUARD_LOST = "a check for values that are not finite is gone, and no run could tell"
_NOT_PYTHON = "it cannot be read as Python, so it cannot be audited"


@dataclass(frozen=True)
class Refusal:
    """One thing that keeps a patch from being launched; its text is a sentence with the place."""

    path: str
    line: int
    code: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: `{self.code}`: {self.why}"


@dataclass(frozen=True)
class Audit:
    """What was found in a patch: why it is refused, and what its changed lines touch.

    `plain_lines` counts the changed lines that touch none of the areas.
    """

    refusals: tuple[Refusal, ...]
    touches: tuple[Touch, ...]
    plain_lines: int


def audit(before: Mapping[str, str], after: Mapping[str, str]) -> Audit:
    """Audit the change from `before` to `after`, texts by path; equal and missing files are equal.

    Code that was only moved, or laid out anew, is no finding, not from one file to another either.
    Python by its syntax tree, shell scripts and other files by lines. Nothing is run.
    """
    paths = sorted(path for path in after if after[path] != before.get(path, ""))
    refusals = [*_refusals(before, after, paths), *_lost_guards(before, after, paths)]
    changes = [_Change(path, before.get(path, ""), after[path]) for path in paths]
    _leave_out_moved(changes)
    touches: list[Touch] = []
    plain = 0
    for change in changes:
        told = change.touches()
        touches += told
        plain += change.lines - len(told)
    return Audit(tuple(refusals), tuple(touches), plain)


def _refusals(
    before: Mapping[str, str], after: Mapping[str, str], paths: list[str]
) -> list[Refusal]:
    had: set[tuple[str, str]] = set()
    imported: dict[str, dict[str, set[str]]] = {}
    for path in paths:
        text = before.get(path, "")
        tree = _parsed(path, text)
        if tree is None:
            had |= {(line, why) for _, line, why in _refused_lines(path, text)}
        else:
            imported[path] = Names(tree).imported
            had |= {finding.key for finding in findings(tree)}
    found: list[Refusal] = []
    for path in paths:
        text = after[path]
        tree = _parsed(path, text)
        if tree is not None:
            for finding in findings(tree, imported.get(path)):
                if finding.key not in had:
                    found.append(Refusal(path, finding.line, _cut(finding.code), finding.why))
            continue
        if path.endswith(".py") and _parsed(path, before.get(path, "")) is not None:
            line = _broken_line(text)
            found.append(Refusal(path, line, _cut(_line(text, line)), _NOT_PYTHON))
        for number, line_text, why in _refused_lines(path, text):
            if (line_text, why) not in had:
                found.append(Refusal(path, number, _cut(line_text), why))
    return found


def _lost_guards(
    before: Mapping[str, str], after: Mapping[str, str], paths: list[str]
) -> list[Refusal]:
    """Guards that are gone; the line is that of the file as it was."""
    had: list[Guard] = []
    has: list[Guard] = []
    for path in paths:
        for found, text in ((had, before.get(path, "")), (has, after[path])):
            tree = _parsed(path, text)
            found += [] if tree is None else guards(path, tree)
    return [Refusal(path, line, _cut(code), _GUARD_LOST) for path, line, code in lost(had, has)]


def _refused_lines(path: str, text: str) -> list[tuple[int, str, str]]:
    return text_lines.refused_in(text, shell=text_lines.is_shell(path, text))


@dataclass
class _Change:
    path: str
    before: str
    after: str
    added: dict[int, str] = field(default_factory=dict)
    removed: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        old, new = self.before.split("\n"), self.after.split("\n")
        matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
        for tag, i1, i2, j1, j2 in matcher.get_opcodes():
            if tag != "equal":
                self.removed |= {i + 1: old[i].strip() for i in range(i1, i2) if old[i].strip()}
                self.added |= {j + 1: new[j].strip() for j in range(j1, j2) if new[j].strip()}

    @property
    def lines(self) -> int:
        return len(self.added) + len(self.removed)

    def touches(self) -> list[Touch]:
        found = []
        for text, lines, removed in (
            (self.before, self.removed, True),
            (self.after, self.added, False),
        ):
            tree = _parsed(self.path, text)
            areas = (
                text_lines.touched_in(text, lines.keys())
                if tree is None
                else touched(tree, lines.keys())
            )
            found += [
                Touch(self.path, number, in_order(areas[number]), _cut(lines[number]), removed)
                for number in sorted(areas)
            ]
        return sorted(found, key=lambda touch: (touch.line, not touch.removed))


def _leave_out_moved(changes: list[_Change]) -> None:
    """Take out as many added and removed lines as are the same but for their place."""
    gone = Counter(text for change in changes for text in change.removed.values())
    come = Counter(text for change in changes for text in change.added.values())
    moved = gone & come
    for side in ("added", "removed"):
        left = Counter(moved)
        for change in changes:
            lines: dict[int, str] = getattr(change, side)
            for number, text in list(lines.items()):
                if left[text] > 0:
                    left[text] -= 1
                    del lines[number]


def _parsed(path: str, text: str) -> ast.AST | None:
    if not path.endswith((".py", ".pyw")):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's own, such as an unknown escape
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _broken_line(text: str) -> int:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return error.lineno or 1
    except (ValueError, RecursionError, MemoryError):
        pass
    return 1


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1].strip() if number <= len(lines) else ""


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."

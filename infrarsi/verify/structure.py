"""Which models a run trains: names, shapes, dtypes, what is trainable, what is tied."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from infrarsi.contract import ExecutionResult, RankRecord
from infrarsi.verify.fingerprints import model_lines, renaming
from infrarsi.verify.precisions import canonical, within

Line = dict[str, Any]
_COUNTS = (
    ("tensors", "parameter tensors"),
    ("numel", "parameters"),
    ("trainable", "trainable parameters"),
)


def paired_ranks(
    reference: ExecutionResult, other: ExecutionResult
) -> list[tuple[RankRecord, RankRecord]]:
    """Which rank of the reference each rank of a run is compared with.

    Its own where both have as many ranks; else the first, as replicas have the same models.
    """
    if not reference.ranks:
        return []
    same = len(reference.ranks) == len(other.ranks)
    return [(reference.ranks[i if same else 0], rank) for i, rank in enumerate(other.ranks)]


def model_difference(ours: RankRecord, theirs: RankRecord) -> str:
    """How the models of a rank differ from the reference's, in words; "" where they do not."""
    mine, found = list(model_lines(ours)), list(model_lines(theirs))
    if not found:
        return "no model was seen, the reference trains " + ", ".join(_title(m) for m in mine)
    left = []
    for line in mine:
        twin = next((other for other in found if not line_difference(line, other)), None)
        if twin is None:
            left.append(line)
        else:
            found.remove(twin)
    # A compiled function is one root where the reference calls several modules, and the other way.
    known, whole = _names(model_lines(ours)), _names(model_lines(theirs))
    if left and len(model_lines(ours)) != len(model_lines(theirs)):
        if known == whole and _sum(left, "numel") == _sum(found, "numel"):
            return ""
        left = [line for line in left if not set(_names([line])) <= set(whole)]
    if left:
        near = min(found, key=lambda other: _unlike(left[0], other), default=None)
        if near is None:
            return f"the model {_title(left[0])} was not seen"
        return line_difference(left[0], near)
    new = [line for line in found if not set(_names([line])) <= set(known)]
    if new:
        return f"it trains {_title(new[0])}, which the reference does not"
    return ""


def line_difference(ours: Line, theirs: Line) -> str:
    """How one model differs, in words; "" where it is the same but for wrappers around it."""
    title = _title(ours)
    names = {str(n) for n in ours.get("names") or ()}, {str(n) for n in theirs.get("names") or ()}
    new_names = renaming(*names)
    renamed = {new_names.get(name, name) for name in names[1]}
    gone, new = sorted(names[0] - renamed), sorted(renamed - names[0])
    if gone:
        return f"{title} is without the parameter `{gone[0]}`{_more(gone)}" + (
            f", and has `{new[0]}`" if new else ""
        )
    if new:
        return f"{title} has a parameter `{new[0]}`{_more(new)} that the reference has not"
    for key, what in _COUNTS:
        if ours.get(key) != theirs.get(key):
            return f"{title} has {theirs.get(key)} {what}, in the reference {ours.get(key)}"
    dtypes = [sorted({canonical(d) for d in line.get("dtypes") or ()}) for line in (ours, theirs)]
    lower = [d for d in dtypes[1] if not within(d, dtypes[0])]
    if lower or (not dtypes[1] and dtypes[0]):
        return f"{title} has parameters in {dtypes[1]}, in the reference {dtypes[0]}"
    same_digest = ours.get("digest") == theirs.get("digest")
    if dtypes[0] == dtypes[1] and names[0] == names[1] and not same_digest:
        return f"{title} has other shapes, dtypes or trainable parameters under the same names"
    return _ties(ours, theirs)


def _ties(ours: Line, theirs: Line) -> str:
    if "ties" not in ours:
        return ""
    tied = [len(line.get("ties") or ()) for line in (ours, theirs)]
    if tied[0] != tied[1]:
        return f"{_title(ours)} ties {tied[1]} groups of parameters, in the reference {tied[0]}"
    return ""


def _names(lines: Sequence[Line]) -> Counter[str]:
    return Counter(str(name) for line in lines for name in line.get("names") or ())


def _sum(lines: Sequence[Line], key: str) -> int:
    return sum(int(line.get(key) or 0) for line in lines)


def _unlike(ours: Line, theirs: Line) -> int:
    return len(set(_names([ours])) ^ set(_names([theirs])))


def _title(line: Line) -> str:
    return f"the model {line.get('cls', '?')}"


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""

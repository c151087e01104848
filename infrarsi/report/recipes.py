"""Which code changes fit this job, for the report and for the terminal."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from infrarsi.report.tables import table
from infrarsi.runs import RunState

_UNCHECKED = "local check not possible"


def recipes_table(state: RunState) -> str:
    """The section of the report, "" before the recipes were tried."""
    if not state.recipes:
        return ""
    rows = [(f"`{name}`", status, why) for name, status, why in recipe_rows(state.recipes)]
    parts = ["## Code recipes", table(("recipe", "on this job", "why"), rows)]
    return "\n\n".join([*parts, *repeated_notes(state.recipes)])


def recipe_rows(recipes: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """(name, what became of it, why); a reason that several share is a `*`."""
    shared = _shared(recipes)
    rows = []
    for recipe in recipes:
        why = recipe["reason"] or "; ".join(recipe["notes"])
        if recipe["reason"] in shared:
            why = "; ".join(["not tried on recorded calls*", *recipe["notes"]])
        rows.append((recipe["name"], recipe["status"].replace("_", " "), why))
    return rows


def repeated_notes(recipes: Sequence[dict[str, Any]]) -> list[str]:
    """What a `*` stands for, one line for each shared reason."""
    return [
        f"\\* {reason[0].upper()}{reason[1:]}. This holds for {count} of them; their trials are "
        "judged all the same."
        for reason, count in _shared(recipes).items()
    ]


def _shared(recipes: Sequence[dict[str, Any]]) -> dict[str, int]:
    counts = Counter(r["reason"] for r in recipes if r["reason"].startswith(_UNCHECKED))
    return {reason: count for reason, count in counts.items() if count > 1}

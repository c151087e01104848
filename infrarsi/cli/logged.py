"""What the job's log says beside the record, for a person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infrarsi.verify.logged import Logged

_GIB = 2**30
_NAMES = {
    "step_time_s": "step time, s",
    "loss": "loss",
    "grad_norm": "gradient norm",
    "learning_rate": "learning rate",
    "tokens_per_s": "tokens/s",
    "samples_per_s": "samples/s",
    "tflops": "TFLOP/s",
    "mfu": "utilization",
    "memory_bytes": "peak memory",
}


def logged_lines(found: Sequence["Logged"], restarts: Sequence[int]) -> list[str]:
    """One line a figure; nothing where the log has none."""
    lines = [f"The log begins anew in line {line}." for line in restarts]
    if found:
        lines.append("What the job prints, beside the record:")
    lines += [f"  printed {_NAMES[one.metric]:14s} {_line(one)}" for one in found]
    return lines


def _line(one: "Logged") -> str:
    printed = f"`{one.label or 'a time'}` " + (
        "is left open" if one.printed is None else f"{_shown(one.metric, one.printed)}"
    )
    if one.recorded is None:
        return printed + (f" ({one.note})" if one.note else "")
    known = _shown(one.metric, one.recorded)
    if one.agrees is None:
        return f"{printed}, measured {known}: {one.note}"
    return f"{printed}, measured {known}: {'they agree' if one.agrees else 'THEY DIFFER'}"


def _shown(metric: str, value: float) -> str:
    if metric == "memory_bytes":
        return f"{value / _GIB:.3f} GiB"
    return f"{value:.5g}"

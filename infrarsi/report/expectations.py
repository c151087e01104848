"""The report's section on how far the searcher's predictions were right."""

from infrarsi.contract.wording import counted
from infrarsi.report.tables import gib, speedup, table
from infrarsi.runs import Calibration, Expectation, RunState, calibration_of, within


def expectations(state: RunState) -> str:
    """Expected against measured, trial by trial; "" where nothing was predicted and measured."""
    found = calibration_of(state)
    numbers = sorted({*found.speed, *found.peak})
    if not numbers:
        return ""
    rows = [(n, *_speeds(found.speed.get(n)), *_peaks(found.peak.get(n))) for n in numbers]
    names = ("#", "expected speed-up", "measured*", "expected peak", "measured")
    return "\n\n".join(
        ["## What was expected", table(names, rows), _summary(found), "\\* One run each, as above."]
    )


def _speeds(each: Expectation | None) -> tuple[object, ...]:
    if each is None:
        return None, None
    interval = f"{speedup(each.expected)} ({speedup(each.low)} to {speedup(each.high)})"
    return interval, speedup(each.measured)


def _peaks(each: Expectation | None) -> tuple[object, ...]:
    if each is None:
        return None, None
    low, high = gib(int(each.low)), gib(int(each.high))
    return f"{gib(int(each.expected))} ({low} to {high})", gib(int(each.measured))


def _summary(found: Calibration) -> str:
    parts = ["In brackets: where four of five measurements should lie."]
    for what, each in (("speed-ups", found.speed), ("peaks", found.peak)):
        if each:
            inside = [within(list(each.values()), confidence) for confidence in (0.8, 0.95)]
            parts.append(
                f"{inside[0]} of {len(each)} measured {what} do "
                f"({inside[1]} in the interval for 95 %)."
            )
    if found.log_bias is not None and len(found.speed) > 1:
        direction = "faster" if found.log_bias > 0 else "slower"
        parts.append(
            f"On average {counted(len(found.speed), 'trial')} came out {abs(found.log_bias):.1%} "
            f"{direction} than expected."
        )
    if found.fits_brier is not None:
        parts.append(f"Mean squared error of the probabilities of fitting: {found.fits_brier:.3f}.")
    return " ".join(parts)

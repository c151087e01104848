"""Markdown building blocks of the report."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; cells are escaped, None is a dash."""
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines += [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return str(value).replace("|", "\\|").replace("\n", " ")


def seconds(value: float | None) -> str:
    """A duration with a unit that fits."""
    if value is None:
        return "-"
    if value < 1:
        return f"{1000 * value:.1f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min"


def speedup(value: float | None) -> str:
    """A speed-up."""
    return "-" if value is None else f"{value:.3f}x"


def gib(value: int | None) -> str:
    """Bytes as GiB."""
    return "-" if value is None else f"{value / 2**30:.2f} GiB"

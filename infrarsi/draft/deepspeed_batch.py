"""The split of an update under DeepSpeed, whose file gives two or three of its numbers.

    train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x processes

What the file leaves out DeepSpeed works out, and a file whose numbers disagree it refuses. Here the
accumulation and the micro batch are set together, so that the whole stays whether it is written or
not.
"""

from collections.abc import Sequence

from infrarsi.contract import Knob, PlaceKind, Scalar, ValueChange
from infrarsi.draft.knobs import Found, spread
from infrarsi.draft.settings import Setting

_MICRO = "train_micro_batch_size_per_gpu"
_ACCUMULATION = "gradient_accumulation_steps"
_WHOLE = "train_batch_size"
_NAMES = (_MICRO, _ACCUMULATION, _WHOLE)


def numbers(settings: Sequence[Setting], each: int | None) -> dict[str, int] | None:
    """The three numbers of an update over `each` processes; None where they are not known."""
    written = {s.place.key: s for s in _written(settings)}
    if each is None or any(_count(s) is None for s in written.values()):
        return None
    micro, times, whole = (_count(written[n]) if n in written else None for n in _NAMES)
    if micro is None and whole is None:
        return None
    if micro is None and whole is not None:
        micro = whole // (each * (times or 1))
    assert micro is not None
    if times is None:
        times = 1 if whole is None else whole // (micro * each) if micro else 0
    found = dict(zip(_NAMES, (micro, times, whole or micro * times * each), strict=True))
    fits = found[_MICRO] * found[_ACCUMULATION] * each == found[_WHOLE]
    return found if fits and found[_WHOLE] else None


def split(
    settings: Sequence[Setting], each: int | None, *, counts_micro_steps: bool
) -> tuple[Found | None, str] | None:
    """The knob and its origin, or None and why there is none; None where no file gives a number."""
    written = _written(settings)
    if not written:
        return None
    told = ", ".join(f"{s.origin}: {s.place.key} {s.value}" for s in written)
    if counts_micro_steps:
        return None, (
            "the number of steps counts micro-steps, so another split would change the schedule; "
            "the micro batch is not searched"
        )
    fixed = next((s for s in written if not s.is_known), None)
    if fixed is not None:
        return None, f"`{fixed.place.key}` ({fixed.origin}) cannot be changed: {fixed.why}"
    found = numbers(settings, each)
    if found is None or each is None:
        number = "an unknown number of" if each is None else each
        return None, (
            f"{told}: these make no update of {number} processes; the micro batch is not searched"
        )
    size, share = found[_MICRO], found[_WHOLE] // each
    file = f"config:{written[0].place.file}"
    values: dict[Scalar, ValueChange] = {
        n: ValueChange(set={f"{file}:{_MICRO}": n, f"{file}:{_ACCUMULATION}": share // n})
        for n in spread(size, [n for n in range(1, share + 1) if share % n == 0])
    }
    if len(values) < 2:
        return None, f"{told}: there is no other split"
    knob = Knob(name="micro_batch", family="micro_batch", values=values, reference=size)
    return Found(knob, f"{told}; an update of {each} processes stays {found[_WHOLE]} samples"), ""


def _written(settings: Sequence[Setting]) -> list[Setting]:
    """What one file says of the three numbers, `auto` left out."""
    found = [s for s in settings if s.place.kind is PlaceKind.CONFIG and s.place.key in _NAMES]
    return [s for s in found if s.place.file == found[0].place.file and s.value != "auto"]


def _count(setting: Setting) -> int | None:
    value = setting.value
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return int(value) if is_count else None  # type: ignore[arg-type]

"""The split of an update into micro-steps as one knob that leaves the update's size alone."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from infrarsi.contract import Knob, Scalar, ValueChange
from infrarsi.draft.knobs import Found, Surroundings, spread
from infrarsi.draft.settings import Setting
from infrarsi.draft.slicing import cut_at
from infrarsi.draft.sources import PythonFile, Sources, dotted, mentions
from infrarsi.families import catalogue, normal_flag

_WHOLE = (
    "--global-batch-size",
    "--total-batch-size",
    "--effective-batch-size",
    "--update-batch-size",
    "--gbs",
)
_DERIVED = ("lr", "learning_rate", "base_lr", "blr", "weight_decay", "wd", "warmup", "momentum")
_CUT = "into pieces, so it is no micro batch; its split is not searched"
_WORLD = ("world", "nproc", "n_gpus", "num_gpus", "ngpus", "ddp_size", "num_processes")


@dataclass(frozen=True)
class Batch:
    """The settings that make up an update: `micro`, `accumulation` and the `whole`, where found."""

    micro: Setting | None
    accumulation: Setting | None
    whole: Setting | None


def batch_settings(settings: Sequence[Setting]) -> Batch:
    """The most specific batch flag is the micro batch; a second, less specific one is the whole."""
    sizes = sorted(_of("micro_batch", settings), key=lambda pair: pair[0])
    wholes = [s for s in settings if normal_flag(s.words) in _WHOLE]
    accumulations = sorted(_of("gradient_accumulation", settings), key=lambda pair: pair[0])
    return Batch(
        micro=sizes[0][1] if sizes else None,
        accumulation=accumulations[0][1] if accumulations else None,
        whole=wholes[0] if wholes else sizes[1][1] if len(sizes) > 1 else None,
    )


def micro_batch(
    batch: Batch, sources: Sources, around: Surroundings, *, counts_micro_steps: bool
) -> tuple[Found | None, str]:
    """The knob and its origin, or None and why there is none."""
    micro, accumulation, whole = batch.micro, batch.accumulation, batch.whole
    if micro is None:
        return None, "no flag for the batch size was found, so its split is not searched"
    for setting in (micro, accumulation, whole):
        if setting is not None and not setting.is_known:
            name, reason = setting.place.name, setting.why
            return None, f"`{name}` ({setting.origin}) cannot be read: {reason}"
    if counts_micro_steps:
        return None, (
            "the number of steps counts micro-steps, so another split would change the schedule; "
            "the micro batch is not searched"
        )
    derived = _derived(micro, accumulation, sources)
    if derived:
        return None, (
            f"{derived} computes from `{micro.place.name}`, so it would change with the split; "
            "the micro batch is not searched"
        )
    if accumulation is None:
        return _inside_whole(micro, whole, sources, around)
    if _division(micro, accumulation, sources) is not None:
        return _by_accumulation(micro, accumulation, around)
    if cut := cut_at(sources):
        return None, f"{cut} cuts a batch of `{micro.place.name}` {_CUT}"
    return _both(micro, accumulation, _factor(micro, sources, around))


def _of(family: str, settings: Sequence[Setting]) -> list[tuple[int, Setting]]:
    flags = [normal_flag(flag) for flag in catalogue()[family].spelling.flags]
    found = []
    for setting in settings:
        own = setting.spellings
        ranks = [flags.index(normal_flag(name)) for name in own if normal_flag(name) in flags]
        unset = setting.is_known and setting.value is None
        if ranks and not unset:
            found.append((min(ranks), setting))
    return found


def _both(micro: Setting, accumulation: Setting, factor: int) -> tuple[Found | None, str]:
    counts = _counts(micro, accumulation)
    if counts is None:
        return None, _no_counts(micro, accumulation)
    size, times = counts
    total = size * times
    fitting = [n for n in _divisors(total) if n % factor == 0 or n == size]
    values: dict[Scalar, ValueChange] = {
        n: ValueChange(set={str(micro.place): n, str(accumulation.place): total // n})
        for n in spread(size, fitting)
    }
    origin = (
        f"{micro.origin}: {micro.place.name} {size}, {accumulation.origin}: "
        f"{accumulation.place.name} {times}; their product stays {total}"
    )
    return _knob(values, size, origin)


def _by_accumulation(
    whole: Setting, accumulation: Setting, around: Surroundings
) -> tuple[Found | None, str]:
    """The batch flag is an update's size and the program divides it by the accumulation."""
    counts = _counts(whole, accumulation)
    if counts is None or counts[0] % counts[1]:
        return None, _no_counts(whole, accumulation)
    size, times = counts
    each = [n for n in _divisors(size) if n % around.world == 0 or n == size // times]
    values: dict[Scalar, ValueChange] = {
        n: ValueChange(set={str(accumulation.place): size // n})
        for n in spread(size // times, each)
    }
    origin = f"{whole.origin}: {whole.place.name} {size} is divided by {accumulation.place.name}"
    return _knob(values, size // times, origin)


def _inside_whole(
    micro: Setting, whole: Setting | None, sources: Sources, around: Surroundings
) -> tuple[Found | None, str]:
    """Without an accumulation flag the split is free only if the program computes it.

    A part of the micro batch of today divides the whole whatever else the program divides by; a
    larger one is taken only if nothing but the processes comes in.
    """
    division = None if whole is None else _division(whole, micro, sources)
    if whole is None or division is None:
        return None, (
            f"`{micro.place.name}` has no accumulation flag beside it, so another value would "
            "change the update; the micro batch is not searched"
        )
    counts = _counts(micro, whole)
    if counts is None:
        return None, _no_counts(micro, whole)
    size, total = counts
    is_plain = _is_plain(division.right, micro)
    fitting = [
        n
        for n in _divisors(total)
        if size % n == 0 or (is_plain and total % (n * around.world) == 0)
    ]
    values: dict[Scalar, ValueChange] = {
        n: ValueChange(set={str(micro.place): n}) for n in spread(size, fitting)
    }
    origin = f"{micro.origin}: {micro.place.name} {size} of {whole.place.name} {total}"
    return _knob(values, size, origin)


def _knob(
    values: dict[Scalar, ValueChange], reference: int, origin: str
) -> tuple[Found | None, str]:
    if len(values) < 2:
        return None, f"{origin}: there is no other split"
    knob = Knob(name="micro_batch", family="micro_batch", values=values, reference=reference)
    return Found(knob, origin), ""


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _counts(*settings: Setting) -> tuple[int, int] | None:
    """The values of two settings, if both are positive whole numbers."""
    found = [s.value for s in settings if isinstance(s.value, int) and s.value is not True]
    return (found[0], found[1]) if len(found) == 2 and min(found) > 0 else None


def _no_counts(*settings: Setting) -> str:
    listed = " and ".join(f"`{s.place.name}` is {s.value!r} ({s.origin})" for s in settings)
    return f"{listed}, which makes no split; the micro batch is not searched"


def _operations(
    setting: Setting, near: Sequence[str], sources: Sources
) -> Iterator[tuple[PythonFile, ast.BinOp]]:
    """The operations on a setting in files where one of the texts stands near its name."""
    for file in sources.files:
        if file.has_near(setting.dest, near):
            for node in file.of(ast.BinOp):
                if file.spells(node, setting.dest):
                    yield file, node


def _division(left: Setting, right: Setting, sources: Sources) -> ast.BinOp | None:
    """Where the program divides one setting by an expression with the other."""
    for _, node in _operations(left, ("/",), sources):
        if (
            isinstance(node.op, ast.Div | ast.FloorDiv)
            and mentions(node.left, left.dest)
            and mentions(node.right, right.dest)
        ):
            return node
    return None


def _is_plain(node: ast.expr, micro: Setting) -> bool:
    """Whether an expression is a product of the micro batch and the number of processes alone."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _is_plain(node.left, micro) and _is_plain(node.right, micro)
    if isinstance(node, ast.Call):
        node = node.func
    name = dotted(node).rpartition(".")[2]
    return name == micro.dest or any(word in name.lower() for word in _WORLD)


def _factor(micro: Setting, sources: Sources, around: Surroundings) -> int:
    """What the batch flag must be divisible by: the processes, if the program divides by them."""
    for _, node in _operations(micro, ("/",), sources):
        if not isinstance(node.op, ast.Div | ast.FloorDiv):
            continue
        if not mentions(node.left, micro.dest):
            continue
        for inner in ast.walk(node.right):
            name = dotted(inner).lower()
            if any(word in name for word in _WORLD):
                return around.world
    return 1


def _derived(micro: Setting, accumulation: Setting | None, sources: Sources) -> str:
    """The place where a rate is computed from the micro batch alone, "" if nowhere."""
    for file, node in _operations(micro, _DERIVED, sources):
        if not mentions(node, micro.dest):
            continue
        if accumulation is not None and mentions(node, accumulation.dest):
            continue
        if any(mentions(node, name) for name in _DERIVED):
            return file.place(node)
    return ""

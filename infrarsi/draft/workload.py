"""How long the job is, and how long a trial of it should be."""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass

from infrarsi.contract import Workload
from infrarsi.draft.arguments import module_constants
from infrarsi.draft.settings import Setting
from infrarsi.draft.sources import Sources, mentions
from infrarsi.errors import UserError
from infrarsi.families import normal_flag

SHORT_JOB = 100  # a job of at most this many steps is run whole
TRIAL_STEPS = 40
_LEAST = 5
_GUESS = 10_000
_FLAGS = (
    "--max-steps",
    "--max-train-steps",
    "--num-train-steps",
    "--train-steps",
    "--training-steps",
    "--total-steps",
    "--num-steps",
    "--n-steps",
    "--steps",
    "--max-iters",
    "--train-iters",
    "--num-iters",
    "--n-iters",
    "--total-iters",
    "--iters",
    "--num-iterations",
    "--max-iterations",
    "--n-iterations",
    "--iterations",
    "--max-updates",
    "--num-updates",
    "--total-updates",
    "--updates",
    "--max-step",
    "--num-batches",
)
_CONSUMED = ("--train-samples", "--train-tokens")
_CHANGING = ("--rampup-batch-size", "--step-batch-size-schedule")
_EPOCHS = (
    *("--epochs", "--num-epochs", "--n-epochs", "--max-epochs", "--num-train-epochs"),
    *("--max-epoch", "--num-epoch", "--total-epochs", "--train-epochs", "--nb-epochs"),
)


@dataclass(frozen=True)
class Length:
    """The workload, where it was read, and what is not certain about it.

    `setting` is the flag that sets the number of steps; `in_micro_steps` says that it counts
    micro-steps, of which an update takes several; `epochs` is the flag that gives the length where
    none counts steps.
    """

    workload: Workload
    origin: str
    setting: Setting | None
    in_micro_steps: bool = False
    unknown: str = ""
    epochs: Setting | None = None


def length(settings: Sequence[Setting], accumulation: Setting | None, sources: Sources) -> Length:
    """The job's own length decides: run whole if it is short, else for a fixed number of steps."""
    setting = _by_names(settings, _FLAGS)
    limited = _by_consumption(settings, setting)
    if limited is not None:
        return limited
    if setting is not None and isinstance(setting.value, int) and setting.value > 0:
        return _from_setting(setting, accumulation, sources)
    constant = _constant(sources)
    if constant is not None:
        steps, place = constant
        return Length(_workload(steps, place), _sample(steps, f"written in {place}"), None)
    reason = "no flag for the number of steps was found"
    epochs = _by_names(settings, _EPOCHS)
    if setting is not None:
        reason = f"`{setting.place.name}` ({setting.origin}) has no value that can be read"
    elif epochs is not None:
        reason = f"`{epochs.place.name}` counts epochs ({epochs.origin})"
    return _guess(reason, epochs)


def _guess(reason: str, epochs: Setting | None = None) -> Length:
    workload = Workload(planned_steps=_GUESS, optimizer_steps=TRIAL_STEPS, ends_by="witness")
    unknown = f"the job's number of optimizer steps: {reason}; `planned_steps` is {_GUESS}, a guess"
    return Length(workload, f"a guess: {reason}", None, unknown=unknown, epochs=epochs)


def _by_consumption(settings: Sequence[Setting], steps: Setting | None) -> Length | None:
    """A job in Megatron's manner that ends after so many samples or tokens, if that comes first."""
    given = {name: s for s in settings if s.is_given for name in _spellings(s)}
    whole = given.get("--global-batch-size")
    limits = [given[name] for name in _CONSUMED if name in given]
    if whole is None or not limits:
        return None
    known: list[tuple[int, Setting]] = []
    if steps is not None and isinstance(steps.value, int) and steps.value > 0:
        known.append((steps.value, steps))
    changing = next((given[name] for name in _CHANGING if name in given), None)
    for limit in limits:
        each = [whole, *([given.get("--seq-length")] if "tokens" in limit.words else [])]
        sizes = [s.value if s is not None else None for s in (limit, *each)]
        numbers = [n for n in sizes if isinstance(n, int) and n > 0]
        if len(numbers) < len(sizes) or changing is not None:
            by = changing.place.name if changing is not None else "a value that cannot be read"
            return _guess(f"`{limit.place.name}` ({limit.origin}) ends it, with {by}")
        total, *parts = numbers
        known.append((total // math.prod(parts), limit))
    number, setting = min(known, key=lambda item: item[0])
    if setting is steps:
        return None
    origin = (
        f"the job's own length: `{setting.place.name}` is {setting.value} ({setting.origin}), "
        f"which makes {number} steps"
    )
    return Length(_workload(number, setting.origin), _sample(number, origin), None)


def _from_setting(setting: Setting, accumulation: Setting | None, sources: Sources) -> Length:
    steps = int(setting.value or 0)
    origin = f"the job's own length: `{setting.place.name}` is {steps} ({setting.origin})"
    counts = accumulation is not None and _counts_micro_steps(setting, accumulation, sources)
    if counts and accumulation is not None and isinstance(accumulation.value, int):
        steps //= max(1, accumulation.value)
        origin += f", in micro-steps, {accumulation.value} to an update"
    return Length(_workload(steps, setting.origin), _sample(steps, origin), setting, counts)


def _sample(steps: int, origin: str) -> str:
    """A short job is hardly worth a search for itself: it stands for longer ones."""
    if steps > SHORT_JOB:
        return origin
    return f"a guess: {steps} steps are taken for a sample of longer runs; {origin}"


def _workload(steps: int, place: str) -> Workload:
    if steps < _LEAST:
        raise UserError(
            f"the job takes {steps} optimizer steps, but a trial needs at least {_LEAST}",
            where=place,
            fix="give it more steps",
        )
    if steps <= SHORT_JOB:
        return Workload(planned_steps=_GUESS, optimizer_steps=steps, ends_by="job")
    return Workload(planned_steps=steps, optimizer_steps=TRIAL_STEPS, ends_by="witness")


def _by_names(settings: Sequence[Setting], names: Sequence[str]) -> Setting | None:
    """The setting with one of the names, a passed one before a default one."""
    ranked = [
        (not s.is_given, names.index(name), s)
        for s in settings
        for name in _spellings(s)
        if name in names and not (s.value is not None and s.value == -1)
    ]
    return min(ranked, key=lambda item: item[:2])[2] if ranked else None


def _spellings(setting: Setting) -> list[str]:
    return [normal_flag(name) for name in setting.spellings]


def _constant(sources: Sources) -> tuple[int, str] | None:
    """A top-level `MAX_STEPS = 500` of the entry."""
    constants = module_constants(sources.entry)
    for node in sources.entry.tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        value = constants.get(name)
        flag = "--" + name.lower().replace("_", "-")
        if flag in _FLAGS and isinstance(value, int) and not isinstance(value, bool):
            return value, sources.entry.place(node)
    return None


def _counts_micro_steps(setting: Setting, accumulation: Setting, sources: Sources) -> bool:
    """Whether the loop over the steps is the one whose counter is taken modulo the accumulation."""
    both = [f for f in sources.files if f.holds(setting.dest) and f.holds(accumulation.dest)]
    for node in (node for file in both for node in file.of(ast.For)):
        if not mentions(node.iter, setting.dest):
            continue
        counters = {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
        for inner in ast.walk(node):
            if (
                isinstance(inner, ast.BinOp)
                and isinstance(inner.op, ast.Mod)
                and mentions(inner.right, accumulation.dest)
                and any(mentions(inner.left, counter) for counter in counters)
            ):
                return True
    return False

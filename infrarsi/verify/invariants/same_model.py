"""The same parameters, from the same values, trained by the same optimizer with the same settings.

Why: fewer layers, a narrower head, a truncated vocabulary, frozen embeddings, another
initialisation and another weight decay all make a step cheaper or a short loss curve lower. They
are plain in what the model and the optimizer are, before a single loss is compared.

What is asked for, of every trained model:

- names of parameters (without what wrappers put in front: DDP, FSDP2, `torch.compile`, a module
  around the model), their shapes and dtypes, which are trainable, which are tied. A finer dtype is
  left to `precision`;
- in audit runs, the initial value of every parameter and floating buffer, by norm and projection,
  to the rounding of those sums. A buffer that never changes may be gone: SDPA needs no mask;
- dropout: each probability at as many places as in the reference. A place is a module, or a call
  outside modules in each forward of an audit, since a patch may rightly move a dropout from a
  module into attention. Compiled code counts no calls: then there modules may not become fewer;
- random numbers: at the same number of forwards, training forwards that draw random numbers in the
  reference must draw some, and the other way round; backward passes likewise (a recomputation that
  draws masks of its own has a gradient of another function);
- the optimizer: class by what it computes (`optimizers.FAMILIES`), and each parameter's settings at
  each step: learning rate, betas, epsilon, weight decay, momentum and whatever else a group holds.
  Where ranks share the parameters out (ZeRO), the part of all elements that has each settings.
  How it is computed (`foreach`, `fused`, `capturable`) is left out; groups may be merged or split;
- weights kept beside the model (averages, teachers) that change in the reference must be there and
  change. Whether they go the same way is part of `optimizer_steps`, as all paths are.

A learning rate that lives in a tensor on a device is not read, for that would wait for the device:
it is then compared as text, and fails if the reference's is a number.
"""

from infrarsi.contract import CheckResult, RankRecord, RunKind
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.fingerprints import model_lines
from infrarsi.verify.joined import Update
from infrarsi.verify.optimizers import settings_difference
from infrarsi.verify.structure import model_difference, paired_ranks
from infrarsi.verify.weights import (
    lost_companions,
    parameter_names,
    renamed,
    start_difference,
    tensors,
)

CHECK = "same_model"


def judge(comparison: Comparison) -> CheckResult:
    """Whether the run trains the reference's model."""
    reference, result = comparison.reference_result, comparison.result
    if not any(model_lines(rank) for rank in reference.ranks):
        return uncovered(CHECK, "no model was seen in the reference")
    if not result.ranks:
        return uncovered(CHECK, "no process left a record")
    steps = [update.index for update in comparison.reference.updates]
    pairs = paired_ranks(reference, result)
    for ours, theirs in pairs:
        difference = model_difference(ours, theirs) or _companions(ours, theirs)
        if difference:
            return failed(CHECK, f"rank {theirs.rank}: {difference}")
    difference = settings_difference(pairs, steps)
    if difference:
        return failed(CHECK, difference)
    difference = _dropout(comparison) or _random(comparison) or _start(comparison)
    if difference:
        return failed(CHECK, difference)
    return passed(CHECK, _summary(comparison))


def _summary(comparison: Comparison) -> str:
    lines = list(model_lines(comparison.reference_result.ranks[0]))
    numel = sum(int(line.get("numel") or 0) for line in lines)
    text = f"{len(lines)} models of {numel} parameters" if len(lines) > 1 else f"{numel} parameters"
    compared = "names, shapes, optimizer settings of every step"
    if tensors(comparison.reference_result).start and comparison.same_kind:
        compared += " and initial values"
    return f"{text}; the same {compared}"


def _start(comparison: Comparison) -> str:
    ours = tensors(comparison.reference_result)
    if not ours.start or comparison.result.kind is RunKind.TIMED or not comparison.same_kind:
        return ""
    theirs = renamed(ours, tensors(comparison.result))
    if not theirs.start:
        return "no initial value was recorded, the reference has them"
    return start_difference(ours, theirs, parameter_names(comparison.reference_result))


def _companions(ours: RankRecord, theirs: RankRecord) -> str:
    lost = lost_companions(ours, theirs)
    if not lost:
        return ""
    return (
        f"weights beside the model ({lost[0].cls}, {lost[0].tensors} tensors of {lost[0].numel} "
        f"elements) that change in the reference are gone or stand still"
    )


def _dropout(comparison: Comparison) -> str:
    if not comparison.same_kind:
        return ""
    ranks = comparison.reference_result.ranks[0], comparison.result.ranks[0]
    modules = [_modules(rank) for rank in ranks]
    calls = [_calls(run.updates) for run in (comparison.reference, comparison.candidate)]
    if not calls[1]:
        calls = [{}, {}]  # compiled code counts none; that random numbers are drawn is seen
    counts = [
        {p: m.get(p, 0) + c.get(p, 0.0) for p in {*m, *c}}
        for m, c in zip(modules, calls, strict=True)
    ]
    for p in sorted({*counts[0], *counts[1]}):
        wanted, found = (count.get(p, 0.0) for count in counts)
        # Without calls a module's dropout may rightly have become a call that is not seen.
        unseen = not calls[1] and comparison.result.kind is RunKind.TIMED and found > 0.0
        if wanted == 0.0 or (found < wanted - 1e-9 and not unseen):
            return f"dropout of {p} is applied at {found:g} places, in the reference at {wanted:g}"
    return ""


def _calls(updates: tuple[Update, ...]) -> dict[float, float]:
    """Functional calls of dropout by probability, for one forward, over the whole run."""
    total: dict[float, int] = {}
    forwards = 0
    for update in updates:
        forwards += update.forwards
        for step in update.ranks:
            _add(total, step.dropout_calls)
    return {p: count / forwards for p, count in total.items()} if forwards else {}


def _modules(rank: RankRecord) -> dict[float, int]:
    """Dropout modules by probability, as the job made them."""
    found: dict[float, int] = {}
    for line in model_lines(rank):
        _add(found, line.get("dropout"))
    return found


def _add(total: dict[float, int], counts: object) -> None:
    for text, count in counts.items() if isinstance(counts, dict) else ():
        p = float(text)
        if p > 0.0:
            total[p] = total.get(p, 0) + int(count)


def _random(comparison: Comparison) -> str:
    """Random numbers drawn in training forwards; between forwards a batch getter may draw them."""
    if not comparison.same_kind:
        return ""
    for ours, theirs in comparison.updates:
        if ours.forwards != theirs.forwards or len(ours.ranks) != len(theirs.ranks):
            continue
        for passes, backward in (("training forwards", False), ("backward passes", True)):
            wanted, found = _drawn(ours, backward), _drawn(theirs, backward)
            if wanted is None or found is None or wanted == found:
                continue
            text = "draw random numbers" if found else "draw no random number"
            other = "does not" if found else "does"
            return f"step {ours.index}: {passes} {text}, the reference {other}"
    return ""


def _drawn(update: Update, backward: bool) -> bool | None:
    """Whether any rank drew; None where no rank says."""
    seen = [
        value
        for step in update.ranks
        for name, value in step.random.items()
        if name.startswith("backward:") == backward
    ]
    return any(float(value) > 0.0 for value in seen) if seen else None

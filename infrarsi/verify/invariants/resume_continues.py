"""The job's checkpoints are the reference's, and the unmodified code goes on from them.

Why: a checkpoint is what a training run is for. A save that writes nothing, half of the state, a
truncated head or no EMA is quick, and no loss shows it. Nor need it be a cheat: `torch.compile`
wraps a model so that its saved keys begin with `_orig_mod.`, and the user's own evaluation code
then loads nothing.

How it is judged, in two layers:

1. After audit runs the node lists what the run left below its sinks (`infrarsi.node.checkpoints`).
   Where the reference leaves checkpoints, the run must leave the same files, names modulo the
   numbers in them, with the same keys, shapes and dtypes; the optimizer's state and entries of
   random state and schedule among them; step counts and learning rates equal; weights and state
   within bands as in `optimizer_steps`: the distance from the reference's tensor over the way that
   it has travelled, its 80 % quantile against the floor or the perturbed run, and its worst tensor.
   A tensor that the reference saves as it was trained last must be what the run trained last; that
   holds as well beyond the horizon of a chaotic job (`chaos.py`), where values are not compared.
   Flags that say how an optimizer is implemented, and stored command-line arguments, may differ.
2. Where the contract says how (`verify.resume`), the unmodified code resumes from the candidate's
   checkpoint and from the reference's own, before promotion. Both runs must train on alike
   (`infrarsi.verify.resumption`). The campaign puts that result in place of this one.

After timed runs no file is read, but each must be there, of half of its size at least: a save that
is left out wherever nobody reads would gain its time.

Not covered: a job that writes no checkpoint within a trial. `verify.resume_check: false` switches
all of it off.
"""

from infrarsi.contract import CheckResult, RunKind
from infrarsi.verify.checkpoints import (
    Allowed,
    checkpoints_in,
    compare,
    not_left,
    trained_norms,
    travelled_by,
)
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered

CHECK = "resume_continues"


def judge(comparison: Comparison) -> CheckResult:
    """Whether the run leaves the reference's checkpoints."""
    project, evidence = comparison.project, comparison.evidence
    if project.verify.resume_check is False:
        return uncovered(CHECK, "switched off by `verify.resume_check: false`")
    if comparison.result.kind is RunKind.TIMED:
        return _timed(comparison)
    if evidence.audit is None:
        return uncovered(CHECK, "checkpoints are read after audit runs only")
    ours = evidence.audit.checkpoints
    if not checkpoints_in(ours):
        return uncovered(CHECK, _none(project.workload.optimizer_steps, bool(project.sinks)))
    chaos = comparison.chaos
    steps = sorted(chaos.spread)
    found = compare(
        ours,
        comparison.result.checkpoints,
        evidence.perturbed.checkpoints if evidence.perturbed else {},
        Allowed(
            comparison.lowest_precision,
            travelled_by(evidence.audit),
            comparison.bitwise,
            growth=float(chaos.growth(steps[-1:])[-1]) if steps else 1.0,
            beyond=chaos.horizon is not None and not comparison.bitwise,
            trained=(trained_norms(evidence.audit), trained_norms(comparison.result)),
        ),
    )
    if found.fault:
        return failed(CHECK, found.fault)
    if not found.checkpoints:
        return uncovered(CHECK, f"no checkpoint can be read: {'; '.join(found.unread)}")
    told = f"{found.checkpoints} checkpoint files as the reference's"
    if found.checkpoints == 1:
        told = "1 checkpoint file as the reference's"
    told += f": {found.tensors} tensors, {found.entries} other entries"
    if found.worst:
        told += f"; {found.worst}"
    if found.unread:
        told += f"; not read: {'; '.join(found.unread)}"
    return passed(CHECK, told)


def _timed(comparison: Comparison) -> CheckResult:
    runs = [run.checkpoints for run in comparison.evidence.timed]
    gone = not_left(runs[0], comparison.result.checkpoints, runs)
    if gone:
        return failed(CHECK, gone)
    return uncovered(CHECK, "checkpoints are read after audit runs only")


def _none(steps: int, has_sinks: bool) -> str:
    where = "" if has_sinks else " into a folder that `sinks` names"
    return (
        f"the job writes no checkpoint within {steps} optimizer steps{where}; it would be covered "
        "if the job saved more often, or if a trial were longer (`workload.optimizer_steps`)"
    )

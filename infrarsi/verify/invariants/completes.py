"""The run ended well, on every rank, after every requested optimizer step.

Why: the cheapest way to a short run is not to finish it. A job that exits 0 after half the steps,
or that ends its process in a way that leaves the record without its end line, would otherwise be
measured on what it chose to show.

What is asked for:

- the launcher's outcome is `ok` and the command's exit code 0;
- at least one rank left a record, and as many ranks as each record says there are. The number may
  differ from the reference's: how many processes share the work is a setting, and what they
  consumed together is the matter of `same_workload`;
- each record is sealed: its chain is whole and ends with the end line. Exit 0 without a sealed
  record is a failure, since the record is the only evidence that anything was trained;
- all ranks recorded the same updates, and as many as the contract asks for. More than asked for
  is no failure here (`optimizer_steps` compares with the reference).

A run that was stopped early by the search fails this check by its outcome; it was never judged as
the same job. The log takes no part: a job that prints nothing is as good as any other.
"""

from infrarsi.contract import CheckResult, Outcome
from infrarsi.verify.comparison import Comparison, failed, passed

CHECK = "completes"


def judge(comparison: Comparison) -> CheckResult:
    """Whether the run is complete."""
    result, run = comparison.result, comparison.candidate
    asked = comparison.project.workload.optimizer_steps
    if result.outcome is not Outcome.OK:
        return failed(CHECK, f"the run {result.outcome.sentence}: {result.reason}".rstrip(": "))
    if result.exit_code not in (0, None):
        return failed(CHECK, f"the command ended with exit code {result.exit_code}, not 0")
    if not result.ranks:
        return failed(CHECK, "the command ended with exit code 0, but no process left a record")
    for rank in result.ranks:
        if not rank.sealed:
            return failed(CHECK, f"the record of rank {rank.rank} is not sealed: {_why(rank)}")
        if rank.world_size != len(result.ranks):
            return failed(
                CHECK,
                f"{len(result.ranks)} ranks left a record, but rank {rank.rank} was one of "
                f"{rank.world_size}",
            )
    if run.uneven:
        counts = sorted({len(rank.steps) for rank in result.ranks})
        return failed(CHECK, f"ranks ended at different optimizer steps: {counts}")
    if len(run.updates) < asked:
        return failed(CHECK, f"{len(run.updates)} optimizer steps were made, of {asked} asked for")
    return passed(CHECK, f"{len(run.updates)} optimizer steps, {run.ranks} sealed records, exit 0")


def _why(rank: object) -> str:
    problems = getattr(rank, "problems", ())
    return problems[-1] if problems else "its end line never came"

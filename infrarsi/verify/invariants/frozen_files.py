"""The files that the contract freezes have the same SHA-256 before and after the run.

Why: what decides whether a job is right (data, evaluation, configuration of the loss) must not be
among what the search may change. Locking such files is the one counter-measure against edited
evaluators that worked without fail where it was measured.

The node compares the digests in the execution's own copy of the project, before the command starts
and after it ended, so that a job that rewrites a frozen file while it runs, or restores it at the
end, shows as well as one that was patched. A file that is missing counts as changed.

A run that writes outside its own copy, where the reference does not, may change what it must not
and what another run reads; so it fails here as well.

Not covered where the contract names no frozen file: the check would pass whatever happened.
"""

from infrarsi.contract import CheckResult
from infrarsi.contract.wording import counted
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered

CHECK = "frozen_files"


def judge(comparison: Comparison) -> CheckResult:
    """Whether all frozen files are as the contract has them."""
    frozen = comparison.project.frozen
    changed = comparison.result.frozen_changed
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return failed(CHECK, f"`{changed[0]}`{more} differs from the digest in the contract")
    allowed = {path for rank in comparison.reference_result.ranks for path in rank.outside_writes}
    outside = sorted({p for rank in comparison.result.ranks for p in rank.outside_writes} - allowed)
    if outside:
        return failed(CHECK, f"it wrote outside its own copy, to {outside[0]!r}")
    if not frozen:
        return uncovered(CHECK, "the contract names no frozen file (`frozen:` in infrarsi.yaml)")
    return passed(
        CHECK, f"{counted(len(frozen), 'file')} as the contract has them, before and after"
    )

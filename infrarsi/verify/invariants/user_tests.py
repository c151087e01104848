"""The user's own commands pass on the patched tree.

Why: a project's tests know what no check from outside can: shapes of outputs, an interface that
other code relies on, a file format.

`verify.user_tests` names the commands. Each is run on the untouched project once, before anything
is tried: one that fails there says nothing about a change, so the user is asked to repair or remove
it. Then each is run on the patched tree of every candidate that may be promoted, in its own copy,
under the same supervisor and without the witness; exit code 0 passes. Files of tests are
frozen during these runs, so that a patch cannot make a test pass by changing it.

Records of a training run say nothing of this, so here the check is never judged; the campaign puts
the result in.
"""

from infrarsi.contract import CheckResult
from infrarsi.verify.comparison import Comparison, uncovered

CHECK = "user_tests"


def judge(comparison: Comparison) -> CheckResult:
    """Not covered: the campaign runs the commands."""
    if comparison.project.verify.user_tests:
        return uncovered(CHECK, "run on candidates that are about to be promoted")
    return uncovered(CHECK, "the contract names no command (`verify.user_tests`)")

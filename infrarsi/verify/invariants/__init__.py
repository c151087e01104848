"""The 16 checks: one function each, from a comparison to a result, in the order of `CHECKS`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from infrarsi.contract import CHECKS, CheckResult
from infrarsi.verify.comparison import Comparison
from infrarsi.verify.invariants import (
    completes,
    eval_matches,
    frozen_files,
    grad_norm_within_tol,
    later,
    loss_within_tolerance,
    memory_cap,
    no_errors,
    optimizer_steps,
    precision,
    resume_continues,
    same_data,
    same_model,
    same_workload,
    timing_consistent,
    user_tests,
)

Judge = Callable[[Comparison], CheckResult]

_JUDGED: Mapping[str, Judge] = {
    module.CHECK: module.judge
    for module in (
        completes,
        no_errors,
        memory_cap,
        same_workload,
        same_data,
        same_model,
        frozen_files,
        optimizer_steps,
        loss_within_tolerance,
        grad_norm_within_tol,
        precision,
        eval_matches,
        timing_consistent,
        resume_continues,
        user_tests,
    )
}
INVARIANTS: Mapping[str, Judge] = MappingProxyType(
    {check: _JUDGED.get(check) or later.not_judged(check) for check in CHECKS}
)

__all__ = ["INVARIANTS", "Judge"]

"""The 16 checks: one function each, from a comparison to a result, in the order of `CHECKS`."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from infrarsi.contract import CHECKS, CheckResult
from infrarsi.verify.comparison import Comparison
from infrarsi.verify.invariants import (
    completes,
    frozen_files,
    later,
    loss_within_tolerance,
    memory_cap,
    no_errors,
    optimizer_steps,
    same_data,
    same_workload,
    timing_consistent,
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
        frozen_files,
        optimizer_steps,
        loss_within_tolerance,
        timing_consistent,
    )
}
INVARIANTS: Mapping[str, Judge] = MappingProxyType(
    {check: _JUDGED.get(check) or later.not_judged(check) for check in CHECKS}
)

__all__ = ["INVARIANTS", "Judge"]

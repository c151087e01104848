"""The run computes in the reference's precisions, or in what the contract allows beside them.

Why: a lower precision is the cheapest speed there is, and forty steps of loss hardly show it. Most
of it is plain in dtypes and switches, so that it need not be told from the numbers.

What is compared, on close looks: dtypes of autocast in training forwards, of parameters, gradients,
floating buffers and optimizer states, and of the matrix products in the autograd graph; autocast
in evaluation and the parameters of the models that are evaluated; and the switches that let a
product be computed in less than its dtype says, at the end of the step and within its calls. What
a run uses must be used by the reference, or be strictly finer; float16 and bfloat16 are not
exchanged for each other.

- The menu. `allow: [tf32, bf16]` and `invariants.precision` add precisions for what is *computed*
  (autocast, products, switches), and the floors of that precision then apply to losses, gradients
  and weights. An fp32 reference takes only what `allow` names: `invariants.precision` alone tells
  of the job as it is. What is *kept* (parameters, gradients, buffers, states) is held to the
  reference's, whatever the menu says: bf16 autocast is not bf16 master weights.
- Autocast that is switched off where the reference has it is finer, and allowed.
- Switches: TF32 and reduced-precision accumulation count only where a CUDA device is used. On a CPU
  `set_float32_matmul_precision("high")` changes no bit (torch 2.13), while "medium" hands products
  to oneDNN with leave to use bf16, which it does on CPUs with AMX: that counts as bf16.

Not covered where the reference's record has no such lines.
"""

from collections.abc import Iterable
from typing import Any

from infrarsi.contract import CheckResult, ExecutionResult
from infrarsi.verify.comparison import Comparison, failed, passed, uncovered
from infrarsi.verify.precisions import allowed_names, canonical, is_floating, within
from infrarsi.verify.weights import states

CHECK = "precision"
_KEPT = ("parameters", "gradients", "buffers")


def judge(comparison: Comparison) -> CheckResult:
    """Whether the run computes in what it may."""
    reference = [r for r in (*comparison.evidence.timed, comparison.evidence.audit) if r]
    result = comparison.result
    if not any(rank.precision for run in reference for rank in run.ranks):
        return uncovered(CHECK, "precisions were not recorded in the reference")
    if not result.ranks:
        return uncovered(CHECK, "no process left a record")
    silent = _silent(result, reference)
    if silent:
        return failed(CHECK, silent)
    menu = _menu(comparison, reference)
    difference = (
        _computed(result, reference, menu)
        or _evaluated(result, reference, menu)
        or _kept(result, reference)
        or _states(comparison)
        or _switches(result, reference, menu)
        or _products(comparison, menu)
    )
    if difference:
        return failed(CHECK, difference)
    used = sorted(_autocast(result) | _seen(result, "parameters"))
    return passed(CHECK, f"{', '.join(used)}, within the reference's and what is allowed")


def _silent(result: ExecutionResult, reference: list[ExecutionResult]) -> str:
    """What the reference's lines say and a rank's do not."""
    said = {
        key for run in reference for rank in run.ranks for line in rank.precision for key in line
    }
    for rank in result.ranks:
        keys = {key for line in rank.precision for key in line if line[key] not in ([], ())}
        for key in ("autocast", "flags", "parameters"):
            if key in said and key not in keys:
                return f"rank {rank.rank}: no {key} of its precision was recorded"
    return ""


def _menu(comparison: Comparison, reference: Iterable[ExecutionResult]) -> frozenset[str]:
    """What may be computed in beside the reference's own precisions."""
    named = allowed_names(comparison.project)
    sixteen = any(_autocast(run) or "bfloat16" in _seen(run, "parameters") for run in reference)
    if sixteen:
        named |= {canonical(name) for name in comparison.project.invariants.precision or ()}
    return named


def _seen(result: ExecutionResult, slot: str) -> set[str]:
    return {
        canonical(name)
        for rank in result.ranks
        for line in rank.precision
        for name in line.get(slot) or ()
        if is_floating(name)
    }


def _autocast(result: ExecutionResult, slot: str = "autocast") -> set[str]:
    found = set()
    for rank in result.ranks:
        for line in rank.precision:
            seen = line.get(slot)
            for name in seen.values() if isinstance(seen, dict) else ():
                if name:
                    found.add(canonical(name))
    return found


def _computed(
    result: ExecutionResult, reference: list[ExecutionResult], menu: frozenset[str]
) -> str:
    known = set().union(*(_autocast(run) for run in reference)) | menu
    plain = set().union(*(_seen(run, "parameters") for run in reference))
    for name in sorted(_autocast(result)):
        if not within(name, known | plain):
            own = sorted(set().union(*(_autocast(run) for run in reference)))
            return f"autocast to {name}, in the reference {', '.join(own) or 'none'}"
    return ""


def _evaluated(
    result: ExecutionResult, reference: list[ExecutionResult], menu: frozenset[str]
) -> str:
    """What evaluation computes in, by autocast and by the models that are asked."""
    slot = "eval_autocast"
    if not any(slot in line for run in reference for rank in run.ranks for line in rank.precision):
        return ""  # records of older versions
    models = set().union(*(_seen(run, "eval_parameters") for run in reference))
    known = set().union(*(_autocast(run, slot) for run in reference)) | models | menu
    for name in sorted(_autocast(result, slot) | _seen(result, "eval_parameters")):
        if known and not within(name, known):
            return f"evaluation in {name}, in the reference {', '.join(sorted(known - menu))}"
    return ""


def _kept(result: ExecutionResult, reference: list[ExecutionResult]) -> str:
    for slot in _KEPT:
        known = set().union(*(_seen(run, slot) for run in reference))
        for name in sorted(_seen(result, slot)):
            if known and not within(name, known):
                return f"{slot} in {name}, in the reference {', '.join(sorted(known))}"
    return ""


def _states(comparison: Comparison) -> str:
    known, found = states(comparison.reference_result), states(comparison.result)
    for key, wanted in known.items():
        floating = {canonical(d) for d in wanted.dtypes if is_floating(d)}
        if key not in found:
            if floating and key != "step":
                return f"no optimizer state `{key}` was seen, the reference has one"
            continue
        for name in sorted(canonical(d) for d in found[key].dtypes):
            if floating and not (is_floating(name) and within(name, floating)) and key != "step":
                return (
                    f"optimizer state `{key}` in {name}, "
                    f"in the reference {', '.join(sorted(floating))}"
                )
    return ""


def _switches(
    result: ExecutionResult, reference: list[ExecutionResult], menu: frozenset[str]
) -> str:
    cuda = _on_cuda(result)
    for name, precision in sorted(_lowered(result, cuda).items()):
        if name in set().union(*(set(_lowered(run, _on_cuda(run))) for run in reference)):
            continue
        if precision not in menu:
            return f"`{name}` lets products be computed in {precision}; the reference does not"
    return ""


def _lowered(result: ExecutionResult, cuda: bool) -> dict[str, str]:
    """Switches that are on and have an effect on this device, with what they let in."""
    found = {}
    for rank in result.ranks:
        for line in rank.precision:
            flags = line.get("flags")
            for name, value in flags.items() if isinstance(flags, dict) else ():
                precision = _lets_in(str(name), value, cuda)
                if precision:
                    found[str(name)] = precision
    return found


def _lets_in(name: str, value: Any, cuda: bool) -> str:
    if name == "float32_matmul_precision":
        if value == "medium":
            return "bfloat16"
        return "tf32" if cuda and value == "high" else ""
    if not cuda or not value:
        return ""
    if name.startswith("allow_tf32"):
        return "tf32"
    return {"bf16_reduced": "bfloat16", "fp16_reduced": "float16"}.get(name, "")


def _on_cuda(result: ExecutionResult) -> bool:
    return any(rank.head.get("device") or rank.head.get("cuda_used") for rank in result.ranks)


def _products(comparison: Comparison, menu: frozenset[str]) -> str:
    audit = comparison.evidence.audit_run
    runs = [*comparison.evidence.timed_runs, *([audit] if audit else [])]
    known = {
        canonical(d)
        for run in runs
        for update in run.updates
        for step in update.ranks
        for d in step.matmul_dtypes
    }
    if not known:
        return ""
    for update in comparison.candidate.updates:
        for step in update.ranks:
            for name in sorted(canonical(d) for d in step.matmul_dtypes):
                if is_floating(name) and not within(name, known | menu):
                    return (
                        f"step {update.index}: matrix products in {name}, "
                        f"in the reference {', '.join(sorted(known))}"
                    )
    return ""

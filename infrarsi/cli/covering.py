"""Which checks are covered for a job, and what a person can do about the others."""

from collections.abc import Mapping

from infrarsi.contract import Project

_WHAT_TO_DO = {
    "completes": "let the job end with exit code 0 after its steps",
    "no_errors": "let every rank keep its record to the end",
    "memory_cap": "set `invariants.memory_cap_gib` to what a rank may reserve",
    "same_workload": "give the batches to the model as tensors, so that they are seen",
    "same_data": "give the batches to the model as tensors, so that they are seen",
    "same_model": "train a torch.nn.Module by calling it, with a torch.optim optimizer",
    "frozen_files": "name the files that nothing may change (data, evaluation) under `frozen`",
    "optimizer_steps": "train with a torch.optim optimizer in the job's own processes",
    "loss_within_tolerance": "call backward on the loss, and fix the seed of the job",
    "grad_norm_within_tol": "let the optimizer's `step` be called by the job, not compiled into "
    "a larger function, in an audit run (`infrarsi doctor` makes one)",
    "precision": "train a torch.nn.Module by calling it, so that its precision is seen",
    "eval_matches": "lower the job's evaluation interval, or raise `workload.optimizer_steps` "
    "(now {steps}), so that it evaluates within a trial",
    "timing_consistent": "raise `workload.optimizer_steps` (now {steps})",
    "speed_reproduces": "nothing: the paired re-runs of `infrarsi run` judge it",
    "resume_continues": "let the job write a checkpoint within {steps} optimizer steps, and say "
    "under `verify.resume` how it goes on from one",
    "user_tests": "name commands that test the code under `verify.user_tests`",
}


_LATER = ("speed_reproduces",)  # judged by the pairs, whatever the job
_NOT_YET = "this version"  # in a reason: nothing that a user does would cover it


def coverage_lines(coverage: Mapping[str, str], project: Project) -> list[str]:
    """What is covered, what the user can cover and how, and what nothing can be done about."""
    covered = [check for check, why in coverage.items() if why == "covered"]
    later = [check for check in coverage if check in _LATER and check not in covered]
    not_yet = [check for check, why in coverage.items() if _NOT_YET in why]
    yours = [check for check in coverage if check not in (*covered, *later, *not_yet)]
    lines = [
        f"Checks of whether a change leaves it the same job: {len(covered)} of {len(coverage)}."
    ]
    lines += [f"  {check:22s} covered" for check in covered]
    if yours:
        lines.append("You can have these covered too:")
    for check in yours:
        lines.append(f"  {check:22s} not covered: {coverage[check]}")
        lines.append(f"  {'':22s} to cover it: {what_to_do(check, project)}")
    for head, checks in (("Judged later:", later), ("Not in this version:", not_yet)):
        if checks:
            lines.append(head)
            lines += [f"  {check:22s} {coverage[check]}" for check in checks]
    return lines


def what_to_do(check: str, project: Project) -> str:
    """What would cover a check, as an instruction."""
    return _WHAT_TO_DO[check].format(steps=project.workload.optimizer_steps)

"""Checkpoints of a run against the reference's, by their manifests."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from made_records import PROJECT, Job, run

from infrarsi.contract import CheckResult, ExecutionResult, Outcome, RunKind, Status
from infrarsi.verify import Evidence, coverage, judge, judge_resumed, to_resume_from
from infrarsi.verify.checkpoints import Allowed, compare

Manifests = dict[str, dict[str, Any]]
NAME = "out/step_30.pt"


def tensor(
    shape: list[int], norm: float, projection: float, dtype: str = "float32"
) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "values": [norm, projection]}


def manifests(wobble: float = 0.0, dtype: str = "float32") -> Manifests:
    """A checkpoint of weights, EMA, optimizer, schedule and random state; what a wobble moves."""
    shapes = {f"layers.{i}.weight": [32, 32] for i in range(6)} | {"head.weight": [64, 32]}
    tensors, scalars = {}, {"step": 30, "scheduler/last_epoch": 30, "args/batch_size": 4}
    for number, (name, shape) in enumerate(shapes.items()):
        norm = math.sqrt(math.prod(shape)) * 0.1
        moved = norm * (1 + wobble * (-1) ** number)
        tensors[f"model/{name}"] = tensor(shape, moved, 0.3 * moved, dtype)
        tensors[f"ema/{name}"] = tensor(shape, 0.9 * moved, 0.2 * moved, dtype)
        tensors[f"optimizer/state/{number}/exp_avg"] = tensor(shape, 0.01 * moved, 0.0)
        tensors[f"optimizer/state/{number}/step"] = tensor([], 30.0, 30.0)
        scalars[f"optimizer/param_groups/0/params/{number}"] = number
    tensors["model/key.bias"] = tensor([32], 1e-3 * (1 + 1e5 * wobble), 1e-4, dtype)
    tensors["rng"] = tensor([5056], 900.0, 12.0, "uint8")
    scalars["optimizer/param_groups/0/lr"] = 1e-3
    scalars["position"] = 61440
    scalars["optimizer/param_groups/0/fused"] = None
    return {
        NAME: {"size": 9000, "kind": "torch", "tensors": tensors, "scalars": scalars},
        "out/config.json": {"size": 40, "kind": "file"},
        "out/train.log": {"size": 700, "kind": "file"},
        "out/training_args.bin": {
            "size": 700,
            "kind": "torch",
            "tensors": {},
            "scalars": {"per_device_train_batch_size": 4},
        },
        "out/rng_state.pth": {
            "size": 90,
            "kind": "torch",
            "tensors": {"cpu": tensor([5056], 900.0, 12.0, "uint8")},
            "scalars": {"python/1/7": 99},
        },
    }


def evidence(own: Manifests | None, found: Manifests) -> Evidence:
    audit = replace(run(Job(kind=RunKind.AUDIT)), checkpoints=found)
    perturbed = replace(run(Job(kind=RunKind.PERTURBED, wobble=1e-7)), checkpoints=own or {})
    return Evidence((run(),), audit, perturbed if own is not None else None)


def check(left: Manifests, kind: RunKind = RunKind.AUDIT, **changes: Any) -> CheckResult:
    result = replace(run(Job(kind=kind)), checkpoints=left)
    project = PROJECT.model_copy(update=changes)
    return judge(evidence(manifests(1e-7), manifests()), result, project)["resume_continues"]


def test_the_reference_passes_against_itself_and_the_check_is_covered() -> None:
    found = check(manifests())
    assert found.status is Status.PASSED
    assert found.reason.startswith("3 checkpoint files as the reference's: 31 tensors, ")
    assert coverage(evidence(manifests(), manifests()), PROJECT)["resume_continues"] == "covered"


def _other_names(left: Manifests) -> None:
    left["out/step_31.pt"] = left.pop(NAME)


def _fused(left: Manifests) -> None:
    left[NAME]["scalars"]["optimizer/param_groups/0/fused"] = True


def _other_batch(left: Manifests) -> None:
    left[NAME]["scalars"]["args/batch_size"] = 16


def _other_draws(left: Manifests) -> None:
    left[NAME]["tensors"]["rng"]["values"] = [901.0, 40.0]


def _rounding(left: Manifests) -> None:
    left.clear()
    left.update(manifests(2e-7))


def _no_log(left: Manifests) -> None:
    del left["out/train.log"]


def _other_arguments(left: Manifests) -> None:
    left["out/training_args.bin"]["scalars"]["per_device_train_batch_size"] = 8


def _other_python_draws(left: Manifests) -> None:
    left["out/rng_state.pth"]["scalars"]["python/1/7"] = 5


@pytest.mark.parametrize(
    "change",
    [
        _other_names,
        _fused,
        _other_batch,
        _other_draws,
        _rounding,
        _no_log,
        _other_arguments,
        _other_python_draws,
    ],
)
def test_an_honest_change_passes(change: Callable[[Manifests], None]) -> None:
    left = copy.deepcopy(manifests())
    change(left)
    found = check(left)
    assert found.status is Status.PASSED, found.reason


def edited(change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Callable[[Manifests], None]:
    def edit(left: Manifests) -> None:
        change(left[NAME]["tensors"], left[NAME]["scalars"])

    return edit


def _without(part: str) -> Callable[[Manifests], None]:
    def edit(left: Manifests) -> None:
        for table in ("tensors", "scalars"):
            of_file = left[NAME][table]
            left[NAME][table] = {k: v for k, v in of_file.items() if not k.startswith(part)}

    return edit


def _prefixed(prefix: str) -> Callable[[Manifests], None]:
    def edit(left: Manifests) -> None:
        of_file = left[NAME]["tensors"]
        left[NAME]["tensors"] = {
            k.replace("model/", f"model/{prefix}"): v for k, v in of_file.items()
        }

    return edit


def _moved(key: str, by: float) -> Callable[[Manifests], None]:
    def edit(left: Manifests) -> None:
        norm, projection = left[NAME]["tensors"][key]["values"]
        left[NAME]["tensors"][key]["values"] = [norm * (1 + by), projection * (1 + by)]

    return edit


def _all_moved(part: str, by: float) -> Callable[[Manifests], None]:
    def edit(left: Manifests) -> None:
        for key in left[NAME]["tensors"]:
            if key.startswith(part):
                _moved(key, by)(left)

    return edit


CHEATS: dict[str, tuple[Callable[[Manifests], None], str]] = {
    "no save": (lambda left: left.pop(NAME), "`out/step_30.pt` is not there"),
    "no configuration": (lambda left: left.pop("out/config.json"), "config.json` is not there"),
    "an empty file": (lambda left: left["out/config.json"].update(size=0), "is empty"),
    "no optimizer": (_without("optimizer"), "`optimizer/state/0/exp_avg` is missing"),
    "no average": (_without("ema"), "is missing"),
    "no random state": (_without("rng"), "`rng` is missing"),
    "no schedule": (_without("scheduler"), "the entry `scheduler/last_epoch` is missing"),
    "the wrapper's names": (_prefixed("_orig_mod."), "have the prefix `_orig_mod.`"),
    "DDP's names": (_prefixed("module."), "the unmodified code cannot load it"),
    "half a head": (
        edited(lambda t, s: t["model/head.weight"].update(shape=[32, 32])),
        "has shape",
    ),
    "16 bits": (edited(lambda t, s: t["model/head.weight"].update(dtype="bfloat16")), "has dtype"),
    "a step too few": (edited(lambda t, s: s.update(step=29)), "`step` is 29, in the reference 30"),
    "another place in the data": (
        edited(lambda t, s: s.update(position=30720)),
        "`position` is 30720, in the reference 61440",
    ),
    "another rate": (
        edited(lambda t, s: s.update({"optimizer/param_groups/0/lr": 2e-3})),
        "param_groups/0/lr` is 0.002",
    ),
    "another entry": (edited(lambda t, s: t.update(x=tensor([1], 1.0, 1.0))), "`x` is in it"),
    "an old head": (_moved("model/head.weight", -0.02), "`model/head.weight` is off by"),
    "an average that is not kept up": (_all_moved("ema", -0.01), "off by"),
    "an optimizer that is empty": (_all_moved("optimizer", -1.0), "is zero"),
    "counters": (
        edited(lambda t, s: t["optimizer/state/0/step"].update(dtype="int64", values=[29.0, 29.0])),
        "has dtype",
    ),
    "a number that is none": (
        edited(lambda t, s: t["model/head.weight"].update(values=[math.nan, math.nan])),
        "off by",
    ),
    "garbage": (
        lambda left: left.update({NAME: {"size": 3, "kind": "torch", "unread": "EOFError: "}}),
        "it cannot be read: EOFError",
    ),
    "another kind of file": (lambda left: left[NAME].update(kind="file"), "it is of kind file"),
    "nothing at all": (lambda left: left.clear(), "is not there"),
}


@pytest.mark.parametrize(("change", "reason"), CHEATS.values(), ids=CHEATS)
def test_a_checkpoint_that_lacks_or_changes_something_fails(
    change: Callable[[Manifests], None], reason: str
) -> None:
    left = copy.deepcopy(manifests())
    change(left)
    found = check(left)
    assert found.status is Status.FAILED
    assert reason in found.reason


def test_timed_runs_are_not_judged_and_a_switch_turns_it_off() -> None:
    assert check({}, RunKind.TIMED).status is Status.NOT_COVERED
    off = PROJECT.verify.model_copy(update={"resume_check": False})
    assert "switched off" in check({}, verify=off).reason


def test_beyond_the_horizon_what_was_trained_must_be_what_is_saved() -> None:
    ours, stale = manifests(), copy.deepcopy(manifests())
    norms = {
        key.removeprefix("model/"): entry["values"][0]
        for key, entry in ours[NAME]["tensors"].items()
        if key.startswith("model/")
    }
    _all_moved("model", 0.3)(stale)
    moved = {name: 1.3 * norm for name, norm in norms.items()}
    honest = Allowed("float32", {}, beyond=True, trained=(norms, moved))
    assert compare(ours, stale, {}, honest).fault == ""
    cheat = Allowed("float32", {}, beyond=True, trained=(norms, {**moved, "head.weight": 1.0}))
    assert "`model/head.weight` has norm" in compare(ours, stale, {}, cheat).fault


def test_where_numbers_must_be_equal_rounding_fails() -> None:
    exact = PROJECT.invariants.model_copy(update={"numerics": "bitwise"})
    assert check(manifests(), invariants=exact).status is Status.PASSED
    assert "is not bitwise" in check(manifests(1e-7), invariants=exact).reason


def test_a_job_without_checkpoints_says_what_would_cover_it() -> None:
    plain = {"out/train.log": {"size": 7, "kind": "file"}}
    result = replace(run(Job(kind=RunKind.AUDIT)), checkpoints=plain)
    found = judge(evidence({}, plain), result, PROJECT)["resume_continues"]
    assert found.status is Status.NOT_COVERED
    assert "no checkpoint within 30 optimizer steps" in found.reason
    assert "`workload.optimizer_steps`" in found.reason


def test_a_name_that_differs_from_run_to_run_is_no_promise() -> None:
    left = manifests()
    left["out/a3f9.json"] = {"size": 3, "kind": "file"}
    found = judge(
        evidence(manifests(), left),
        replace(run(Job(kind=RunKind.AUDIT)), checkpoints=manifests()),
        PROJECT,
    )["resume_continues"]
    assert found.status is Status.PASSED


def test_a_run_resumes_from_the_first_of_the_fullest_checkpoints() -> None:
    full, half = manifests()[NAME], {"kind": "torch", "tensors": {"a": {}}}
    left: Manifests = {f"out/step_{n}.pt": full for n in (10, 9, 30)} | {"out/best.pt": half}
    assert to_resume_from(left) == "out/step_9.pt"
    assert to_resume_from(left, "out/best*") == "out/best.pt"
    assert to_resume_from({"out/ck-5/optimizer.pt": half}, "out/ck-*") == "out/ck-5"
    assert to_resume_from({"out/.metadata": {**half, "kind": "distributed"}}) == "out"
    assert to_resume_from({"out/a.log": {"kind": "file"}}) is None


def resumed(wobble: float = 0.0, seed: int = 1, **changes: Any) -> ExecutionResult:
    """A run whose losses are not those of a fresh one."""

    def later(step: Any) -> Any:
        return replace(step, loss=step.loss * 0.7 * (1 + wobble))

    result = run(Job(kind=RunKind.AUDIT, seed=seed), tamper=changes.pop("tamper", later))
    return replace(result, **changes)


def resumption(candidate: ExecutionResult, reference: ExecutionResult | None = None) -> CheckResult:
    ours = reference or resumed()
    return judge_resumed(evidence(manifests(), manifests()), ours, candidate, PROJECT)


def test_resumed_runs_that_train_on_alike_pass() -> None:
    found = resumption(resumed(1e-6))
    assert found.status is Status.PASSED
    assert "goes on from the candidate's checkpoint for 30 steps" in found.reason


def test_a_resumed_run_that_parts_or_fails_is_the_candidates_fault() -> None:
    assert "off by" in resumption(resumed(0.05)).reason
    broken = resumed(outcome=Outcome.USER_ERROR, reason="Missing key(s) in state_dict", ranks=())
    found = resumption(broken)
    assert found.status is Status.FAILED
    assert "does not go on from the candidate's checkpoint" in found.reason
    assert "Missing key(s)" in found.reason

    def other_rate(step: Any) -> Any:
        rates = tuple(rate * 1.1 for rate in step.learning_rates)
        return replace(step, loss=step.loss * 0.7, learning_rates=rates)

    assert "learning rates" in resumption(resumed(tamper=other_rate)).reason

    def other_data(step: Any) -> Any:
        digests = {name: (a + 1, b) for name, (a, b) in step.digests.items()}
        return replace(step, loss=step.loss * 0.7, digests=digests)

    assert resumption(resumed(tamper=other_data)).status is Status.FAILED


def test_a_reference_that_does_not_resume_is_not_covered() -> None:
    failing = resumed(outcome=Outcome.USER_ERROR, reason="no such flag", ranks=())
    found = resumption(resumed(), failing)
    assert found.status is Status.NOT_COVERED
    assert "no such flag" in found.reason
    anew = run(Job(kind=RunKind.AUDIT))
    found = resumption(anew, anew)
    assert found.status is Status.NOT_COVERED
    assert "began anew" in found.reason

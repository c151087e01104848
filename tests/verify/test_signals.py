"""Models, optimizers, gradients, precisions and evaluation: what is honest and what is not.

Each tampered record differs from an honest one in one thing, and the check that owns it must fail
and say where; each honest one differs in how the job is computed.
"""

import math
from dataclasses import replace
from functools import partial

import made_records as made
import pytest
from made_records import PROJECT, Job

from infrarsi.contract import RankRecord, RunKind, Status, StepRecord
from infrarsi.verify import judge, reference_evidence

EVIDENCE = reference_evidence(made.reference_runs())
AUDIT = Job(seed=9, kind=RunKind.AUDIT)
TIMED = Job(seed=9)


def verdict_of(job=AUDIT, tamper=None, of_rank=None, evidence=EVIDENCE, project=PROJECT):
    return judge(evidence, made.run(job, tamper, of_rank), project)


def model(**changes):
    """Change the model line."""

    def change(rank: RankRecord) -> RankRecord:
        line = {**rank.models[0], **changes}
        return replace(rank, model=line, models=(line,))

    return change


def renamed(prefix: str):
    """The model is put into another module, under every name that the record has."""

    def change(rank: RankRecord) -> RankRecord:
        names = [prefix + name for name in rank.models[0]["names"]]
        rank = model(names=names, digest="cd" * 8)(rank)
        weights = tuple(
            {**line, "tensors": {prefix + n: v for n, v in line["tensors"].items()}}
            for line in rank.weights
        )
        steps = tuple(
            replace(s, gradients={prefix + n: v for n, v in s.gradients.items()})
            for s in rank.steps
        )
        return replace(rank, weights=weights, steps=steps)

    return change


def optimizer(cls: str = "torch.optim.adamw.AdamW", **settings):
    """Change class and settings of every group."""

    def change(rank: RankRecord) -> RankRecord:
        line = rank.optimizers[0]
        groups = [{**g, "settings": {**g["settings"], **settings}} for g in line["groups"]]
        return replace(rank, optimizers=({**line, "cls": cls, "groups": groups},))

    return change


def groups(make):
    """Change the list of groups."""

    def change(rank: RankRecord) -> RankRecord:
        line = rank.optimizers[0]
        return replace(
            rank,
            optimizers=({**line, "groups": make(line["groups"])},),
            settings=tuple(
                {**c, "group": g}
                for c in rank.settings
                if c["group"] == 0
                for g in range(len(make(line["groups"])))
            ),
        )

    return change


def split(found):
    """The first group as two of the same settings."""
    first = found[0]
    halves = [{**first, "numel": 2048, "tensors": 1}, {**first, "numel": 1024, "tensors": 1}]
    return [*halves, *found[1:]]


def setting_at(step: int, **settings):
    """A setting of the first group changes at a step."""
    change = {"i": step, "optimizer": "0:AdamW", "group": 0, "settings": settings}
    return lambda rank: replace(rank, settings=(*rank.settings, change))


def weights(when: str, change):
    """Change the tensors of the start or the end."""

    def of_rank(rank: RankRecord) -> RankRecord:
        lines = tuple(
            {**line, "tensors": change(dict(line["tensors"]))} if line["when"] == when else line
            for line in rank.weights
        )
        return replace(rank, weights=lines)

    return of_rank


def without(name: str):
    return lambda tensors: {n: v for n, v in tensors.items() if n != name}


def as_at_the_start(name: str):
    """A tensor stands still."""

    def of_rank(rank: RankRecord) -> RankRecord:
        start = next(line for line in rank.weights if line["when"] == "start")
        return weights("end", lambda found: {**found, name: start["tensors"][name]})(rank)

    return of_rank


def companion(when: str, change):
    """Change the average at one end; None leaves it out."""

    def of_rank(rank: RankRecord) -> RankRecord:
        lines = [change(line) if line["when"] == when else line for line in rank.companions]
        return replace(rank, companions=tuple(line for line in lines if line))

    return of_rank


def precision(**changes):
    return lambda rank: replace(rank, precision=({**rank.precision[0], **changes},))


def state(key: str, **changes):
    """Change one key of the optimizer state."""

    def of_rank(rank: RankRecord) -> RankRecord:
        lines = [{**line, **changes} if line["key"] == key else line for line in rank.states]
        return replace(rank, states=tuple(lines))

    return of_rank


HONEST = {
    "another implementation": optimizer(foreach=False, fused=True),
    "a scheduler notes the first rate": optimizer(initial_lr=1e-3),
    "a fused AdamW of Apex": optimizer("apex.optimizers.fused_adam.FusedAdam"),
    "a group is split": groups(split),
    "in another module": renamed("inner."),
    "class of another name": model(cls="train_step"),
    "the mask is gone": lambda rank: weights("end", without("mask"))(
        weights("start", without("mask"))(rank)
    ),
    "one more constant buffer": lambda rank: weights(
        "end", lambda found: {**found, "table": [3.0, 1.0]}
    )(weights("start", lambda found: {**found, "table": [3.0, 1.0]})(rank)),
    "the average is kept as a list": lambda rank: companion(
        "end", lambda line: {**line, "cls": "list"}
    )(companion("start", lambda line: {**line, "cls": "list"})(rank)),
    "autocast off": precision(autocast={"cpu": None, "cuda": None}),
    "a switch without effect on a CPU": precision(
        flags={"float32_matmul_precision": "high", "allow_tf32_matmul": True}
    ),
    "evaluation in bigger batches": lambda rank: replace(
        rank,
        steps=tuple(
            replace(s, eval_calls=1, eval_losses=s.eval_losses[:1], eval_outputs=(9.0,))
            if s.eval_calls
            else s
            for s in rank.steps
        ),
    ),
    "finer states": state("exp_avg", dtypes=["float64"]),
}


@pytest.mark.parametrize("change", HONEST.values(), ids=HONEST.keys())
def test_honest_change_is_the_same_job(change):
    assert verdict_of(of_rank=change).failed == ()
    assert verdict_of(TIMED, of_rank=change).failed == ()


MODEL = {
    "a parameter less": (model(names=["embed.weight"], numel=2048), "`key.bias` and 2 more"),
    "a narrower layer": (model(numel=3000, digest="0"), "has 3000 parameters"),
    "frozen parameters": (model(trainable=1088, digest="0"), "1088 trainable parameters"),
    "other shapes of the same size": (model(digest="0"), "other shapes"),
    "weights in bf16": (model(dtypes=["bfloat16"], digest="0"), "in ['bfloat16']"),
    "untied": (model(ties=[["embed.weight", "head.weight"]]), "ties 1 groups"),
    "no model": (lambda rank: replace(rank, model={}, models=()), "no model was seen"),
    "a second model": (
        lambda rank: replace(rank, models=(*rank.models, {"cls": "Other", "names": ["w"]})),
        "which the reference does not",
    ),
    "SGD": (optimizer("torch.optim.sgd.SGD"), "the optimizer is sgd"),
    "Adam with decay": (
        optimizer("torch.optim.adam.Adam", decoupled_weight_decay=False),
        "the optimizer is adam",
    ),
    "8-bit states": (optimizer("bitsandbytes.optim.adamw.AdamW8bit"), "AdamW8bit"),
    "rate x 1.01 from the start": (optimizer(lr=made.rate(0) * 1.01), "`lr`"),
    "rate x 1.01 at one step": (setting_at(12, lr=1.01e-3), "step 12: `lr` is 0.00101"),
    "no decay in one group": (setting_at(0, weight_decay=0.0), "`weight_decay` is 0.0"),
    "other betas late": (setting_at(20, betas=[0.9, 0.999]), "step 20: `betas`"),
    "nesterov": (optimizer(nesterov=True), "`nesterov` is True"),
    "maximize": (optimizer(maximize=True), "`maximize` is True"),
    "a group is not optimized": (
        lambda rank: groups(lambda found: found[:1])(rank),
        "0 parameters have adam",
    ),
    "a smaller group": (
        groups(lambda found: [{**found[0], "numel": 2048}, found[1]]),
        "2048 parameters",
    ),
    "no optimizer": (lambda rank: replace(rank, optimizers=()), "no optimizer was seen"),
}
MODEL_AUDIT = {
    "another start": (
        weights("start", lambda found: {**found, "layer.bias": [2.0001, 1.0]}),
        "`layer.bias` starts",
    ),
    "another mask": (
        weights("start", lambda found: {**found, "mask": [4.0, 1.0]}),
        "`mask` starts",
    ),
    "a start is missing": (weights("start", without("layer.bias")), "no recorded start"),
    "no start": (lambda rank: replace(rank, weights=rank.weights[1:]), "no initial value"),
    "the average is gone": (companion("end", lambda line: None), "are gone or stand still"),
    "the average stands still": (
        companion("end", lambda line: {**line, "norm": 6.0, "projection": 1.0}),
        "are gone or stand still",
    ),
    "no average": (lambda rank: replace(rank, companions=()), "are gone or stand still"),
}


@pytest.mark.parametrize(
    ("job", "change", "reason"),
    [
        *((job, *case) for case in MODEL.values() for job in (TIMED, AUDIT)),
        *((AUDIT, *case) for case in MODEL_AUDIT.values()),
    ],
    ids=[
        *(f"{name}-{kind}" for name in MODEL for kind in ("timed", "audit")),
        *MODEL_AUDIT,
    ],
)
def test_another_model_or_optimizer_fails_and_is_named(job, change, reason):
    found = verdict_of(job, of_rank=change)["same_model"]
    assert found.status is Status.FAILED
    assert reason in found.reason


def dropout(count: int):
    return model(dropout={"0.1": count} if count else {})


def calls(per_forward: int):
    return lambda s: replace(s, dropout_calls={"0.1": per_forward * s.forwards})


class TestDropout:
    """A job with two dropout modules of 0.1."""

    job = replace(AUDIT, dropout=True)
    evidence = reference_evidence(made.reference_runs(Job(dropout=True)))

    def judged(self, tamper=None, of_rank=None, job=None):
        return verdict_of(job or self.job, tamper, of_rank, self.evidence)["same_model"]

    def test_module_that_became_a_call_is_the_same(self):
        assert self.judged(calls(1), dropout(1)).status is Status.PASSED

    def test_module_that_is_gone_fails(self):
        found = self.judged(calls(0), dropout(1))
        assert "dropout of 0.1 is applied at 1 places, in the reference at 2" in found.reason

    def test_other_probability_fails(self):
        assert "dropout of 0.05" in self.judged(of_rank=model(dropout={"0.05": 2})).reason

    def test_timed_run_that_draws_nothing_fails(self):
        found = self.judged(
            lambda s: replace(s, random={"cpu": 0.0}) if s.random else s,
            job=replace(TIMED, dropout=True),
        )
        assert found.reason == "step 0: training forwards draw no random number, the reference does"


def step(index: int, **changes):
    return lambda s: replace(s, **changes) if s.index == index else s


def gradient(index: int, name: str, value):
    """One parameter's gradient at one step."""

    def change(s: StepRecord) -> StepRecord:
        if s.index != index:
            return s
        return replace(s, gradients={**s.gradients, name: value})

    return change


def all_gradients(factor: float, start: int = 0):
    """All gradients from a step on are scaled."""

    def change(s: StepRecord) -> StepRecord:
        if s.index < start:
            return s
        return replace(s, gradients={n: [factor * x for x in v] for n, v in s.gradients.items()})

    return change


def without_gradient(name: str):
    return lambda s: replace(s, gradients={n: v for n, v in s.gradients.items() if n != name})


GRADIENTS = {
    "one norm off by 1 %": (
        gradient(7, "layer.weight", [1.0778, 0.1]),
        "step 7: the gradient of `l",
    ),
    "clipped to half": (all_gradients(0.5), "step 0"),
    "clipped once": (
        lambda s: all_gradients(0.7)(s) if s.index == 20 else s,
        "step 20",
    ),
    "the sign is turned": (all_gradients(-1.0, 11), "step 11"),
    "a parameter has none": (gradient(9, "embed.weight", None), "step 9: `embed.weight` has no"),
    "a small parameter has none": (gradient(9, "key.bias", None), "step 9: `key.bias` has no"),
    "a parameter is left out": (without_gradient("layer.bias"), "step 0: `layer.bias` has no"),
    "a new parameter has one": (gradient(3, "extra", [0.1, 0.1]), "`extra` has a gradient"),
    "NaN": (gradient(5, "layer.weight", [math.nan, math.nan]), "step 5"),
    "not a number": (gradient(5, "layer.weight", "half"), "step 5"),
    "no gradients at one step": (step(6, gradients={}), "step 6: no gradient was seen"),
    "no gradients": (lambda s: replace(s, gradients={}), "step 0: no gradient was seen"),
}


@pytest.mark.parametrize(("tamper", "reason"), GRADIENTS.values(), ids=GRADIENTS.keys())
def test_other_gradient_fails_and_is_located(tamper, reason):
    found = verdict_of(tamper=tamper)["grad_norm_within_tol"]
    assert found.status is Status.FAILED
    assert reason in found.reason


def test_gradient_that_is_rounding_alone_may_be_other_rounding():
    tamper = gradient(7, "key.bias", [9e-7, -4e-7])
    assert verdict_of(tamper=tamper)["grad_norm_within_tol"].status is Status.PASSED


def test_gradient_of_zero_is_as_good_as_none():
    runs = [
        replace(r, ranks=tuple(zero_extra(rank) for rank in r.ranks)) for r in made.reference_runs()
    ]
    evidence = reference_evidence(runs)
    found = verdict_of(tamper=gradient(3, "extra", None), evidence=evidence)
    assert found["grad_norm_within_tol"].status is Status.PASSED


def zero_extra(rank: RankRecord) -> RankRecord:
    """A parameter whose gradient is zero."""
    steps = tuple(
        replace(s, gradients={**s.gradients, "extra": [0.0, 0.0]}) if s.gradients else s
        for s in rank.steps
    )
    return replace(rank, steps=steps)


class TestRanks:
    """Two ranks."""

    job = replace(AUDIT, ranks=2)

    def on_the_second(self, change):
        return lambda rank: change(rank) if rank.rank == 1 else rank

    def test_replicas_that_agree_pass(self):
        assert verdict_of(self.job).failed == ()

    def test_rank_that_is_not_reduced_fails(self):
        def local(rank):
            return replace(rank, steps=tuple(all_gradients(1.3)(s) for s in rank.steps))

        found = verdict_of(self.job, of_rank=self.on_the_second(local))
        assert found["grad_norm_within_tol"].status is Status.FAILED

    def test_rank_without_gradients_fails(self):
        def blind(rank):
            return replace(rank, steps=tuple(replace(s, gradients={}) for s in rank.steps))

        found = verdict_of(self.job, of_rank=self.on_the_second(blind))
        assert found["grad_norm_within_tol"].status is Status.FAILED

    def test_shares_of_sharded_parameters_add_up(self):
        def sharded(rank):
            steps = tuple(
                replace(
                    s, gradients={n: [v[0] / math.sqrt(2), 0.1] for n, v in s.gradients.items()}
                )
                for s in rank.steps
            )
            rank = model(sharded=list(made.PARAMETERS))(replace(rank, steps=steps))
            for when in ("start", "end"):
                rank = weights(
                    when,
                    lambda found: {
                        n: [v[0] / math.sqrt(2), 0.1] if n in made.PARAMETERS else v
                        for n, v in found.items()
                    },
                )(rank)
            return rank

        def without_averages(result):
            ranks = tuple(replace(rank, companions=()) for rank in result.ranks)
            return replace(result, ranks=ranks)

        evidence = reference_evidence([without_averages(r) for r in made.reference_runs()])
        found = verdict_of(self.job, of_rank=sharded, evidence=evidence)
        assert found["grad_norm_within_tol"].status is Status.PASSED
        assert found["same_model"].status is Status.PASSED

    def shared_out(self, change=lambda group: group):
        """Both ranks optimize half of the parameters, as ZeRO does, in padded pieces."""

        def shared(rank):
            inner = rank.optimizers[0]
            pieces = [{**g, "tensors": 1, "numel": g["numel"] // 2 + 1} for g in inner["groups"]]
            return replace(rank, optimizers=({**inner, "groups": [change(g) for g in pieces]},))

        return shared

    def test_optimizer_that_is_shared_out_is_the_same(self):
        found = verdict_of(self.job, of_rank=self.shared_out())
        assert found["same_model"].status is Status.PASSED

    def test_part_that_is_optimized_otherwise_fails(self):
        def decays(group):
            return {**group, "settings": {**group["settings"], "weight_decay": 0.1}}

        found = verdict_of(self.job, of_rank=self.shared_out(decays))["same_model"]
        assert "100.0% of the parameters have adamw" in found.reason
        assert "in the reference 98.0%" in found.reason

    def test_part_that_is_not_optimized_fails(self):
        def smaller(group):
            return {**group, "numel": min(group["numel"], 512)}

        found = verdict_of(self.job, of_rank=self.shared_out(smaller))["same_model"]
        assert "512 parameters have adamw" in found.reason

    def test_one_rank_that_optimizes_half_fails(self):
        found = verdict_of(self.job, of_rank=self.on_the_second(self.shared_out()))["same_model"]
        assert found.reason.startswith("rank 1: step 0: 1537 parameters have adamw")


ENDS = {
    "a parameter stands still": (as_at_the_start("layer.bias"), "`layer.bias` stands still"),
    "a parameter goes another way": (
        weights("end", lambda found: {**found, "layer.weight": [2.01, 0.5]}),
        "`layer.weight` went another way",
    ),
    "an end is missing": (weights("end", without("embed.weight")), "no recorded end"),
    "no ends": (lambda rank: replace(rank, weights=rank.weights[:1]), "no recorded end"),
    "another state": (state("exp_avg_sq", norm=0.012), "`exp_avg_sq` is another optimizer state"),
    "the average goes another way": (
        companion("end", lambda line: {**line, "norm": 6.01}),
        "(beside the model) went another way",
    ),
}


@pytest.mark.parametrize(("change", "reason"), ENDS.values(), ids=ENDS.keys())
def test_other_end_of_the_run_fails_and_is_named(change, reason):
    found = verdict_of(of_rank=change)["optimizer_steps"]
    assert found.status is Status.FAILED
    assert reason in found.reason


PRECISION = {
    "autocast to bf16": (precision(autocast={"cpu": "bfloat16"}), "autocast to bfloat16"),
    "weights in bf16": (precision(parameters=["bfloat16"]), "parameters in bfloat16"),
    "gradients in bf16": (precision(gradients=["bfloat16", "float32"]), "gradients in bfloat16"),
    "buffers in fp16": (precision(buffers=["float16"]), "buffers in float16"),
    "states in bf16": (state("exp_avg", dtypes=["bfloat16"]), "state `exp_avg` in bfloat16"),
    "states in uint8": (state("exp_avg_sq", dtypes=["uint8"]), "state `exp_avg_sq` in uint8"),
    "products in bf16 on a CPU": (
        precision(flags={"float32_matmul_precision": "medium"}),
        "computed in bfloat16",
    ),
    "TF32 on a GPU": (
        lambda rank: replace(
            precision(flags={"float32_matmul_precision": "high"})(rank),
            head={**rank.head, "device": "NVIDIA H200"},
        ),
        "computed in tf32",
    ),
    "no autocast said": (precision(autocast=None, flags={}), None),
    "no parameters said": (precision(parameters=[]), "no parameters"),
    "nothing said": (lambda rank: replace(rank, precision=()), "no autocast"),
    "a state is missing": (
        lambda rank: replace(rank, states=rank.states[1:]),
        "no optimizer state `exp_avg`",
    ),
}


@pytest.mark.parametrize("job", [TIMED, AUDIT], ids=["timed", "audit"])
@pytest.mark.parametrize(
    ("change", "reason"),
    [case for case in PRECISION.values() if case[1]],
    ids=[name for name, case in PRECISION.items() if case[1]],
)
def test_lower_precision_fails_and_is_named(change, reason, job):
    found = verdict_of(job, of_rank=change)["precision"]
    assert found.status is Status.FAILED
    assert reason in found.reason


def test_products_in_a_lower_precision_fail():
    found = verdict_of(tamper=step(9, matmul_dtypes=("bfloat16", "float32")))["precision"]
    assert found.reason == "step 9: matrix products in bfloat16, in the reference float32"


@pytest.mark.parametrize(
    "change", [{"eval_autocast": {"cpu": "bfloat16"}}, {"eval_parameters": ["bfloat16"]}], ids=str
)
def test_evaluation_in_a_lower_precision_fails(change):
    found = verdict_of(of_rank=precision(**change))["precision"]
    assert found.reason == "evaluation in bfloat16, in the reference float32"


@pytest.mark.parametrize(
    ("bases", "status"),
    [(["AdamW", "Adam", "Optimizer"], Status.PASSED), (["Optimizer"], Status.FAILED)],
    ids=["from the same class", "from none"],
)
def test_a_class_of_the_jobs_own_is_what_it_comes_from(bases, status):
    def own(rank: RankRecord) -> RankRecord:
        return replace(rank, optimizers=({**rank.optimizers[0], "cls": "Own", "bases": bases},))

    assert verdict_of(of_rank=own)["same_model"].status is status


class TestSameMasks:
    """A timed run with dropout that leaves the random state where the reference leaves it."""

    evidence = reference_evidence(
        [
            replace(
                run,
                ranks=tuple(
                    replace(r, steps=tuple(replace(s, random={"cpu": 77.0}) for s in r.steps))
                    for r in run.ranks
                ),
            )
            for run in made.reference_runs(Job(dropout=True))
        ]
    )

    def judged(self, state: float, factor: float) -> Status:
        def tamper(s: StepRecord) -> StepRecord:
            return replace(s, random={"cpu": state}, loss=s.loss * (factor if s.index > 3 else 1))

        job = replace(TIMED, dropout=True)
        return verdict_of(job, tamper, evidence=self.evidence)["loss_within_tolerance"].status

    def test_is_held_to_the_reference_step_by_step(self):
        assert self.judged(77.0, 1.0) is Status.PASSED
        assert self.judged(77.0, 1.005) is Status.FAILED

    def test_other_draws_are_other_masks(self):
        assert self.judged(78.0, 1.005) is Status.PASSED


def leaves(**sizes: int):
    """A timed run's checkpoints of these sizes, by name."""
    return {f"{name}.pt": {"size": size, "kind": "torch"} for name, size in sizes.items()}


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (leaves(a=1000, b=950), None),
        (leaves(a=1000), "`b.pt` is not there, which the reference leaves"),
        (leaves(a=1000, b=100), "`b.pt` has 100 bytes, the reference's has 1000"),
    ],
    ids=["the same files", "one is missing", "one is a stump"],
)
def test_timed_run_leaves_the_reference_s_files(left, reason):
    runs = [replace(r, checkpoints=leaves(a=1000, b=1000)) for r in made.reference_runs()]
    result = replace(made.run(TIMED, None, None), checkpoints=left)
    found = judge(reference_evidence(runs), result, PROJECT)["resume_continues"]
    assert found.status is (Status.FAILED if reason else Status.NOT_COVERED)
    assert reason is None or found.reason == reason


class TestAllowed:
    """An fp32 job whose contract allows bf16 by name."""

    project = PROJECT.model_copy(update={"allow": ["bf16"]})
    autocast = staticmethod(precision(autocast={"cpu": "bfloat16"}))

    def test_autocast_to_it_passes_with_its_bands(self):
        found = verdict_of(replace(AUDIT, wobble=5e-4), of_rank=self.autocast, project=self.project)
        assert found["precision"].status is Status.PASSED
        assert found["loss_within_tolerance"].status is Status.PASSED

    def test_weights_kept_in_it_fail(self):
        found = verdict_of(of_rank=precision(parameters=["bfloat16"]), project=self.project)
        assert found["precision"].status is Status.FAILED

    def test_run_that_does_not_use_it_keeps_the_bands_of_fp32(self):
        found = verdict_of(replace(AUDIT, wobble=5e-4), project=self.project)
        assert found["loss_within_tolerance"].status is Status.FAILED


EVALUATION = {
    "no evaluation": (
        lambda s: replace(s, eval_calls=0, eval_samples=0, eval_losses=(), eval_digests={}),
        "step 9: 0 evaluation batches, in the reference 2",
    ),
    "one evaluation is left out": (step(19, eval_calls=0, eval_samples=0), "step 19: 0 evaluation"),
    "fewer samples": (
        lambda s: replace(s, eval_samples=s.eval_samples // 2),
        "4 evaluation samples, in the reference 8",
    ),
    "another loss": (
        step(29, eval_losses=(3.9, 3.9)),
        "step 29: evaluation loss 3.9",
    ),
    "no loss": (step(29, eval_losses=()), "evaluation loss was not seen"),
    "NaN": (step(29, eval_losses=(math.nan, math.nan)), "evaluation loss nan"),
}
EVALUATION_AUDIT = {
    "other data": (step(19, eval_digests={"x": (5, 7)}), "step 19: other samples are evaluated"),
    "no digest": (step(19, eval_digests={}), "step 19: what was evaluated has no digest"),
    "a constant is returned": (
        step(19, eval_outputs=(0.0, 0.0)),
        "step 19: evaluation output norm",
    ),
    "no outputs": (step(19, eval_outputs=()), "evaluation output norm was not seen"),
}


@pytest.mark.parametrize(
    ("job", "tamper", "reason"),
    [
        *((job, *case) for case in EVALUATION.values() for job in (TIMED, AUDIT)),
        *((AUDIT, *case) for case in EVALUATION_AUDIT.values()),
    ],
    ids=[
        *(f"{name}-{kind}" for name in EVALUATION for kind in ("timed", "audit")),
        *EVALUATION_AUDIT,
    ],
)
def test_other_evaluation_fails_and_is_located(job, tamper, reason):
    found = verdict_of(job, tamper)["eval_matches"]
    assert found.status is Status.FAILED
    assert reason in found.reason


def test_models_that_are_evaluated_in_turn_are_evaluated_the_same():
    def turned(s: StepRecord) -> StepRecord:
        return replace(s, eval_outputs=s.eval_outputs[::-1])

    assert verdict_of(tamper=turned)["eval_matches"].status is Status.PASSED


def early(rank: RankRecord, *, count: int = 1000) -> RankRecord:
    """A forward without gradients before the training forward: seen one update earlier."""
    names = ("eval_calls", "eval_samples", "eval_losses", "eval_digests", "eval_outputs")
    steps = [
        replace(s, **{name: getattr(later, name) for name in names})
        for s, later in zip(rank.steps, rank.steps[1:], strict=False)
    ]
    return replace(rank, steps=(*steps[:count], *rank.steps[len(steps[:count]) :]))


def ended(rank: RankRecord) -> RankRecord:
    """Nothing more is asked after the last update."""
    nothing = {"eval_losses": (), "eval_digests": {}, "eval_outputs": ()}
    last = replace(rank.steps[-1], eval_calls=0, eval_samples=0, **nothing)
    return replace(rank, steps=(*rank.steps[:-1], last))


def test_a_teacher_that_is_asked_before_its_student_evaluates_the_same():
    evidence = reference_evidence(made.reference_runs(Job(eval_every=1)))
    for job in (TIMED, AUDIT):
        for change in (early, lambda rank: ended(early(rank))):
            found = verdict_of(replace(job, eval_every=1), of_rank=change, evidence=evidence)
            assert found["eval_matches"].status is Status.PASSED


def test_evaluation_that_comes_early_for_a_while_or_with_other_values_fails():
    evidence = reference_evidence(made.reference_runs(Job(eval_every=1)))
    job = replace(AUDIT, eval_every=1)
    for change in (
        partial(early, count=12),
        lambda rank: early(early(rank)),
        lambda rank: early(
            replace(rank, steps=tuple(replace(s, eval_losses=(3.9, 3.9)) for s in rank.steps))
        ),
    ):
        found = verdict_of(job, of_rank=change, evidence=evidence)
        assert found["eval_matches"].status is Status.FAILED


def test_job_that_does_not_evaluate_leaves_the_check_uncovered():
    evidence = reference_evidence(made.reference_runs(Job(eval_every=0)))
    found = verdict_of(replace(AUDIT, eval_every=0), evidence=evidence)
    assert found["eval_matches"].status is Status.NOT_COVERED
    assert found.failed == ()


def test_old_records_without_these_signals_leave_the_checks_uncovered():
    evidence = reference_evidence(made.reference_runs(Job(facts=False)))
    found = verdict_of(replace(AUDIT, facts=False), evidence=evidence)
    for check in ("grad_norm_within_tol", "precision"):
        assert found[check].status is Status.NOT_COVERED
    assert found.failed == ()


@pytest.mark.parametrize(
    "damage", [{"steps": "x"}, {"models": (3,)}, {"weights": (None,)}], ids=str
)
def test_record_that_cannot_be_read_fails_and_does_not_raise(damage):
    assert not verdict_of(of_rank=lambda rank: replace(rank, **damage)).same_job


class TestFloatingInputs:
    """A job whose input `x` is a picture that it computes."""

    @staticmethod
    def picture(s: StepRecord) -> StepRecord:
        shapes = {key.replace("x:int64", "x:float32"): n for key, n in s.shapes.items()}
        return replace(s, shapes=shapes)

    @classmethod
    def rounded(cls, s: StepRecord) -> StepRecord:
        digests = {**s.digests, "x": (11 + s.index, 13)} if s.digests else {}
        return replace(cls.picture(s), digests=digests)

    @property
    def evidence(self):
        return reference_evidence(
            [
                made.run(Job(seed=0), self.picture),
                made.run(Job(kind=RunKind.AUDIT), self.picture),
                made.run(Job(kind=RunKind.PERTURBED, wobble=1e-7), self.picture),
            ]
        )

    def judged(self, job, tamper):
        return verdict_of(job, tamper, evidence=self.evidence)["same_data"]

    @pytest.mark.parametrize("job", [TIMED, AUDIT], ids=["timed", "audit"])
    def test_other_last_bits_are_the_same_data(self, job):
        assert "the same samples to rounding" in self.judged(job, self.rounded).reason

    def test_other_samples_move_the_gradients(self):
        found = self.judged(AUDIT, lambda s: all_gradients(1.02, 7)(self.rounded(s)))
        assert found.status is Status.FAILED

    def test_other_samples_move_the_loss(self):
        found = self.judged(TIMED, lambda s: replace(self.rounded(s), loss=(s.loss or 0.0) * 1.002))
        assert found.status is Status.FAILED

    def test_other_tokens_are_other_data(self):
        found = self.judged(
            AUDIT,
            lambda s: replace(
                self.picture(s), digests={**s.digests, "y": (1, 2)} if s.digests else {}
            ),
        )
        assert found.status is Status.FAILED

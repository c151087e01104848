"""Floating inputs with other last bits, as whole runs are judged: by sketches, and when not.

`x` is a picture that the job computes, `y` are labels. The digests of `x` differ in every update of
the judged run; what its sketch says differs from case to case.
"""

from dataclasses import dataclass, replace

import made_records as made
import pytest
from made_records import PROJECT, SAMPLES, Job

from infrarsi.contract import RunKind, Status, StepRecord
from infrarsi.verify import judge, reference_evidence

TIMED, AUDIT, PERTURBED = RunKind.TIMED, RunKind.AUDIT, RunKind.PERTURBED
UNIT = 2.0**-23
ROUNDING, OTHER = 50 * UNIT, 1e-3
BITS_16 = 2.0**-7
BITWISE = PROJECT.model_copy(
    update={"invariants": PROJECT.invariants.model_copy(update={"numerics": "bitwise"})}
)


@dataclass(frozen=True)
class Picture:
    """Makes `x` a floating input.

    `off`: how far the sums of its sketch are off, None for no sketch; with it the digest is another
    one. `whole`: whether its digest is the reference's; `unit`: of rounding, for its dtype.
    """

    off: float | None = 0.0
    whole: bool = True
    unit: float = UNIT

    def __call__(self, s: StepRecord) -> StepRecord:
        shapes = {key.replace("x:int64", "x:float32"): n for key, n in s.shapes.items()}
        s = replace(s, shapes=shapes)
        if not s.close_look:
            return s
        digests = s.digests if self.whole else {**s.digests, "x": (11 + s.index, 13)}
        return replace(s, digests=digests, sketches=self.sketches(SAMPLES))

    def sketches(self, rows: int) -> dict[str, tuple[float, ...]]:
        """Of that many rows."""
        if self.off is None:
            return {}
        return {"x": (float(rows), rows * self.unit, -3.0 + self.off, 2.5, -1.5 - self.off)}

    def evaluated(self, s: StepRecord) -> StepRecord:
        """The same of what is evaluated; training consumes what the reference does."""
        s = Picture(unit=self.unit)(s)
        if not s.eval_digests:
            return s
        digests = s.eval_digests if self.whole else {"x": (5, 7)}
        return replace(s, eval_digests=digests, eval_sketches=self.sketches(8))


def verdict(kind, tamper, *, dropout=False, project=PROJECT, reference=None, perturbed=None):
    """All checks of a run whose steps are changed by `tamper`."""
    base = Job(dropout=dropout)
    plain = reference or Picture()
    evidence = reference_evidence(
        [
            made.run(base, plain),
            made.run(replace(base, kind=AUDIT), plain),
            made.run(replace(base, kind=PERTURBED, wobble=1e-7), perturbed or plain),
        ]
    )
    return judge(evidence, made.run(replace(base, seed=9, kind=kind), tamper), project)


@pytest.mark.parametrize("dropout", [False, True], ids=["plain", "dropout"])
@pytest.mark.parametrize("kind", [TIMED, AUDIT], ids=str)
def test_other_last_bits_are_the_same_data(kind, dropout):
    found = verdict(kind, Picture(ROUNDING, whole=False), dropout=dropout)
    assert found["same_data"].reason.startswith("the same samples to rounding")
    assert found.failed == ()


@pytest.mark.parametrize("dropout", [False, True], ids=["plain", "dropout"])
@pytest.mark.parametrize("kind", [TIMED, AUDIT], ids=str)
def test_sums_that_are_off_are_other_data_whatever_losses_and_gradients_say(kind, dropout):
    found = verdict(kind, Picture(OTHER, whole=False), dropout=dropout)["same_data"]
    assert found.status is Status.FAILED
    assert found.reason.startswith("step 0: other samples")


def test_one_update_with_other_sums_is_enough():
    def once(s):
        return Picture(OTHER if s.index == 16 else ROUNDING, whole=False)(s)

    assert verdict(TIMED, once)["same_data"].status is Status.FAILED


def test_bitwise_asks_for_equal_bits():
    found = verdict(AUDIT, Picture(ROUNDING, whole=False), project=BITWISE)["same_data"]
    assert found.status is Status.FAILED


def test_other_labels_are_other_data_beside_a_rounded_picture():
    def labels(s):
        s = Picture(ROUNDING, whole=False)(s)
        return replace(s, digests={**s.digests, "y": (1, 2)} if s.digests else {})

    for kind in (TIMED, AUDIT):
        assert verdict(kind, labels)["same_data"].status is Status.FAILED


def test_an_input_of_another_dtype_is_other_data():
    found = verdict(TIMED, Picture(0.0, whole=False, unit=BITS_16))["same_data"]
    assert found.status is Status.FAILED


@pytest.mark.parametrize("off", [None, OTHER], ids=["no sketch", "16 bits"])
def test_where_sketches_do_not_tell_losses_and_gradients_decide(off):
    unit = UNIT if off is None else BITS_16
    plain, changed = Picture(unit=unit), Picture(None if off is None else 0.5, False, unit)
    for kind in (TIMED, AUDIT):
        assert verdict(kind, changed, reference=plain)["same_data"].status is Status.PASSED
    found = verdict(TIMED, changed, reference=plain, dropout=True)["same_data"]
    assert found.status is Status.FAILED


class TestInputThatDependsOnTheWeights:
    """The perturbed run has another one, as a second model's pictures are: rounding grows in it."""

    moved = Picture(OTHER, whole=False)

    def test_its_losses_decide_in_a_timed_run(self):
        found = verdict(TIMED, self.moved, perturbed=self.moved)
        assert found["same_data"].status is Status.PASSED

    def test_other_losses_are_other_data(self):
        def other(s):
            return replace(self.moved(s), loss=(s.loss or 0.0) * 1.002)

        found = verdict(TIMED, other, perturbed=self.moved)
        assert found["same_data"].status is Status.FAILED


def test_evaluation_on_rounded_pictures_is_the_same_evaluation():
    for dropout in (False, True):
        found = verdict(
            AUDIT,
            Picture(ROUNDING, False).evaluated,
            dropout=dropout,
            reference=Picture().evaluated,
        )
        assert found["eval_matches"].status is Status.PASSED


def test_evaluation_on_other_pictures_is_not():
    found = verdict(AUDIT, Picture(OTHER, False).evaluated, reference=Picture().evaluated)
    assert found["eval_matches"].status is Status.FAILED
    bitwise = verdict(
        AUDIT, Picture(ROUNDING, False).evaluated, reference=Picture().evaluated, project=BITWISE
    )
    assert bitwise["eval_matches"].status is Status.FAILED

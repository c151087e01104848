"""A reference that cannot be judged by is refused with what to do."""

from dataclasses import replace

import made_records as made
import pytest
from made_records import SAMPLES, STEPS, Job

from infrarsi.contract import Outcome, RunKind
from infrarsi.errors import UserError
from infrarsi.verify import reference_evidence


def broken_rank(**changes):
    """A run whose only rank is changed."""
    result = made.run(Job())
    return replace(result, ranks=(replace(result.ranks[0], **changes),))


BROKEN = {
    "no run": ([], "no timed run among 0"),
    "only an audit": ([made.run(Job(kind=RunKind.AUDIT))], "no timed run among 1"),
    "failed": (
        [replace(made.run(Job()), outcome=Outcome.USER_ERROR, reason="exit code 2")],
        "the command failed by itself as it is: exit code 2",
    ),
    "no record": ([replace(made.run(Job()), ranks=())], "no optimizer step was seen"),
    "no step": ([broken_rank(steps=())], "no optimizer step was seen"),
    "not sealed": ([broken_rank(sealed=False)], "the record of rank 0 is not whole"),
    "other work": (
        [
            made.run(Job()),
            made.run(Job(seed=1), lambda s: replace(s, samples=SAMPLES + s.index // 29)),
        ],
        "different work in update 29: 16 samples, 1024 elements against 17",
    ),
    "other length": (
        [made.run(Job()), broken_rank(steps=made.run(Job()).ranks[0].steps[:-1])],
        "made 30 and 29 optimizer steps",
    ),
}


@pytest.mark.parametrize(("results", "what"), BROKEN.values(), ids=BROKEN.keys())
def test_unsound_reference_is_refused(results, what):
    with pytest.raises(UserError, match=what) as caught:
        reference_evidence(results)
    assert caught.value.fix


def test_fewer_steps_than_asked_name_both_numbers():
    with pytest.raises(UserError, match=r"is 40, but the job ended by itself after 30"):
        reference_evidence([made.run(Job())], optimizer_steps=40)


def test_log_tail_comes_with_a_failed_reference():
    result = replace(
        made.run(Job()), outcome=Outcome.USER_ERROR, reason="exit code 1", log_tail="boom!"
    )
    with pytest.raises(UserError, match="boom!"):
        reference_evidence([result])


def test_runs_are_sorted_by_kind():
    evidence = reference_evidence(made.reference_runs(), optimizer_steps=STEPS)
    assert len(evidence.timed) == 3
    assert evidence.like(RunKind.TIMED) is evidence.timed[0]
    assert evidence.like(RunKind.AUDIT) is evidence.audit
    assert evidence.perturbed is not None
    assert evidence.perturbed.kind is RunKind.PERTURBED


def test_noise_comes_from_the_timed_runs():
    evidence = reference_evidence(made.reference_runs())
    noise = evidence.noise()
    assert noise is not None
    assert noise.runs == 3
    assert 0 < noise.run_log_sd < 0.02
    assert evidence.step_time_s == pytest.approx(0.1, rel=0.02)


def test_one_timed_run_shows_no_noise():
    assert reference_evidence([made.run(Job())]).noise() is None

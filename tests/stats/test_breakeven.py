"""One-off costs against saved seconds."""

import pytest

from infrarsi.stats import Cost, break_even_step, net_speedup


def test_compile_pays_back_after_its_cost_over_the_saving():
    assert break_even_step(Cost(0.10, 5), Cost(0.09, 40)) == 3500


def test_net_speedup_approaches_the_step_speedup():
    reference, candidate = Cost(0.10, 5), Cost(0.05, 40)
    assert net_speedup(reference, candidate, 100) < 1
    assert net_speedup(reference, candidate, 10**8) == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize(
    ("candidate", "step"),
    [
        pytest.param(Cost(0.1, 5), 0, id="same"),
        pytest.param(Cost(0.09, 4), 0, id="better-in-both"),
        pytest.param(Cost(0.1, 6), None, id="only-slower-start"),
        pytest.param(Cost(0.11, 6), None, id="worse-in-both"),
        pytest.param(Cost(0.11, 4), None, id="faster-start-slower-step"),
    ],
)
def test_edges(candidate, step):
    assert break_even_step(Cost(0.1, 5), candidate) == step


def test_at_the_break_even_step_the_totals_have_crossed():
    reference, candidate = Cost(0.1, 5), Cost(0.073, 17)
    step = break_even_step(reference, candidate)
    assert candidate.total_s(step) <= reference.total_s(step)
    assert candidate.total_s(step - 1) > reference.total_s(step - 1)

"""The group-sequential decision: false promotions, power, and how soon it decides."""

import math

import numpy as np
import pytest

from infrarsi.stats import Decision, Noise, decide, max_pairs, plan, resolvable_gain


def campaign(rng, looks, *, sd, gain, floor=0.002, aa_pairs=2, shape="normal"):
    """Decide on one candidate with true log gain `gain`; (decision, pairs)."""
    draws = _draw(rng, looks.max_pairs + aa_pairs, shape) * sd
    aa, ratios = draws[:aa_pairs], draws[aa_pairs:] + gain
    for pairs in looks.looks:
        look = decide(ratios[:pairs], looks, floor=floor, aa=aa)
        if look.decision is not Decision.CONTINUE:
            return look.decision, pairs
    raise AssertionError("the last look must decide")


def _draw(rng, count, shape):
    if shape == "heavy-tailed":
        return rng.standard_t(3, count) / math.sqrt(3.0)
    values = rng.standard_normal(count)
    if shape == "drifting":  # adds to one order of a pair and takes from the other
        values += rng.choice([-1.0, 1.0]) * np.where(np.arange(count) % 2, 1.0, -1.0)
    return values


@pytest.mark.parametrize("shape", ["normal", "heavy-tailed", "drifting"])
@pytest.mark.parametrize(("most", "aa_pairs"), [(12, 0), (12, 2), (24, 2)])
def test_candidate_without_gain_is_promoted_no_more_often_than_its_share(shape, most, aa_pairs):
    rng = np.random.default_rng(most + aa_pairs)
    looks, repeats = plan(most, candidates=1), 3000
    promoted = sum(
        campaign(rng, looks, sd=0.01, gain=0.002, aa_pairs=aa_pairs, shape=shape)[0]
        is Decision.PROMOTE
        for _ in range(repeats)
    )
    # The gain equals the floor. Rate 0.01: binomial sd of 3000 draws is 5.4; three of them.
    assert promoted <= 0.01 * repeats + 16.3


@pytest.mark.slow
def test_false_promotion_rate_with_own_variance_alone():
    """The worst cell: no A/A pairs, normal noise, eleven looks."""
    rng = np.random.default_rng(0)
    looks, repeats = plan(24, candidates=1), 20000
    promoted = sum(
        campaign(rng, looks, sd=0.01, gain=0.002, aa_pairs=0)[0] is Decision.PROMOTE
        for _ in range(repeats)
    )
    # Rate 0.01: binomial sd of 20000 draws is 14; three of them.
    assert promoted <= 0.01 * repeats + 42


@pytest.mark.parametrize("shape", ["normal", "heavy-tailed"])
@pytest.mark.parametrize("sd", [0.0005, 0.01, 0.06])
def test_gain_of_2_2_sigma_beyond_the_floor_is_found(shape, sd):
    rng = np.random.default_rng(7)
    noise = Noise(0, sd / math.sqrt(2), sd, 4, 3, aa=(0.0, 0.0))
    looks = plan(max_pairs(noise, candidates=3), candidates=3)
    repeats = 400
    found = sum(
        campaign(rng, looks, sd=sd, gain=0.002 + 2.2 * sd, shape=shape)[0] is Decision.PROMOTE
        for _ in range(repeats)
    )
    # At least 95 %; binomial sd of 400 draws is 1.1 %, three of them.
    assert found / repeats >= 0.95 - 0.033


def test_gain_of_20_percent_at_2_percent_noise_is_promoted_at_four_pairs():
    rng = np.random.default_rng(1)
    looks = plan(24, candidates=3)
    early = 0
    for _ in range(200):
        decision, pairs = campaign(rng, looks, sd=0.02, gain=math.log(1.2))
        assert decision is Decision.PROMOTE
        early += pairs == 4
    # With this seed 187 of 200 decide at four pairs; 160 leaves room for another generator.
    assert early >= 160


def test_candidate_that_is_clearly_slower_is_dropped_at_the_first_look():
    ratios = [-0.1, -0.11, -0.09, -0.1]
    assert decide(ratios, plan(24), floor=0.002).decision is Decision.DROP


def test_looks_are_at_even_numbers_from_four():
    assert plan(13).looks == (4, 6, 8, 10, 12)


def test_between_looks_it_continues_and_names_the_next():
    look = decide([0.5] * 5, plan(12), floor=0.0)
    assert look.decision is Decision.CONTINUE
    assert "the next look is at 6" in look.reason


def test_last_look_always_decides():
    ratios = [0.01, -0.008] * 6
    look = decide(ratios, plan(12), floor=0.002)
    assert look.decision is Decision.DROP
    assert "no pair left" in look.reason


def test_levels_spend_no_more_than_the_share():
    for most in (4, 12, 24):
        for candidates in (1, 3):
            levels = plan(most, candidates=candidates).levels
            assert levels[0] <= max(levels) < 0.01 / candidates


def test_more_candidates_share_the_rate():
    assert plan(12, candidates=3).levels[0] < plan(12, candidates=1).levels[0]


def test_plan_below_four_pairs_is_refused():
    with pytest.raises(ValueError, match="at least 4"):
        plan(3)


def test_noise_of_aa_pairs_holds_back_a_lucky_candidate():
    ratios = [0.0300, 0.0301, 0.0299, 0.0300]
    alone = decide(ratios, plan(24), floor=0.002)
    with_aa = decide(ratios, plan(24), floor=0.002, aa=(0.04, -0.05, 0.03))
    assert alone.decision is Decision.PROMOTE
    assert with_aa.decision is Decision.CONTINUE


def test_quiet_aa_pairs_never_hide_the_candidates_own_noise():
    ratios = [0.10, -0.02, 0.09, -0.01]
    quiet = decide(ratios, plan(24), floor=0.0, aa=(0.0001, -0.0001, 0.0001, 0.0001))
    alone = decide(ratios, plan(24), floor=0.0)
    assert quiet.low == alone.low


def test_more_pairs_are_allowed_for_more_noise_up_to_the_cap():
    def pairs(sd):
        return max_pairs(Noise(0, sd / math.sqrt(2), sd, 4, 3, aa=(0.0, 0.0)))

    found = [pairs(sd) for sd in (0.0005, 0.005, 0.008, 0.02)]
    assert found == sorted(found)
    assert found[0] == 12
    assert found[-1] == 24


def test_resolvable_gain_is_found_with_the_promised_power():
    sd = 0.01
    noise = Noise(0, sd / math.sqrt(2), sd, 4, 3, aa=(0.0, 0.0))
    gain = math.log1p(resolvable_gain(noise, 24))
    rng = np.random.default_rng(2)
    looks, repeats = plan(24), 400
    found = sum(
        campaign(rng, looks, sd=sd, gain=0.002 + gain)[0] is Decision.PROMOTE
        for _ in range(repeats)
    )
    assert found / repeats >= 0.95 - 0.033  # as above

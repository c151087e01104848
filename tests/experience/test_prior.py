"""What packs make likely of a space."""

import math
from typing import Any

import pytest

from infrarsi.contract import Dimension, DimensionKind, Effect, Space
from infrarsi.experience import Context, Pack, matched, similarity
from infrarsi.experience.prior import combined

H200 = Context(
    stack="native-ddp", gpu="NVIDIA H200", gpus_per_node=8, num_parameters=10**9,
    sequence_length=4096, versions={"torch": "2.9.1+cu128"},
)  # fmt: skip
ZERO, PRIOR = Effect(0.0, 0.0, 0.0, 0.0), Effect(-0.1, 0.2, 0.0, 0.3, one_off_s=5.0)


def space() -> Space:
    """Compilation as a knob, attention as a recipe, the micro-batch, and a private knob."""
    return Space(
        (
            Dimension("c", "compile", DimensionKind.KNOB, ("off", "regional"), "off",
                      (ZERO, PRIOR)),
            Dimension("sdpa_attention", "attention_backend", DimensionKind.RECIPE, (False, True),
                      False, (ZERO, PRIOR)),
            Dimension("mbs", "micro_batch", DimensionKind.KNOB, (1, 2, 4), 2, (PRIOR, ZERO, PRIOR)),
            Dimension("own", "nobody_knows", DimensionKind.KNOB, (0, 1), 0, (ZERO, PRIOR)),
        )
    )  # fmt: skip


def pack(context: Context = H200, **fields: Any) -> Pack:
    """A pack of another job with a plain reference."""
    reference = {"compile": "off", "attention_backend": "eager", "micro_batch": 1}
    return Pack(**{"schema": "infrarsi-pack-v1", "id": "p", "title": "t", "context": context,
                   "reference": reference, **fields})  # fmt: skip


def effect(family: str, value: object, mean: float, sd: float = 0.01) -> dict[str, object]:
    return {"family": family, "value": value, "log_time": (mean, sd)}


def test_an_effect_of_the_same_job_is_believed_almost_as_measured() -> None:
    found = matched(space(), H200, [pack(effects=[effect("compile", "regional", -0.4)])])
    assert found.experience.space is not None
    believed = found.experience.space.dimension("c").effect("regional")
    assert believed.log_time == pytest.approx(-0.4, abs=0.01)
    assert believed.log_time_sd < 0.03
    assert (believed.log_memory, believed.log_memory_sd, believed.one_off_s) == (0.0, 0.3, 5.0)
    assert found.covered == {"c"}


def test_a_recipe_has_the_effect_of_the_value_that_it_sets() -> None:
    found = matched(space(), H200, [pack(effects=[effect("attention_backend", "sdpa", -0.3)])])
    assert found.experience.space is not None
    believed = found.experience.space.dimension("sdpa_attention").effect(True)
    assert believed.log_time == pytest.approx(-0.3, abs=0.01)


def test_effects_are_carried_over_to_the_reference_of_the_job() -> None:
    effects = [effect("micro_batch", 2, -0.2), effect("micro_batch", 4, -0.5)]
    found = matched(space(), H200, [pack(effects=effects)])
    assert found.experience.space is not None
    dimension = found.experience.space.dimension("mbs")
    assert dimension.effect(4).log_time == pytest.approx(-0.3, abs=0.02)
    assert dimension.effect(1).log_time == pytest.approx(0.2, abs=0.02)
    assert dimension.effect(2) == ZERO


@pytest.mark.parametrize(
    "change",
    [
        {"stack": "megatron"},
        {"gpu": "NVIDIA H100 80GB HBM3"},
        {"gpu": "NVIDIA A100-SXM4-80GB"},
        {"gpus_per_node": 1},
        {"num_parameters": 10**8},
        {"sequence_length": 1024},
        {"versions": {"torch": "2.7.0"}},
    ],
    ids=lambda change: "-".join(change),
)
def test_what_differs_makes_packs_less_alike_and_beliefs_wider(change: dict[str, Any]) -> None:
    other = H200.model_copy(update=change)
    assert 0.1 < similarity(H200, other) < similarity(H200, H200) == 1.0
    assert similarity(H200, other) == similarity(other, H200)
    effects = [effect("compile", "regional", -0.4)]
    near, far = (matched(space(), H200, [pack(c, effects=effects)]) for c in (H200, other))
    assert near.experience.space is not None
    assert far.experience.space is not None
    sds = [m.experience.space.dimension("c").effect("regional").log_time_sd for m in (near, far)]  # type: ignore[union-attr]
    assert sds[0] < sds[1] < PRIOR.log_time_sd


def test_other_generations_are_less_alike_than_other_models_of_one() -> None:
    same, other = (H200.model_copy(update={"gpu": g}) for g in ("NVIDIA H100", "NVIDIA A100"))
    assert similarity(H200, same) > similarity(H200, other)


def test_what_is_not_known_of_one_side_counts_as_alike() -> None:
    assert similarity(H200, Context(stack="native-ddp", gpu="NVIDIA H200", gpus_per_node=8)) == 1.0


def test_a_pack_of_a_cpu_is_not_used_on_a_gpu() -> None:
    found = matched(
        space(),
        H200,
        [pack(Context(stack="native-ddp"), effects=[effect("compile", "regional", -1.0)])],
    )
    assert (found.packs, found.experience.space, found.experience.starts) == ((), None, ())


def test_the_verified_change_is_a_point_to_start_from() -> None:
    change = {"values": {"compile": "regional", "micro_batch": 8, "attention_backend": "sdpa"},
              "speedup": 1.5, "speedup_low": 1.4, "speedup_high": 1.6, "pairs": 4}  # fmt: skip
    (start,) = matched(space(), H200, [pack(change=change)]).experience.starts
    assert start == {
        "c": "regional",
        "sdpa_attention": True,
        "mbs": 2,
        "own": 0,
    }  # 8 is not offered


def test_a_failure_raises_the_odds_modestly_and_memory_does_not() -> None:
    crash = {"values": {"compile": "regional"}, "outcome": "compile_failed", "probability": 0.9}
    oom = {"values": {"attention_backend": "sdpa"}, "outcome": "oom_gpu"}
    found = matched(space(), H200, [pack(failures=[crash, oom])])
    assert found.experience.space is not None
    assert found.experience.space.dimension("c").effect("regional").failure_odds == pytest.approx(
        4.6
    )
    assert found.experience.space.dimension("sdpa_attention").effect(True).failure_odds == 1.0


def test_packs_that_agree_narrow_and_packs_that_do_not_widen() -> None:
    mean, sd = combined([(-0.3, 0.05), (-0.3, 0.05)])
    assert (mean, sd) == (pytest.approx(-0.3), pytest.approx(0.05 / math.sqrt(2)))
    mean, sd = combined([(-0.3, 0.05), (0.3, 0.05)])
    assert mean == pytest.approx(0.0)
    assert sd > 0.25


def test_random_effects_cover_the_mean_that_true_effects_scatter_around() -> None:
    """95 % intervals of five studies hold the mean in 81 to 99 % of 200 cases.

    The moments' estimate is known to be short with few studies; 200 cases have a standard error of
    at most 2.8 %.
    """
    import random

    rng = random.Random(0)
    held = 0
    for _ in range(200):
        studies = [(rng.gauss(rng.gauss(-0.2, 0.1), 0.05), 0.05) for _ in range(5)]
        mean, sd = combined(studies)
        held += abs(mean + 0.2) < 1.96 * sd
    assert 162 <= held <= 198

"""Prior effects relative to a job's own reference, and the dimensions of its space."""

import itertools
import math
from typing import Any

import pytest

from infrarsi.contract import DimensionKind, Project
from infrarsi.families import UNKNOWN, Device, catalogue, dimensions, effects
from infrarsi.families.effects import MIN_BOUNDED_SD

DEVICES: tuple[Device, ...] = ("cpu", "gpu")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "family", [f for f in catalogue().families if f.values], ids=lambda f: f.name
)
def test_the_reference_has_no_effect_and_the_way_back_is_the_opposite(
    family: Any, device: Device
) -> None:
    for a, b in itertools.permutations(family.values, 2):
        there = effects(family, [a, b], a, device)
        back = effects(family, [a, b], b, device)
        assert (there[0].log_time, there[0].log_time_sd) == (0.0, 0.0)
        assert there[1].log_time == pytest.approx(-back[0].log_time)
        assert there[1].log_memory == pytest.approx(-back[0].log_memory)
        assert there[1].log_time_sd == pytest.approx(back[0].log_time_sd)
        assert there[1].log_time_sd > 0


def test_a_number_counts_by_doublings() -> None:
    one, two, four = effects("micro_batch", [1, 2, 4], 1, "gpu")
    assert four.log_time == pytest.approx(2 * two.log_time)
    assert four.log_memory == pytest.approx(2 * two.log_memory)
    assert one.log_time == 0.0
    (half,) = effects("micro_batch", [1], 2, "gpu")
    assert half.log_memory == pytest.approx(-two.log_memory)


def test_memory_grows_about_in_proportion_to_the_micro_batch() -> None:
    (double,) = effects("micro_batch", [2], 1, "cpu")
    assert abs(double.log_memory - math.log(2)) < double.log_memory_sd


def test_the_first_worker_counts_and_the_second_hardly() -> None:
    zero, one, two = effects("dataloader_workers", [0, 1, 2], 0, "gpu")
    assert zero.log_time == 0.0
    assert one.log_time < 0
    assert abs(two.log_time - one.log_time) < abs(one.log_time) / 2


def test_a_device_that_gains_nothing_is_believed_to() -> None:
    (cpu,) = effects("host_sync", ["throttled"], "every_step", "cpu")
    (gpu,) = effects("host_sync", ["throttled"], "every_step", "gpu")
    assert cpu.log_time == 0.0
    assert gpu.log_time < 0


@pytest.mark.parametrize(
    ("family", "value", "reference"),
    [
        ("no_such_family", 1, 2),
        ("optimizer_impl", "lion", "fused"),
        ("micro_batch", "many", 2),
        ("micro_batch", -1, 2),
        ("micro_batch", math.inf, 2),
    ],
)
def test_what_the_catalogue_does_not_know_has_no_belief(
    family: str, value: Any, reference: Any
) -> None:
    assert effects(family, [value], reference, "gpu") == (UNKNOWN,)


def test_two_words_for_one_thing_hardly_differ() -> None:
    (same,) = effects("attention_backend", ["flash"], "sdpa", "gpu")
    assert same.log_time == 0.0
    assert 0 < same.log_time_sd < 0.03


@pytest.mark.parametrize(
    ("family", "values", "reference", "measured"),
    [  # log-ratios of the measured table h200_dense_gpt: means over all other settings
        ("micro_batch", 4, 2, (-0.421, 0.558)),
        ("activation_recompute", "none", "full", (-0.437, 1.212)),
        ("attention_backend", "eager", "sdpa", (0.359, 0.672)),
        ("loss_impl", "chunked", "eager", (0.134, -0.647)),
        ("norm_impl", "fused", "eager", (-0.088, -0.040)),
        ("compile", "regional", "off", (-0.480, -0.169)),
        ("optimizer_impl", "for_loop", "foreach", (0.016, 0.0)),
        ("optimizer_impl", "fused", "foreach", (-0.023, 0.0)),
    ],
)
def test_measured_effects_lie_within_two_standard_deviations(
    family: str, values: Any, reference: Any, measured: tuple[float, float]
) -> None:
    (belief,) = effects(family, [values], reference, "gpu")
    assert abs(belief.log_time - measured[0]) < 2 * belief.log_time_sd
    assert abs(belief.log_memory - measured[1]) < 2 * belief.log_memory_sd


def project(**changes: Any) -> Project:
    """A job with four knobs, one of which has no choice and one changes the job."""
    knobs = [
        {
            "name": "mbs",
            "family": "micro_batch",
            "at": "flag:--b",
            "values": [1, 2],
            "reference": 2,
        },
        {
            "name": "one",
            "family": "compile",
            "at": "flag:--c",
            "values": ["off"],
            "reference": "off",
        },
        {
            "name": "tf32",
            "family": "matmul_precision",
            "at": "flag:--tf32",
            "values": ["false", "true"],
            "reference": "false",
        },
        {"name": "own", "family": "my_family", "at": "env:X", "values": [1, 2], "reference": 1},
    ]
    base = {"name": "j", "launch": {"command": "x"}, "knobs": knobs}
    return Project.model_validate({**base, **changes})


RECIPES = (
    ("sdpa_attention", "attention_backend"),
    ("matmul_precision", "matmul_precision"),
    ("dataloader_workers", "dataloader_workers"),
    ("mystery", "my_family"),
)


def test_a_dimension_for_every_choice_and_every_recipe() -> None:
    found = dimensions(project(), RECIPES, "gpu")
    assert [d.name for d in found] == [
        "mbs",
        "own",
        "sdpa_attention",
        "dataloader_workers",
        "mystery",
    ]
    by_name = {d.name: d for d in found}
    assert by_name["mbs"].reference == 2
    assert by_name["mbs"].effect(1).log_time > 0
    assert by_name["own"].effect(2) == UNKNOWN
    sdpa = by_name["sdpa_attention"]
    assert sdpa.kind is DimensionKind.RECIPE
    assert (sdpa.values, sdpa.reference) == ((False, True), False)
    assert sdpa.effect(True) == effects("attention_backend", ["sdpa"], "eager", "gpu")[0]
    assert by_name["dataloader_workers"].effect(True).log_time < 0


@pytest.mark.parametrize("allow", [["tf32"], ["matmul_precision"]])
def test_what_changes_the_job_is_searched_only_where_the_contract_allows_it(
    allow: list[str],
) -> None:
    names = {d.name for d in dimensions(project(), RECIPES, "gpu")}
    assert "matmul_precision" not in names
    names = {d.name for d in dimensions(project(allow=allow), RECIPES, "gpu")}
    assert {"tf32", "matmul_precision"} <= names


@pytest.mark.parametrize("part", ["invariants", "verify"])
def test_what_may_round_otherwise_is_not_searched_where_equality_is_asked_for(part: str) -> None:
    exact = project(**{part: {"numerics": "bitwise"}})
    assert [d.name for d in dimensions(exact, RECIPES, "gpu")] == [
        "own",
        "dataloader_workers",
        "mystery",
    ]


def test_recipes_follow_the_preference() -> None:
    none = dimensions(project(search={"patches": "none"}), RECIPES, "cpu")
    assert [d.name for d in none] == ["mbs", "own"]
    some = dimensions(project(search={"patches": ["mystery"]}), RECIPES, "cpu")
    assert [d.name for d in some] == ["mbs", "own", "mystery"]


def test_every_recipe_family_of_the_catalogue_has_a_value_to_set() -> None:
    for family in catalogue().families:
        if family.spelling.recipes:
            assert family.recipe_value is not None, family.name


def bounded_effects(share: float, device: Device = "gpu") -> tuple[Any, ...]:
    values = [0, 1, 2, 4, 8, 12, 16]
    return effects("dataloader_workers", values, 0, device, shares={"data": share})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("share", [0.0, 0.003, 0.05, 0.2])
def test_no_number_of_workers_is_believed_to_gain_more_than_the_wait_for_data(
    share: float, device: Device
) -> None:
    least = math.log(1.0 - share)
    for effect in bounded_effects(share, device)[1:]:
        room = max(least - (effect.log_time - 2 * effect.log_time_sd), 0.0)
        assert room <= 2 * MIN_BOUNDED_SD  # what the floor of the deviation adds
        assert effect.log_time_sd >= MIN_BOUNDED_SD
        assert effect.log_time >= least


def test_a_job_that_never_waits_for_data_gives_workers_next_to_no_chance_of_a_gain() -> None:
    for effect in bounded_effects(0.0)[1:]:
        chance_of_two_percent = 0.5 * math.erfc(
            (effect.log_time + 0.02) / effect.log_time_sd / math.sqrt(2)
        )
        assert chance_of_two_percent < 0.01


def test_a_starved_job_keeps_the_whole_belief() -> None:
    free = effects("dataloader_workers", [8], 0, "gpu")
    assert effects("dataloader_workers", [8], 0, "gpu", shares={"data": 0.6}) == free


def test_a_bound_leaves_room_for_a_loss() -> None:
    """From four workers back to none: the cost of it is not bounded, only the gain."""
    (free,) = effects("dataloader_workers", [0], 4, "gpu")
    (bound,) = effects("dataloader_workers", [0], 4, "gpu", shares={"data": 0.01})
    assert bound.log_time == free.log_time > 0
    assert bound.log_time + 2 * bound.log_time_sd > 0.1


def test_the_optimizer_is_bounded_by_its_phase_where_the_host_sees_it() -> None:
    shares = {"opt": 0.02}
    (cpu,) = effects("optimizer_impl", ["fused"], "for_loop", "cpu", shares=shares)
    assert cpu.log_time == pytest.approx(math.log(0.98) / 2)
    gpu = effects("optimizer_impl", ["fused"], "for_loop", "gpu", shares=shares)
    assert gpu == effects("optimizer_impl", ["fused"], "for_loop", "gpu")


@pytest.mark.parametrize(
    ("family", "value", "reference"),
    [
        ("micro_batch", 8, 1),
        ("attention_backend", "sdpa", "eager"),
        ("compile", "on", "off"),
        ("zero_grad_mode", "none", "zero"),
        ("dataloader_pin_memory", True, False),
    ],
)
def test_families_of_no_one_phase_are_not_bounded(family: str, value: Any, reference: Any) -> None:
    nothing = {"data": 0.0, "opt": 0.0, "other": 0.0, "fwd": 0.0, "bwd": 0.0, "eval": 0.0}
    free = effects(family, [value], reference, "cpu")
    assert effects(family, [value], reference, "cpu", shares=nothing) == free


def test_dimensions_carry_bounds_and_fault_signs() -> None:
    found = {d.name: d for d in dimensions(project(), RECIPES, "gpu", shares={"data": 0.0})}
    workers = found["dataloader_workers"]
    assert workers.effect(True).log_time_sd < 0.05
    assert any("DataLoader" in sign for sign in workers.fault_signs)
    assert found["mbs"].fault_signs
    assert found["own"].fault_signs == ()

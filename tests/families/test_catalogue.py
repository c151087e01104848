"""The catalogue that ships is whole, and a wrong one is refused on reading."""

import re
from typing import get_args

import pytest

from infrarsi.contract import Constraint
from infrarsi.families import Device, Risk, catalogue, normal_flag, read

NEEDED = [
    "micro_batch",
    "dataloader_workers",
    "dataloader_pin_memory",
    "optimizer_impl",
    "attention_backend",
    "matmul_precision",
    "zero_grad_mode",
    "compile",
    "host_sync",
    "cpu_threads",
    "ddp_bucket",
    "ddp_gradient_as_bucket_view",
    "ddp_static_graph",
    "ddp_no_sync",
    "allocator",
    "nccl_channels",
    "process_count",
    "activation_recompute",
    "norm_impl",
    "loss_impl",
]
ENTRY = """
[[family]]
name = "f"
meaning = "m"
risk = "E"
values = ["a", "b"]
plain = "a"
spelling.flags = ["--f"]
effects.gpu.b = { log_time = [0.0, 0.1], source = "s" }
effects.cpu.b = { log_time = [0.0, 0.1], source = "s" }
"""


@pytest.mark.parametrize("name", NEEDED)
def test_a_family_that_jobs_need_is_there(name: str) -> None:
    assert catalogue()[name].meaning


def test_every_prior_names_its_source_and_has_room_to_be_wrong() -> None:
    for family in catalogue().families:
        for device in get_args(Device):
            for prior in family.effects[device].values():
                assert prior.source
                assert prior.log_time[1] > 0


def test_a_prior_without_a_figure_claims_little() -> None:
    """Where the source says that there is no figure, the mean stays within ten percent."""
    for family in catalogue().families:
        for priors in family.effects.values():
            for prior in priors.values():
                if prior.source.startswith("no "):
                    assert abs(prior.log_time[0]) <= 0.105


@pytest.mark.parametrize(
    ("flag", "family"),
    [
        ("--micro-batch-size", "micro_batch"),
        ("--Micro_Batch_Size", "micro_batch"),
        ("--per_device_train_batch_size", "micro_batch"),
        ("-b", "micro_batch"),
        ("--grad-accum", "gradient_accumulation"),
        ("--gradient_accumulation_steps", "gradient_accumulation"),
        ("--num_workers", "dataloader_workers"),
        ("--gradient-checkpointing", "activation_recompute"),
        ("--compile", "compile"),
    ],
)
def test_a_flag_is_known_however_it_is_written(flag: str, family: str) -> None:
    found = catalogue().by_flag(flag)
    assert found is not None
    assert found.name == family


@pytest.mark.parametrize(
    "flag", ["--lr", "-B", "--eval-batch-size", "--global-batch-size", "--seed"]
)
def test_a_flag_that_means_something_else_is_no_familys(flag: str) -> None:
    assert catalogue().by_flag(flag) is None


def test_families_are_found_by_variable_and_by_older_name() -> None:
    by_env = catalogue().by_env("OMP_NUM_THREADS")
    assert by_env is not None
    assert by_env.name == "cpu_threads"
    assert catalogue()["grad_bucket"].name == "ddp_bucket"
    assert catalogue().get("nothing") is None
    assert catalogue().nearest("micro_bach") == "micro_batch"


@pytest.mark.parametrize(
    ("family", "spelled", "canonical"),
    [
        ("attention_backend", "flash_attention_2", "sdpa"),
        ("attention_backend", "Manual", "eager"),
        ("attention_backend", True, "sdpa"),
        ("compile", "false", "off"),
        ("compile", True, "on"),
        ("dataloader_pin_memory", "true", True),
        ("dataloader_pin_memory", 1, True),
        ("dataloader_pin_memory", False, False),
        ("matmul_precision", 1, "high"),
        ("optimizer_impl", "for-loop", "for_loop"),
        ("optimizer_impl", "lion", "lion"),
        ("nccl_channels", 16, 16),
    ],
)
def test_a_jobs_word_becomes_the_canonical_value(
    family: str, spelled: bool | int | str, canonical: bool | int | str
) -> None:
    found = catalogue()[family].canonical(spelled)
    assert found == canonical
    assert type(found) is type(canonical)


def test_what_changes_the_job_needs_to_be_allowed_by_name() -> None:
    family = catalogue()["matmul_precision"]
    assert family.risk is Risk.JOB
    assert not family.is_allowed(())
    assert family.is_allowed(("tf32",))
    assert family.is_allowed(("matmul_precision",))
    assert catalogue()["compile"].is_allowed(())


def test_flags_are_written_in_their_normal_form_in_the_file() -> None:
    for family in catalogue().families:
        for flag in family.spelling.flags:
            assert normal_flag(flag) == flag


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('meaning = "m"', 'meaning = ""', "it must say what it means"),
        ('risk = "E"', 'risk = "X"', "'X' is not a valid Risk"),
        ('plain = "a"', 'plain = "z"', r"effects on cpu are for \['b'\], not \['a', 'b'\]"),
        ("effects.cpu.b", "effects.tpu.b", "'cpu'"),
        ("effects.cpu.b", "effects.cpu.c", r"effects on cpu are for \['c'\], not \['b'\]"),
        ('source = "s" }', 'source = "" }', "must name its source"),
        ("[0.0, 0.1]", "[0.0, 0.0]", "the spread must be above 0"),
        ('plain = "a"', 'plain = "a"\nlaw = "cubic"', "law is 'cubic'"),
        ('plain = "a"', 'plain = "a"\nlaw = "doubling"', "with doubling"),
        ('plain = "a"', 'plain = "a"\nstrange = 1', "unexpected keyword argument 'strange'"),
        ('plain = "a"', 'plain = "a"\nspelling.values = {x = "q"}', "a spelling means 'q'"),
        ('plain = "a"', 'plain = "a"\nconflicts = {q = "w"}', "conflicts with unknown 'q'"),
        ("\n[[family]]", ENTRY + "\n[[family]]", "the name 'f' belongs to two families"),
    ],
)
def test_a_wrong_catalogue_is_refused_with_the_family(old: str, new: str, words: str) -> None:
    read(ENTRY)
    with pytest.raises(ValueError, match=words):
        read(ENTRY.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('risk = "E"', 'risk = "X"', 5),
        ('meaning = "m"', "meaning = ", 4),
        ('plain = "a"', 'plain = "a"\nstrange = 1', 8),
        ('plain = "a"', 'plain = "a"\nrules = ["f == \'a\' or g == 1"]', 8),
        ('plain = "a"', 'plain = "a"\nrules = ["f =="]', 8),
    ],
)
def test_a_mistake_is_told_with_its_line(old: str, new: str, line: int) -> None:
    with pytest.raises(ValueError, match=rf"^catalogue.toml:{line}: "):
        read(ENTRY.replace(old, new))


def test_a_rule_names_families_and_holds_for_the_plain_values() -> None:
    """What a job has that sets nothing must not be forbidden."""
    plain = {f.name: f.plain for f in catalogue().families if f.plain is not None}
    for family in catalogue().families:
        for rule in family.rules:
            assert Constraint.parse(rule).names <= {f.name for f in catalogue().families}
            assert Constraint.parse(rule).holds(plain), rule


def test_two_families_cannot_share_a_flag() -> None:
    other = ENTRY.replace('name = "f"', 'name = "g"').replace("--f", "--F")
    with pytest.raises(ValueError, match="the flag '--f' belongs to two families"):
        read(ENTRY + other)


@pytest.mark.parametrize(
    ("text", "families"),
    [
        ("RuntimeError: DataLoader worker (pid(s) 812) exited unexpectedly",
         {"dataloader_workers", "dataloader_prefetch", "dataloader_persistent_workers"}),
        ("AttributeError: Can't pickle local object 'main.<locals>.collate'",
         {"dataloader_workers"}),
        ("RuntimeError: Expected to have finished reduction in the prior iteration before starting "
         "a new one. ... `find_unused_parameters=True`",
         {"ddp_static_graph", "ddp_find_unused_parameters", "ddp_no_sync"}),
        ("torch._dynamo.exc.Unsupported: Graph break in user code", {"compile"}),
        ("RuntimeError: `fused=True` requires all the params to be floating point Tensors",
         {"optimizer_impl"}),
        ("same_data: the samples of step 3 differ", {"dataloader_workers", "micro_batch",
         "gradient_accumulation", "packing", "length_grouping"}),
        ("ValueError: batch 24 is not divisible by 16", {"micro_batch", "gradient_accumulation"}),
        ("KeyError: 'lr'", set()),
        ("torchrun ended with exit code 1", set()),
    ],
)  # fmt: skip
def test_the_text_of_a_failure_names_the_families_behind_it(text: str, families: set[str]) -> None:
    named = {
        family.name
        for family in catalogue().families
        if any(re.search(sign, text, re.IGNORECASE) for sign in family.fault_signs)
    }
    assert named == families


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('phase = "lunch"', "phase is 'lunch'"),
        ("fault_signs = ['(']", r"fault sign '\(' is no regular expression"),
        ("fault_signs = ['']", "fault sign '' matches every text"),
    ],
)
def test_a_wrong_phase_or_sign_is_refused(line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read(ENTRY.replace('plain = "a"', f'plain = "a"\n{line}'))

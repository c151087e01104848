"""The spellings of each stack are whole, are found by any way of writing, and are read back."""

from typing import Any

import pytest

from infrarsi.contract import STACKS
from infrarsi.families import Risk, catalogue, dialects, read_dialect, spelled

ENTRY = """
name = "d"
stack = "megatron"
package = "p"

[[spelling]]
family = "compile"
name = "--compile-it"
default = "off"
offer = ["on"]
words = { off = ["no"], on = ["yes", "sure"] }
"""
ALL = [(name, each) for name, dialect in dialects().items() for each in dialect.spellings]


def test_every_stack_but_plain_torch_has_a_dialect() -> None:
    """Plain torch has no argument system of its own: its flags are in the catalogue."""
    assert {d.stack for d in dialects().values()} == {*STACKS, ""} - {"native-ddp"}


def test_at_least_45_families_have_a_spelling() -> None:
    own = {f.name for f in catalogue().families if f.spelling.flags or f.spelling.env}
    assert len(own | {each.family for _, each in ALL}) >= 45
    assert len(catalogue().families) >= 45


@pytest.mark.parametrize(("name", "each"), ALL, ids=lambda item: getattr(item, "name", item))
def test_what_is_written_is_read_back(name: str, each: Any) -> None:
    for value in {*each.words, *each.offer}:
        if each.sets:
            written = dict(each.sets[value]).get(each.name)
            assert written is None or each.read(written) == value
        elif each.present is None:
            assert each.read(each.write(value)) == value


@pytest.mark.parametrize(("name", "each"), ALL, ids=lambda item: getattr(item, "name", item))
def test_nothing_that_changes_the_job_is_offered_by_itself(name: str, each: Any) -> None:
    if each.offer:
        assert catalogue()[each.family].risk is not Risk.JOB


@pytest.mark.parametrize(
    ("chain", "name", "word", "family", "value"),
    [
        ("megatron", "--recompute-granularity", "full", "activation_recompute", "full"),
        ("megatron", "--recompute-activations", True, "activation_recompute", "selective"),
        ("megatron", "--use-distributed-optimizer", True, "zero_stage", 1),
        ("megatron", "--no-rope-fusion", True, "rope_fusion", False),
        ("megatron", "--cp-comm-type", "allgather", "context_parallel_comm", "all_gather"),
        ("megatron", "--attention-backend", "unfused", "attention_backend", "eager"),
        ("torchtitan", "--activation_checkpoint.mode", "full", "activation_recompute", "full"),
        ("torchtitan", "activation_checkpoint.mode", "none", "activation_recompute", "none"),
        ("torchtitan", "--optimizer.implementation", "for-loop", "optimizer_impl", "for_loop"),
        ("torchtitan", "--parallelism.tensor-parallel-degree", 4, "tensor_parallel", 4),
        ("hf-trainer", "--gradient_checkpointing", "true", "activation_recompute", "full"),
        ("hf-trainer", "--dataloader-num-workers", 4, "dataloader_workers", 4),
        ("hf-trainer", "--optim", "adamw_torch_fused", "optimizer_impl", "fused"),
        ("hf-trainer", "--optim", "adamw_bnb_8bit", "optimizer_state_precision", "8bit"),
        ("hf-trainer", "--bf16", True, "autocast_precision", "bf16"),
        ("deepspeed", "zero_optimization.stage", 2, "zero_stage", 2),
        ("deepspeed", "bf16.enabled", True, "autocast_precision", "bf16"),
        ("axolotl", "sample_packing", True, "packing", True),
        ("llama-factory", "flash_attn", "fa2", "attention_backend", "sdpa"),
        ("accelerate", "fsdp_sharding_strategy", "FULL_SHARD", "zero_stage", 3),
        ("accelerate", "--mixed_precision", "bf16", "autocast_precision", "bf16"),
        ("environment", "TORCH_NCCL_AVOID_RECORD_STREAMS", 1, "nccl_avoid_record_streams", True),
    ],
)
def test_a_jobs_name_and_word_mean_a_family_and_a_value(
    chain: str, name: str, word: Any, family: str, value: Any
) -> None:
    read = {
        each.family: each.read(word)
        for each in spelled(name, [dialects()[chain]])
        if each.read(word) is not None
    }
    assert read == {family: value}
    assert type(read[family]) is type(value)


@pytest.mark.parametrize(
    ("chain", "name", "word"),
    [
        ("hf-trainer", "--optim", "adafactor"),
        ("megatron", "--recompute-granularity", "everything"),
        ("hf-trainer", "--bf16", False),
        ("deepspeed", "zero_optimization.offload_optimizer.device", "moon"),
    ],
)
def test_a_word_without_a_meaning_has_no_value(chain: str, name: str, word: Any) -> None:
    found = spelled(name, [dialects()[chain]])
    assert found
    assert all(each.read(word) is None for each in found)


def test_the_first_dialect_of_a_chain_that_knows_a_name_counts() -> None:
    chain = [dialects()["axolotl"], dialects()["hf-trainer"]]
    assert spelled("micro_batch_size", chain)[0].family == "micro_batch"
    assert spelled("--ddp_bucket_cap_mb", chain)[0].family == "ddp_bucket"
    assert spelled("--nothing", chain) == ()


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.0.2", {"training.batch_size"}),
        ("0.1.0", {"training.local_batch_size"}),
        ("0.3.0.dev20260101+cu128", {"training.local_batch_size"}),
    ],
)
def test_a_version_takes_the_names_of_its_time(version: str, names: set[str]) -> None:
    found = dialects()["torchtitan"].of_family("micro_batch")
    assert {each.name for each in found if each.is_taken_by(version)} == names


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('family = "compile"', 'family = "compil"', 7, "did you mean 'compile'"),
        ('default = "off"', 'default = "of"', 9, r"'of' is not one of the values"),
        ('offer = ["on"]', 'offer = ["maybe"]', 10, r"'maybe' is not one of the values"),
        ("{ off =", "{ oft =", 11, r"'oft' is not one of the values"),
        ('default = "off"', 'default = "off"\nsince = "new"', 10, "'new' is no version"),
        ('default = "off"', 'default = "off"\nsince = "2"\nuntil = "1.9"', 10, "is not before"),
        ('default = "off"', 'default = "off"\nonly = "me"', 10, "only is 'me'"),
        ('default = "off"', 'default = "off"\nstrange = 1', 10, "'strange'"),
        ('name = "--compile-it"\n', "", 6, "'name'"),
        ('name = "d"', 'name = "d"\nnam = 1', 3, "unknown key 'nam'"),
        ('default = "off"', "default = ", 9, "Invalid value"),
    ],
)
def test_a_wrong_spelling_is_refused_with_its_line(
    old: str, new: str, line: int, words: str
) -> None:
    read_dialect(ENTRY, "d.toml", catalogue())
    with pytest.raises(ValueError, match=words) as caught:
        read_dialect(ENTRY.replace(old, new, 1), "d.toml", catalogue())
    assert str(caught.value).startswith(f"d.toml:{line}: ")


def test_the_same_name_twice_is_refused() -> None:
    again = ENTRY[ENTRY.index("[[spelling]]") :]
    with pytest.raises(ValueError, match=r"d.toml:13: '--compile-it' is a spelling of 'compile'"):
        read_dialect(ENTRY + again, "d.toml", catalogue())

"""What accelerate's own options and its file say, and how many processes divide an update."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from reading_jobs import read

from infrarsi.contract import Knob
from infrarsi.draft import Draft
from infrarsi.scripts import Script

Make = Callable[[Mapping[str, str]], Path]
PROGRAM = """import argparse
import torch
from accelerate import Accelerator
p = argparse.ArgumentParser()
p.add_argument("--batch_size", type=int, default=4)
p.add_argument("--total_batch_size", type=int, default=64)
p.add_argument("--max_steps", type=int, default=300)
args = p.parse_args()
accelerator = Accelerator()
steps = args.total_batch_size // (args.batch_size * accelerator.num_processes)
accelerator.backward(loss)
"""
FILE = """distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 4
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_forward_prefetch: false
"""


def drafted(write: Make, launch: str, **files: str) -> Draft:
    script = f"{launch} train.py\n"
    return read(write({"train.sh": script, "train.py": PROGRAM, **files}) / "train.sh", gpus=4)


def knob(found: Draft, family: str) -> Knob:
    return next(k for k in found.project.knobs if k.family == family)


def places(one: Knob, value: Any) -> set[str]:
    change = one.change(value)
    return {str(place) for place, _ in change.set} | {str(place) for place in change.remove}


def test_an_option_of_the_launcher_is_a_knob_that_its_text_takes(write: Make) -> None:
    launch = "accelerate launch --num_processes 4 --use_fsdp --fsdp_forward_prefetch false"
    one = knob(drafted(write, launch), "fsdp_forward_prefetch")
    assert one.reference in (False, "off", "false")
    other = next(value for value in one.values if value != one.reference)
    assert places(one, other) == {"launcher:--fsdp_forward_prefetch"}
    ((place, value),) = list(one.change(other).set)
    changed = Script.parse(f"{launch} train.py\n").with_launcher_option(place.name, str(value))
    assert changed.training_command().option("fsdp_forward_prefetch").value == str(value)  # type: ignore[union-attr]  # it is there


def test_a_key_of_its_file_is_a_knob(write: Make) -> None:
    found = drafted(write, "accelerate launch --config_file a.yaml", **{"a.yaml": FILE})
    one = knob(found, "fsdp_forward_prefetch")
    other = next(value for value in one.values if value != one.reference)
    assert places(one, other) == {"config:a.yaml:fsdp_config.fsdp_forward_prefetch"}


def test_an_option_overrules_the_file(write: Make) -> None:
    launch = "accelerate launch --config_file a.yaml --mixed_precision fp16"
    found = drafted(write, launch, **{"a.yaml": FILE})
    fact = next(fact for fact in found.facts if fact.name == "precision")
    assert fact.value == "fp16"
    assert "train.sh:1" in fact.told


def test_an_option_that_only_a_run_can_tell_is_an_unknown(write: Make) -> None:
    launch = 'accelerate launch --num_processes 4 --fsdp_forward_prefetch "$(cat x)"'
    found = drafted(write, launch)
    assert "fsdp_forward_prefetch" not in {k.family for k in found.project.knobs}
    assert any("`--fsdp_forward_prefetch` (train.sh:1)" in told for told in found.unknowns)


@pytest.mark.parametrize(
    ("launch", "largest"),
    [
        ("accelerate launch --num_processes 4", 16),
        ("accelerate launch --num_processes 16 --num_machines 4", 4),
    ],
)
def test_the_processes_of_all_nodes_divide_an_update(
    write: Make, launch: str, largest: int
) -> None:
    assert max(knob(drafted(write, launch), "micro_batch").values) == largest  # type: ignore[type-var]

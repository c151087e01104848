"""What the field tests of public jobs left open, one manner each, in small jobs of our own."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from reading_jobs import read

from infrarsi.draft import Draft
from infrarsi.errors import UserError

Write = Callable[[Mapping[str, str]], Path]
TRAIN = """import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accum", type=int, default=2)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--activation_checkpointing", action="store_true")
args = parser.parse_args()
model = torch.nn.Linear(2, 2)
if args.activation_checkpointing:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(args.steps):
    batch = torch.zeros(args.batch_size, 2)
    LOOP
    optimizer.step()
"""
PLAIN = """for _ in range(args.accum):
        model(batch).sum().backward()"""
CUTS = {
    "chunk": "for piece in batch.chunk(args.accum):\n        model(piece).sum().backward()",
    "torch.split": "for x in torch.split(batch, 4):\n        model(x).sum().backward()",
    "named pieces": "pieces = batch.chunk(args.accum)\n    for i in range(args.accum):\n"
    "        model(pieces[i]).sum().backward()",
    "slices": "n = 4\n    for i in range(args.accum):\n"
    "        model(batch[i * n : (i + 1) * n]).sum().backward()",
    "slices of rows": "for i in range(0, 16, 4):\n"
    "        model(batch[i : i + 4, :]).sum().backward()",
}
WHOLE = {
    "the same batch": PLAIN,
    "a text": 'for _ in "a,b".split(","):\n        model(batch).sum().backward()',
    "heads": "for _ in range(args.accum):\n        q, k = model(batch).chunk(2, 1)\n"
    "        (q + k).sum().backward()",
}
LAUNCH = "torchrun --nproc_per_node 2 train.py\n"
DEEPSPEED = """import argparse
import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--stage", type=int, default=2)
args = parser.parse_args()
ds_config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": args.stage, "overlap_comm": False},
}
MORE
model = torch.nn.Linear(4, 4)
engine, _, loader, _ = deepspeed.initialize(model=model, config=ds_config, training_data=[1, 2])
for step in range(args.steps):
    engine.backward(engine(torch.zeros(4)).sum())
    engine.step()
"""


def facts(draft: Draft) -> dict[str, object]:
    return {fact.name: fact.value for fact in draft.facts}


def families(draft: Draft) -> dict[str, object]:
    return {knob.family: knob.reference for knob in draft.project.knobs}


def job(write: Write, loop: str = PLAIN, launch: str = LAUNCH, more: str = "") -> Path:
    return write({"train.sh": launch, "train.py": TRAIN.replace("LOOP", loop) + more})


@pytest.mark.parametrize("word", ["$CMD", '"$CMD"', "${CMD}"])
def test_a_flag_inside_a_text_of_several_lines_is_seen(word: str, write: Write) -> None:
    launch = (
        'ARGS="--steps 300"\nCMD="torchrun --nproc_per_node 2 train.py \\\n  $ARGS \\\n'
        '  --activation_checkpointing \\\n  --batch-size 4"\necho "$CMD"\neval ' + word + "\n"
    )
    found = read(job(write, launch=launch) / "train.sh")
    assert families(found)["activation_recompute"] == "full"
    assert facts(found)["micro_batch"] == 4


@pytest.mark.parametrize("loop", CUTS.values(), ids=CUTS.keys())
def test_a_batch_that_is_cut_into_pieces_is_no_micro_batch(loop: str, write: Write) -> None:
    found = read(job(write, loop) / "train.sh")
    assert "micro_batch" not in families(found)
    assert not {"micro_batch", "global_batch"} & set(facts(found))
    assert any("cuts a batch into pieces" in unknown for unknown in found.unknowns)


@pytest.mark.parametrize("loop", WHOLE.values(), ids=WHOLE.keys())
def test_a_batch_that_is_not_cut_stays_one(loop: str, write: Write) -> None:
    found = read(job(write, loop) / "train.sh")
    assert families(found)["micro_batch"] == 16
    assert facts(found)["global_batch"] == 64


@pytest.mark.parametrize(
    "more",
    [
        'def replace(old, new):\n    open(old, "w")\nname = "a<b".replace("<", "_")\n',
        'open("<your folder>/log.txt", "w")\n',
        'torch.save(model, "run:*?.pt")\n',
    ],
    ids=["a replaced sign", "a placeholder", "a pattern"],
)
def test_what_is_no_path_is_no_sink(more: str, write: Write) -> None:
    found = read(job(write, more=more) / "train.sh")
    assert not [place for place in found.project.sinks if place.startswith("path:")]
    assert any("where train.py:" in unknown for unknown in found.unknowns)


def test_a_script_that_a_container_starts_is_read_through_its_mount(write: Write) -> None:
    root = job(write)
    (root / "c.sh").write_text("docker run -v $PWD:/w -w /w image bash /w/train.sh\n")
    assert read(root / "c.sh").project.launch.script == "train.sh"


@pytest.mark.parametrize(
    "command",
    [
        "docker run -v /data/job:/w -w /w image bash /w/train.sh",
        "docker run image bash -c './train.sh'",
        "docker run -v $PWD:/w image bash /w/train.sh",
    ],
    ids=["another folder", "no mount", "no folder to work in"],
)
def test_a_script_of_an_image_is_refused_for_that_reason(command: str, write: Write) -> None:
    root = job(write)
    (root / "c.sh").write_text(command + "\n")
    with pytest.raises(UserError, match="image's own, or that no mount holds") as caught:
        read(root / "c.sh")
    assert caught.value.where == "c.sh:1"


def test_a_dictionary_of_deepspeed_gives_facts_and_no_knobs(write: Write) -> None:
    files = {"train.sh": "deepspeed --num_gpus 4 train.py\n"}
    root = write({**files, "train.py": DEEPSPEED.replace("MORE\n", "")})
    found = read(root / "train.sh", gpus=4)
    assert facts(found)["micro_batch"] == 4
    assert facts(found)["accumulation"] == 2
    assert facts(found)["precision"] == "bf16"
    assert not {"micro_batch", "zero_stage", "zero_overlap_comm", "reduce_bucket"} & set(
        families(found)
    )
    told = "`train.py:zero_optimization.stage` (train.py:13): it is computed: `args.stage`"
    assert told in found.unknowns


@pytest.mark.parametrize(
    "more", ['ds_config["bf16"] = {}\n', "ds_config.update(a=1)\n", "ds_config = {}\n"]
)
def test_a_dictionary_that_is_changed_says_nothing(more: str, write: Write) -> None:
    files = {"train.sh": "deepspeed --num_gpus 4 train.py\n"}
    root = write({**files, "train.py": DEEPSPEED.replace("MORE\n", more)})
    assert not {"micro_batch", "precision"} & set(facts(read(root / "train.sh", gpus=4)))


def test_a_program_that_steps_no_optimizer_is_named(write: Write) -> None:
    root = job(write)
    (root / "train.py").write_text("import torch\nprint(torch.zeros(1))\n")
    assert any("steps an optimizer" in note for note in read(root / "train.sh").notes)

"""`infrarsi init` shows what it read of an update, with the places, for the user to confirm."""

from spawned import Site

SCRIPT = """python -m torch.distributed.run --standalone --nproc_per_node=2 train.py \\
  --output_dir out --per_device_train_batch_size 3 --gradient_accumulation_steps 2 --max_steps 30
"""
PROGRAM = """from transformers import HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(args=args).train()
"""


def test_what_an_update_is_is_shown_with_its_places(site: Site) -> None:
    (site.folder / "job").mkdir(exist_ok=True)
    (site.folder / "job" / "train.sh").write_text(SCRIPT)
    (site.folder / "job" / "train.py").write_text(PROGRAM)
    done = site.infrarsi("init", "job/train.sh")
    assert done.code == 0
    lines = [line.split(None, 2) for line in done.out.splitlines() if line.startswith("  ")]
    shown = {" ".join(words[:2]): words[2] for words in lines if len(words) == 3}
    assert shown["micro batch"] == "3 (train.sh:2 passes --per_device_train_batch_size 3)"
    assert shown["global batch"].startswith("12 (train.sh:2 passes")
    assert shown["writes to"].endswith(": a fresh folder in every run")
    assert "micro_batch" in done.out.partition("  settings to try")[2].partition("\n")[0]
    assert done.out.partition("  code to change")[2].partition("\n")[0].strip() == "train.py"

"""Differently written jobs are read completely: command, length, knobs, sinks, files."""

import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reading_jobs import read

from infrarsi.contract import Place, PlaceKind, Project
from infrarsi.contract.files import dump, parse
from infrarsi.draft import Draft
from infrarsi.scripts import Script

Copy = Callable[[str], Path]

SCRIPTS = {
    "ddp_gpt": "train.sh",
    "other_names": "launch.sh",
    "equals_style": "train.sh",
    "arrays": "go.sh",
    "env_sizes": "train.sh",
    "no_arguments": "train.py",
    "nested_package": "tools/launch/pretrain.sh",
    "run_from_above": "scripts/train.sh",
    "derived_rate": "run.sh",
    "micro_steps": "train.sh",
    "click_job": "train.sh",
}


def knobs(drafted: Draft) -> dict[str, tuple[list[Any], Any]]:
    return {k.name: (list(k.values), k.reference) for k in drafted.project.knobs}


def changes(drafted: Draft, name: str) -> dict[Any, dict[str, Any]]:
    knob = next(k for k in drafted.project.knobs if k.name == name)
    assert isinstance(knob.values, dict)
    return {value: dict(change.set) for value, change in knob.values.items()}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_draft_is_a_file_that_loads_and_its_frozen_files_are_what_they_are(
    job: Copy, name: str
) -> None:
    root = job(name)
    drafted = read(root / SCRIPTS[name])
    text = dump(drafted.project, drafted.comments)
    assert parse(text, drafted.path).project == drafted.project
    for path, digest in drafted.project.frozen.items():
        content = (drafted.root / path).read_bytes()
        assert digest == "sha256:" + hashlib.sha256(content).hexdigest()
    for path in drafted.project.editable:
        assert (drafted.root / path).is_file()


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_value_says_where_it_came_from(job: Copy, name: str) -> None:
    drafted = read(job(name) / SCRIPTS[name])
    explained = set(drafted.comments)
    project = drafted.project
    assert {("launch", "command"), ("workload", "planned_steps")} <= explained
    assert {("knobs", knob.name) for knob in project.knobs} <= explained
    assert {("sinks", place) for place in project.sinks} <= explained
    assert {("frozen", path) for path in project.frozen} <= explained
    assert {("editable", path) for path in project.editable} <= explained


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_in_the_project_is_changed_by_reading_it(job: Copy, name: str) -> None:
    root = job(name)
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    read(root / SCRIPTS[name])
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", [n for n in SCRIPTS if n != "no_arguments"])
def test_every_value_of_every_knob_can_be_put_into_the_script(job: Copy, name: str) -> None:
    drafted = read(job(name) / SCRIPTS[name], gpus=0)
    path = drafted.project.launch.script
    assert path is not None
    script = Script.parse((drafted.root / path).read_text(), path)
    for knob in drafted.project.knobs:
        for value in knob.values:
            changed = script
            for place, wanted in knob.change(value).set:
                changed = edited(changed, place, wanted)
                if place.kind is PlaceKind.FLAG:
                    argument = changed.training_command().argument(place.name)
                    assert argument is not None
                    assert argument.value == (True if wanted is True else str(wanted))


def edited(script: Script, place: Place, value: Any) -> Script:
    if place.kind is PlaceKind.ENV:
        return script.with_env(place.name, str(value))
    return script.with_flag(place.name, True if value is True else str(value))


def test_the_example_is_drafted_completely(job: Copy) -> None:
    root = job("ddp_gpt")
    drafted = read(root / "train.sh", cpus=2)
    project = drafted.project
    assert drafted.root == root
    assert project.launch.command == "bash train.sh"
    assert (project.launch.script, project.launch.gpus_per_node) == ("train.sh", 0)
    steps = int(
        str(
            Script.parse((root / "train.sh").read_text())
            .training_command()
            .argument("--max-steps")
            .value
        )
    )  # type: ignore[union-attr]  # the example has it
    assert (project.workload.planned_steps, project.workload.optimizer_steps) == (10_000, steps)
    assert project.workload.ends_by == ("job" if steps <= 100 else "witness")
    assert knobs(drafted)["dataloader_workers"] == ([0, 1, 2], 0)
    split = changes(drafted, "micro_batch")
    assert set(split) >= {1, 2, 4}
    assert len({c["flag:--batch-size"] * c["flag:--grad-accum"] for c in split.values()}) == 1
    assert project.sinks == {"flag:--out-dir": "fresh"}
    assert project.editable == ["train.py", "model.py"]
    assert list(project.frozen) == ["data.py", "evaluate.py"]
    assert (drafted.questions, drafted.unknowns) == ((), ())


def test_the_example_on_gpus_gets_their_knobs_and_no_cpu_ones(job: Copy) -> None:
    drafted = read(job("ddp_gpt") / "train.sh", cpus=32, gpus=2)
    assert drafted.project.launch.gpus_per_node == 2
    assert {"allocator", "nccl_channels"} <= set(knobs(drafted))
    assert "cpu_threads" not in knobs(drafted)
    assert knobs(drafted)["nccl_channels"] == (["default", 16, 32], "default")


def test_a_split_with_other_names_keeps_its_product(job: Copy) -> None:
    drafted = read(job("other_names") / "launch.sh")
    split = changes(drafted, "micro_batch")
    assert {c["flag:--micro-bsz"] * c["flag:--accumulate"] for c in split.values()} == {32}
    assert split[8] == {"flag:--micro-bsz": 8, "flag:--accumulate": 4}


def test_a_long_job_is_ended_by_the_witness_and_keeps_its_own_length(job: Copy) -> None:
    workload = read(job("other_names") / "launch.sh").project.workload
    assert workload.planned_steps == 20000
    assert (workload.optimizer_steps, workload.ends_by) == (40, "witness")


def test_a_file_with_only_the_loader_is_editable_and_the_dataset_is_frozen(job: Copy) -> None:
    project = read(job("other_names") / "launch.sh").project
    assert "loaders.py" in project.editable
    assert set(project.frozen) == {"rows.py", "losses.py"}


def test_flags_with_equals_signs_switches_and_choices(job: Copy) -> None:
    drafted = read(job("equals_style") / "train.sh", cpus=8, gpus=1)
    found = knobs(drafted)
    assert found["attention_backend"] == (["manual", "flash"], "manual")
    assert found["compile"] == (["off", "on"], "on")
    assert found["optimizer_impl"] == (["for_loop", "fused"], "fused")
    assert found["dataloader_pin_memory"] == ([False, True], True)
    assert found["matmul_precision"] == (["false", "true"], "false")
    assert drafted.project.sinks == {"flag:--out_dir": "fresh"}
    assert drafted.project.allow == []


def test_a_negative_switch_is_understood(job: Copy) -> None:
    drafted = read(job("derived_rate") / "run.sh", gpus=1)
    knob = next(k for k in drafted.project.knobs if k.name == "dataloader_pin_memory")
    assert knob.reference is False
    assert [str(place) for place in knob.change(True).remove] == ["flag:--no-pin-memory"]


def test_arrays_short_flags_and_abbreviations(job: Copy) -> None:
    drafted = read(job("arrays") / "go.sh")
    split = changes(drafted, "micro_batch")
    assert {c["flag:-b"] * c["flag:--accum-iter"] for c in split.values()} == {12}
    assert drafted.project.workload.optimizer_steps == 80
    assert drafted.project.workload.ends_by == "job"
    assert drafted.project.sinks == {"flag:--output_dir": "fresh"}
    assert drafted.unknowns == ()


def test_sizes_from_the_environment(job: Copy) -> None:
    drafted = read(job("env_sizes") / "train.sh")
    assert knobs(drafted)["micro_batch"][1] == 4
    assert knobs(drafted)["dataloader_workers"][1] == 1
    at = next(k.at for k in drafted.project.knobs if k.name == "dataloader_workers")
    assert at == "env:NUM_WORKERS"
    assert drafted.project.sinks == {"env:RUN_DIR": "fresh"}
    assert drafted.project.workload.planned_steps == 300


def test_a_program_without_arguments_still_gets_its_command_its_length_and_its_sinks(
    job: Copy,
) -> None:
    drafted = read(job("no_arguments") / "train.py")
    assert drafted.project.launch.command == "python train.py"
    assert drafted.project.launch.script is None
    assert drafted.project.workload.optimizer_steps == 60
    assert set(drafted.project.sinks) == {"path:logs", "path:runs", "path:results"}
    assert any("defines no arguments" in note for note in drafted.notes)
    assert [question.about for question in drafted.questions] == [("launch", "command")]


def test_a_package_started_as_a_module_from_a_nested_script(job: Copy) -> None:
    root = job("nested_package")
    drafted = read(root / "tools/launch/pretrain.sh", gpus=2)
    project = drafted.project
    assert drafted.root == root
    assert project.launch.command == "bash tools/launch/pretrain.sh"
    assert project.launch.gpus_per_node == 2
    assert changes(drafted, "micro_batch") == {
        n: {"flag:--device-batch-size": n} for n in (1, 2, 4, 8)
    }
    assert project.sinks == {"flag:--save-dir": "fresh", "env:WANDB_MODE": "offline"}
    assert set(project.frozen) == {"src/tiny/evaluation.py", "src/tiny/data/rows.py"}
    assert "src/tiny/nets/network.py" in project.editable
    assert "src/tiny/__init__.py" not in project.editable


def test_a_script_that_is_run_from_above_keeps_that_command(job: Copy) -> None:
    root = job("run_from_above")
    drafted = read(root / "scripts/train.sh")
    assert drafted.root == root
    assert drafted.project.launch.command == "bash scripts/train.sh"
    assert drafted.project.sinks == {"flag:--ckpt": "fresh", "path:train.log": "fresh"}
    assert any("starts from the first step" in note for note in drafted.notes)


def test_a_batch_that_is_divided_by_the_accumulation_is_split_by_it_alone(job: Copy) -> None:
    drafted = read(job("run_from_above") / "scripts/train.sh")
    assert changes(drafted, "micro_batch")[32] == {"flag:--grad-accum": 2}
    assert knobs(drafted)["micro_batch"][1] == 16


def test_a_job_of_epochs_asks_for_its_length(job: Copy) -> None:
    drafted = read(job("run_from_above") / "scripts/train.sh")
    assert ("workload", "planned_steps") in [question.about for question in drafted.questions]
    assert any("counts epochs" in unknown for unknown in drafted.unknowns)


def test_a_rate_computed_from_the_batch_keeps_the_split_out_of_the_search(job: Copy) -> None:
    drafted = read(job("derived_rate") / "run.sh")
    assert "micro_batch" not in knobs(drafted)
    assert any("train.py:18 computes from `--mbs`" in note for note in drafted.notes)


def test_steps_that_count_micro_steps_are_turned_into_updates(job: Copy) -> None:
    drafted = read(job("micro_steps") / "train.sh")
    assert drafted.project.workload.optimizer_steps == 80
    assert "micro_batch" not in knobs(drafted)


def test_a_folder_that_the_script_makes_is_emptied_and_its_flag_stays(job: Copy) -> None:
    assert read(job("micro_steps") / "train.sh").project.sinks == {"path:out": "fresh"}


def test_threads_set_in_code_are_not_offered_in_the_environment(job: Copy) -> None:
    assert "cpu_threads" not in knobs(read(job("micro_steps") / "train.sh"))


def test_click_options_are_read_like_arguments(job: Copy) -> None:
    drafted = read(job("click_job") / "train.sh")
    assert knobs(drafted)["compile"] == (["off", "on"], "off")
    assert knobs(drafted)["micro_batch"] == ([1, 2, 3, 4, 6, 12], 4)
    assert drafted.project.sinks == {"flag:--work-dir": "fresh"}


def test_threads_follow_the_cores_and_the_processes(job: Copy) -> None:
    root = job("arrays")
    assert knobs(read(root / "go.sh", cpus=8))["cpu_threads"] == ([1, 2, 4], 1)
    assert "cpu_threads" not in knobs(read(root / "go.sh", cpus=2))


def test_a_tracked_script_makes_the_repository_the_project(job: Copy) -> None:
    root = job("ddp_gpt")
    outer = root.parent / "repository"
    outer.mkdir()
    root = root.rename(outer / "job")
    subprocess.run(["git", "init", "-q", str(outer)], check=True)
    untracked = read(root / "train.sh")
    assert (untracked.root, untracked.project.launch.command) == (root, "bash train.sh")
    subprocess.run(["git", "-C", str(outer), "add", "job"], check=True)
    tracked = read(root / "train.sh")
    assert tracked.root == outer
    assert tracked.project.launch.command == "bash job/train.sh"
    assert tracked.project.launch.script == "job/train.sh"
    assert tracked.project.editable == ["job/train.py", "job/model.py"]


def test_a_folder_with_one_launch_script_is_enough(job: Copy) -> None:
    assert read(job("other_names")).project.launch.command == "bash launch.sh"


def test_requirements_are_carried_into_the_contract(job: Copy) -> None:
    from infrarsi.draft import Machine, draft

    drafted = draft(
        job("arrays"), machine=Machine(2), environ={}, requirements=["keep the optimizer"]
    )
    assert drafted.project.requirements.text == ["keep the optimizer"]
    assert isinstance(drafted.project, Project)

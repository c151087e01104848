"""What a candidate's copy gets: settings, patch and sinks, and nothing else."""

from pathlib import Path

import pytest
import small_job

from infrarsi.contract import SINKS_TOKEN, Candidate, Patch, PatchOrigin
from infrarsi.errors import UserError
from infrarsi.workspace import PatchFailed, Sources, overlay, resuming


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(small_job.write(tmp_path / "job"))


def test_the_reference_gets_its_sinks_alone(sources: Sources) -> None:
    found = overlay(small_job.project(), sources, Candidate.of())
    script = small_job.SCRIPT.replace("--out out", f"--out {SINKS_TOKEN}/out")
    assert found.files == {"train.sh": script}
    assert found.command == "bash train.sh"
    assert found.env == {"WANDB_MODE": "offline"}
    assert found.remove == ("out",)


def test_without_sinks_the_reference_is_untouched(sources: Sources) -> None:
    found = overlay(small_job.project(sinks={}), sources, Candidate.of())
    assert (found.files, found.env, found.remove) == ({}, {}, ())


def test_settings_of_every_place_edit_the_script(sources: Sources) -> None:
    settings = {"batch": 4, "threads": 2, "procs": 1, "fused": True}
    found = overlay(small_job.project(), sources, small_job.candidate(settings))
    script = found.files["train.sh"]
    assert "export OMP_NUM_THREADS=2\n" in script
    assert "torchrun --nproc_per_node=1 train.py" in script
    assert "--batch 4 \\\n" in script
    assert script.endswith(f"--out {SINKS_TOKEN}/out \\\n  --accum 2 \\\n  --fused  # results\n")


PROCESSES = """NPROC=${NPROC:-2}
torchrun --nproc_per_node="$NPROC" train.py --out out
"""


@pytest.mark.parametrize(
    ("place", "script"),
    [
        ("env:NPROC", PROCESSES.replace("NPROC=${NPROC:-2}", "export NPROC=1")),
        ("flag:--nproc-per-node", PROCESSES.replace('="$NPROC"', "=1")),
        ("launcher:--nproc-per-node", PROCESSES.replace('="$NPROC"', "=1")),
    ],
)
def test_processes_are_set_where_the_launcher_reads_them(
    sources: Sources, place: str, script: str
) -> None:
    (sources.root / "train.sh").write_text(PROCESSES)
    knob = {**small_job.KNOBS[2], "at": place}
    project = small_job.project(knobs=[knob], sinks={})
    found = overlay(project, sources, small_job.candidate({"procs": 1}))
    assert found.files == {"train.sh": script}


def test_a_setting_that_may_not_take_effect_is_not_written(sources: Sources) -> None:
    (sources.root / "train.sh").write_text("read NPROC < nodes.txt\n" + PROCESSES)
    project = small_job.project(knobs=[{**small_job.KNOBS[2], "at": "env:NPROC"}])
    with pytest.raises(UserError, match="line 1 sets it") as caught:
        overlay(project, sources, small_job.candidate({"procs": 1}))
    assert caught.value.where == "train.sh:1"


def test_a_sink_variable_that_the_script_replaces_is_changed_there(sources: Sources) -> None:
    text = small_job.SCRIPT.replace("export OMP", "WANDB_MODE=online\nexport OMP")
    (sources.root / "train.sh").write_text(text)
    found = overlay(small_job.project(), sources, Candidate.of())
    assert "WANDB_MODE=offline" in found.files["train.sh"]


def test_removed_places_are_gone_from_script_and_environment(sources: Sources) -> None:
    found = overlay(small_job.project(), sources, small_job.candidate({"quiet": "yes"}))
    assert "unset OMP_NUM_THREADS\n" in found.files["train.sh"]
    assert "--batch" not in found.files["train.sh"]
    assert found.unset_env == ("OMP_NUM_THREADS",)


def test_the_patch_gives_the_new_text(sources: Sources) -> None:
    found = overlay(small_job.project(sinks={}), sources, small_job.candidate(patched=True))
    assert found.files == {"model.py": small_job.MODEL.replace("4", "8")}


def test_a_patch_that_does_not_match_fails_before_launch(sources: Sources) -> None:
    (sources.root / "model.py").write_text("# moved\n" + small_job.MODEL)
    with pytest.raises(PatchFailed, match=r"model\.py:1: expected 'import os\\n'"):
        overlay(small_job.project(), sources, small_job.candidate(patched=True))


def test_the_untouched_job_is_told_to_resume_and_keeps_its_fresh_sinks(sources: Sources) -> None:
    verify = {"resume": {"set": {"flag:--resume": "@CHECKPOINT@", "flag:--batch": 2}}}
    found = resuming(small_job.project(verify=verify), sources)
    script = found.files["train.sh"]
    assert f"--out {SINKS_TOKEN}/out" in script
    assert "--resume @CHECKPOINT@" in script
    assert "--batch 2" in script
    assert found.remove == ("out",)


def test_a_job_that_nothing_says_how_to_resume_is_refused(sources: Sources) -> None:
    with pytest.raises(UserError, match="nothing says how this job goes on"):
        resuming(small_job.project(), sources)


@pytest.mark.parametrize("origin", PatchOrigin)
def test_a_patch_that_tampers_fails_before_launch(sources: Sources, origin: PatchOrigin) -> None:
    made = small_job.patch(old="width = 4", new='os.environ.pop("INFRARSI_WITNESS_SOCK")')
    candidate = Candidate.of(patch=Patch(("faster",), made.diff, origin))
    with pytest.raises(PatchFailed, match=r"^model\.py:3: `os\.environ\.pop\(.*names what watches"):
        overlay(small_job.project(), sources, candidate)


def test_a_patch_of_a_file_that_is_not_editable_fails(sources: Sources) -> None:
    project = small_job.project(editable=["train.py"])
    with pytest.raises(PatchFailed, match="the file is not editable"):
        overlay(project, sources, small_job.candidate(patched=True))


def test_an_editable_file_behind_a_link_is_not_patched(sources: Sources, tmp_path: Path) -> None:
    (sources.root / "model.py").rename(tmp_path / "model.py")
    (sources.root / "model.py").symlink_to(tmp_path / "model.py")
    with pytest.raises(PatchFailed, match="does not exist"):
        overlay(small_job.project(), sources, small_job.candidate(patched=True))


def test_patch_and_settings_may_not_change_the_same_file(sources: Sources) -> None:
    diff = "--- a/train.sh\n+++ b/train.sh\n@@ -2 +2 @@\n-# the job\n+# my job\n"
    project = small_job.project(editable=["train.sh"])
    with pytest.raises(PatchFailed, match="both the patch and the settings"):
        overlay(project, sources, Candidate.of({}, Patch(("x",), diff)))


def test_a_bare_command_is_edited_itself(sources: Sources) -> None:
    launch = {"command": "torchrun --nproc_per_node=2 train.py --batch 1 --out out"}
    project = small_job.project(launch=launch)
    settings = {"batch": 4, "threads": 2, "procs": 1}
    found = overlay(project, sources, small_job.candidate(settings))
    assert found.command == (
        "OMP_NUM_THREADS=2 torchrun --nproc_per_node=1 train.py --batch 4 "
        f"--out {SINKS_TOKEN}/out --accum 2"
    )
    assert found.files == {}


def test_a_missing_sink_flag_is_added(sources: Sources) -> None:
    project = small_job.project(sinks={"flag:--log-dir": "fresh", "flag:--report": "none"})
    script = overlay(project, sources, Candidate.of()).files["train.sh"]
    assert f"--log-dir {SINKS_TOKEN}/log-dir" in script
    assert "--report none" in script


def test_a_sink_variable_that_the_script_sets_is_changed_there(sources: Sources) -> None:
    text = small_job.SCRIPT.replace("export OMP", "export WANDB_MODE=online\nexport OMP")
    (sources.root / "train.sh").write_text(text)
    found = overlay(small_job.project(), sources, Candidate.of())
    assert "export WANDB_MODE=offline\n" in found.files["train.sh"]
    assert found.env == {"WANDB_MODE": "offline"}


def test_a_sink_that_cannot_be_redirected_stops_with_its_place(sources: Sources) -> None:
    text = small_job.SCRIPT.replace("--out out ", "--out a --out b ")
    (sources.root / "train.sh").write_text(text)
    with pytest.raises(UserError, match="`--out` is given 2 times") as caught:
        overlay(small_job.project(), sources, Candidate.of())
    assert caught.value.where == "train.sh:8"


def test_truth_values_follow_the_spelling_of_the_job(sources: Sources) -> None:
    text = small_job.SCRIPT.replace("--batch 1", "--batch 1 --fused False")
    (sources.root / "train.sh").write_text(text)
    found = overlay(small_job.project(), sources, small_job.candidate({"fused": True}))
    assert "--fused True" in found.files["train.sh"]


def test_an_unknown_knob_lists_the_known_ones(sources: Sources) -> None:
    with pytest.raises(UserError, match="no knob 'speed'; known are: batch, threads"):
        overlay(small_job.project(), sources, small_job.candidate({"speed": 1}))


def test_a_script_that_is_not_utf8_is_named(sources: Sources) -> None:
    (sources.root / "train.sh").write_bytes(b"# \xff\ntorchrun train.py --out x\n")
    with pytest.raises(UserError, match=r"byte 2 of `train\.sh` is not UTF-8"):
        overlay(small_job.project(), sources, Candidate.of())


def test_a_missing_script_is_named(sources: Sources) -> None:
    (sources.root / "train.sh").unlink()
    with pytest.raises(UserError, match=r"there is no `train\.sh` in the project"):
        overlay(small_job.project(), sources, Candidate.of())


def test_arguments_and_variables_of_the_command_reach_the_script(sources: Sources) -> None:
    (sources.root / "train.sh").write_text('torchrun --nproc_per_node=$N train.py --out out "$@"\n')
    launch = {"command": "N=2 bash train.sh --seed 3", "script": "train.sh"}
    found = overlay(small_job.project(launch=launch), sources, small_job.candidate({"batch": 4}))
    assert found.files["train.sh"] == (
        f'torchrun --nproc_per_node=$N train.py --out {SINKS_TOKEN}/out --batch 4 --accum 2 "$@"\n'
    )

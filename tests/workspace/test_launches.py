"""Settings and the optimized script of jobs that a batch script or a chain of scripts starts."""

from pathlib import Path

from infrarsi.scripts import Script
from infrarsi.workspace.launch_text import LaunchText, leading_variables, script_arguments
from infrarsi.workspace.optimized_script import Facts, render
from infrarsi.workspace.sources import Sources

BATCH = """#!/bin/bash
# whole nodes
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
set -e
torchrun --nnodes=$SLURM_NNODES train.py
"""


def _text(command: str, path: str, text: str) -> LaunchText:
    sources = Sources(Path("."))
    return LaunchText(Script.parse(text, path), path, command, frozenset(), sources)


def _facts(command: str) -> Facts:
    return Facts(command, "r1", "lr 1", (), None)


def test_what_the_scheduler_reads_stays_above_every_command() -> None:
    command = "SLURM_NNODES=4 bash job.sbatch"
    lines = render(_facts(command), _text(command, "job.sbatch", BATCH)).splitlines()
    assert lines[:4] == BATCH.splitlines()[:4]
    default = '[ -n "${SLURM_NNODES+set}" ] || export SLURM_NNODES=4'
    assert lines.index(default) < lines.index("set -e")


def test_a_script_without_a_request_has_its_header_first() -> None:
    text = "#!/bin/bash\n# mine\npython train.py\n"
    lines = render(_facts("bash t.sh"), _text("bash t.sh", "t.sh", text)).splitlines()
    assert lines[1].startswith("# Written by InfraRSI")


def test_an_inner_script_is_not_said_to_be_run_by_itself() -> None:
    shown = render(_facts("bash outer.sh"), _text("bash outer.sh", "inner.sh", "python t.py\n"))
    assert "# It takes the place of inner.sh, which that command leads to." in shown
    assert "# Run it in" not in shown


def test_variables_and_arguments_are_found_behind_a_change_of_folder() -> None:
    command = "cd jobs && A=1 B='x y' bash go.sh --lr 1"
    assert leading_variables(command, "jobs/go.sh") == {"A": "1", "B": "x y"}
    assert script_arguments(command, "jobs/go.sh") == ("--lr", "1")

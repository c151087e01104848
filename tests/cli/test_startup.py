"""The command line starts fast and imports nothing heavy before it needs it."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("ray", "torch", "scipy", "numpy", "libcst", "optuna", "hyperopt")
CALLS = {
    "help": ["--help"],
    "version": ["--version"],
    "report": ["report"],
    "report of a run": ["report", "run"],
    "optimize --help": ["optimize", "--help"],
}
_MODULES = (
    "import json, sys\n"
    "from infrarsi.cli.main import main\n"
    "sys.argv = ['infrarsi', *json.loads(sys.argv[1])]\n"
    "try:\n    main()\n"
    "except SystemExit as end:\n    code = end.code\n"
    "else:\n    code = 0\n"
    "print('MODULES', json.dumps([code, sorted(sys.modules)]))\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one finished run."""
    run = tmp_path / "run"
    run.mkdir()
    (run / "journal.jsonl").write_text("")
    (run / "REPORT.md").write_text("# InfraRSI report: job\n")
    runs = tmp_path / ".infrarsi" / "runs"
    runs.mkdir(parents=True)
    (runs / "20260101-000000-aaaa").symlink_to(run)
    return tmp_path


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_no_heavy_module_is_imported(folder: Path, call: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MODULES, json.dumps(call)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stdout.rpartition("MODULES ")[2])
    assert code in (0, None)
    assert [name for name in HEAVY if name in modules] == []


def cpu_s(command: list[str], cwd: Path) -> float:
    """Least CPU time of several runs: what the command needs when nothing disturbs it."""
    found = []
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, cwd=cwd, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)


@pytest.mark.parametrize("call", [["--help"], ["report"]], ids=["help", "report"])
def test_it_starts_in_six_times_the_cpu_time_of_its_two_libraries(
    folder: Path, call: list[str]
) -> None:
    """Two to four times were measured; any of the heavy modules takes more than ten."""
    script = Path(sys.executable).with_name("infrarsi")
    bare = cpu_s([sys.executable, "-c", "pass"], folder)
    libraries = cpu_s([sys.executable, "-c", "import pydantic, typer.main"], folder)
    assert cpu_s([str(script), *call], folder) - bare < 6.0 * (libraries - bare)

"""`infrarsi report --rejudge`: the receipts alone give the verdicts of the run again."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from spawned import Site
from stored_run import finished

_IMPORTED = (
    "import json, sys\n"
    "from infrarsi.cli.main import main\n"
    "sys.argv = ['infrarsi', 'report', '--rejudge', sys.argv[1]]\n"
    "main_code = 0\n"
    "try:\n    main()\n"
    "except SystemExit as end:\n    main_code = end.code\n"
    "print('MODULES', json.dumps([main_code, sorted(sys.modules)]))\n"
)


def tree(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_unchanged_run_has_the_same_verdicts_and_is_not_written_to(site: Site) -> None:
    run = finished(site.folder / ".infrarsi" / "runs" / "20260101-000000-aaaa")
    before = tree(run.path)
    done = site.infrarsi("report", "--rejudge", str(run.path))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [line.split()[0] for line in lines[1:8]] == [
        "ref-01-timed",
        "ref-02-audit",
        "ref-03-timed",
        "trial-001",
        "trial-002",
        "audit-" + run.events[-1]["candidate_id"],
        f"pair-{run.events[-1]['candidate_id']}-01B",
    ]
    assert "no: same_workload" in lines[5]
    assert "same verdicts (4 judged again)" in lines
    assert tree(run.path) == before


def test_a_record_that_was_changed_is_told(site: Site) -> None:
    run = finished(site.folder / "run")
    receipt = run.path / "receipts" / "trial-001" / "receipt.json"
    data = json.loads(receipt.read_text())
    data["ranks"][0]["steps"][12]["loss"] *= 1.01
    receipt.write_text(json.dumps(data))
    done = site.infrarsi("report", "--rejudge", str(run.path))
    assert done.code == 2
    assert "1 of 4 verdicts differ from those in the journal" in done.message
    assert "same verdicts" not in done.out
    assert "  loss_within_tolerance: passed (" in done.out
    assert "now failed (step 12: " in done.out


def test_a_check_that_this_version_can_judge_besides_is_named_and_no_difference(site: Site) -> None:
    run = finished(site.folder / "run")
    journal = run.path / "journal.jsonl"
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    for event in events:
        for result in (event.get("verdict") or {}).get("results", []):
            if result["check"] == "memory_cap":
                result.update(status="not_covered", reason="it is not judged yet")
    journal.write_text("".join(json.dumps(event) + "\n" for event in events))
    done = site.infrarsi("report", "--rejudge", str(run.path))
    assert (done.code, done.err) == (0, "")
    assert "same verdicts (4 judged again)\n" in done.out
    assert "not judged in the run, passed now: memory_cap\n" in done.out


@pytest.mark.parametrize("status", ["passed", "failed"])
def test_a_longer_run_is_judged_again(site: Site, status: str) -> None:
    run = finished(site.folder / "run")
    run.long_run(20, status)
    done = site.infrarsi("report", "--rejudge", str(run.path))
    if status == "passed":
        assert (done.code, done.err) == (0, "")
        assert "same verdicts (5 judged again)\n" in done.out
        assert re.search(r"-20 +timed, longer +same job +same job, ", done.out)
    else:
        assert done.code == 2
        assert "1 of 5 verdicts differ" in done.message
        assert "  not the same job in the run, now same job, " in done.out


def test_a_longer_run_whose_verdict_was_kept_is_compared_check_by_check(site: Site) -> None:
    run = finished(site.folder / "run")
    run.long_run(20, "passed", with_verdict=True)
    done = site.infrarsi("report", "--rejudge", str(run.path))
    assert (done.code, done.err) == (0, "")
    assert re.search(r"-20 +timed, longer +same job, (\d+) of 16 +same job, \1 of 16", done.out)


@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_a_receipt_that_cannot_be_read_is_the_world_s_fault(site: Site, damage: str) -> None:
    run = finished(site.folder / "run")
    receipt = run.path / "receipts" / "trial-002" / "receipt.json"
    if damage == "gone":
        receipt.unlink()
    else:
        receipt.write_text(receipt.read_text()[:-40])
    done = site.infrarsi("report", "--rejudge", str(run.path))
    assert done.code == 3
    assert "trial-002/receipt.json: the receipt cannot be read" in done.message


def test_a_run_without_a_reference_cannot_be_judged_again(site: Site) -> None:
    run = finished(site.folder / "run")
    journal = run.path / "journal.jsonl"
    journal.write_text(json.dumps(run.events[0]) + "\n")
    done = site.infrarsi("report", "--rejudge", str(run.path))
    assert done.code == 2
    assert "the reference of this run was not measured" in done.message


def test_neither_ray_nor_torch_nor_scipy_is_imported(tmp_path: Path) -> None:
    run = finished(tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTED, str(run.path)],
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stdout.rpartition("MODULES ")[2])
    assert code in (0, None)
    heavy = ("ray", "torch", "scipy", "libcst", "optuna")
    assert [name for name in heavy if name in modules] == []

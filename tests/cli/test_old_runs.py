"""What the commands say of runs that ended in ways other than a promotion, from their journals."""

import json
import os
from pathlib import Path

import pytest
from finished_journal import events_at
from spawned import Site

CONTRACT = "schema: infrarsi-project-v1\nname: job\nlaunch: {command: bash train.sh}\n"


def put(site: Site, stage: str) -> Path:
    """A run directory with the journal of a run that ended after a stage."""
    run = site.folder / ".infrarsi" / "runs" / "20260101-000000-aaaa"
    run.mkdir(parents=True)
    lines = [json.dumps(event) + "\n" for event in events_at(stage)]
    (run / "journal.jsonl").write_text("".join(lines))
    (run / "contract.yaml").write_text(CONTRACT)
    return run


def test_a_run_that_promoted_nothing_has_nothing_to_apply(site: Site) -> None:
    put(site, "dropped")
    for call in (["apply"], ["apply", "--write"], ["apply", "--branch", "b"], ["finish", "--yes"]):
        done = site.infrarsi(*call)
        assert (done.code, done.err) == (0, ""), call
        assert "There is nothing to apply." in done.out
    assert "Nothing is recommended." in site.infrarsi("finish").out
    assert "the gain is too small" in site.infrarsi("finish").out


def test_a_run_without_a_finished_trial_has_nothing_to_verify(site: Site) -> None:
    put(site, "measured")
    done = site.infrarsi("finish", "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert "there is nothing to verify" in done.out


def test_a_run_that_ended_before_its_first_line_is_told_so(site: Site) -> None:
    run = put(site, "measured")
    (run / "journal.jsonl").write_text("")
    done = site.infrarsi("finish")
    assert done.code == 2
    assert "the run ended before it began anything" in done.message


@pytest.mark.parametrize("stage", ["measured", "searched", "promoted", "dropped"])
def test_a_report_that_was_never_written_is_made_from_the_journal(site: Site, stage: str) -> None:
    run = put(site, stage)
    done = site.infrarsi("report", str(run))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("# InfraRSI report: job\n\n**")
    assert "## The reference" in done.out
    assert not (run / "REPORT.md").exists(), "only looked at"


def test_a_report_that_is_older_than_the_journal_is_made_anew(site: Site) -> None:
    run = put(site, "promoted")
    report = run / "REPORT.md"
    report.write_text("of an interrupt long ago\n")
    os.utime(report, ns=(0, 0))
    assert site.infrarsi("report", str(run)).out.startswith("# InfraRSI report: job\n\n**")
    report.write_text("as of now\n")
    assert site.infrarsi("report", str(run)).out == "as of now\n"

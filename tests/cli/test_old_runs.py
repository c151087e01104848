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
    for call in (["apply"], ["finish", "--yes"]):
        done = site.infrarsi(*call)
        assert (done.code, done.err) == (0, ""), call
        assert "This run recommends nothing, so there is nothing to apply" in done.out
    assert "Nothing is recommended." in done.out
    assert "the gain is too small" in done.out


@pytest.mark.parametrize("how", [["--write"], ["--branch", "b"]], ids=str)
@pytest.mark.parametrize("stage", ["dropped", "searched"])
def test_a_change_that_is_not_there_cannot_be_written(
    site: Site, stage: str, how: list[str]
) -> None:
    put(site, stage)
    done = site.infrarsi("apply", *how)
    assert done.code == 2
    command = {"dropped": "infrarsi report", "searched": "infrarsi finish"}[stage]
    assert f"`{command} .infrarsi/runs/20260101-000000-aaaa`" in done.message


def test_a_run_without_a_finished_trial_has_nothing_to_verify(site: Site) -> None:
    run = put(site, "measured")
    before = (run / "journal.jsonl").read_bytes()
    for call in (["finish", "--dry-run"], ["finish"]):
        done = site.infrarsi(*call)
        assert (done.code, done.err) == (0, "")
        assert "There is nothing to verify: nothing was tried yet. Go on with" in done.out
        assert f"`infrarsi run --resume .infrarsi/runs/{run.name}`" in done.out
    assert (run / "journal.jsonl").read_bytes() == before


def test_a_run_is_found_from_its_project_and_said_where(site: Site) -> None:
    run = put(site, "promoted")
    work = site.folder / "job" / "deep"
    work.mkdir(parents=True)
    journal = run / "journal.jsonl"
    journal.write_text(journal.read_text().replace("/nowhere/job", str(site.job)))
    plain = site.infrarsi("report")
    assert (plain.code, plain.err) == (0, "")
    for inside in (site.folder / "job", work):
        site.folder, home = inside, site.folder
        try:
            done = site.infrarsi("report")
        finally:
            site.folder = home
        place = os.path.relpath(run, inside)
        assert (done.code, done.out, done.err) == (0, plain.out, f"The run is {place}.\n")
    for named in (run.name, "job", "job/deep"):
        assert site.infrarsi("report", named).out == plain.out


def test_a_run_of_another_project_above_is_not_taken(site: Site) -> None:
    put(site, "promoted")
    site.job.mkdir()
    site.folder, home = site.job, site.folder
    try:
        done = site.infrarsi("report")
    finally:
        site.folder = home
    assert done.code == 2
    assert "there is no run here" in done.message


def test_a_run_that_was_copied_does_not_tell_where_to_write(site: Site) -> None:
    run = put(site, "promoted")
    journal = run / "journal.jsonl"
    made = site.folder / "origin"
    (made / "job").mkdir(parents=True)
    text = journal.read_text().replace("/nowhere/job", str(made / "job"))
    old = made / ".infrarsi" / "runs" / json.loads(text.splitlines()[0])["run_id"]
    journal.write_text(text.replace("/nowhere/snapshot", str(old / "snapshot" / "snapshot")))
    site.job.mkdir()
    for call in (["apply"], ["apply", "--write"], ["run", "--resume"]):
        done = site.infrarsi(*call) if call[0] != "run" else site.infrarsi("finish")
        assert done.code == 2
        assert f"this run was made in {old} for the project in {made / 'job'}" in done.message
        assert "\n  fix: name the project that is meant: `--project job`" in done.message


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

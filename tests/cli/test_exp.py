"""`infrarsi exp` and `--experience` where something is wrong, and what they need no run for."""

import json
from pathlib import Path

import pytest
from finished_journal import events_at
from spawned import Site

from infrarsi.cli import experience
from infrarsi.contract import (
    Dimension,
    DimensionKind,
    Effect,
    Experience,
    Learned,
    LearnedEffect,
    Space,
)
from infrarsi.experience import Context, Matched, Pack, as_lines, store


def stored_run(folder: Path, *, learned: bool = True) -> Path:
    """The journal of a promoted run in a run directory."""
    run = folder / ".infrarsi" / "runs" / "20260101-000000-aaaa"
    run.mkdir(parents=True)
    events = events_at("promoted")
    if learned:
        found = Learned((LearnedEffect(("micro_batch", 4), (-0.3, 0.02), None),))
        events.append({"n": len(events), "t": 2000.0, "event": "learned", **found.to_dict()})
    else:
        events = events_at("measured")
    (run / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return run


def a_pack(name: str = "h200-x") -> Pack:
    return Pack(schema="infrarsi-pack-v1", id=name, title="t", context=Context(stack="native-ddp"))


def test_stats_of_a_library_name_what_could_not_be_read(site: Site) -> None:
    assert site.infrarsi("exp", "stats").out == f"0 packs; your own are in {site.library}\n"
    store(a_pack(), site.library)
    (site.library / "broken.jsonl").write_text("no pack\n")
    done = site.infrarsi("exp", "stats")
    assert (done.code, done.err) == (0, "")
    assert "h200-x: t; 0 effects" in done.out
    assert f"Not read: {site.library / 'broken.jsonl'}: this is no pack" in done.out


def test_a_run_is_exported_by_its_name_and_read_again(site: Site) -> None:
    run = stored_run(site.folder)
    done = site.infrarsi("exp", "export", run.name, "--pack-id", "mine", "--title", "my job")
    assert (done.code, done.err.startswith("infrarsi:")) == (0, False)
    assert "mine: my job; 1 effect, 1 failure, 0 conflicts, a verified change of 2.000x" in done.out
    assert site.infrarsi("exp", "validate", "mine.jsonl").out == done.out


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--pack-id", "a b"), "`--pack-id` is 'a b', but must be one word"),
        (("--title", "x\ny"), "`--title` is 'x\\ny', but must be one line"),
        (("--title", "in /home/me"), "`--title` is 'in /home/me', but must be one line"),
        (("--out", "none/x.jsonl"), "there is no such folder"),
    ],
    ids=["id", "title of two lines", "title with a path", "folder"],
)
def test_what_cannot_be_exported_so_is_named(
    site: Site, options: tuple[str, ...], what: str
) -> None:
    run = stored_run(site.folder)
    done = site.infrarsi("exp", "export", str(run), *options)
    assert done.code == 2
    assert what in done.message


def test_a_run_that_has_learned_nothing_is_not_exported(site: Site) -> None:
    done = site.infrarsi("exp", "export", str(stored_run(site.folder, learned=False)))
    assert done.code == 2
    assert "this run has learned nothing" in done.message


def test_a_bad_pack_is_one_message_with_its_line(site: Site) -> None:
    (site.folder / "p.jsonl").write_text(as_lines(a_pack()) + '{"record": "effect"}\n')
    done = site.infrarsi("exp", "validate", "p.jsonl")
    assert done.code == 2
    assert "p.jsonl:2: this is no pack: `family`: Field required" in done.message


def test_a_pattern_without_a_pack_ends_before_anything_runs(site: Site) -> None:
    store(a_pack(), site.library)
    site.fill()
    done = site.infrarsi("optimize", "job/train.sh", "--experience", "b200-*")
    assert done.code == 2
    assert "command line, `--experience`: `experience` names 'b200-*'" in done.message
    assert "there are h200-x" in done.message
    assert site.runs() == []


@pytest.mark.parametrize(
    ("covered", "grade"),
    [(0, "none"), (1, "thin"), (2, "partial"), (3, "good")],
    ids=["none", "thin", "partial", "good"],
)
def test_coverage_is_graded_by_its_share_of_the_settings(covered: int, grade: str) -> None:
    names = ("a", "b", "c", "d")
    effects = (Effect(), Effect())
    space = Space(tuple(Dimension(n, n, DimensionKind.KNOB, (0, 1), 0, effects) for n in names))
    found = Matched(Experience(), (("p", 0.9),), frozenset(names[:covered]))
    assert experience.coverage_line(found, space) == (
        f"Experience: {grade}; {covered} of 4 settings are known from p (90% alike)."
    )

"""The packs that a run starts from stay the same however the library changes."""

import json
from pathlib import Path

import pytest
from finished_journal import events_at, state_at

from infrarsi.cli.experience import begun_with, keep
from infrarsi.contract import Dimension, DimensionKind, Effect, Project, Space
from infrarsi.experience import Pack, context_of, load, store
from infrarsi.runs import RunDirectory

SPACE = Space(
    (
        Dimension("micro_batch", "micro_batch", DimensionKind.KNOB, (1, 2, 4), 1,
                  (Effect(0.0, 0.0, 0.0, 0.0), Effect(), Effect())),
    )
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run whose reference has been measured."""
    made = RunDirectory.create(tmp_path, now=0.0)
    lines = [json.dumps(event) + "\n" for event in events_at("measured")]
    made.journal.write_text("".join(lines))
    return made


def project(experience: str = "auto") -> Project:
    return Project.model_validate(
        {
            "schema": "infrarsi-project-v1",
            "name": "job",
            "launch": {"command": "bash train.sh"},
            "experience": experience,
        }
    )


def pack(name: str, mean: float) -> Pack:
    return Pack(
        schema="infrarsi-pack-v1",
        id=name,
        title="t",
        context=context_of(state_at("measured")),
        reference={"micro_batch": 1},
        effects=[{"family": "micro_batch", "value": 4, "log_time": (mean, 0.01)}],
    )


def test_a_run_that_goes_on_starts_from_the_same_packs(run: RunDirectory, library: Path) -> None:
    store(pack("one", -0.3), library)
    said: list[str] = []
    first = begun_with(run, SPACE, project(), said.append)
    assert said == ["  Experience: good; 1 of 1 settings are known from one (100% alike)."]
    store(pack("one", 0.3), library)
    store(pack("two", 0.3), library)
    assert begun_with(run, SPACE, project("off"), said.append) == first
    assert len(said) == 1


def test_off_uses_nothing_and_stays_so(run: RunDirectory, library: Path) -> None:
    store(pack("one", -0.3), library)
    for experience in ("off", "auto"):
        found = begun_with(run, SPACE, project(experience), print)
        assert (found.packs, found.experience.space) == ((), None)


def test_a_verified_run_is_kept_and_an_unfinished_one_is_not(library: Path) -> None:
    said: list[str] = []
    keep(state_at("searched"), said.append)
    assert not library.exists()
    keep(state_at("promoted"), said.append)
    (stored,) = library.iterdir()
    assert said == [f"Experience stored: {stored}"]
    assert load(stored)[0].change is not None


def test_a_library_that_cannot_be_written_is_said(library: Path) -> None:
    library.write_text("a file")
    said: list[str] = []
    keep(state_at("promoted"), said.append)
    assert len(said) == 1
    assert said[0].startswith(f"Experience was not stored in {library}: ")

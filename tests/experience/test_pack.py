"""A run's pack: what it holds, and that what is written is read back."""

import math
from pathlib import Path

import pytest
from finished_journal import DIFF, state_at

from infrarsi.errors import UserError
from infrarsi.experience import dumps, load, pack_of


@pytest.mark.parametrize("stage", ["measured", "searched", "promoted", "dropped"])
def test_what_is_written_is_read_back(tmp_path: Path, stage: str) -> None:
    pack = pack_of(state_at(stage))
    path = tmp_path / "pack.yaml"
    path.write_text(dumps(pack))
    assert load(path) == pack


def test_every_launched_trial_is_in_it_relative_to_the_reference() -> None:
    pack = pack_of(state_at("promoted"))
    first, second = pack.experiments
    assert first.changes == {"micro_batch": 4, "fused_optimizer": True}
    assert first.log_time == pytest.approx(math.log(0.5))
    assert (first.outcome, first.same_job) == ("ok", True)
    assert (second.outcome, second.same_job, second.log_time) == ("oom_host", None, None)
    assert pack.families == {"micro_batch": "micro_batch", "fused_optimizer": "optimizer"}
    assert (pack.measured_on.gpu, pack.measured_on.cpus_per_node) == (None, 2)


def test_the_winner_is_the_verified_change() -> None:
    winner = pack_of(state_at("promoted")).winner
    assert winner is not None
    assert (winner.speedup, winner.speedup_low, winner.pairs) == (2.0, 1.9, 4)
    assert (winner.changes, winner.patch) == ({"micro_batch": 4, "fused_optimizer": True}, DIFF)
    assert pack_of(state_at("searched")).winner is None


@pytest.mark.parametrize("text", ["", "schema: other\n", "a: [1\n", "- 1\n"], ids=repr)
def test_what_is_no_pack_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pack.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match="the pack cannot be read") as caught:
        load(path)
    assert caught.value.where == str(path)


def test_a_pack_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the pack cannot be read"):
        load(tmp_path / "none.yaml")

"""A run's pack: what it holds, what stays out of it, and that what is written is read back."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from finished_journal import DIFF, events_at, state_at

from infrarsi.contract import Fault, Learned, LearnedEffect
from infrarsi.errors import UserError
from infrarsi.experience import Pack, as_lines, as_yaml, load, pack_of
from infrarsi.runs import RunState

BASE: dict[str, Any] = {
    "schema": "infrarsi-pack-v1",
    "id": "one",
    "title": "a pack",
    "context": {"stack": "native-ddp"},
    "reference": {"micro_batch": 1},
}


def learned_state() -> RunState:
    """A promoted run with effects of a known family, of an unknown one, and faults."""
    state = state_at("promoted")
    state.learned = Learned(
        (
            LearnedEffect(("micro_batch", 4), (-0.31, 0.02), (1.2, 0.1)),
            LearnedEffect(("micro_batch", 2), None, (0.6, 0.1)),
            LearnedEffect(("fused_optimizer", True), (-0.01, 0.02), None),
        ),
        (Fault((("micro_batch", 2),), 0.9),),
    ).to_dict()
    return state


@pytest.mark.parametrize("stage", ["measured", "searched", "promoted", "dropped"])
@pytest.mark.parametrize("write", [as_yaml, as_lines])
def test_what_is_written_is_read_back(
    tmp_path: Path, stage: str, write: Callable[[Pack], str]
) -> None:
    pack = pack_of(state_at(stage))
    path = tmp_path / "pack"
    path.write_text(write(pack))
    assert load(path) == [pack]


def test_effects_are_of_families_and_canonical_values() -> None:
    pack = pack_of(learned_state())
    assert pack.reference == {"micro_batch": 1}  # "optimizer" is no family of the catalogue
    assert [(e.family, e.value, e.log_time) for e in pack.effects] == [
        ("micro_batch", 4, (-0.31, 0.02)),
        ("micro_batch", 2, None),
    ]
    assert pack.trials == 2


def test_a_trial_that_ran_out_of_memory_is_a_failure() -> None:
    (failure,) = pack_of(learned_state()).failures
    assert (failure.values, failure.outcome) == ({"micro_batch": 2}, "oom_host")


def test_the_verified_change_names_recipes_and_keeps_no_code() -> None:
    pack = pack_of(learned_state())
    assert pack.change is not None
    assert (pack.change.speedup, pack.change.pairs) == (2.0, 4)
    assert pack.change.values == {"micro_batch": 4}
    assert [patch.recipe for patch in pack.change.patches] == ["fused_optimizer"]
    assert "slow()" in DIFF
    assert "slow()" not in as_yaml(pack)
    assert pack_of(state_at("searched")).change is None


def test_names_paths_and_hosts_of_the_job_stay_out() -> None:
    events = events_at("promoted")
    for event in events:
        if event["event"] == "run_started":
            event |= {
                "name": "secret-project",
                "command": "bash /home/me/x.sh --key hf_" + 20 * "a",
            }
        if event["event"] == "space":
            event["dimensions"].append(
                {"name": "data_dir", "family": "dataloader_workers", "kind": "knob",
                 "values": [0, "/data/secret"], "reference": 0}
            )  # fmt: skip
    state = RunState.of(events)
    state.learned = Learned(
        (LearnedEffect(("data_dir", "/data/secret"), (-0.1, 0.01), None),)
    ).to_dict()
    pack = pack_of(state)
    for text in (as_yaml(pack), as_lines(pack)):
        for private in ("secret", "/home", "/nowhere", "box", "hf_", "data_dir", "train.sh"):
            assert private not in text


def test_a_file_of_lines_may_hold_several_packs(tmp_path: Path) -> None:
    packs = [Pack(**{**BASE, "id": name}) for name in ("a", "b")]
    path = tmp_path / "packs.jsonl"
    path.write_text("".join(map(as_lines, packs)))
    assert load(path) == packs


HEAD = json.dumps({"record": "pack", **BASE})
EFFECT = {"record": "effect", "family": "micro_batch", "value": 4, "log_time": [-0.3, 0.02]}
BAD_LINES = {
    "no json": (f"{HEAD}\n{{oops", 2, "no JSON"),
    "unknown record": ('{"record": "thing"}', 1, "`record` is 'thing', but must be one of pack"),
    "no head": (json.dumps(EFFECT), 1, "the first record must be a `pack`"),
    "zero deviation": (f"{HEAD}\n{json.dumps({**EFFECT, 'log_time': [-0.3, 0]})}", 2, "log_time"),
    "not finite": (f"{HEAD}\n{json.dumps({**EFFECT, 'log_time': [math.nan, 1]})}", 2, "log_time"),
    "unknown key": (f"{HEAD}\n{json.dumps({**EFFECT, 'gain': 1})}", 2, "gain"),
    "a path": (f"{HEAD}\n{json.dumps({**EFFECT, 'value': '/data/x'})}", 2, "value"),
    "twice": (f"{HEAD}\n{json.dumps(EFFECT)}\n{json.dumps(EFFECT)}", 1, "two effects"),
    "no reference": (f"{HEAD}\n{json.dumps({**EFFECT, 'family': 'compile'})}", 1, "no value of"),
    "other schema": (json.dumps({"record": "pack", **BASE, "schema": "x"}), 1, "infrarsi-pack-v1"),
    "a diff without digests": (
        f'{HEAD}\n{{"record": "change", "patches": [{{"diff": "x"}}], "speedup": 2, '
        '"speedup_low": 1, "speedup_high": 3, "pairs": 4}',
        2,
        "digests",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "line", "what"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_is_named(tmp_path: Path, text: str, line: int, what: str) -> None:
    path = tmp_path / "pack.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match="this is no pack") as caught:
        load(path)
    assert caught.value.where == f"{path}:{line}"
    assert what in caught.value.what


@pytest.mark.parametrize("text", ["", "schema: other\n", "a: [1\n", "- 1\n"], ids=repr)
def test_what_is_no_pack_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pack.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match="this is no pack") as caught:
        load(path)
    assert caught.value.where == str(path)


def test_a_pack_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the pack cannot be read: No such file"):
        load(tmp_path / "none.yaml")

"""`doctor --baseline`: known-good figures, read strictly and held against the reference."""

import json
from pathlib import Path

import pytest
from spawned import Site
from stored_run import REFERENCE, STEP_S, STEPS, loss

from infrarsi.cli.baseline import Baseline, figures_of, insist, load_baseline, table
from infrarsi.errors import UserError
from infrarsi.verify import reference_evidence

EVIDENCE = reference_evidence(REFERENCE, optimizer_steps=STEPS)
TOKENS_PER_S = 1024 / STEP_S


def written(folder: Path, text: str, name: str = "known.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read(folder: Path, text: str, name: str = "known.yaml") -> Baseline:
    return load_baseline(written(folder, text, name), optimizer_steps=STEPS).figures


GOOD = {
    "loss": {1: loss(0), 10: loss(9)},
    "final_loss": loss(STEPS - 1),
    "step_time_s": STEP_S,
    "tokens_per_s": TOKENS_PER_S,
    "samples_per_s": 16 / STEP_S,
    "memory_peak_gib": 1.0,
}


def test_figures_are_read_from_yaml_and_from_json(tmp_path):
    yaml = "loss:\n  10: 3.41\n  20: 3.2\nstep_time_s: 0.143\ntolerances: {loss: 0.01}\n"
    figures = read(tmp_path, yaml)
    assert figures.loss == {10: 3.41, 20: 3.2}
    assert (figures.step_time_s, figures.tolerances.loss) == (0.143, 0.01)
    text = json.dumps({"loss": {"10": 3.41}, "memory_peak_gib": 2})
    assert read(tmp_path, text, "known.json").loss == {10: 3.41}


def test_a_reference_that_is_as_expected_passes(tmp_path):
    loaded = load_baseline(written(tmp_path, json.dumps(GOOD), "known.json"), optimizer_steps=STEPS)
    figures = figures_of(loaded.figures, EVIDENCE, None)
    assert [figure.name for figure in figures] == [
        "loss at step 1",
        "loss at step 10",
        *list(GOOD)[1:],
    ]
    insist(figures, loaded)
    assert table(figures).count("as expected") == 7


@pytest.mark.parametrize(
    "scale", [0.5, 2.0], ids=["mean of micro-batches", "sum of undivided ones"]
)
def test_a_logged_loss_may_be_that_of_a_micro_batch(scale):
    figures = figures_of(Baseline(loss={3: scale * loss(2), 9: scale * loss(8)}), EVIDENCE, None)
    assert all(figure.holds for figure in figures)


OFF = {
    "loss": ("loss:\n  1: 5.0\n  10: 4.0\n", "`loss at step 10` is 4.27526, 4 was expected", 3),
    "step time": ("step_time_s: 0.08\n", "`step_time_s` is 0.1, 0.08 was expected", 1),
    "throughput": ("final_loss: 3.77\ntokens_per_s: 20000\n", "20000 was expected", 2),
    "memory": ("memory_peak_gib: 0.5\n", "`memory_peak_gib` is 1, 0.5 was expected", 1),
}


@pytest.mark.parametrize(("text", "message", "line"), OFF.values(), ids=OFF.keys())
def test_a_reference_that_is_off_is_told_with_the_line(tmp_path, text, message, line):
    loaded = load_baseline(written(tmp_path, text), optimizer_steps=STEPS)
    figures = figures_of(loaded.figures, EVIDENCE, None)
    with pytest.raises(UserError) as caught:
        insist(figures, loaded)
    assert message in caught.value.what
    assert caught.value.where == f"{tmp_path / 'known.yaml'}:{line}"
    assert table(figures).count("OFF") == 1


def test_tolerances_are_the_user_s():
    wide = Baseline.model_validate({"step_time_s": 0.08, "tolerances": {"step_time": 0.5}})
    assert all(figure.holds for figure in figures_of(wide, EVIDENCE, None))


def test_tokens_are_those_of_the_contract_where_it_has_them():
    (figure,) = figures_of(Baseline(tokens_per_s=512 / STEP_S), EVIDENCE, 512)
    assert figure.holds


MISTAKES = {
    "unknown key": ("step_time: 0.1\n", 1, "rename `step_time` to `step_time_s`"),
    "unknown tolerance": (
        "final_loss: 3\ntolerances:\n  los: 1\n",
        3,
        "rename `los` to `loss`",
    ),
    "step beyond a trial": (
        "loss:\n  1: 5\n  500: 2\n",
        3,
        "remove it, or set `workload.optimizer_steps` to as many",
    ),
    "no number": ("step_time_s: fast\n", 1, "write a number"),
    "no step": ("loss: {last: 3.0}\n", 1, "write a whole number"),
    "not positive": ("step_time_s: -1\n", 1, "write greater than 0"),
    "no figure": ("tolerances: {loss: 0.1}\n", 1, "correct one of the two"),
    "empty": ("", 1, "correct one of the two"),
    "no mapping": ("- 3\n", 1, "write a mapping"),
    "twice": ("final_loss: 3\nfinal_loss: 4\n", 2, "keep one of the two"),
}


@pytest.mark.parametrize(("text", "line", "fix"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_by_its_line(tmp_path, text, line, fix):
    path = written(tmp_path, text)
    with pytest.raises(UserError) as caught:
        load_baseline(path, optimizer_steps=STEPS)
    assert (caught.value.where, caught.value.fix) == (f"{path}:{line}", fix)


def test_a_baseline_is_read_before_anything_runs(site: Site) -> None:
    site.fill("waiting")
    assert site.infrarsi("init", "job/train.sh").code == 0
    written(site.folder, "step_tme_s: 0.1\n", "known.yaml")
    done = site.infrarsi("doctor", "job", "--baseline", "known.yaml")
    assert done.code == 2
    assert "known.yaml:1: `step_tme_s` is not a key of this file" in done.message
    done = site.infrarsi("doctor", "job", "--baseline", "none.yaml")
    assert done.code == 2
    assert "none.yaml: the baseline cannot be read: No such file or directory" in done.message
    assert site.runs() == []

"""REPORT.md: what stands at the top, and that every table is one."""

import re
from dataclasses import replace

import pytest
from finished_journal import DIFF, WINNER, state_at

from infrarsi.contract import Candidate, Patch, Touch
from infrarsi.report import report
from infrarsi.runs import RunState


def tables(text: str) -> list[list[str]]:
    """The Markdown tables of a report, as their lines."""
    blocks = re.sub(r"```.*?```", "", text, flags=re.DOTALL).split("\n\n")
    return [block.splitlines() for block in blocks if block.startswith("|")]


def cells(line: str) -> int:
    """How many cells a row has: bars that are not escaped, less the outer ones."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_every_row_has_as_many_cells_as_its_table(at_any_stage: RunState) -> None:
    text = report(at_any_stage, patch="")
    for table in tables(text):
        assert len({cells(line) for line in table}) == 1, table
    assert "None" not in text
    assert not re.search(r"[^\x00-\x7f]", text)


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("begun", "**Not finished.** The job as it is has not been measured yet"),
        (
            "measured",
            "**Not finished.** Nothing was found yet; go on with `infrarsi run",
        ),
        ("searched", "**Not finished.** Complete it with `infrarsi finish 20260101-000000-aaaa`"),
        ("promoted", "**Verified: 2.000x faster**, between 1.900x and 2.100x with 95 % confidence"),
        ("dropped", "**Nothing is recommended; your setup stays as it is.** What was verified: "),
    ],
)
def test_the_first_sentence_says_what_came_of_it(stage: str, words: str) -> None:
    title, _, rest = report(state_at(stage)).partition("\n\n")
    assert title == "# InfraRSI report: job"
    assert rest.startswith(words)


def test_a_speedup_of_a_single_run_is_never_at_the_top() -> None:
    dropped = report(state_at("dropped"))
    assert "2.000x" not in dropped.partition("## ")[0]
    assert "One run each, not verified" in dropped


def test_the_change_is_shown_with_what_it_replaces(promoted: RunState) -> None:
    text = report(promoted, patch=DIFF)
    assert "| micro_batch | 1 | 4 |" in text
    assert "- `fused_optimizer`: one kernel for all parameters" in text
    assert f"```diff\n{DIFF}```" in text
    assert "write it with `infrarsi apply --write 20260101-000000-aaaa`" in text


def test_what_is_not_covered_counts_for_nothing(promoted: RunState) -> None:
    text = report(promoted)
    assert "## Still the same job: 15 of 16 checks passed" in text
    assert "Not judged on this job, and so counted for nothing: 1 check;" in text
    assert "| L1 | memory_cap | not covered | not judged \\| yet |" in text


def test_trials_are_told_with_their_outcome(promoted: RunState) -> None:
    text = report(promoted)
    assert "2 trials; the budget of 3 trials is spent." in text
    assert "oom_host: no memory \\| left" in text
    assert "| not run: it does not apply |" in text, "no fault"


def touched(count: int) -> RunState:
    """A promoted run whose patch touches some lines."""
    touches = tuple(
        Touch("train.py", number, ("data", "timing"), "t = clock() | `x`", number == 1)
        for number in range(1, count + 1)
    )
    patch = Patch(("fused_optimizer",), DIFF, touches=touches)
    state = state_at("promoted")
    state.candidates[WINNER.id] = Candidate.from_dict(
        Candidate.of({"micro_batch": 4}, patch).to_dict()
    )
    return state


def test_what_the_changed_lines_touch_is_shown() -> None:
    text = report(touched(2))
    assert "## What the change touches" in text
    assert "| `train.py:1` | data, timing | - `` t = clock() \\| `x` `` |" in text
    assert "| `train.py:2` | data, timing | + `` t" in text
    assert "Not shown" not in text


def test_a_long_list_of_touched_lines_is_cut_and_said_so() -> None:
    assert "Not shown: 5 more lines." in report(touched(65))


def test_a_change_without_code_has_no_such_section(promoted: RunState) -> None:
    assert "What the change touches" not in report(promoted)


def test_no_key_of_the_command_is_shown() -> None:
    state = state_at("promoted")
    state.started["command"] = "WANDB_API_KEY=0123456789abcdef bash train.sh --hub-token abc-def"
    text = report(state, patch=DIFF + "+key = 'hf_" + "aB3" * 9 + "'\n")
    assert "WANDB_API_KEY=[withheld] bash train.sh --hub-token [withheld]" in text
    assert "hf_aB3" not in text


def test_an_error_that_ended_the_run_is_in_the_report() -> None:
    state = state_at("begun")
    state.failed.update(what="it failed: no corpus\n  | the log", where="`bash x`", fix="mend it")
    text = report(state)
    assert text.split("\n\n")[1].startswith("**Not finished: the job as it is could not be meas")
    assert "## The error\n\nIt ended with an error: `bash x`: it failed: no corpus\n\n" in text
    assert "```\n  | the log\n```\n\nFix: mend it." in text


@pytest.mark.parametrize(("log_sd", "is_warned"), [(0.19, False), (0.31, True)])
def test_huge_noise_is_warned_of(log_sd: float, is_warned: bool) -> None:
    state = state_at("promoted")
    state.reference["step_log_sd"] = log_sd
    text = report(state)
    assert ("Warning: runs of the same job differ by 31 %" in text) == is_warned


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (912, "at 36 steps the change does not pay for itself (it does from step 912 on)"),
        (12, "the change has paid for itself by then, at step 12."),
        (None, "your job says 36."),
    ],
)
def test_an_assumed_length_says_what_it_decided(step: int | None, words: str) -> None:
    state = state_at("promoted")
    state.started.update(ends_by="job", optimizer_steps=36, planned_steps=10000)
    state.verified[WINNER.id]["break_even_step"] = step
    assert "Assumed: 10000 steps planned; your job says 36" in (text := report(state))
    assert words in text
    state.started["ends_by"] = "witness"
    assert "Assumed" not in report(state)


def test_a_reason_that_recipes_share_is_given_once() -> None:
    state = state_at("promoted")
    reason = "local check not possible: `step`: it calls print"
    state.recipes = [
        {"name": name, "status": "offered", "title": "", "reason": reason, "notes": []}
        for name in ("a", "b")
    ]
    text = report(state)
    assert text.count("it calls print") == 1
    assert "| `a` | offered | not tried on recorded calls* |" in text
    assert "This holds for 2 of them" in text


def test_why_a_trial_was_tried_is_in_plain_words() -> None:
    state = state_at("promoted")
    why = "x=2; 0.98x to 1.20x its speed expected; fits: 80%, runs: 100%"
    state.trials[0] = replace(state.trials[0], why=why)
    words = "x=2; 0.98x to 1.20x the speed of the best so far expected; 80% likely to fit in memory"
    assert f"| {words} |" in report(state)


def test_what_was_expected_stands_beside_what_was_measured(promoted: RunState) -> None:
    _, _, section = report(promoted).partition("## What was expected")
    assert "| 1 | 1.822x (1.603x to 2.072x) | 2.000x | 4.00 GiB (3.36 GiB to 4.64 GiB) |" in section
    assert "1 of 1 measured speed-ups do" in section
    assert "0 of 1 measured peaks do" in section


def test_without_predictions_there_is_no_such_section(promoted: RunState) -> None:
    trials = [replace(line, expected=None) for line in promoted.trials]
    assert "What was expected" not in report(replace(promoted, trials=trials))

"""What `doctor` says of the checks: covered, or why not and what to do about it."""

from infrarsi.cli.covering import coverage_lines, what_to_do
from infrarsi.contract import CHECKS, Project

PROJECT = Project.model_validate(
    {"name": "job", "launch": {"command": "x"}, "workload": {"optimizer_steps": 25}}
)


def test_every_check_has_something_to_do_where_it_is_not_covered():
    for check in CHECKS:
        text = what_to_do(check, PROJECT)
        assert text
        assert "{" not in text


def test_each_check_is_told_once_and_the_rest_with_what_to_do():
    coverage = dict.fromkeys(CHECKS, "covered") | {
        "eval_matches": "the reference evaluates nothing",
        "speed_reproduces": "judged by paired re-runs",
        "precision": "a stack that this version does not read",
        "user_tests": "no command is named",
    }
    lines = coverage_lines(coverage, PROJECT)
    assert lines[0].endswith("12 of 16.")
    assert sum(line.endswith(" covered") for line in lines) == 12
    told = "\n".join(lines)
    assert "eval_matches           not covered: the reference evaluates nothing\n" in told
    assert "to cover it: lower the job's evaluation interval" in told
    assert "(now 25)" in told
    heads = [line for line in lines[1:] if not line.startswith(" ")]
    assert heads == ["You can have these covered too:", "Judged later:", "Not in this version:"]
    assert lines.index(heads[1]) == len(lines) - 4
    assert lines[-3].split()[0] == "speed_reproduces"
    assert lines[-1].split()[0] == "precision"

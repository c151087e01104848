"""How the command line's values are read, and what stands above infrarsi.yaml."""

import io
from pathlib import Path

import pytest

from infrarsi.cli.console import Console
from infrarsi.cli.main import render, with_shorthand
from infrarsi.cli.options import Preferences, hours
from infrarsi.cli.preferences import with_preferences
from infrarsi.contract import Project
from infrarsi.errors import UserError


@pytest.fixture
def project() -> Project:
    return Project.model_validate(
        {
            "schema": "infrarsi-project-v1",
            "name": "job",
            "launch": {"command": "bash train.sh"},
            "search": {"seed": 3, "budget": {"screens": 5, "wall_hours": 1.0}},
        }
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", 2.0),
        ("2.5", 2.5),
        ("90m", 1.5),
        ("90min", 1.5),
        ("90 MIN", 1.5),
        ("3600s", 1.0),
        (" 1 h ", 1.0),
        (None, None),
    ],
)
def test_durations_are_read_as_hours(text: str | None, expected: float | None) -> None:
    assert hours(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0h", "-1h", "1d", "h", "1h30m", "1e3s", "nan", "1,5h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"`--max-wallclock` is .* must be a duration above zero"):
        hours(text)


def test_values_that_are_not_given_stay(project: Project) -> None:
    assert with_preferences(project, Preferences()) == project


def test_values_that_are_given_replace_those_of_the_file(project: Project) -> None:
    changed = with_preferences(
        project,
        Preferences("none", 9, 2.0, 4.0, 1.5, 0.05, "random", 7, "auto"),
    )
    budget = changed.search.budget
    assert (budget.screens, budget.wall_hours, budget.gpu_hours) == (9, 2.0, 4.0)
    assert (budget.target_speedup, changed.invariants.loss_tolerance) == (1.5, 0.05)
    assert (changed.search.searcher, changed.search.seed) == ("random", 7)
    assert (changed.cluster.address, changed.llm.backend) == ("auto", "none")
    assert project.search.budget.screens == 5, "the file's project is not changed"


@pytest.mark.parametrize(
    ("text", "backend", "model"),
    [
        ("none", "none", None),
        ("claude", "claude-cli", None),
        ("claude:opus", "claude-cli", "opus"),
        ("codex-cli:x:y", "codex-cli", "x:y"),
        ("vllm:", "vllm", None),
    ],
)
def test_a_model_is_named_with_its_backend(
    project: Project, text: str, backend: str, model: str | None
) -> None:
    llm = with_preferences(project, Preferences(llm=text)).llm
    assert (llm.backend, llm.model) == (backend, model)


@pytest.mark.parametrize(
    ("preferences", "message"),
    [
        (Preferences(screens=0), "`--screens` is 0, but must be greater than or equal to 1"),
        (Preferences(target_speedup=1.0), "`--target-speedup` is 1.0, but must be greater than 1"),
        (Preferences(gpu_hours=0.0), "`--gpu-hours` is 0.0, but must be greater than 0"),
        (Preferences(llm="gpt"), "`--llm` is 'gpt', but this version searches without"),
    ],
)
def test_a_value_that_cannot_be_names_its_option(
    project: Project, preferences: Preferences, message: str
) -> None:
    with pytest.raises(UserError) as caught:
        with_preferences(project, preferences)
    assert message in caught.value.what
    assert caught.value.where == "command line"
    assert caught.value.fix


def test_only_the_tolerance_changes_the_contract(project: Project) -> None:
    others = Preferences("none", 9, 2.0, 4.0, 1.5, None, "random", 7, "auto")
    assert with_preferences(project, others).contract_hash() == project.contract_hash()
    looser = with_preferences(project, Preferences(tolerance=0.2))
    assert looser.contract_hash() != project.contract_hash()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["./train.sh"], ["optimize", "./train.sh"]),
        (["train.sh", "--yes"], ["optimize", "train.sh", "--yes"]),
        (["train.py"], ["optimize", "train.py"]),
        (["some/folder"], ["optimize", "some/folder"]),
        (["infrarsi.yaml"], ["optimize", "infrarsi.yaml"]),
        (["."], ["optimize", "."]),
        (["run", "train.sh"], ["run", "train.sh"]),
        (["report"], ["report"]),
        (["--help"], ["--help"]),
        (["-v", "train.sh"], ["-v", "train.sh"]),
        (["nonsense"], ["nonsense"]),
        ([], []),
    ],
    ids=" ".join,
)
def test_a_path_in_place_of_a_command_means_optimize(
    arguments: list[str], expected: list[str]
) -> None:
    assert with_shorthand(arguments) == expected


def test_an_error_is_told_as_place_fact_and_what_to_do() -> None:
    error = UserError("it is 3, but must be 4", where="infrarsi.yaml:12", fix="write 4")
    assert render(error) == "infrarsi: infrarsi.yaml:12: it is 3, but must be 4\n  fix: write 4"
    assert render(UserError("there is none")) == "infrarsi: there is none"


def test_details_are_only_printed_when_asked_for_but_always_kept(tmp_path: Path) -> None:
    for verbose, printed in ((False, "early\nmilestone\n"), (True, "early\ndetail\nmilestone\n")):
        out = io.StringIO()
        console = Console(verbose=verbose, out=out)
        console.say("early")
        log = tmp_path / f"{verbose}.log"
        console.log_to(log)
        console.say("detail", False)
        console.say("milestone")
        console.status("now")
        console.close()
        assert out.getvalue() == printed
        assert [line[9:] for line in log.read_text().splitlines()] == [
            "early",
            "detail",
            "milestone",
        ]

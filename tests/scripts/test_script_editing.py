"""An edited script passes what was asked for, in the real bash, and nothing else changes."""

import difflib
import random

import pytest
from launch_scripts import SCRIPTS
from real_shell import Call, RealShell, spread

from infrarsi.errors import UserError
from infrarsi.scripts import Script

VALUES = ["1", "a b", "it's", 'q"q', "$HOME", "x\\y", "-3", "a=b", "*", "é€", "`ls`", "!x", "#c"]


def _called(shell: RealShell, script: Script) -> Call:
    return shell.run(script.text)[-1]


def _in_string(name: str) -> bool:
    return "string" in name or name == "eval"


@pytest.mark.parametrize("name", SCRIPTS)
def test_existing_flag_is_replaced_where_it_is_written(name: str, shell: RealShell) -> None:
    script = Script.parse(SCRIPTS[name], "train.sh")
    before = spread(_called(shell, script).arguments)
    edited = script.with_flag("--lr", "0.5")
    after = spread(_called(shell, edited).arguments)
    at = before.index("--lr")
    assert after == [*before[: at + 1], "0.5", *before[at + 2 :]]
    assert edited.training_command().argument("--lr").value == "0.5"


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("value", ["7", True], ids=["value", "bare"])
def test_missing_flag_is_appended(name: str, value: str | bool, shell: RealShell) -> None:
    script = Script.parse(SCRIPTS[name], "train.sh")
    before = spread(_called(shell, script).arguments)
    after = spread(_called(shell, script.with_flag("--new", value)).arguments)
    assert after == before + (["--new"] if value is True else ["--new", "7"])


@pytest.mark.parametrize("name", SCRIPTS)
def test_flag_is_removed_with_its_value(name: str, shell: RealShell) -> None:
    script = Script.parse(SCRIPTS[name], "train.sh")
    before = spread(_called(shell, script).arguments)
    edited = script.without_flag("--lr")
    at = before.index("--lr")
    assert spread(_called(shell, edited).arguments) == before[:at] + before[at + 2 :]
    assert edited.training_command().argument("--lr") is None


@pytest.mark.parametrize("name", SCRIPTS)
def test_added_flag_taken_out_again_leaves_the_script_as_it_was(name: str) -> None:
    script = Script.parse(SCRIPTS[name], "train.sh")
    assert script.with_flag("--new", "1").without_flag("--new").text == script.text


@pytest.mark.parametrize("name", SCRIPTS)
def test_launcher_options_are_replaced_added_and_removed(name: str, shell: RealShell) -> None:
    script = Script.parse(SCRIPTS[name], "train.sh")
    before = _called(shell, script).arguments
    edited = script.with_launcher_option("--nproc_per_node", "1")
    edited = edited.with_launcher_option("--max-restarts", "0")
    after = spread(_called(shell, edited).arguments)
    assert after[after.index("--max-restarts") + 1] == "0"
    processes = after.index(next(w for w in after if w.startswith("--nproc")))
    assert after[processes + 1] == "1"
    removed = edited.without_launcher_option("--max_restarts")
    removed = removed.with_launcher_option("--nproc-per-node", "2")
    assert spread(_called(shell, removed).arguments) == spread(before)


@pytest.mark.parametrize("name", SCRIPTS)
def test_environment_reaches_the_command_alone(name: str, shell: RealShell) -> None:
    script = Script.parse(SCRIPTS[name], "train.sh")
    before = _called(shell, script)
    edited = script.with_env("OMP_NUM_THREADS", "6").with_env("NEW", "x y")
    after = _called(shell, edited)
    assert after.arguments == before.arguments
    assert after.environment["OMP_NUM_THREADS"] == "6"
    assert after.environment["NEW"] == "x y"
    gone = _called(shell, edited.without_env("OMP_NUM_THREADS").without_env("NEW"))
    assert "OMP_NUM_THREADS" not in gone.environment
    assert "NEW" not in gone.environment
    assert gone.arguments == before.arguments


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "name", ["one line", "flag and value joined", "array", "continuation lines"]
)
def test_any_value_arrives_as_it_is(name: str, value: str, shell: RealShell) -> None:
    edited = Script.parse(SCRIPTS[name], "train.sh").with_flag("--lr", value)
    edited = edited.with_flag("--new", value).with_env("NEW", value)
    call = _called(shell, edited)
    given = spread(call.arguments) if "=" not in value else call.arguments
    assert given[-1].removeprefix("--new=") == value
    assert call.environment["NEW"] == value
    assert edited.training_command().argument("--lr").value == value


@pytest.mark.parametrize("name", [name for name in SCRIPTS if _in_string(name)])
def test_value_with_blanks_is_refused_inside_a_string(name: str) -> None:
    with pytest.raises(UserError, match="cannot be written there"):
        Script.parse(SCRIPTS[name], "train.sh").with_flag("--lr", "a b")


@pytest.mark.parametrize("name", SCRIPTS)
def test_random_edits_agree_with_bash(name: str, shell: RealShell) -> None:
    chance = random.Random(name)
    script = Script.parse(SCRIPTS[name], "train.sh")
    expected = spread(_called(shell, script).arguments)
    for _ in range(6):
        flag = chance.choice(["--lr", "--new", "--other"])
        present = flag in expected
        if present and chance.random() < 0.4:
            script = script.without_flag(flag)
            at = expected.index(flag)
            del expected[at : at + 2]
        else:
            value = chance.choice(["1", "0.25", "x/y"])
            script = script.with_flag(flag, value)
            if present:
                expected[expected.index(flag) + 1] = value
            else:
                expected += [flag, value]
    assert spread(_called(shell, script).arguments) == expected


def test_only_the_value_changes_in_the_text() -> None:
    text = SCRIPTS["array"]
    edited = Script.parse(text, "train.sh").with_flag("--lr", "1e-3").text
    changed = [
        line for line in difflib.ndiff(text.splitlines(), edited.splitlines()) if line[0] in "+-"
    ]
    assert changed == ["-   --lr 3e-4", "+   --lr 1e-3"]


def test_appended_flag_gets_a_line_of_its_own_among_continuation_lines() -> None:
    edited = Script.parse(SCRIPTS["continuation lines"], "t.sh").with_flag("--new", "1").text
    assert "    --bf16 \\\n    --new 1\n\necho" in edited


def test_comments_beside_a_removed_element_stay() -> None:
    edited = Script.parse(SCRIPTS["array"], "t.sh").without_flag("--data").text
    assert "ARGS=(\n  # where it is\n  --lr 3e-4\n" in edited


def test_bare_flag_leaves_the_word_behind_it(shell: RealShell) -> None:
    script = Script.parse("torchrun train.py --fp16 config.yaml --lr 1\n", "train.sh")
    edited = script.without_flag("--fp16", bare=True)
    assert _called(shell, edited).arguments == ["train.py", "config.yaml", "--lr", "1"]


def test_value_with_blanks_is_refused_where_an_array_is_split_again() -> None:
    script = Script.parse(SCRIPTS["arrays without quotes"], "job.sh")
    with pytest.raises(UserError, match="without changing something else as well"):
        script.with_flag("--lr", "a b")


def test_command_line_gets_its_environment_in_front() -> None:
    script = Script.parse("torchrun train.py --lr 1")
    assert script.with_env("A", "1").text == "A=1 torchrun train.py --lr 1"
    assert script.without_env("A").text == "env -u A torchrun train.py --lr 1"
    assert script.with_flag("--lr", "2").text == "torchrun train.py --lr 2"


def test_words_that_the_script_makes_of_a_variable_follow_it(shell: RealShell) -> None:
    text = "export N=2\necho $N\ntorchrun --nproc_per_node=$N train.py --n $N\n"
    edited = Script.parse(text, "train.sh").with_env("N", "8")
    assert edited.text == text.replace("N=2", "N=8")
    call = _called(shell, edited)
    assert call.environment["N"] == "8"
    assert call.arguments == ["--nproc_per_node=8", "train.py", "--n", "8"]


def test_assignment_in_a_branch_does_not_win_over_the_setting(shell: RealShell) -> None:
    text = 'if [ -z "$A" ]; then export A=1; fi\nif true; then torchrun t.py; fi\n'
    call = _called(shell, Script.parse(text, "train.sh").with_env("A", "2"))
    assert call.environment["A"] == "2"


def test_key_value_argument_is_replaced_and_added(shell: RealShell) -> None:
    script = Script.parse(SCRIPTS["key=value"], "train.sh").with_flag("model.layers", "8")
    edited = script.with_flag("model.width", "64")
    assert edited.text.endswith("train.py model.layers=8 +lr_x=2 --lr 3e-4 model.width=64\n")


REFUSED = {
    "given twice": ("torchrun t.py --lr 1 \\\n  --lr 2\n", "given 2 times, in lines 1 and 2", 2),
    "function called twice": (
        "f() { torchrun t.py --lr 1; }\nf\nf\n",
        "runs more than once",
        1,
    ),
    "loop": ("for s in 1 2; do\n  torchrun t.py --lr 1\ndone\n", "runs more than once", 2),
    "array built in a loop": (
        'A=()\nfor x in a b; do A+=(--$x 1); done\ntorchrun t.py "${A[@]}"\n',
        "may be part of",
        2,
    ),
    "array from a command": (
        "mapfile -t A < args.txt\ntorchrun t.py ${A[@]}\n",
        "may be part of",
        2,
    ),
    "arguments from a command": (
        "torchrun t.py $(cat args.txt)\n",
        r"may be part of `\$\(cat args.txt\)`",
        1,
    ),
    "array from a sourced file": (
        "source args.sh\ntorchrun t.py ${A[@]}\n",
        "may be part of",
        2,
    ),
    "given under a condition": (
        'A=(--x 1)\nif grep -q a b; then A+=(--lr 1); fi\ntorchrun t.py "${A[@]}"\n',
        "whether `--lr` is given depends on `grep -q a b` in line 2",
        2,
    ),
    "shared with another command": (
        'A=(--lr 1)\npython check.py "${A[@]}"\ntorchrun t.py "${A[@]}"\n',
        "`python` in line 2 gets the same",
        1,
    ),
    "inside a default": (
        "torchrun t.py ${ARGS:---lr 1 --x 2}\n",
        "cannot be changed where it is written",
        1,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_edited_safely_is_refused_with_its_place(name: str) -> None:
    text, message, line = REFUSED[name]
    with pytest.raises(UserError, match=message) as caught:
        Script.parse(text, "job.sh").with_flag("--lr", "5")
    assert caught.value.where == f"job.sh:{line}"
    assert caught.value.fix


def test_arguments_of_the_script_cannot_be_edited_in_it() -> None:
    script = Script.parse('torchrun t.py "$@"\n', "job.sh", script_arguments=("--lr", "1"))
    with pytest.raises(UserError, match="cannot be changed where it is written"):
        script.with_flag("--lr", "2")


def test_launcher_option_without_a_launcher_is_refused() -> None:
    with pytest.raises(UserError, match="started by python itself"):
        Script.parse("python train.py\n", "job.sh").with_launcher_option("--nproc_per_node", "2")


def test_flag_with_a_value_is_not_made_bare() -> None:
    with pytest.raises(UserError, match="given with the value '1'"):
        Script.parse("torchrun t.py --lr 1\n", "job.sh").with_flag("--lr", True)


def test_removing_what_is_not_there_changes_nothing() -> None:
    script = Script.parse(SCRIPTS["array"], "job.sh")
    assert script.without_flag("--nothing").text == script.text
    assert script.without_launcher_option("--nothing").text == script.text

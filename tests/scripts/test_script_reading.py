"""What is read out of a script is what the real bash passes."""

import pytest
from launch_scripts import SCRIPTS
from real_shell import RealShell, read, spread

from infrarsi.errors import UserError
from infrarsi.scripts import Script


@pytest.mark.parametrize("name", SCRIPTS)
def test_arguments_read_are_those_that_bash_passes(name: str, shell: RealShell) -> None:
    text = SCRIPTS[name]
    call = shell.run(text)[-1]
    given = call.arguments
    if given[:2] == ["-m", "torch.distributed.run"]:
        given = given[2:]
    assert spread(read(Script.parse(text, "train.sh"))) == spread(given)


@pytest.mark.parametrize("name", SCRIPTS)
def test_environment_read_is_what_bash_exports(name: str, shell: RealShell) -> None:
    text = SCRIPTS[name]
    call = shell.run(text)[-1]
    ours = {"PATH", "RECORD", "HOME", "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}
    exported = {k: v for k, v in call.environment.items() if k not in ours}
    found = Script.parse(text, "train.sh").training_command().environment
    assert {name: assignment.value for name, assignment in found.items()} == exported


def test_entry_script_is_resolved_through_folders(shell: RealShell) -> None:
    text = """
ROOT=$(cd "$(dirname "$0")/.." && pwd)
cd "$ROOT/src"
torchrun "$ROOT/src/train.py" --cfg "${ROOT}/c.yaml"
"""
    (shell.project / "src").mkdir()
    call = shell.run(text, path="scripts/run.sh")[0]
    script = Script.parse(text, "scripts/run.sh", root=str(shell.project))
    command = script.training_command()
    assert command.script == "src/train.py"
    assert command.cwd == "src"
    assert read(script) == call.arguments


def test_script_arguments_reach_the_command(shell: RealShell) -> None:
    text = 'NAME=$1; shift\ntorchrun train.py --name "$NAME" "$@"\n'
    given = ("my run", "--lr", "1", "--x=2 3")
    call = shell.run(text, *given)[0]
    script = Script.parse(text, "train.sh", script_arguments=given)
    assert spread(read(script)) == spread(call.arguments)


def test_environment_of_the_caller_replaces_defaults() -> None:
    text = "GPUS=${GPUS:-8}\ntorchrun --nproc_per_node=$GPUS train.py\n"
    assert Script.parse(text).training_command().option("--nproc-per-node").value == "8"
    given = Script.parse(text, environ={"GPUS": "4"}).training_command()
    assert given.option("--nproc_per_node").value == "4"


@pytest.mark.parametrize(
    ("text", "flag", "expression"),
    [
        ("torchrun train.py --lr $LR\n", "--lr", "$LR"),
        ("LR=$(cat lr.txt)\ntorchrun train.py --lr $LR\n", "--lr", "$(cat lr.txt)"),
        ("torchrun train.py --lr=${LR:?}\n", "--lr", "${LR:?}"),
        ("torchrun train.py --data *.bin\n", "--data", "*.bin"),
        ("for X in 1 2; do Y=$X; done\ntorchrun train.py --lr $Y\n", "--lr", "the loop"),
        ("source env.sh\ntorchrun train.py --lr ${LR:-1}\n", "--lr", "`source env.sh` in line 1"),
        ("read LR\ntorchrun train.py --lr $LR\n", "--lr", "`read` in line 1"),
    ],
)
def test_unknown_values_are_none_and_name_the_expression(
    text: str, flag: str, expression: str
) -> None:
    argument = Script.parse(text, "train.sh").training_command().argument(flag)
    assert argument is not None
    assert argument.value is None
    assert not argument.static
    assert expression in argument.expression


def test_a_sourced_set_up_file_leaves_defaults_as_they_are() -> None:
    text = "source ~/venv/bin/activate\ntorchrun train.py --lr ${LR:-1}\n"
    assert Script.parse(text).training_command().argument("--lr").value == "1"


def test_conditional_argument_names_its_condition() -> None:
    text = "ARGS=(--a 1)\nif grep -q x y; then\n  ARGS+=(--fp16)\nfi\ntorchrun t.py ${ARGS[@]}\n"
    command = Script.parse(text, "train.sh").training_command()
    assert command.argument("--a").static
    argument = command.argument("--fp16")
    assert not argument.static
    assert argument.condition == "`grep -q x y` in line 2"


def test_variable_set_in_one_branch_only_is_unknown_afterwards() -> None:
    text = "B=1\nif grep -q x y; then B=2; fi\ntorchrun train.py --b $B\n"
    assert Script.parse(text).training_command().argument("--b").value is None


def test_branch_that_exits_does_not_count() -> None:
    text = "B=1\nif grep -q x y; then B=2; exit 1; fi\ntorchrun train.py --b $B\n"
    assert Script.parse(text).training_command().argument("--b").value == "1"


def test_repeated_training_is_marked() -> None:
    once = Script.parse("f() { torchrun t.py; }\nf\n").training_command()
    twice = Script.parse("f() { torchrun t.py; }\nf\nf\n").training_command()
    loop = Script.parse("for i in 1 2; do torchrun t.py; done\n").training_command()
    assert (once.repeated, twice.repeated, loop.repeated) == (False, True, True)


def test_no_training_command_lists_what_runs() -> None:
    script = Script.parse("ls\ngit pull\n", "go.sh")
    with pytest.raises(UserError, match="the script runs `git`, `ls`") as caught:
        script.training_command()
    assert caught.value.where == "go.sh"


def test_two_training_commands_are_refused_with_their_lines() -> None:
    with pytest.raises(UserError, match="in lines 1, 2") as caught:
        Script.parse("torchrun a.py\ntorchrun b.py\n", "go.sh").training_command()
    assert caught.value.where == "go.sh:1"


def test_plain_python_prefers_the_training_script() -> None:
    script = Script.parse("python download.py\npython -u train.py --x 1\n")
    command = script.training_command()
    assert (command.launcher, command.entry) == ("python", "train.py")


def test_assignments_hold_arrays_defaults_and_exports() -> None:
    text = 'A=${B:-4}\nexport C="x $A"\nD=(1 "$(date)")\n'
    found = Script.parse(text).assignments()
    assert found["A"].value == "4"
    assert (found["C"].value, found["C"].exported, found["C"].line) == ("x 4", True, 2)
    assert found["D"].elements == ("1", None)


def test_writes_are_listed_with_targets_and_lines() -> None:
    text = """OUT=runs/x
mkdir -p "$OUT/ckpt"
if false; then rm -rf old; fi
cat > $OUT/cfg.json <<EOF
{"a": 1}
EOF
torchrun train.py 2>&1 | tee -a "$OUT/log.txt"
echo hi > /dev/null
cp a b "$(date)"
"""
    found = [(w.by, w.target, w.line) for w in Script.parse(text, "x.sh").writes()]
    assert found == [
        ("mkdir", "runs/x/ckpt", 2),
        ("rm", "old", 3),
        (">", "runs/x/cfg.json", 4),
        ("tee", "runs/x/log.txt", 7),
        ("cp", None, 9),
    ]


def test_text_that_is_not_shell_is_refused_at_the_command() -> None:
    with pytest.raises(UserError, match=r"not understood|no command that starts"):
        Script.parse("torchrun train.py --x ( ) ) '\n", "x.sh").training_command()


@pytest.mark.parametrize("text", ["", "\n", "#!/bin/bash", "\x00\x01", "}}}}((((", "'", "é" * 999])
def test_any_text_can_be_parsed(text: str) -> None:
    script = Script.parse(text, "x.sh")
    assert script.writes() == ()
    with pytest.raises(UserError, match=r"no command"):
        script.training_command()

"""A setting that is written into a script is what the launcher gets in the real bash, or an error.

Nothing in between: there is no edit that is written and does not take effect.
"""

import shlex
from collections.abc import Callable

import pytest
from real_shell import Call, RealShell
from variable_scripts import DEFINITIONS, FILES, LOST, USES, Use

from infrarsi.errors import UserError
from infrarsi.scripts import Script

_SHELL = {"_", "SHLVL", "PWD", "OLDPWD"}
_PLAIN = ("joined", "not at all", "derived")
_EACH = 4  # of the other uses, for every definition


def _script(definition: str, use: Use) -> Script:
    return Script.parse(f"{definition}\n{use.text}\n", "train.sh", files=FILES.get)


def _uses(definition: str) -> list[str]:
    """Three uses with every definition, and others in turn, so that each meets some of them."""
    others = [name for name in USES if name not in _PLAIN]
    start = _EACH * list(DEFINITIONS).index(definition)
    return [*_PLAIN, *(others[(start + i) % len(others)] for i in range(_EACH))]


def _edited(edit: Callable[[], Script]) -> Script | None:
    """The edited script; None where that is refused, with a place and a way out."""
    try:
        return edit()
    except UserError as error:
        where, fix = error.where, error.fix
    assert (where or "").startswith("train.sh:")
    assert fix
    return None


def _rest(call: Call, *, apart: set[str]) -> dict[str, str]:
    return {k: v for k, v in call.environment.items() if k not in _SHELL | apart}


@pytest.fixture
def project(shell: RealShell) -> RealShell:
    """A shell whose project has the files that scripts read in."""
    for name, text in FILES.items():
        (shell.project / name).write_text(text)
    (shell.project / "sets.sh").write_text("N=2\n")
    return shell


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_variable_that_is_set_is_what_the_launcher_gets(
    definition: str, project: RealShell
) -> None:
    for name in _uses(definition):
        use = USES[name]
        script = _script(DEFINITIONS[definition], use)
        before = project.run(script.text)[-1]
        assert before.arguments == use.arguments(2), name
        edited = script.with_env("N", "1")
        after = project.run(edited.text)[-1]
        assert after.arguments == use.arguments(1), f"{name}\n{edited.text}"
        assert after.environment["N"] == "1", f"{name}\n{edited.text}"
        assert use.variables(1).items() <= after.environment.items(), f"{name}\n{edited.text}"
        changed = {"N", "A", *use.environment} if "A=$N" in script.text else {"N", *use.environment}
        assert _rest(after, apart=changed) == _rest(before, apart=changed), name


@pytest.mark.parametrize("use", USES)
def test_a_variable_that_only_the_caller_gives_is_set_before_it_is_used(
    use: str, project: RealShell
) -> None:
    text = f"{USES[use].text}\n"
    for script in (Script.parse(text, "train.sh"), Script.parse(text.rstrip())):
        edited = script.with_env("N", "7").text
        call = project.run(edited + "\n")[-1]
        assert call.arguments == USES[use].arguments(7), edited
        assert call.environment["N"] == "7", edited


@pytest.mark.parametrize("use", ["joined", "in front", "array", "not at all"])
@pytest.mark.parametrize("definition", LOST)
def test_what_may_undo_a_setting_is_refused_or_comes_before_it(
    definition: str, use: str, project: RealShell
) -> None:
    script = Script.parse(
        f"{LOST[definition]}\n{USES[use].text}\n",
        "train.sh",
        files=lambda path: "N=2\n" if path == "sets.sh" else None,
    )
    edited = _edited(lambda: script.with_env("N", "1"))
    if edited is None:
        return
    assert use == "not at all"
    call = project.run(edited.text)[-1]
    assert call.environment["N"] == "1", edited.text
    assert call.arguments == USES[use].arguments(1)


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_removed_variable_is_not_seen_and_its_words_get_the_default_or_it_is_refused(
    definition: str, project: RealShell
) -> None:
    for name in _uses(definition):
        script = _script(DEFINITIONS[definition], USES[name])
        edited = _edited(lambda script=script: script.without_env("N"))
        if edited is None:
            assert name != "not at all"
            continue
        call = project.run(edited.text)[-1]
        assert "N" not in call.environment, f"{name}\n{edited.text}"
        assert call.arguments == USES[name].arguments(2), f"{name}\n{edited.text}"


def test_a_removed_variable_of_the_caller_leaves_the_default(project: RealShell) -> None:
    text = "N=${N:-2}\ntorchrun --nproc_per_node=$N train.py\n"
    edited = Script.parse(text, "train.sh", environ={"N": "4"}).without_env("N").text
    call = project.run(f"export N=4\n{edited}")[-1]
    assert call.arguments == ["--nproc_per_node=2", "train.py"]
    assert "N" not in call.environment


@pytest.mark.parametrize("value", ["a b", "it's", "$HOME", "", "*", "x\ny"])
@pytest.mark.parametrize("definition", ["default", "exported", "set if empty", "in a function"])
def test_any_value_of_a_variable_arrives_as_it_is(
    definition: str, value: str, project: RealShell
) -> None:
    script = _script(DEFINITIONS[definition], Use('torchrun train.py --n "$N"', ""))
    edited = _edited(lambda: script.with_env("N", value))
    if edited is None:
        assert value == ""
        return
    call = project.run(edited.text)[-1]
    assert (call.environment["N"], call.arguments[-1]) == (value, value), edited.text


@pytest.mark.parametrize(
    ("text", "name", "why"),
    [
        ("torchrun --nproc_per_node=2 t.py\n", "WORLD_SIZE", "gives its programs its own"),
        ("torchrun --nproc_per_node=2 t.py\n", "PET_NPROC_PER_NODE", "--nproc-per-node is given"),
        ("deepspeed --num_gpus=2 t.py\n", "CUDA_VISIBLE_DEVICES", "--num-gpus gives it"),
        (
            "accelerate launch --num_cpu_threads_per_process 4 t.py\n",
            "OMP_NUM_THREADS",
            "--num-cpu-threads-per-process gives it",
        ),
    ],
)
def test_a_variable_that_the_launcher_replaces_is_refused(text: str, name: str, why: str) -> None:
    with pytest.raises(UserError, match=why) as caught:
        Script.parse(text, "train.sh").with_env(name, "1")
    assert caught.value.where == "train.sh:1"


def test_a_variable_reaches_a_launcher_on_other_hosts(project: RealShell) -> None:
    srun = project.bin / "srun"
    srun.write_text('#!/bin/sh\nshift\nexec env -i PATH="$PATH" RECORD="$RECORD" "$@"\n')
    srun.chmod(0o755)
    text = "export N=2\nsrun --export=NONE torchrun --nproc_per_node=$N train.py\n"
    edited = Script.parse(text, "train.sh").with_env("N", "1")
    call = project.run(edited.text)[-1]
    assert (call.environment["N"], call.arguments) == ("1", ["--nproc_per_node=1", "train.py"])
    assert shlex.split(edited.text.splitlines()[1])[2:4] == ["env", "N=1"]

"""What stands in front of a launcher: where it ends, and what it does to the training."""

import pytest

from infrarsi.errors import UserError
from infrarsi.scripts import Script


@pytest.mark.parametrize(
    ("text", "launcher", "wrappers"),
    [
        ("srun --job-name python -N2 torchrun train.py", "torchrun", ["srun"]),
        ('srun "${SRUN_ARGS[@]}" torchrun train.py', "torchrun", ["srun"]),
        ("docker run $ARGS $IMAGE torchrun train.py", "torchrun", ["docker run"]),
        ("docker --context c run --rm -itd img python train.py", "python", ["docker run"]),
        ('ssh $HOST "cd /w; torchrun train.py"', "torchrun", ["ssh"]),
        ("pdsh -w n[1-2] -S torchrun train.py", "torchrun", ["pdsh"]),
        ("nice -n 5 taskset -c 0-7 chrt -f 1 python train.py", "python",
         ["nice", "taskset", "chrt"]),
        ("sudo -E -u me env -u A B=1 python train.py", "python", ["sudo", "env"]),
        ("mpirun --mca btl tcp -x A=1 -np 2 --tag-output python train.py", "python", ["mpirun"]),
        ("srun bash -c 'exec singularity exec --nv i.sif python train.py'", "python",
         ["srun", "exec", "singularity exec"]),
        ("uv run --with x train.py", "python", ["uv run"]),
        ("srun ./train.py", "python", ["srun"]),
    ],
)  # fmt: skip
def test_the_launcher_is_found_behind_its_wrappers(
    text: str, launcher: str, wrappers: list[str]
) -> None:
    command = Script.parse(text, "t.sh").training_command()
    assert command.launcher == launcher
    assert (command.entry or "").endswith("train.py")
    assert [wrapping.name for wrapping in command.wrappings] == wrappers


@pytest.mark.parametrize(
    ("text", "environment"),
    [
        ("export A=1 B=2\ndocker run -e A -e C=3 --env=D=4 img python t.py",
         {"A": "1", "C": "3", "D": "4"}),
        ("export A=1\napptainer exec --env B=2 i.sif python t.py", {"A": "1", "B": "2"}),
        ("export A=1\nsingularity exec --cleanenv i.sif python t.py", {}),
        ("export A=1\nmpirun -x B=2 -x A python t.py", {"A": "1", "B": "2"}),
        ("export A=1\nsrun --export=NONE python t.py", {}),
        ("export A=1\ndocker run -e B=$A img bash -c 'export C=$B; python t.py'",
         {"B": "1", "C": "1"}),
    ],
)  # fmt: skip
def test_what_arrives_of_the_environment(text: str, environment: dict[str, str]) -> None:
    found = Script.parse(text, "t.sh").training_command().environment
    assert {name: given.value for name, given in found.items()} == environment


@pytest.mark.parametrize(
    ("text", "cwd"),
    [
        ("docker run -v $PWD/a:/w -w /w/b img python t.py", "a/b"),
        ("docker run -v $PWD:/w img python t.py", None),
        ("docker run --mount type=bind,src=$PWD,dst=/w --workdir=/w img python t.py", "."),
        ("srun --container-image=i --container-mounts=$PWD:/w --container-workdir=/w python t.py",
         "."),
        ("srun --container-image=i python t.py", None),
        ("apptainer exec i.sif python t.py", "."),
        ("apptainer exec --contain i.sif python t.py", None),
        ("cd a && srun --chdir=b python t.py", "a/b"),
    ],
)  # fmt: skip
def test_the_folder_is_named_as_the_host_has_it(text: str, cwd: str | None) -> None:
    assert Script.parse(text, "t.sh").training_command().cwd == cwd


def test_a_text_out_of_a_variable_that_others_use_is_not_edited() -> None:
    text = 'A="--lr 1"\nbash -c "torchrun train.py $A"\npython eval.py $A\n'
    with pytest.raises(UserError, match="put together from several places") as caught:
        Script.parse(text, "t.sh").with_flag("--lr", "2")
    assert caught.value.where == "t.sh:2"


def test_scripts_that_a_script_runs_are_listed_with_what_they_get() -> None:
    text = "export A=1 B=$(date)\ncd x\nsrun -N1 bash -x inner.sh 5 $C\n"
    (call,) = Script.parse(text, "t.sh").calls()
    assert (call.path, call.arguments, call.cwd) == ("inner.sh", ("5", None), "x")
    assert {n: a.value for n, a in call.environment.items()} == {"A": "1", "B": None}
    assert [wrapping.name for wrapping in call.wrappings] == ["srun"]

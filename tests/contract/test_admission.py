"""The options that let a run into a container, for each runtime."""

import pytest

from infrarsi.contract.admission import Admission

ADMISSION = Admission(("/run/x",), ("/witness",), {"SOCK": "/run/x/s"}, "/witness/inject")
SHELL = ["sh", "-c", 'PYTHONPATH="/witness/inject${PYTHONPATH:+:$PYTHONPATH}" exec "$@"', "sh"]
DOCKER = ["--volume", "/run/x:/run/x", "--volume", "/witness:/witness:ro", "--env", "SOCK=/run/x/s"]
APPTAINER = ["--bind", "/run/x:/run/x", "--bind", "/witness:/witness:ro", "--env", "SOCK=/run/x/s"]
PYXIS = "/run/x:/run/x,/witness:/witness:ro"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            ["docker", "run", "-it", "--gpus", "all", "-v", "/a:/b", "img", "python", "t.py"],
            ["docker", "run", *DOCKER, "-it", "--gpus", "all", "-v", "/a:/b", "img", *SHELL,
             "python", "t.py"],
        ),
        (
            ["docker", "--context", "c", "container", "run", "img", "bash", "-c", "x"],
            ["docker", "--context", "c", "container", "run", *DOCKER, "img", *SHELL, "bash", "-c",
             "x"],
        ),
        (
            ["podman", "run", "--rm", "img", "torchrun", "t.py"],
            ["podman", "run", *DOCKER, "--rm", "img", *SHELL, "torchrun", "t.py"],
        ),
        (
            ["apptainer", "exec", "--nv", "i.sif", "python", "t.py"],
            ["apptainer", "exec", *APPTAINER, "--nv", "i.sif", *SHELL, "python", "t.py"],
        ),
        (
            ["srun", "-N1", "--container-image=i", "--container-mounts=/a:/b", "python", "t.py"],
            ["srun", "-N1", "--container-image=i", f"--container-mounts=/a:/b,{PYXIS}", *SHELL,
             "python", "t.py"],
        ),
        (
            ["srun", "--container-image", "i", "--container-mounts", "/a", "python", "t.py"],
            ["srun", "--container-image", "i", "--container-mounts", f"/a,{PYXIS}", *SHELL,
             "python", "t.py"],
        ),
        (
            ["srun", "--container-image", "i", "python", "t.py"],
            ["srun", f"--container-mounts={PYXIS}", "--container-image", "i", *SHELL, "python",
             "t.py"],
        ),
    ],
    ids=["docker", "docker with a context", "podman", "apptainer", "pyxis", "pyxis apart",
         "pyxis without mounts"],
)  # fmt: skip
def test_options_are_added_and_the_rest_stays(before: list[str], after: list[str]) -> None:
    assert ADMISSION.admitted(before) == after


def test_enroot_takes_lines_of_fstab() -> None:
    found = ADMISSION.admitted(["enroot", "start", "--rw", "img", "python", "t.py"])
    assert found[:4] == ["enroot", "start", "--mount", "/run/x:/run/x:none:x-create=dir,bind,rw"]
    assert found[-7:] == ["img", *SHELL, "python", "t.py"]


@pytest.mark.parametrize(
    "words",
    [
        ["docker", "build", "-t", "img", "."],
        ["docker", "run", "img"],
        ["docker", "ps"],
        ["srun", "hostname"],
        ["srun", "--container-image=i"],
        ["enroot", "import", "docker://x"],
    ],
    ids=" ".join,
)
def test_what_starts_no_command_in_a_container_is_left_alone(words: list[str]) -> None:
    assert ADMISSION.admitted(words) == words


def test_a_folder_that_no_runtime_can_mount_is_an_error() -> None:
    odd = Admission(("/a:b",), (), {}, "/w")
    with pytest.raises(ValueError, match="'/a:b' has a colon or a comma"):
        odd.admitted(["docker", "run", "img", "python", "t.py"])
    assert odd.admitted(["srun", "hostname"]) == ["srun", "hostname"]


def test_it_survives_json() -> None:
    assert Admission.from_dict(ADMISSION.to_dict()) == ADMISSION

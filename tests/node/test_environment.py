"""The environment of the user's command."""

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from test_patience import REQUEST

from infrarsi.contract import SINKS_TOKEN, ExecutionRequest, NodeInfo, Overlay
from infrarsi.node.environment import (
    command_environment,
    looks_secret,
    own_values,
    without_ray,
)
from infrarsi.node.tree import WorkTree

NODE = NodeInfo("n0", "host", 8, ("2", "3"), "NVIDIA H200")


def made(
    tmp_path: Path,
    base: dict[str, str],
    *,
    request: ExecutionRequest = REQUEST,
    node: NodeInfo = NODE,
) -> dict[str, str]:
    tree = WorkTree(
        tmp_path / "w", tmp_path / "s", "/plain/sinks", str(tmp_path / "cache"), tmp_path / "t", {}
    )
    return command_environment(base, request, tree, node).variables


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "OPENAI_API_KEY",
        "DB_PASSWORD",
        "GITHUB_PAT",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "NPM_CONFIG__AUTH",
        "my_secret",
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "NUM_KEY_VALUE_HEADS",
        "PATH",
        "PWD",
        "KEYBOARD",
        "MONKEY",
        "PAD_TOKEN_ID",
        "TOKENS_PER_BATCH",
        "AUTHOR",
        "COMPATIBLE",
    ],
)
def test_names_of_settings_are_not_taken_for_secrets(name: str) -> None:
    assert not looks_secret(name)


def test_secrets_are_withheld_and_named_unless_the_contract_passes_them(tmp_path: Path) -> None:
    base = {"HF_TOKEN": "hf_0123456789", "WANDB_API_KEY": "w" * 40, "DATA": "/d"}
    request = replace(REQUEST, env_pass=("HF_TOKEN",))
    tree = WorkTree(tmp_path, tmp_path, "/s", str(tmp_path), tmp_path, {})
    environment = command_environment(base, request, tree, NODE)
    assert environment.withheld == ("WANDB_API_KEY",)
    assert environment.variables["HF_TOKEN"] == "hf_0123456789"
    assert environment.variables["DATA"] == "/d"
    assert set(environment.secrets) == {"hf_0123456789", "w" * 40}, "neither may reach the log"


def test_nothing_of_ray_is_left_and_the_users_own_values_are_back() -> None:
    user = {"OMP_NUM_THREADS": "4", "PYTHONPATH": "/lib", "A": "1"}
    worker = {**user, "RAY_JOB_ID": "1", "TUNE_X": "1", "OMP_NUM_THREADS": "1",
              "PYTHONBREAKPOINT": "ray.util.rpdb", "CUDA_VISIBLE_DEVICES": ""}  # fmt: skip
    assert without_ray(worker, own_values(user)) == user
    assert without_ray(worker) == {"A": "1"}


def test_the_overlay_has_the_last_word(tmp_path: Path) -> None:
    overlay = Overlay(
        "true",
        env={"OUT": f"{SINKS_TOKEN}/out", "MASTER_PORT": "1234", "API_KEY": "given"},
        unset_env=("GONE",),
    )
    request = replace(REQUEST, overlay=overlay)
    variables = made(tmp_path, {"GONE": "1", "OUT": "/mine", "API_KEY": "x"}, request=request)
    assert variables["OUT"] == "/plain/sinks/out"
    assert variables["MASTER_PORT"] == "1234"
    assert variables["API_KEY"] == "given"
    assert "GONE" not in variables


def test_the_users_own_programs_are_found_first(tmp_path: Path) -> None:
    path = made(tmp_path, {"PATH": "/usr/bin"})["PATH"]
    assert path.split(os.pathsep) == ["/usr/bin", os.path.dirname(sys.executable)]


def test_a_path_that_has_our_interpreter_stays_as_it_is(tmp_path: Path) -> None:
    own = f"{os.path.dirname(sys.executable)}:/usr/bin"
    assert made(tmp_path, {"PATH": own})["PATH"] == own


@pytest.mark.parametrize(("asked", "shown"), [(0, "2,3"), (1, "2"), (2, "2,3")])
def test_the_placed_gpus_are_shown(tmp_path: Path, asked: int, shown: str) -> None:
    request = replace(REQUEST, gpus_per_node=asked)
    assert made(tmp_path, {}, request=request)["CUDA_VISIBLE_DEVICES"] == shown


def test_the_rendezvous_of_one_node_is_a_free_port_on_this_host(tmp_path: Path) -> None:
    variables = made(tmp_path, {"MASTER_ADDR": "elsewhere"})
    assert variables["MASTER_ADDR"] == variables["PET_MASTER_ADDR"] == "127.0.0.1"
    assert variables["MASTER_PORT"] == variables["PET_MASTER_PORT"]
    assert (variables["PET_NNODES"], variables["PET_NODE_RANK"]) == ("1", "0")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", int(variables["MASTER_PORT"])))


def test_compile_caches_are_shared_on_one_kind_of_device_only(tmp_path: Path) -> None:
    first, second = made(tmp_path, {}), made(tmp_path, {})
    other = made(tmp_path, {}, node=replace(NODE, gpu_name="NVIDIA H100"))
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        assert first[name] == second[name] != other[name]
        assert Path(first[name]).is_dir()

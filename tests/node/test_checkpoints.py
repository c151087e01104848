"""What is read of the files that a run left, and of checkpoints among them."""

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from infrarsi.node.checkpoint_reader import Budget, read, values_of
from infrarsi.node.checkpoints import left_by_run
from infrarsi.node.tree import WorkTree


class Dangerous:
    """Runs a command where it is unpickled by the book."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def budget() -> Budget:
    return Budget(100, 1 << 20)


def state() -> dict[str, Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 12,
        "rng": torch.get_rng_state(),
    }


@pytest.fixture
def tree(tmp_path: Path) -> WorkTree:
    for name in ("work/job", "sinks/out", "scratch/tmp"):
        (tmp_path / name).mkdir(parents=True)
    return WorkTree(
        tmp_path / "work" / "job",
        tmp_path / "sinks",
        str(tmp_path / "sinks"),
        "",
        tmp_path / "scratch" / "tmp",
        {},
    )


def test_keys_shapes_dtypes_and_values_are_read(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "a.pt")
    found = read("torch", str(tmp_path / "a.pt"), budget())
    weight = found["tensors"]["model/weight"]
    assert (weight["shape"], weight["dtype"]) == ([2, 3], "float32")
    assert weight["values"][0] == pytest.approx(float(state()["model"]["weight"].norm()))
    assert found["tensors"]["optimizer/state/0/exp_avg"]["shape"] == [2, 3]
    assert found["tensors"]["rng"]["dtype"] == "uint8"
    assert found["scalars"]["step"] == 12
    assert found["scalars"]["optimizer/param_groups/0/lr"] == 1e-3


def test_a_legacy_file_reads_like_a_zip_file(tmp_path: Path) -> None:
    torch.save(state(), tmp_path / "new.pt")
    torch.save(state(), tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    new, old = (read("torch", str(tmp_path / f"{n}.pt"), budget()) for n in ("new", "old"))
    assert new == old


@pytest.mark.parametrize("is_zip", [True, False], ids=["zip", "legacy"])
def test_nothing_in_a_file_is_executed_and_the_rest_is_read(tmp_path: Path, is_zip: bool) -> None:
    trap = tmp_path / "was run"
    saved = {**state(), "args": argparse.Namespace(lr=0.5), "trap": Dangerous(trap)}
    torch.save(saved, tmp_path / "a.pt", _use_new_zipfile_serialization=is_zip)
    found = read("torch", str(tmp_path / "a.pt"), budget())
    assert not trap.exists()
    assert "model/weight" in found["tensors"]
    assert found["scalars"]["args/lr"] == 0.5


def test_a_projection_tells_tensors_of_one_norm_apart() -> None:
    a = torch.arange(1.0, 9.0)
    assert values_of(a)[0] == pytest.approx(values_of(a.flip(0))[0])
    assert values_of(a)[1] != pytest.approx(values_of(a.flip(0))[1])


def test_beyond_the_budget_only_keys_and_shapes_are_listed(tmp_path: Path) -> None:
    torch.save({f"t{i}": torch.ones(4) for i in range(5)}, tmp_path / "a.pt")
    found = read("torch", str(tmp_path / "a.pt"), Budget(2, 1 << 20))
    assert sum("values" in entry for entry in found["tensors"].values()) == 2
    assert found["partial"].startswith("3 tensors")
    small = read("torch", str(tmp_path / "a.pt"), Budget(100, 20))
    assert sum("values" in entry for entry in small["tensors"].values()) == 1


def test_a_safetensors_file_is_read_without_its_library(tmp_path: Path) -> None:
    import json
    import struct

    header = {
        "__metadata__": {"format": "pt"},
        "w": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "h": {"dtype": "BF16", "shape": [1], "data_offsets": [16, 18]},
    }
    text = json.dumps(header).encode()
    data = struct.pack("<4f", 3.0, 0.0, 0.0, 4.0) + b"\x80\x3f"
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    found = read("safetensors", str(path), budget())["tensors"]
    assert found["w"]["values"][0] == pytest.approx(5.0)
    assert found["h"] == {
        "shape": [1],
        "dtype": "bfloat16",
        "values": [1.0, found["h"]["values"][1]],
    }


def test_a_distributed_checkpoint_is_read_by_its_metadata(tmp_path: Path) -> None:
    import torch.distributed.checkpoint as dcp

    with pytest.warns(UserWarning, match="in a single process"):
        dcp.save({"model": {"w": torch.full((4, 4), 0.5)}}, checkpoint_id=tmp_path / "ck")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, which the reader's process does not raise
        found = read("distributed", str(tmp_path / "ck" / ".metadata"), budget())
    assert "unread" not in found, found
    entry = found["tensors"]["model.w"]
    assert (entry["shape"], entry["dtype"]) == ([4, 4], "float32")
    assert entry["values"][0] == pytest.approx(2.0)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 cut", b"\x80\x02garbage"], ids=["empty", "cut", "garbage"]
)
def test_a_file_that_cannot_be_read_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    assert read("torch", str(tmp_path / "a.pt"), budget())["unread"]


def test_what_a_run_left_is_listed_and_read_by_the_jobs_own_python(tree: WorkTree) -> None:
    torch.save(state(), tree.sinks / "out" / "step_12.pt")
    (tree.sinks / "out" / "config.json").write_text("{}")
    (tree.sinks / "out" / "latest.pt").symlink_to("step_12.pt")
    (tree.folder / "runs").mkdir()
    torch.save({"x": torch.ones(2)}, tree.folder / "runs" / "last.ckpt")
    found = left_by_run(tree, ("runs",), str(Path(sys.executable).parent))
    assert sorted(found) == ["out/config.json", "out/step_12.pt", "path:runs/last.ckpt"]
    assert found["out/config.json"] == {"size": 2, "kind": "file"}
    assert found["out/step_12.pt"]["scalars"]["step"] == 12
    assert found["path:runs/last.ckpt"]["tensors"]["x"]["shape"] == [2]


def test_a_python_without_torch_leaves_it_to_ours_or_says_why(
    tree: WorkTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"x": torch.ones(2)}, tree.sinks / "a.pt")
    (tmp_path / "bin").mkdir()
    broken = tmp_path / "bin" / "python"
    broken.write_text("#!/bin/sh\necho 'No module named torch' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert "tensors" in left_by_run(tree, (), str(tmp_path / "bin"))["a.pt"]
    monkeypatch.setattr(sys, "executable", str(broken))
    assert "No module named torch" in left_by_run(tree, (), str(tmp_path / "bin"))["a.pt"]["unread"]

"""One execution's own copy of the project."""

import json
import os
import tempfile
from pathlib import Path

import pytest

from infrarsi.contract import SINKS_TOKEN, Overlay, SnapshotRef
from infrarsi.errors import UserError
from infrarsi.node.tree import changed, remove_tree, stamps, unpack


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))


@pytest.fixture
def snapshot(tmp_path: Path) -> SnapshotRef:
    tree = tmp_path / "snapshot" / "tree"
    (tree / "conf").mkdir(parents=True)
    (tree / "train.sh").write_text("#!/bin/sh\npython train.py\n")
    (tree / "train.sh").chmod(0o755)
    (tree / "conf" / "a.yaml").write_text("lr: 1\n")
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "train.cpython-311.pyc").write_bytes(b"stale")
    (tree / "latest").symlink_to("conf/a.yaml")
    (tree / "old_out").mkdir()
    (tree / "old_out" / "step1.pt").write_bytes(b"x")
    data = tmp_path / "data folder"
    data.mkdir()
    (data / "big.bin").write_bytes(b"0" * 100)
    (tmp_path / "snapshot" / "links.json").write_text(json.dumps({"data/set": str(data)}))
    return SnapshotRef("digest", str(tmp_path / "snapshot"), "my job")


def test_the_copy_has_the_files_with_their_modes_and_links_and_no_bytecode(
    snapshot: SnapshotRef, tmp_path: Path
) -> None:
    tree = unpack(snapshot, Overlay("true"), tmp_path / "receipt", tmp_path / "cache")
    assert tree.folder == tmp_path / "receipt" / "work" / "my job"
    assert os.access(tree.folder / "train.sh", os.X_OK)
    assert (tree.folder / "data" / "set" / "big.bin").read_bytes() == b"0" * 100
    assert os.readlink(tree.folder / "latest") == "conf/a.yaml"
    assert not (tree.folder / "__pycache__").exists()


def test_the_overlay_writes_removes_and_names_the_sinks(
    snapshot: SnapshotRef, tmp_path: Path
) -> None:
    overlay = Overlay(
        "true",
        files={"train.sh": f"save {SINKS_TOKEN}/out\n", "new/module.py": "x = 1\n"},
        remove=("old_out", "latest", "not there"),
    )
    tree = unpack(snapshot, overlay, tmp_path / "receipt", tmp_path / "cache")
    assert (tree.folder / "train.sh").read_text() == f"save {tree.sinks_text}/out\n"
    assert os.access(tree.folder / "train.sh", os.X_OK), "the mode of a rewritten file is kept"
    assert (tree.folder / "new" / "module.py").read_text() == "x = 1\n"
    assert not (tree.folder / "old_out").exists()
    assert not (tree.folder / "latest").is_symlink()
    assert (tree.folder / "conf" / "a.yaml").exists(), "a removed link keeps its target"
    assert list(tree.sinks.iterdir()) == []
    snapshot_file = Path(snapshot.root) / "tree" / "train.sh"
    assert snapshot_file.read_text() == "#!/bin/sh\npython train.py\n"


@pytest.mark.parametrize("receipt", ["plain", 'it\'s "a" $HOME; é'])
def test_the_text_for_the_sinks_needs_no_quoting(
    snapshot: SnapshotRef, tmp_path: Path, receipt: str
) -> None:
    tree = unpack(snapshot, Overlay("true"), tmp_path / receipt, tmp_path / "cache")
    assert not set(tree.sinks_text) & set(" '\"$;\\é")
    assert Path(tree.sinks_text).resolve() == (tmp_path / receipt / "sinks").resolve()
    nasty = unpack(snapshot, Overlay("true"), tmp_path / "other", tmp_path / f"cache {receipt}")
    assert " " not in nasty.cache_text
    assert Path(nasty.cache_text).resolve() == (tmp_path / f"cache {receipt}").resolve()


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside.py", "conf/../../x", ""])
def test_an_overlay_path_outside_the_project_is_refused(
    snapshot: SnapshotRef, tmp_path: Path, path: str
) -> None:
    with pytest.raises(UserError, match="must lie inside the project"):
        unpack(
            snapshot, Overlay("true", files={path: "x"}), tmp_path / "receipt", tmp_path / "cache"
        )
    assert not (tmp_path / "receipt" / "work").exists(), "nothing is left of a refused copy"


@pytest.mark.parametrize(
    "overlay",
    [
        Overlay("true", files={"data/set/big.bin": "x"}),
        Overlay("true", remove=("data/set/big.bin",)),
    ],
    ids=["write", "remove"],
)
def test_linked_data_cannot_be_changed_through_the_overlay(
    snapshot: SnapshotRef, tmp_path: Path, overlay: Overlay
) -> None:
    with pytest.raises(UserError, match="lies in linked data"):
        unpack(snapshot, overlay, tmp_path / "receipt", tmp_path / "cache")
    assert (tmp_path / "data folder" / "big.bin").read_bytes() == b"0" * 100


def test_removing_the_copy_leaves_linked_data_and_takes_read_only_folders(
    snapshot: SnapshotRef, tmp_path: Path
) -> None:
    tree = unpack(snapshot, Overlay("true"), tmp_path / "receipt", tmp_path / "cache")
    (tree.folder / "conf").chmod(0o500)
    for path in tree.removable:
        remove_tree(path)
    assert list((tmp_path / "receipt").iterdir()) == []
    assert not tree.scratch.exists()
    assert (tmp_path / "data folder" / "big.bin").exists()


def test_any_change_of_linked_data_is_seen(snapshot: SnapshotRef, tmp_path: Path) -> None:
    tree = unpack(snapshot, Overlay("true"), tmp_path / "receipt", tmp_path / "cache")
    before = stamps(tree.links)
    assert changed(before, stamps(tree.links)) == ()
    (tmp_path / "data folder" / "big.bin").write_bytes(b"1" * 100)
    (tmp_path / "data folder" / "cache.idx").write_bytes(b"")
    os.utime(tmp_path / "data folder" / "big.bin", ns=(1, 1))
    assert changed(before, stamps(tree.links)) == ("data/set/big.bin", "data/set/cache.idx")

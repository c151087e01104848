"""The snapshot holds the project once, and the user's folder stays as it was."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nasty_project
import pytest

from infrarsi.contract import Overlay, SnapshotRef
from infrarsi.errors import UserError
from infrarsi.node.tree import remove_tree, unpack
from infrarsi.workspace import Limits, digests, notes, take, tree_digest, verify_unchanged


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "a job's Größe"
    nasty_project.make(root)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "big.txt").write_text("far away")
    (root / "link_out").symlink_to(outside / "big.txt")
    (root / "link_out_relative").symlink_to("../outside")
    return root


@pytest.fixture
def store(project: Path) -> Path:
    return project / ".infrarsi" / "runs" / "one"


def _tree(snapshot: SnapshotRef) -> Path:
    return Path(snapshot.root) / "tree"


def test_files_are_copied_with_content_and_mode(project: Path, store: Path) -> None:
    tree = _tree(take(project, store))
    for name in (*nasty_project.NAMES, "empty.txt", "crlf.py", "no_newline.py", "binary.bin"):
        assert (tree / name).read_bytes() == (project / name).read_bytes()
    assert (tree / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (tree / "read_only.py").stat().st_mode & 0o777 == 0o444
    assert (tree / "empty folder").is_dir()
    assert next(tree.rglob("deep.py")).read_text() == "x = 1\n"


def test_the_users_folder_stays_byte_identical(project: Path, store: Path) -> None:
    before = tree_digest(project)
    snapshot = take(project, store)
    assert tree_digest(project) == before
    assert verify_unchanged(project, snapshot) == ()


@pytest.mark.parametrize("name", ["crlf.py", "huge.bin", "binary.bin"])
def test_the_tree_digest_sees_a_changed_byte(project: Path, name: str) -> None:
    before = tree_digest(project)
    with open(project / name, "r+b") as file:
        file.write(b"Z")
    assert tree_digest(project) != before


def test_caches_version_control_and_own_folder_are_left_out(project: Path, store: Path) -> None:
    tree = _tree(take(project, store))
    for name in (".git", ".infrarsi", "__pycache__"):
        assert not os.path.lexists(tree / name)


def test_sinks_are_left_out(project: Path, store: Path) -> None:
    (project / "out").mkdir()
    (project / "out" / "model.pt").write_text("x")
    (project / "out2").mkdir()
    tree = _tree(take(project, store, sinks=["./out/", "level0/level1"]))
    assert not (tree / "out").exists()
    assert (tree / "out2").is_dir()
    assert (tree / "level0").is_dir()
    assert not (tree / "level0" / "level1").exists()


def test_large_files_are_linked_to_their_absolute_place(project: Path, store: Path) -> None:
    snapshot = take(project, store)
    links = json.loads((Path(snapshot.root) / "links.json").read_text())
    assert links["huge.bin"] == str(project / "huge.bin")
    assert not os.path.lexists(_tree(snapshot) / "huge.bin")


def test_links_inside_stay_relative_and_links_outside_absolute(
    project: Path, store: Path, tmp_path: Path
) -> None:
    snapshot = take(project, store)
    tree = _tree(snapshot)
    links = json.loads((Path(snapshot.root) / "links.json").read_text())
    assert os.readlink(tree / "link_in") == "crlf.py"
    assert os.readlink(tree / "level0" / "link_up") == "../empty.txt"
    assert os.readlink(tree / "link_absolute") == "binary.bin"
    assert os.readlink(tree / "link_broken") == "nowhere/at all"
    assert os.readlink(tree / "link_loop") == "link_loop"
    assert links["link_out"] == str(tmp_path / "outside" / "big.txt")
    assert links["link_out_relative"] == str(tmp_path / "outside")


def test_virtual_environment_is_linked_whole(project: Path, store: Path) -> None:
    tree = _tree(take(project, store))
    assert os.readlink(tree / "venv") == str(project / "venv")


def test_pipes_and_sockets_are_left_out_with_a_note(project: Path, store: Path) -> None:
    nasty_project.make_socket(project)
    snapshot = take(project, store)
    assert not os.path.lexists(_tree(snapshot) / "pipe")
    assert [note.split(":")[0] for note in notes(snapshot)] == ["pipe", "sock"]


def test_data_folder_is_linked_as_a_whole_unless_it_holds_code(tmp_path: Path) -> None:
    root = tmp_path / "job"
    for name in ("data", "datasets"):
        (root / name).mkdir(parents=True)
        (root / name / "part.txt").write_text("x" * 100)
    (root / "datasets" / "reader.py").write_text("x = 1\n")
    snapshot = take(root, tmp_path / "store", limits=Limits(max_folder_bytes=10))
    links = json.loads((Path(snapshot.root) / "links.json").read_text())
    assert links == {"data": str(root / "data")}
    assert (_tree(snapshot) / "datasets" / "part.txt").exists()


def test_data_folder_that_holds_a_sink_is_not_linked(tmp_path: Path) -> None:
    root = tmp_path / "job"
    (root / "data" / "cache").mkdir(parents=True)
    (root / "data" / "part.txt").write_text("x" * 100)
    limits = Limits(max_folder_bytes=10)
    snapshot = take(root, tmp_path / "store", sinks=["data/cache"], limits=limits)
    assert (_tree(snapshot) / "data" / "part.txt").exists()
    assert not (_tree(snapshot) / "data" / "cache").exists()


def test_a_snapshot_is_made_once(project: Path, store: Path) -> None:
    first = take(project, store)
    (project / "crlf.py").write_text("changed")
    assert take(project, store) == first
    assert (_tree(first) / "crlf.py").read_bytes() == b"a = 1\r\nb = 2\r\n"


def test_an_interrupted_snapshot_is_made_anew(project: Path, store: Path) -> None:
    (store / "snapshot.partial" / "tree").mkdir(parents=True)
    (store / "snapshot.partial" / "tree" / "stale").touch()
    assert not (_tree(take(project, store)) / "stale").exists()


def test_digest_depends_on_content_and_mode_alone(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("x")
    (tmp_path / "three" / "a.py").chmod(0o755)
    one, two, three = (take(tmp_path / n, tmp_path / f"s{n}") for n in ("one", "two", "three"))
    assert one.digest == two.digest
    assert one.digest != three.digest
    assert one.name == "one"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda root: (root / "crlf.py").write_bytes(b"a = 1\nb = 2\n"), "crlf.py"),
        (lambda root: (root / "empty.txt").unlink(), "empty.txt"),
        (lambda root: (root / "new.py").touch(), "new.py"),
        (lambda root: (root / "run.sh").chmod(0o644), "run.sh"),
        (lambda root: os.truncate(root / "huge.bin", 40 << 30), "huge.bin"),
        (lambda root: (root / "empty folder").rmdir(), "empty folder"),
    ],
    ids=["content", "gone", "new", "mode", "large file", "folder"],
)
def test_every_change_of_the_users_folder_is_seen(
    project: Path, store: Path, change: object, expected: str
) -> None:
    snapshot = take(project, store)
    assert callable(change)
    change(project)
    assert verify_unchanged(project, snapshot) == (expected,)


def test_digests_name_the_measured_files(project: Path, store: Path) -> None:
    found = digests(take(project, store))
    assert found["empty.txt"].startswith("sha256:e3b0c44298fc1c14")
    assert "huge.bin" not in found


@pytest.mark.parametrize("kind", ["file", "folder", "large file"])
def test_what_is_unreadable_is_named(kind: str) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        root, place = folder / "job", folder / "job" / "secret"
        root.mkdir()
        if kind == "folder":
            place.mkdir()
        else:
            place.write_text("x" * 100)
        place.chmod(0)
        limits = Limits(max_file_bytes=10 if kind == "large file" else 1000)
        with _as_nobody(folder, root), pytest.raises(UserError, match="cannot be read") as caught:
            take(root, folder / "store", limits=limits)
        assert caught.value.where == str(place)
    finally:
        shutil.rmtree(folder)


@contextmanager
def _as_nobody(*folders: Path) -> Iterator[None]:
    """Root reads everything, so give the privileges up for a while."""
    if os.geteuid() != 0:
        yield
        return
    for folder in folders:
        os.chown(folder, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_file_that_vanishes_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read \(No such file") as caught:
        take(tmp_path / "gone", tmp_path / "store")
    assert caught.value.where == str(tmp_path / "gone")


def test_too_much_to_copy_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "job"
    root.mkdir()
    for name in "abc":
        (root / name).write_text("x" * 50)
    with pytest.raises(UserError, match="GiB in small files"):
        take(root, tmp_path / "store", limits=Limits(max_total_bytes=100))
    assert not (tmp_path / "store" / "snapshot").exists()


def test_a_node_can_unpack_it(project: Path, store: Path, tmp_path: Path) -> None:
    snapshot = take(project, store)
    overlay = Overlay("true", remove=("binary.bin",))
    work = unpack(snapshot, overlay, tmp_path / "receipt", tmp_path / "cache")
    assert (work.folder / "huge.bin").stat().st_size == 50 << 30
    assert (work.folder / "link_out").read_text() == "far away"
    assert not (work.folder / "binary.bin").exists()
    (work.folder / "crlf.py").write_text("a trial writes")
    assert verify_unchanged(project, snapshot) == ()
    for path in work.removable:
        remove_tree(path)


def test_the_store_may_lie_anywhere_in_the_project(tmp_path: Path) -> None:
    root = tmp_path / "job"
    root.mkdir()
    (root / "a.py").touch()
    snapshot = take(root, root / "kept" / "store")
    assert sorted(p.name for p in _tree(snapshot).rglob("*")) == ["a.py", "kept"]

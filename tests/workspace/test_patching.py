"""Diffs apply exactly or not at all, as git and patch do on the same input."""

import random
import subprocess
from pathlib import Path

import pytest

from infrarsi.workspace.patching import PatchFailed, apply, make, paths

LINES = ["a\n", "b\n", "\n", "  x\n", "--- a/x\n", "+++ b/x\n", "@@ -1 +1 @@\n", "crlf\r\n", "é\n"]
LINES += ["form\x0cfeed\n", "sep\u2028x\n", "\\ No newline at end of file\n", "tab\t\n", "-\n"]
NAMES = ["m.py", "with space.py", 'quo"te.py', "back\\slash.py", "Größe.py", "-dash.py", "d/e/f.py"]


def _random_text(chance: random.Random) -> str:
    text = "".join(chance.choice(LINES) for _ in range(chance.randint(0, 30)))
    return text[:-1] if text.endswith("\n") and chance.random() < 0.3 else text


def _changed(chance: random.Random, text: str) -> str:
    lines = text.split("\n")
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(lines) + 1)
        kind = chance.random()
        if kind < 0.4:
            lines.insert(at, chance.choice(LINES)[:-1])
        elif lines and kind < 0.8:
            lines.pop(min(at, len(lines) - 1))
        elif lines:
            lines[min(at, len(lines) - 1)] = "changed"
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(300))
def test_what_is_made_applies_to_give_the_new_text(seed: int) -> None:
    chance = random.Random(seed)
    before = {name: _random_text(chance) for name in NAMES}
    after = {name: _changed(chance, text) for name, text in before.items()}
    diff = make(before, after)
    wanted = {name: text for name, text in after.items() if text != before[name]}
    assert apply(diff, before) == wanted if wanted else diff == ""
    back = make(after, before)
    assert not back or apply(back, after) == {name: before[name] for name in wanted}


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("tool", ["git", "patch"])
def test_git_and_patch_read_our_diffs_in_the_same_way(seed: int, tool: str, tmp_path: Path) -> None:
    chance = random.Random(1000 + seed)
    before = {name: _random_text(chance) or "x\n" for name in NAMES}
    after = {name: _changed(chance, text) or "y\n" for name, text in before.items()}
    diff = make(before, after)
    for name, text in before.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    words = ["git", "apply", "--whitespace=nowarn", "-"]
    if tool == "patch":
        words = ["patch", "-p1", "--binary", "--fuzz=0", "-s"]
    subprocess.run(words, cwd=tmp_path, input=diff.encode(), check=True, timeout=20)
    for name, text in after.items():
        assert (tmp_path / name).read_bytes().decode() == text


@pytest.mark.parametrize("seed", range(25))
def test_diffs_made_by_git_apply(seed: int, tmp_path: Path) -> None:
    chance = random.Random(2000 + seed)
    before, after = _random_text(chance) or "x\n", _random_text(chance) or "y\n"
    if before == after:
        after += "z\n"
    for folder, text in (("a", before), ("b", after)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "Größe x.py").write_bytes(text.encode())
    words = ["git", "diff", "--no-index", "--no-prefix", "--text", "a", "b"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False, timeout=20)
    assert apply(done.stdout.decode(), {"Größe x.py": before}) == {"Größe x.py": after}


@pytest.mark.parametrize("seed", range(100))
def test_a_moved_or_altered_context_is_refused(seed: int) -> None:
    chance = random.Random(seed)
    before = "".join(f"line {i}\n" for i in range(20))
    lines = before.split("\n")
    at = chance.randrange(3, 16)
    after = "\n".join([*lines[:at], "new", *lines[at:]])
    diff = make({"m.py": before}, {"m.py": after})
    moved = "first\n" + before
    near = at + chance.choice([-2, -1, 0, 1])
    altered = "\n".join([*lines[:near], lines[near] + " ", *lines[near + 1 :]])
    for text in (moved, altered, before.replace("\n", "\r\n"), before[: at * 7]):
        with pytest.raises(PatchFailed, match=r"m\.py:\d+: expected .* found|lies behind the end"):
            apply(diff, {"m.py": text})


def test_creation_and_deletion_need_leave() -> None:
    created = make({}, {"n.py": "x\n"})
    deleted = make({"n.py": "x\n"}, {})
    with pytest.raises(PatchFailed, match="creates a file"):
        apply(created, {}, editable=["n.py"])
    with pytest.raises(PatchFailed, match="deletes the file"):
        apply(deleted, {"n.py": "x\n"})
    assert apply(created, {}, editable=["n.py"], create=True) == {"n.py": "x\n"}
    assert apply(deleted, {"n.py": "x\n"}, delete=True) == {"n.py": None}
    with pytest.raises(PatchFailed, match="exists already"):
        apply(created, {"n.py": "y\n"}, create=True)


def test_an_empty_file_can_be_filled_and_a_file_emptied() -> None:
    for before, after in (("", "x\ny"), ("x\ny", "")):
        assert apply(make({"m": before}, {"m": after}), {"m": before}) == {"m": after}


def test_creating_an_empty_file_is_no_diff() -> None:
    with pytest.raises(ValueError, match="cannot create or delete the empty file"):
        make({}, {"m": ""})


@pytest.mark.parametrize("path", ["/etc/passwd", "../x.py", "a/../../x.py"])
def test_paths_outside_are_refused(path: str) -> None:
    diff = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n"
    with pytest.raises(PatchFailed, match="leaves the project"):
        apply(diff, {path: "x\n"})


def test_files_that_are_not_editable_are_refused() -> None:
    diff = make({"data.py": "x\n"}, {"data.py": "y\n"})
    with pytest.raises(PatchFailed, match=r"data.py: the file is not editable; .*'model.py'"):
        apply(diff, {"data.py": "x\n"}, editable=["model.py"])


@pytest.mark.parametrize(
    ("diff", "message"),
    [
        ("", "holds no change"),
        ("just text\n", "holds no change"),
        ("@@ -1 +1 @@\n-x\n+y\n", "a hunk before any file"),
        ("--- a/m\n+++ b/m\n", "no hunk for this file"),
        ("--- a/m\n+++ b/n\n@@ -1 +1 @@\n-x\n+y\n", "renames the file"),
        ("--- a/m\n+++ b/m\n@@ -1,2 +1 @@\n-x\n+y\n", "ends inside a hunk"),
        ("--- a/m\n+++ b/m\n@@ -1 +1 @@\n-x\n+y\n+z\n", "belongs to no hunk"),
        ("--- a/m\n+++ b/m\n@@ -1 +2 @@\n-x\n+y\n", "line numbers of the hunk do not agree"),
        ("--- a/m\n+++ b/m\n@@ -x +1 @@\n-x\n+y\n", "is no hunk header"),
        ("--- a/m\n+++ b/m\n@@ -1 +1 @@\n*x\n+y\n", "in a hunk"),
        ("rename from a\nrename to b\n", "is not supported"),
        ("GIT binary patch\n", "is not supported"),
        ("old mode 100644\nnew mode 100755\n", "is not supported"),
        (2 * "--- a/m\n+++ b/m\n@@ -1 +1 @@\n-x\n+y\n", "changes this file twice"),
    ],
)
def test_what_is_no_clean_diff_is_refused(diff: str, message: str) -> None:
    with pytest.raises(PatchFailed, match=message):
        apply(diff, {"m": "x\n"})


def test_equal_files_make_no_diff() -> None:
    assert make({"a": "x"}, {"a": "x"}) == ""
    assert paths(make({"a": "x", "b": "1\n"}, {"a": "x", "b": "2\n"})) == ("b",)

"""Digests of frozen files."""

import os
from pathlib import Path

from infrarsi.node.digests import Digests


def test_a_file_rewritten_under_its_old_time_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "data.py"
    path.write_text("seed = 1\n")
    digests = Digests()
    digest = digests.of(path)
    assert digest is not None
    status = path.stat()
    path.write_text("seed = 2\n")  # the same inode and size
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert digests.differing(tmp_path, {"data.py": digest}) == ("data.py",)


def test_a_file_that_is_not_there_differs(tmp_path: Path) -> None:
    assert Digests().of(tmp_path / "gone") is None
    assert Digests().differing(tmp_path, {"gone": "sha256:0"}) == ("gone",)

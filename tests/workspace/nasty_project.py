"""A project folder with everything that a copy can stumble over."""

import os
import socket
from pathlib import Path

NAMES = ("with space.py", "quo'te\".txt", "Größe.txt", "-dash.txt", "new\nline.txt", ".hidden")


def make(root: Path) -> None:
    """Fill `root`; what it holds is listed in the code below."""
    root.mkdir(parents=True)
    for name in NAMES:
        (root / name).write_text(f"content of {name!r}\n")
    deep = root.joinpath(*[f"level{i}" for i in range(30)])
    deep.mkdir(parents=True)
    (deep / "deep.py").write_text("x = 1\n")
    (root / "empty.txt").touch()
    (root / "empty folder").mkdir()
    (root / "crlf.py").write_bytes(b"a = 1\r\nb = 2\r\n")
    (root / "no_newline.py").write_bytes(b"a = 1\nb = 2")
    (root / "binary.bin").write_bytes(bytes(range(256)))
    (root / "read_only.py").write_text("x = 1\n")
    (root / "read_only.py").chmod(0o444)
    (root / "run.sh").write_text("#!/bin/bash\n")
    (root / "run.sh").chmod(0o755)
    with open(root / "huge.bin", "wb") as file:
        file.truncate(50 << 30)
    (root / "link_in").symlink_to("crlf.py")
    (root / "level0" / "link_up").symlink_to("../empty.txt")
    (root / "link_absolute").symlink_to(root / "binary.bin")
    (root / "link_broken").symlink_to("nowhere/at all")
    (root / "link_loop").symlink_to("link_loop")
    os.mkfifo(root / "pipe")
    for skipped in (".git", ".infrarsi", "__pycache__"):
        (root / skipped).mkdir()
        (root / skipped / "inside").write_text("x")
    (root / "venv").mkdir()
    (root / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")


def make_socket(root: Path) -> None:
    """A listening socket; its path must be short."""
    here = os.getcwd()
    os.chdir(root)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("sock")
    finally:
        os.chdir(here)

"""Files that may start a training: what kind each is, and which there are in a folder."""

import os
from pathlib import Path

from infrarsi.errors import UserError

SHELLS = ("bash", "sh", "dash")
SHELL_SUFFIXES = (".sh", ".bash", ".sbatch", ".slurm")
PYTHON_SUFFIXES = (".py",)
_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\xef\xbb\xbf": "UTF-8"}
_DEPTH = 3  # folders below the target that are looked into
_SKIPPED = ("node_modules", "venv", "env", "site-packages", "__pycache__", "tests", "test")


def shell_text(path: Path) -> str:
    """The script's text; raises UserError for what bash would not run."""
    text = readable_text(path)
    if "\0" in text:
        raise UserError(
            "this is not a text file, so it is no bash script",
            where=str(path),
            fix="name the launch script, or the Python entry",
        )
    ending = text.find("\r\n")
    if ending >= 0:
        raise UserError(
            "its lines end as on Windows (CRLF), so bash takes the ends for parts of the words",
            where=f"{path}:{text.count(chr(10), 0, ending) + 1}",
            fix="convert it (`sed -i 's/\\r$//' FILE`)",
        )
    first = text.partition("\n")[0]
    if first.startswith("#!"):
        words = first[2:].replace("/env -S ", "/env ").split()
        names = [os.path.basename(word) for word in words if not word.startswith("-")]
        names = [name for name in names if name != "env"]
        if names and names[0] not in SHELLS:
            raise UserError(
                f"this is a {names[0]} script; only bash and sh scripts are read",
                where=f"{path}:1",
                fix="name the command that trains with --command",
            )
    elif path.suffix not in SHELL_SUFFIXES:
        raise UserError(
            f"this is no bash script: it ends in {path.suffix or 'nothing'!r} and has no `#!` line",
            where=str(path),
            fix="name the launch script (`train.sh`) or the Python entry (`train.py`)",
        )
    return text


def readable_text(path: Path) -> str:
    """A file's text; bytes that are no text read as NUL.

    Raises UserError for a file that may not be read, or in another encoding than UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"the file cannot be read: {error.strerror}",
            where=str(path),
            fix="give yourself the right to read it, or name another file",
        ) from error
    for mark, name in _MARKS.items():
        if data.startswith(mark):
            raise UserError(
                f"the file begins with a byte order mark ({name}), which bash does not understand",
                where=f"{path}:1",
                fix="save it as UTF-8 without a mark",
            )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in data:
            return "\0"
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"the byte {data[error.start]:#04x} is not UTF-8: the file is in another encoding",
            where=f"{path}:{line}",
            fix="convert it (`iconv -f latin1 -t utf-8`)",
        ) from error


def is_python(path: Path) -> bool:
    """Whether a file is Python by its name or its first line."""
    if path.suffix in PYTHON_SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            first = file.readline(128)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def trains(path: Path) -> bool:
    """Whether a Python file is a program (not only a module) that steps an optimizer."""
    return steps_an_optimizer(path) and "__main__" in path.read_text(encoding="utf-8")


def steps_an_optimizer(path: Path) -> bool:
    """Whether a Python file trains by itself, as a program or as a module."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return "torch" in text and ".backward(" in text


def files(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of a folder and those below it with one of the suffixes."""
    found = []
    for at, folders, names in os.walk(folder):
        depth = len(Path(at).relative_to(folder).parts)
        folders[:] = sorted(
            name
            for name in folders
            if depth < _DEPTH and not name.startswith(".") and name not in _SKIPPED
        )
        found += [Path(at, name) for name in sorted(names) if name.endswith(suffixes)]
    return [path for path in found if path.is_file()]  # no link that leads nowhere


def listing(folder: Path) -> str:
    """What is in a folder, for a message."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    shown = ", ".join(repr(name) for name in names[:12] if not name.startswith("."))
    return shown or "no files"

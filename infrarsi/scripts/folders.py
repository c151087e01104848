"""Paths in a script, and the commands that people write to find their own folder."""

import posixpath
from dataclasses import dataclass

_OPTIONS = ("--", "-f", "-e", "-m", "-P", "-n")


@dataclass(frozen=True)
class Folders:
    """Knows what `pwd` prints in the project's folder: `root`."""

    root: str

    def absolute(self, folder: str) -> str:
        """A folder relative to the project, as `pwd` prints it."""
        return self.root if folder == "." else posixpath.join(self.root, folder)

    def resolve(self, path: str, cwd: str | None) -> str | None:
        """A path as one relative to the project, None if it cannot be known or lies outside."""
        if path == self.root or path.startswith(self.root.rstrip("/") + "/"):
            inside = posixpath.normpath(path[len(self.root) :].lstrip("/") or ".")
        elif posixpath.isabs(path) or cwd is None:
            return None
        else:
            inside = posixpath.normpath(posixpath.join(cwd, path))
        return None if inside == ".." or inside.startswith("../") else inside

    def answer(self, words: list[str], cwd: str | None) -> str | None:
        """What a command prints, for dirname, basename, pwd, realpath, readlink and echo."""
        name, *rest = words
        rest = [word for word in rest if word not in _OPTIONS]
        if name == "pwd":
            return None if cwd is None else self.absolute(cwd)
        if name == "echo":
            return " ".join(rest)
        if name == "dirname" and len(rest) == 1:
            return posixpath.dirname(rest[0].rstrip("/") or "/") or "."
        if name == "basename" and rest:
            base = posixpath.basename(rest[0].rstrip("/"))
            return base.removesuffix(rest[1]) if len(rest) > 1 else base
        if name in ("realpath", "readlink") and len(rest) == 1:
            inside = self.resolve(rest[0], cwd)
            return None if inside is None else self.absolute(inside)
        return None

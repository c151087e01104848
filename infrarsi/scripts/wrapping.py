"""What stands in front of a launcher - srun, docker run, env, ssh - and what it does to it."""

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from infrarsi.contract.wrappers import Option, Wrapped, unwrap
from infrarsi.scripts.atoms import Field
from infrarsi.scripts.model import Mount, Wrapping

SHELLS = ("bash", "sh", "dash", "zsh")
_SHELL_TEXT = re.compile(r"-[a-z]*c")
_CLEANING = ("e", "cleanenv", "C", "containall")
_CONTAINED = ("c", "contain", "C", "containall", "no-mount-cwd")
_FOLDER_OPTIONS = {
    "srun": ("D", "chdir"),
    "env": ("C", "chdir"),
    "mpirun": ("wdir", "wd"),
    "mpiexec": ("wdir", "wd"),
    "uv run": ("directory",),
}
_T = TypeVar("_T")
Resolve = Callable[[str, str | None], str | None]


@dataclass(frozen=True)
class _Runtime:
    """How a container runtime names the options for folder, mounts and environment."""

    folder: tuple[str, ...]
    mounts: tuple[str, ...]
    environment: tuple[str, ...]
    keeps_host: bool = False  # the host's folder and environment are there unless it is told not to


_DOCKER = _Runtime(("w", "workdir"), ("v", "volume"), ("e", "env"))
_APPTAINER = _Runtime(("pwd", "cwd"), ("B", "bind"), ("env",), keeps_host=True)
_RUNTIMES = {
    "srun": _Runtime(("container-workdir",), ("container-mounts",), ()),
    "enroot": _Runtime((), ("m", "mount"), ("e", "env")),
    "apptainer": _APPTAINER,
    "singularity": _APPTAINER,
}


def _runtime(wrapped: Wrapped) -> _Runtime:
    return _RUNTIMES.get(wrapped.wrapper.name.partition(" ")[0], _DOCKER)


@dataclass(frozen=True)
class Chain:
    """The wrappers of a command and the index of what they start; fields are the command's."""

    fields: Sequence[Field]
    wrapped: tuple[Wrapped, ...]
    inner: int

    @classmethod
    def of(cls, fields: Sequence[Field], is_command: Callable[[str], bool]) -> "Chain":
        """The chain that a command begins with; an empty one where it starts nothing else."""
        words = [_known(field) for field in fields]
        wrapped, inner = unwrap(words, lambda word: is_command(word) or _is_shell(word))
        return cls(fields, wrapped, inner)

    def option(self, wrapped: Wrapped, *names: str) -> tuple[Option, str | None] | None:
        """The last option of one of these names, with its value."""
        found = [option for option in wrapped.options if option.name in names]
        return (found[-1], self.value(found[-1])) if found else None

    def value(self, option: Option) -> str | None:
        """An option's value, "" where it has none and None where it cannot be known."""
        if option.joined is not None:
            text = self.fields[option.flag].text
            return None if text is None else option.joined
        texts = [self.fields[index].text for index in option.values]
        return None if None in texts else " ".join(text or "" for text in texts)

    @cached_property
    def remote(self) -> Wrapped | None:
        """The wrapper that runs the command on other hosts, if there is one."""
        return next((w for w in self.wrapped if w.wrapper.kind == "remote"), None)

    @cached_property
    def container(self) -> Wrapped | None:
        """The wrapper that puts the command into a container: of its own, or srun with an image."""
        for wrapped in self.wrapped:
            is_pyxis = wrapped.wrapper.kind == "slurm" and self.option(
                wrapped, "container-image", "container-name"
            )
            if wrapped.wrapper.kind == "container" or is_pyxis:
                return wrapped
        return None

    @property
    def is_eval(self) -> bool:
        """Whether the shell reads the command's words once more."""
        return any(w.wrapper.name == "eval" for w in self.wrapped)

    @cached_property
    def texts(self) -> tuple[Field, ...] | None:
        """The fields whose text a shell reads as a script: of `bash -c`, or of ssh."""
        if self.remote is not None:
            return tuple(self.fields[self.remote.end :]) or None
        if self.is_eval:
            return tuple(self.fields[self.inner :]) or None
        at = self._shell_options()
        return None if at is None else tuple(self.fields[at : at + 1])

    @property
    def text_arguments(self) -> tuple[Field, ...]:
        """What `bash -c TEXT name a b` gives to the text as `$1`, `$2`."""
        at = self._shell_options()
        return () if at is None or self.remote is not None else tuple(self.fields[at + 2 :])

    def _shell_options(self) -> int | None:
        """The index of the text after `bash -c`."""
        fields = self.fields
        if self.inner >= len(fields) or not _is_shell(_known(fields[self.inner]) or ""):
            return None
        at = self.inner + 1
        while at < len(fields) and (word := _known(fields[at]) or "").startswith("-"):
            if _SHELL_TEXT.fullmatch(word):
                return at + 1 if at + 1 < len(fields) else None
            at += 2 if word in ("-o", "-O", "--rcfile") else 1
        return None

    def script_words(self) -> tuple[Field, ...] | None:
        """The script and its arguments of `bash train.sh a b`, None where it is no such command."""
        if self.remote is not None or self.is_eval or self.inner >= len(self.fields):
            return None
        first = _known(self.fields[self.inner]) or ""
        at = self.inner
        if _is_shell(first):
            at += 1
            while at < len(self.fields) and (_known(self.fields[at]) or "").startswith("-"):
                if _SHELL_TEXT.fullmatch(_known(self.fields[at]) or ""):
                    return None
                if self.fields[at].text == "-s":
                    return None
                at += 2 if self.fields[at].text in ("-o", "-O") else 1
        elif not first.endswith((".sh", ".bash", ".slurm", ".sbatch")):
            return None
        return tuple(self.fields[at:]) or None

    def read_arguments(self) -> tuple[Field, ...] | None:
        """The arguments of a shell that reads its script from its input: `bash`, `bash -s a b`."""
        if self.remote is not None or self.is_eval or self.inner >= len(self.fields):
            return None
        words = [_known(field) or "" for field in self.fields[self.inner :]]
        if not _is_shell(words[0]):
            return None
        at = next((i for i, w in enumerate(words) if i and not w.startswith("-")), len(words))
        options = words[1:at]
        if any(_SHELL_TEXT.fullmatch(word) for word in options):
            return None
        return (
            tuple(self.fields[self.inner + at :]) if "-s" in options or at == len(words) else None
        )

    def environment(self, exported: Mapping[str, _T]) -> dict[str, _T | Field]:
        """What of the exported variables reaches the inner command, and what is added on the way.

        A field stands for a word `NAME=value`.
        """
        found: dict[str, _T | Field] = dict(exported)
        for wrapped in self.wrapped:
            before = dict(found)
            if self._drops_all(wrapped):
                found.clear()
            for field in self.fields[wrapped.start + 1 : wrapped.end]:
                name, equals, _ = field.known_prefix.partition("=")
                if wrapped.wrapper.assigns and equals and name.isidentifier():
                    found[name] = field
            for option in wrapped.options:
                self._give(wrapped, option, before, found)
        return found

    def _give(
        self,
        wrapped: Wrapped,
        option: Option,
        before: Mapping[str, _T | Field],
        found: dict[str, _T | Field],
    ) -> None:
        kind, value = wrapped.wrapper.kind, self.value(option) or ""
        if wrapped.wrapper.name == "env" and option.name in ("u", "unset"):
            found.pop(value, None)
        elif kind == "mpi" and option.name == "x" and option.values and "=" in value:
            found[value.partition("=")[0]] = self.fields[option.values[0]]
        elif kind == "container" and option.name in _runtime(wrapped).environment:
            name = value.partition("=")[0]
            if "=" not in value:
                found.update({name: before[name]} if name in before else {})
            elif option.values:
                found[name] = self.fields[option.values[0]]
            else:
                found[name] = _without_flag(self.fields[option.flag])

    def _drops_all(self, wrapped: Wrapped) -> bool:
        name, kind = wrapped.wrapper.name, wrapped.wrapper.kind
        given = {option.name for option in wrapped.options}
        if name == "sudo":
            return not given & {"E", "preserve-env", "EH", "nE"}
        if name == "env":
            return bool(given & {"i", "ignore-environment"}) or any(
                self.fields[i].text == "-" for i in range(wrapped.start + 1, wrapped.end)
            )
        if kind == "slurm":
            export = self.option(wrapped, "export")
            return export is not None and "ALL" not in (export[1] or "ALL")
        if kind == "container" and _runtime(wrapped).keeps_host:
            return bool(given & set(_CLEANING))
        return kind == "container"

    @property
    def spreads(self) -> bool:
        """Whether the command may run on other hosts, where exported variables may not arrive."""
        return any(w.wrapper.kind in ("slurm", "mpi", "remote") for w in self.wrapped)

    def mounts(self) -> tuple[Mount, ...]:
        """The host's folders that a container sees, as far as they can be read."""
        if self.container is None:
            return ()
        found: list[Mount] = []
        for option in self.container.options:
            value = self.value(option)
            if value is None:
                continue
            if option.name in _runtime(self.container).mounts:
                found += [_mount(item) for item in value.split(",") if item]
            elif option.name == "mount":
                found += _by_keys(value)
        return tuple(found)

    def folder(self, cwd: str | None, resolve: Resolve) -> str | None:
        """The folder, as the host has it, that the inner command runs in."""
        for wrapped in self.wrapped:
            names = _FOLDER_OPTIONS.get(wrapped.wrapper.name, ())
            given = self.option(wrapped, *names) if names else None
            if given is not None:
                cwd = None if given[1] is None else resolve(given[1], cwd)
            if wrapped is self.container:
                cwd = self._inside(wrapped, cwd, resolve)
        return cwd

    def _inside(self, wrapped: Wrapped, cwd: str | None, resolve: Resolve) -> str | None:
        runtime = _runtime(wrapped)
        given = self.option(wrapped, *runtime.folder)
        contained = any(option.name in _CONTAINED for option in wrapped.options)
        keeps = runtime.keeps_host and not contained
        if given is None:
            return cwd if keeps else None
        outside = on_host(given[1] or "", self.mounts())
        if outside is None:
            return resolve(given[1] or "", cwd) if keeps else None
        return resolve(outside, cwd)

    def public(self) -> tuple[Wrapping, ...]:
        """The wrappers for those who only read."""
        return tuple(
            Wrapping(
                wrapped.wrapper.name,
                wrapped.wrapper.kind,
                tuple((option.name, self.value(option)) for option in wrapped.options),
                tuple(self.fields[index].text for index in wrapped.operands),
                self.fields[wrapped.start].line,
                is_container=wrapped is self.container,
                word=self.fields[wrapped.start].text,
            )
            for wrapped in self.wrapped
        )


def on_host(path: str, mounts: Sequence[Mount]) -> str | None:
    """Where a container's path lies on the host, None where no mount holds it."""
    fitting = [m for m in mounts if path == m.inside or path.startswith(m.inside.rstrip("/") + "/")]
    if not fitting:
        return None
    mount = max(fitting, key=lambda item: len(item.inside))
    rest = path[len(mount.inside.rstrip("/")) :].lstrip("/")
    return posixpath.join(mount.host, rest) if rest else mount.host


def _mount(item: str) -> Mount:
    """`host:inside:options` of docker, pyxis, enroot and apptainer."""
    parts = item.split(":")
    inside = parts[1] if len(parts) > 1 and parts[1] else parts[0]
    return Mount(parts[0], inside, is_read_only="ro" in parts[2:])


def _by_keys(value: str) -> list[Mount]:
    """`type=bind,source=...,target=...` of docker and apptainer."""
    keys = dict(part.partition("=")[::2] for part in value.split(","))
    host = keys.get("source") or keys.get("src") or ""
    inside = keys.get("target") or keys.get("destination") or keys.get("dst") or ""
    read_only = "readonly" in keys or "ro" in keys
    return [Mount(host, inside, is_read_only=read_only)] if host and inside else []


def _known(field: Field) -> str | None:
    """What is known of a word's beginning, None where nothing is."""
    if field.text is not None:
        return field.text
    return field.known_prefix or None


def _without_flag(field: Field) -> Field:
    """The part behind `--env=` of a joined option."""
    at = field.known_prefix.index("=") + 1
    if field.known_prefix.startswith("-e") and not field.known_prefix.startswith("--"):
        at = 2
    return Field(field.atoms[at:], field.line)


def _is_shell(word: str) -> bool:
    return posixpath.basename(word) in SHELLS

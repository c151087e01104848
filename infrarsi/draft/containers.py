"""Whether a run of ours reaches a training that starts in a container or on other hosts."""

import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from infrarsi.contract.admission import ADMITTED
from infrarsi.errors import UserError
from infrarsi.scripts import Mount, Script, TrainingCommand, Wrapping


class Reached(Protocol):
    """What has to be known of a launch (`draft.target.Target`)."""

    @property
    def where(self) -> str:
        """The script's name."""

    @property
    def root(self) -> Path:
        """The project's folder."""

    @property
    def script(self) -> Script:
        """The text that mounts stand in."""

    @property
    def training(self) -> TrainingCommand:
        """What is started."""


def insist_on_reach(target: Reached) -> list[str]:
    """Notes on the container that the training runs in, none without one.

    Raises UserError where the command runs on other hosts, or in a container into which neither
    the run's copy of the project nor the witness can be mounted.
    """
    error = unreachable(target.training, target.where)
    if error is not None:
        raise error
    container = target.training.container
    if container is None:
        return []
    place = f"{target.where}:{container.line}"
    _insist_on_own_word(target, container, place)
    for mount in target.training.mounts:
        _insist_on_copy(target, mount, place)
    image = container.option("container-image") or next(iter(container.operands), None)
    return [
        f"{place}: the training runs in a container ({container.name}, {image or 'image unknown'})"
        "; the run's sinks and the witness are mounted into it"
    ]


def unreachable(training: TrainingCommand, where: str) -> UserError | None:
    """Why no run can reach what the command starts: other hosts, or a container that is there."""
    for wrapping in training.wrappings:
        if wrapping.kind == "remote":
            return UserError(
                f"`{wrapping.name}` starts the training on other hosts ({_hosts(wrapping)}), where "
                "neither the run's own copy of the project nor the witness is",
                where=f"{where}:{wrapping.line}",
                fix="give the command that one node runs with --command, and `launch.nodes` in "
                "infrarsi.yaml: InfraRSI places the nodes itself",
            )
    container = training.container
    if container is not None and container.name not in ADMITTED:
        return UserError(
            f"`{container.name}` enters a container that is there already, so nothing can be "
            "mounted into it",
            where=f"{where}:{container.line}",
            fix=f"start a new one by {', '.join(f'`{name}`' for name in sorted(ADMITTED))}",
        )
    return None


def _insist_on_own_word(target: Reached, container: Wrapping, place: str) -> None:
    """The mounts are added by a stand-in on the search path, which such a command goes around."""
    before = [w for w in target.training.wrappings if w.line == container.line]
    is_sudo = any(w.name == "sudo" for w in before[: before.index(container)])
    if is_sudo or posixpath.dirname(container.word or ""):
        written = f"sudo {container.name}" if is_sudo else str(container.word)
        raise UserError(
            f"`{written}` is not looked up in PATH, so the run's sinks and the witness cannot be "
            "mounted into the container",
            where=place,
            fix=f"write `{container.name}`, without `sudo` and without a path",
        )


def _insist_on_copy(target: Reached, mount: Mount, place: str) -> None:
    """A run has its own copy of the project; the user's own folder must not be trained instead."""
    root = str(target.root)
    if not posixpath.isabs(mount.host) or not any(
        mount.host == above for above in _with_parents(target.root)
    ):
        return
    if not _is_written_out(target, mount):
        return
    raise UserError(
        f"the container mounts {mount.host!r}, which is fixed; a run has a copy of {root!r} "
        "elsewhere, and would train the original",
        where=place,
        fix='mount "$PWD" (or a path made from it) instead',
    )


def _is_written_out(target: Reached, mount: Mount) -> bool:
    """Whether the path stands in the script as it is, and is not made from `$PWD` or `pwd`."""
    return mount.host in target.script.text


def _with_parents(folder: Path) -> Iterator[str]:
    yield str(folder)
    yield from (str(parent) for parent in folder.parents)


def _hosts(wrapping: Wrapping) -> str:
    named = next(iter(wrapping.operands), None) or wrapping.option("w", "host", "hosts")
    return named or "named at run time"

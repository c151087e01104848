"""How a container runtime is told to let a run's folders and variables in.

The witness needs its folder, the folder of its socket, PYTHONPATH and the socket's variable; the
run needs its sinks. Each runtime has options for this; for pyxis they are srun's. PYTHONPATH is put
in front of what the image has by a shell before the command: its value is not known outside.
"""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from infrarsi.contract.wrappers import Wrapped, unwrap

_RUN = ("docker run", "podman run", "nvidia-docker run", "nerdctl run")
_APPTAINER = ("apptainer exec", "singularity exec")
ADMITTED = frozenset((*_RUN, *_APPTAINER, "enroot start", "srun"))
"""The commands that take such options."""

COMMANDS = tuple(sorted({name.partition(" ")[0] for name in ADMITTED}))
"""Their first words."""


@dataclass(frozen=True)
class Admission:
    """What must be seen inside: folders at their own paths, variables, and a PYTHONPATH in front.

    `read_only` are folders that need not be written to.
    """

    folders: tuple[str, ...]
    read_only: tuple[str, ...]
    variables: Mapping[str, str]
    python_path: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Admission":
        """Back from `to_dict`."""
        return cls(
            tuple(data["folders"]),
            tuple(data["read_only"]),
            dict(data["variables"]),
            str(data["python_path"]),
        )

    def admitted(self, words: Sequence[str]) -> list[str]:
        """A command with the options added; unchanged where it starts no container.

        `words` begins with the runtime's name. The inner command gets the PYTHONPATH by `sh -c`, so
        the image must have a shell. Raises ValueError for a folder that cannot be mounted.
        """
        chain, _ = unwrap(words, _is_inner)
        if not chain:
            return list(words)
        first = chain[0]
        if first.wrapper.name == "srun":
            return self._pyxis(list(words), first)
        if first.wrapper.name not in ADMITTED or first.end >= len(words):
            return list(words)
        self._insist_on_mountable()
        at = _after_name(words, first)
        return [
            *words[:at],
            *self._options(first),
            *words[at : first.end],
            *self._shell(),
            *words[first.end :],
        ]

    def _insist_on_mountable(self) -> None:
        """A colon or a comma ends a path in the options of every runtime."""
        for folder in (*self.folders, *self.read_only):
            if ":" in folder or "," in folder:
                raise ValueError(
                    f"{folder!r} has a colon or a comma and cannot be mounted into a container"
                )

    def _options(self, wrapped: Wrapped) -> list[str]:
        name = wrapped.wrapper.name
        mounts = [(folder, "") for folder in self.folders]
        mounts += [(folder, ":ro") for folder in self.read_only]
        pairs = [f"{key}={value}" for key, value in self.variables.items()]
        if name in _APPTAINER:
            binds = [word for f, mode in mounts for word in ("--bind", f"{f}:{f}{mode}")]
            return [*binds, *(word for pair in pairs for word in ("--env", pair))]
        if name == "enroot start":
            binds = [word for f, mode in mounts for word in ("--mount", _of_enroot(f, mode))]
            return [*binds, *(word for pair in pairs for word in ("--env", pair))]
        binds = [word for f, mode in mounts for word in ("--volume", f"{f}:{f}{mode}")]
        return [*binds, *(word for pair in pairs for word in ("--env", pair))]

    def _shell(self) -> list[str]:
        path = f'PYTHONPATH="{self.python_path}${{PYTHONPATH:+:$PYTHONPATH}}"'
        return ["sh", "-c", f'{path} exec "$@"', "sh"]

    def _pyxis(self, words: list[str], srun: Wrapped) -> list[str]:
        """srun's own options are kept; its mounts are one option, so ours are added to its value.

        Variables are passed by srun itself.
        """
        names = {option.name for option in srun.options}
        if not names & {"container-image", "container-name"} or srun.end >= len(words):
            return words
        self._insist_on_mountable()
        mounts = [f"{folder}:{folder}" for folder in self.folders]
        mounts += [f"{folder}:{folder}:ro" for folder in self.read_only]
        ours = ",".join(mounts)
        found = list(words[: srun.end])
        given = next((o for o in srun.options if o.name == "container-mounts"), None)
        if given is None:
            found[1:1] = [f"--container-mounts={ours}"]
        elif given.joined is not None:
            found[given.flag] = f"--container-mounts={given.joined},{ours}"
        else:
            found[given.values[0]] = f"{found[given.values[0]]},{ours}"
        return [*found, *self._shell(), *words[srun.end :]]


def _is_inner(word: str) -> bool:
    """A word that can only be the command in the container, and no value of an option."""
    base = posixpath.basename(word)
    return base in ("torchrun", "accelerate", "deepspeed", "bash", "sh") or base.startswith(
        "python"
    )


def _after_name(words: Sequence[str], wrapped: Wrapped) -> int:
    """The index after `run`, `exec` or `start`, which may have options of the runtime before it."""
    last = wrapped.wrapper.name.rpartition(" ")[2]
    at = wrapped.start + 1
    while posixpath.basename(words[at]) != last:
        at += 1
    return at + 1


def _of_enroot(folder: str, mode: str) -> str:
    """An entry of enroot's mount option, in the form of fstab."""
    options = "x-create=dir,bind" + (",ro" if mode else ",rw")
    return f"{folder}:{folder}:none:{options}"

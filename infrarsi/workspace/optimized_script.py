"""`infrarsi_optimized.sh`: the launch script with the settings put in, to be run by itself."""

import posixpath
import re
import shlex
from dataclasses import dataclass

from infrarsi.workspace.launch_text import LaunchText, calls, leading_variables, script_arguments

NAME = "infrarsi_optimized.sh"
_MARK = "# Written by InfraRSI"
_HEADER_BYTES = 4000  # a batch script's request stands above the mark
_REQUEST = re.compile(r"#(SBATCH|PBS|BSUB|FLUX)\b")
_SHEBANG = "#!/usr/bin/env bash"


@dataclass(frozen=True)
class Facts:
    """What its header says: `patched` files, and the patch file if they do not carry it yet."""

    command: str
    run_id: str
    settings: str
    patched: tuple[str, ...]
    patch_file: str | None


def place(script_path: str | None) -> str:
    """Where it goes: beside the launch script, or into the project's folder."""
    return posixpath.join(posixpath.dirname(script_path or ""), NAME)


def is_ours(content: bytes) -> bool:
    """Whether a file of that name was written by an earlier run."""
    return _MARK.encode() in content[:_HEADER_BYTES]


def render(facts: Facts, launch: LaunchText) -> str:
    """Its text: the header, then the script as it is apart from the settings."""
    if launch.path is None:
        body = (
            'cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1\n\n' + launch.command.rstrip("\n") + "\n"
        )
        return f"{_SHEBANG}\n{_header(facts, launch)}\n{body}"
    text = launch.script.text
    shebang, rest = _SHEBANG, text
    if text.startswith("#!"):
        shebang, _, rest = text.partition("\n")
    given = _given(facts, launch.path)
    request, rest = _request(rest)
    return f"{shebang}\n{request}{_header(facts, launch)}{given}\n{rest}"


def _request(text: str) -> tuple[str, str]:
    """The lines of a batch script that its scheduler reads, and what follows.

    A scheduler stops at the first command, so they must stay above everything that is added.
    """
    lines = text.splitlines(keepends=True)
    first = next(
        (i for i, s in enumerate(lines) if s.strip() and not s.startswith("#")), len(lines)
    )
    last = max((i + 1 for i, s in enumerate(lines[:first]) if _REQUEST.match(s)), default=0)
    return "".join(lines[:last]), "".join(lines[last:])


def _header(facts: Facts, launch: LaunchText) -> str:
    origin = launch.path or "the job's command"
    run = f" by run {facts.run_id}" if facts.run_id else ""
    lines = [
        f"{_MARK}, which it does not need: {origin} with settings found and verified{run}.",
        f"# Instead of: {_one_line(facts.command)}",
        f"# Change: {_one_line(facts.settings)}",
    ]
    if launch.path is not None and not calls(facts.command, launch.path):
        lines.append(f"# It takes the place of {launch.path}, which that command leads to.")
    elif launch.path is not None:
        own = facts.command.replace(launch.path, place(launch.path))
        lines.append(f"# Run it in the project's folder: {_one_line(own)}")
    if facts.patched:
        names = ", ".join(facts.patched)
        if facts.patch_file is None:
            lines.append(f"# It needs the change that `infrarsi apply` made to: {names}")
        else:
            lines.append(f"# It needs a change to {names} that is NOT applied yet; apply it by")
            lines.append(f"#   patch -p1 < {facts.patch_file}")
    return "\n".join(lines) + "\n"


def _given(facts: Facts, path: str) -> str:
    """What the command gives to the script beside its name, as defaults."""
    lines = []
    for name, value in leading_variables(facts.command, path).items():
        lines.append(f'[ -n "${{{name}+set}}" ] || export {name}={shlex.quote(value)}\n')
    arguments = script_arguments(facts.command, path)
    if arguments:
        lines.append(f'[ "$#" -gt 0 ] || set -- {shlex.join(arguments)}\n')
    return "".join(lines)


def _one_line(text: str) -> str:
    return " ".join(text.split())

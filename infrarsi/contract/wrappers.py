"""Commands that start another command: where it begins, and what their options are.

Only the shape of their command lines is kept here: which options stand alone, which words follow
before the inner command. Sources: `srun --help` of Slurm 24.05 with pyxis 0.20, `docker run --help`
27, `podman-run(1)` 5, `enroot start --help` 3.5, `apptainer exec --help` 1.3, mpirun(1) of
Open MPI 4 and 5, Hydra's mpiexec, ssh(1), pdsh(1), clush(1), coreutils and util-linux.
"""

import posixpath
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["plain", "environment", "slurm", "mpi", "container", "remote"]


@dataclass(frozen=True)
class Wrapper:
    """One such command. `bare` options take no value, those in `pairs` two, all others one.

    `valued` are options whose value may look like a launcher (`--job-name python`). `operands`
    words stand between the options and the inner command (an image, a host). `assigns`: words
    `NAME=value` may stand there. `joins`: what follows is joined to one text for a shell.
    """

    name: str
    kind: Kind = "plain"
    bare: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    joins: bool = False


@dataclass(frozen=True)
class Option:
    """One option among the words: its name without dashes, and the indices of flag and values."""

    name: str
    flag: int
    values: tuple[int, ...]
    joined: str | None = None  # the value that stands in the same word


@dataclass(frozen=True)
class Wrapped:
    """A wrapper among the words of a command: it begins at `start`, the inner one at `end`."""

    wrapper: Wrapper
    start: int
    end: int
    options: tuple[Option, ...]
    operands: tuple[int, ...]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SRUN = Wrapper(
    "srun",
    "slurm",
    bare=_words(
        "E preserve-env H hold I immediate k no-kill K kill-on-bad-exit l label O overcommit "
        "Q quiet s oversubscribe u unbuffered v verbose vv vvv X disable-status Z no-allocate "
        "exclusive overlap exact whole pty contiguous spread-job multi-prog test-only "
        "use-min-nodes reboot no-container-mount-home container-mount-home container-remap-root "
        "no-container-remap-root container-writable container-readonly container-entrypoint "
        "no-container-entrypoint no-container-entrypoint-log container-entrypoint-log h help V"
    ),
    valued=_words("J job-name comment container-name A account p partition q qos"),
)
_MPI_BARE = (
    "allow-run-as-root oversubscribe nooversubscribe report-bindings display-map tag-output "
    "timestamp-output bind-to-core bind-to-socket bind-to-none bycore bynode byslot bysocket "
    "nolocal use-hwthread-cpus do-not-launch v verbose q quiet V d debug-daemons "
    "display-allocation genvall envall envnone genvnone l prepend-rank enable-recovery "
    "continuous merge-stderr-to-stdout show-progress"
)
_DOCKER_BARE = (
    "rm i t it ti d di dit itd interactive tty detach privileged init read-only no-healthcheck P "
    "publish-all oom-kill-disable sig-proxy disable-content-trust q quiet replace rmi no-hosts "
    "env-host http-proxy rootfs tls-verify no-hostname use-api-socket"
)
_APPTAINER_BARE = (
    "nv nvccli rocm e cleanenv c contain C containall i ipc p pid n net u userns uts f fakeroot w "
    "writable writable-tmpfs no-home no-init no-umask no-eval no-privs keep-privs allow-setuid "
    "compat unsquash sharens no-https nohttps disable-cache dmtcp-launch no-tmp-sandbox "
    "underlay no-mount-cwd"
)
_SSH_BARE = "4 6 A a C f G g K k M N n q s T t tt V v vv vvv X x Y y"

_SINGLE = {
    wrapper.name: wrapper
    for wrapper in (
        _SRUN,
        *(
            Wrapper(
                name,
                "mpi",
                bare=_words(_MPI_BARE),
                pairs=_words("mca gmca genv env pmca prtemca"),
            )
            for name in ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "horovodrun")
        ),
        Wrapper("ssh", "remote", bare=_words(_SSH_BARE), operands=1, joins=True),
        Wrapper("pdsh", "remote", bare=_words("S N b d a A i k v q"), joins=True),
        Wrapper("clush", "remote", bare=_words("a b B L q v d N n r S"), joins=True),
        Wrapper(
            "env",
            "environment",
            bare=_words("i ignore-environment 0 null v debug"),
            valued=_words("u unset C chdir"),
            assigns=True,
        ),
        Wrapper(
            "sudo",
            "environment",
            bare=_words("E preserve-env H n S k K b A i login set-home non-interactive EH nE"),
            assigns=True,
        ),
        Wrapper("timeout", bare=_words("foreground preserve-status v verbose f p"), operands=1),
        Wrapper("taskset", bare=_words("a all-tasks c cpu-list p pid ac"), operands=1),
        Wrapper("chrt", bare=_words("a b d f i m o r R v fifo rr batch other idle"), operands=1),
        Wrapper("numactl", bare=_words("l localalloc s show H hardware a all")),
        Wrapper("nice"),
        Wrapper("ionice", bare=_words("t ignore")),
        Wrapper("time", bare=_words("p v a q verbose portability append quiet"), assigns=True),
        Wrapper("exec", bare=_words("c l cl")),
        Wrapper("xvfb-run", bare=_words("a auto-servernum l listen-tcp")),
        Wrapper("unbuffer", bare=_words("p")),
        Wrapper("setsid", bare=_words("c ctty f fork w wait")),
        Wrapper("ncu", bare=_words("f force-overwrite h help v version csv mps nvtx")),
        *(Wrapper(name) for name in ("nohup", "command", "eval", "stdbuf")),
    )
}
_CONDA = _words(
    "no-capture-output live-stream v verbose dev debug-wrapper-scripts clean-env frozen locked "
    "as-is no-install skip-deps q quiet"
)
_UV = _words(
    "no-sync frozen locked active isolated q quiet v verbose all-extras no-project all-groups "
    "no-dev dev exact no-config no-cache offline no-env-file s script no-editable"
)
_DOUBLE = {
    wrapper.name: wrapper
    for wrapper in (
        *(
            Wrapper(f"{name} {command}", "container", bare=_words(_DOCKER_BARE), operands=1)
            for name in ("docker", "podman", "nvidia-docker", "nerdctl")
            for command in ("run", "exec")
        ),
        *(
            Wrapper(f"{name} exec", "container", bare=_words(_APPTAINER_BARE), operands=1)
            for name in ("apptainer", "singularity")
        ),
        Wrapper("enroot start", "container", bare=_words("w rw r root"), operands=1),
        *(
            Wrapper(f"{name} run", bare=_CONDA)
            for name in (
                "conda",
                "mamba",
                "micromamba",
                "poetry",
                "pipenv",
                "pdm",
                "hatch",
                "rye",
                "pixi",
            )
        ),
        Wrapper("uv run", bare=_UV),
        *(Wrapper(f"nsys {command}") for command in ("profile", "launch")),
    )
}
_GLOBAL_VALUED = ("H", "host", "context", "config", "l", "log-level", "directory", "project")
_FIRST = {name.partition(" ")[0] for name in _DOUBLE}
NAMES = frozenset(_SINGLE) | _FIRST
"""The first words of all of them."""


def unwrap(
    words: Sequence[str | None], is_command: Callable[[str], bool]
) -> tuple[tuple[Wrapped, ...], int]:
    """The wrappers that a command begins with, and the index of what they start in the end.

    A word of `words` is what is known of its beginning, None where nothing is. `is_command` tells
    a word that can only be the inner command. The index is `len(words)` if nothing is started.
    """
    found: list[Wrapped] = []
    at = 0
    while at < len(words) and (known := _wrapper_at(words, at)) is not None:
        wrapper, after = known
        wrapped = _parsed(wrapper, words, at, after, is_command)
        found.append(wrapped)
        at = wrapped.end
        if wrapper.joins:
            break
    return tuple(found), at


def _wrapper_at(words: Sequence[str | None], at: int) -> tuple[Wrapper, int] | None:
    """The wrapper that begins at a word, and the index of the word after its name."""
    base = posixpath.basename(words[at] or "")
    if base in _SINGLE:
        return _SINGLE[base], at + 1
    if base not in _FIRST:
        return None
    after = at + 1
    while after < len(words):
        word = words[after] or ""
        if f"{base} {word}" in _DOUBLE:
            return _DOUBLE[f"{base} {word}"], after + 1
        if not word.startswith("-"):
            if base in ("docker", "podman") and word == "container":
                after += 1
                continue
            return None
        after += 2 if word.lstrip("-") in _GLOBAL_VALUED else 1
    return None


def _parsed(
    wrapper: Wrapper,
    words: Sequence[str | None],
    start: int,
    at: int,
    is_command: Callable[[str], bool],
) -> Wrapped:
    options: list[Option] = []
    operands: list[int] = []
    while at < len(words):
        word = words[at]
        if word == "--":
            at += 1
            break
        if word is None:
            if not _may_be_options(wrapper, words, at, is_command):
                break
            at += 1
        elif word.startswith("-") and len(word) > 1:
            option = _option(wrapper, words, at, is_command)
            options.append(option)
            at = max((option.flag, *option.values)) + 1
        elif wrapper.assigns and word.partition("=")[0].isidentifier() and "=" in word:
            at += 1
        else:
            break
    if wrapper.operands == 1 and at < len(words):
        operands.append(at)
        at += 1
    return Wrapped(wrapper, start, at, tuple(options), tuple(operands))


def _may_be_options(
    wrapper: Wrapper, words: Sequence[str | None], at: int, is_command: Callable[[str], bool]
) -> bool:
    """Whether an unknown word stands for options: what it would be otherwise comes later."""
    if wrapper.joins:
        return False
    following = words[at + 1] if at + 1 < len(words) else None
    if wrapper.operands:
        return following is None or not _starts(following, is_command)
    return any(word is not None and _starts(word, is_command) for word in words[at + 1 :])


def _starts(word: str, is_command: Callable[[str], bool]) -> bool:
    return is_command(word) or posixpath.basename(word) in NAMES


def _option(
    wrapper: Wrapper, words: Sequence[str | None], at: int, is_command: Callable[[str], bool]
) -> Option:
    word = words[at] or ""
    name, equals, value = word.lstrip("-").partition("=")
    if equals:
        return Option(name, at, (), value)
    if name in wrapper.pairs:
        return Option(name, at, tuple(range(at + 1, min(at + 3, len(words)))))
    if name in wrapper.bare or name.isdigit():
        return Option(name, at, ())
    if not word.startswith("--") and len(name) > 1 and wrapper.kind != "mpi":
        if set(name) <= wrapper.bare:  # several letters in one word
            return Option(name, at, ())
        return Option(name[0], at, (), name[1:])
    following = words[at + 1] if at + 1 < len(words) else None
    if following is None and at + 1 >= len(words):
        return Option(name, at, ())
    if following is not None and name not in wrapper.valued and _starts(following, is_command):
        return Option(name, at, ())  # an option that is not listed here and stands alone
    return Option(name, at, (at + 1,))

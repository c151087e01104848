"""A manifest's command with the folders of its image replaced by those of this machine."""

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from infrarsi.draft.manifests import Count, Manifest
from infrarsi.errors import UserError
from infrarsi.scripts import Script, TrainingCommand

_ABSOLUTE = re.compile(r"(?<![\w.$}/-])(/[\w.-]+(?:/[\w.-]+)*)")
_RAY_TRAIN = re.compile(r"\s*(from|import)\s+ray\.train\b")
_SYSTEM = ("/bin", "/usr", "/opt/conda", "/dev", "/proc", "/etc", "/tmp", "/root/.cache")


@dataclass(frozen=True)
class Local:
    """What one node runs in a folder of this machine."""

    command: str
    nodes: Count
    gpus: Count | None
    notes: tuple[str, ...]


def localized(manifest: Manifest, folder: Path, environ: Mapping[str, str]) -> Local | None:
    """The command as it runs in `folder`; None where its program is not there.

    The image's folder that holds the program is taken for `folder`, and said to be. Where that
    changes anything else than the folder, this raises UserError.
    """
    text, notes = _text(manifest), list(manifest.notes)
    for place in _folders(manifest, text):
        inside = place or manifest.folder or "/"
        script = Script.parse(_at(text, manifest.folder, place), environ=environ, root=inside)
        training = _training(script)
        if training is None or not _is_here(training, folder):
            continue
        command = _at(text, manifest.folder, place)
        if place:
            command = _moved(command, place)
            again = _training(Script.parse(command, environ=environ, root=str(folder)))
            if again is None or (again.script, again.cwd) != (training.script, training.cwd):
                raise UserError(
                    f"the folder {place!r} of the image cannot be replaced in this command",
                    where=manifest.place,
                    fix="give the command that one node runs with --command",
                )
            notes.append(f"{manifest.place}: {place!r} of the image is taken to be {folder.name!r}")
        else:
            notes.append(
                f"{manifest.place}: the image's own working folder is taken to be {folder.name!r}"
            )
        _insist_on_own_ranks(manifest, training, folder)
        _say_paths(command, manifest, notes)
        _say_ranks(manifest, training, notes)
        return Local(
            _exports(manifest.variables) + command, manifest.nodes, manifest.gpus, tuple(notes)
        )
    return None


def nothing_here(path: Path) -> UserError:
    """What to say where no folder holds the program of a manifest."""
    return UserError(
        "the program that this manifest starts is not in its folder, nor in one above it",
        where=str(path),
        fix="put the manifest into the job's repository, or give the command with --command",
    )


def _text(manifest: Manifest) -> str:
    """What the container's shell runs; a script out of a ConfigMap stands for itself."""
    words = manifest.words
    at = 1 if words and posixpath.basename(words[0]) in ("bash", "sh") else 0
    script = manifest.scripts.get(words[at]) if at < len(words) else None
    if script is None:
        return manifest.text
    given = f"set -- {shlex.join(words[at + 1 :])}\n" if words[at + 1 :] else ""
    return given + script.strip()


def _folders(manifest: Manifest, text: str) -> Iterator[str]:
    """The image's folders that may be the project, the deepest first; "" for an unnamed one."""
    found: set[str] = set()
    named = [*_ABSOLUTE.findall(text), *([manifest.folder] if manifest.folder else [])]
    for path in named:
        while path != "/" and not path.startswith(_SYSTEM):
            found.add(path)
            path = posixpath.dirname(path)
    yield from sorted(found, key=lambda path: (-path.count("/"), path))
    if manifest.folder is None:
        yield ""


def _at(text: str, folder: str | None, place: str) -> str:
    """The text in the pod's working folder, as seen from `place`."""
    if folder is None or not place or folder == place:
        return text
    if not folder.startswith(place + "/"):
        return f"cd {shlex.quote(folder)} && {text}"
    return f"cd {shlex.quote(folder[len(place) + 1 :])} && {text}"


def _training(script: Script) -> TrainingCommand | None:
    try:
        return script.training_command()
    except UserError:
        return None


def _is_here(training: TrainingCommand, folder: Path) -> bool:
    """Whether the program, or a part of its module's name, is in the folder."""
    if training.cwd is None or training.script is None:
        return False
    if (folder / training.script).is_file():
        return True
    package = (folder / training.script).with_suffix("") / "__main__.py"
    return training.is_module and package.is_file()


def _moved(text: str, place: str) -> str:
    """The text with a folder of the image written as the folder it runs in."""
    return re.sub(rf"(?<![\w.$}}/-]){re.escape(place)}(?=$|[/\s\"';&|)])", ".", text)


def _say_paths(command: str, manifest: Manifest, notes: list[str]) -> None:
    """Other absolute paths are the image's or a volume's, and must exist on the nodes here."""
    paths = [p for p in _ABSOLUTE.findall(command) if not p.startswith(_SYSTEM)]
    if paths:
        named = ", ".join(repr(path) for path in dict.fromkeys(paths))
        notes.append(f"{manifest.place}: {named} must be on the nodes here as in the image")


def _say_ranks(manifest: Manifest, training: TrainingCommand, notes: list[str]) -> None:
    if training.launcher == "python" and manifest.kind == "PyTorchJob":
        notes.append(
            f"{manifest.place}: the operator gives RANK and WORLD_SIZE to every pod; here torchrun "
            "has to start the program, if it uses them (--command)"
        )


def _insist_on_own_ranks(manifest: Manifest, training: TrainingCommand, folder: Path) -> None:
    """A program that starts its workers by Ray Train is no command that one node runs."""
    path = folder / (training.script or "")
    if manifest.kind != "RayJob" or not path.is_file():
        return
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        if _RAY_TRAIN.match(line):
            raise UserError(
                "the program starts its own workers by Ray Train, on nodes of its choice",
                where=f"{training.script}:{number}",
                fix="give the command that one node runs with --command (for example torchrun and "
                "the training function's own file)",
            )


def _exports(variables: Mapping[str, str]) -> str:
    if not variables:
        return ""
    pairs = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return f"export {pairs}\n"

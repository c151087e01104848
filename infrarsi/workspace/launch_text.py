"""The text that starts the job - a script or a bare command - with settings put in."""

import posixpath
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Literal

from infrarsi.configs import Config, Key, split_key
from infrarsi.configs import read as read_config
from infrarsi.contract import Place, PlaceChange, PlaceKind, Project, Scalar
from infrarsi.errors import UserError
from infrarsi.scripts import Document, Script
from infrarsi.workspace.sources import Sources

_NAME = re.compile(r"[A-Za-z_]\w*")
_WORDS = {
    "true": "false",
    "True": "False",
    "TRUE": "FALSE",
    "1": "0",
    "yes": "no",
    "on": "off",
}


@dataclass(frozen=True)
class LaunchText:
    """The launch script (`path` is set) or the bare command, as a value that settings change.

    `bare_flags` are flags that some knob sets without a value. `configs` holds the new text of
    every configuration file that a setting changed; `sources` has the others.
    """

    script: Script
    path: str | None
    command: str
    bare_flags: frozenset[str]
    sources: Sources = field(compare=False)
    configs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, project: Project, sources: Sources, patched: Mapping[str, str] | None = None
    ) -> "LaunchText":
        """What starts the project's job; raises UserError if the script is not there.

        `patched` has the texts that a patch changes: settings go on top of them.
        """
        command, path = project.launch.command, project.launch.script
        bare = frozenset(_bare_flags(project))

        def files(name: str) -> str | None:
            return sources.text(name) if sources.exists(name) else None

        if path is None:
            script = Script.parse(command, files=files)
            return cls(script, None, command, bare, sources, dict(patched or {}))
        text = sources.text(path)
        script = Script.parse(
            text,
            path,
            script_arguments=script_arguments(command, path) if calls(command, path) else None,
            environ=leading_variables(command, path),
            files=files,
        )
        return cls(script, path, command, bare, sources, dict(patched or {}))

    def with_settings(self, project: Project, settings: Mapping[str, Scalar]) -> "LaunchText":
        """With every setting put in, removals first; raises UserError where that is not safe."""
        result = self
        for name, value in settings.items():
            knob = next((knob for knob in project.knobs if knob.name == name), None)
            if knob is None:
                known = ", ".join(knob.name for knob in project.knobs) or "none"
                raise UserError(f"there is no knob {name!r}; known are: {known}")
            result = result.with_change(knob.change(value))
        return result

    def with_change(self, change: PlaceChange) -> "LaunchText":
        """With the places of one change removed and set."""
        result = self
        for place in change.remove:
            result = result.without(place)
        for place, value in change.set:
            result = result.with_place(place, value)
        return result

    def with_place(self, place: Place, value: Scalar) -> "LaunchText":
        """With one place set; False takes a flag away that is given without a value.

        A `flag:` that is the launcher's (`--nproc_per_node`) changes the launcher's own option.
        """
        place = self._home(place)
        if place.kind is PlaceKind.CONFIG:
            return self._with_config(place, self.config(place.file).with_value(_key(place), value))
        if place.kind is PlaceKind.ENV:
            return self._with(self.script.with_env(place.name, plain(value)))
        if place.kind is PlaceKind.LAUNCHER:
            if value is False:
                return self.without(place)
            given: str | Literal[True] = True if value is True else plain(value)
            return self._with(self.script.with_launcher_option(place.name, given))
        if place.kind is PlaceKind.FLAG:
            word = self._flag_word(place.name, value)
            if word is None:
                return self.without(place)
            return self._with(self.script.with_flag(place.name, word, joined=place.is_joined))
        raise UserError(f"a setting cannot live at `{place}`; only a sink can")

    def without(self, place: Place) -> "LaunchText":
        """With one place removed."""
        place = self._home(place)
        if place.kind is PlaceKind.CONFIG:
            return self._with_config(place, self.config(place.file).without(_key(place)))
        if place.kind is PlaceKind.ENV:
            return self._with(self.script.without_env(place.name))
        if place.kind is PlaceKind.LAUNCHER:
            return self._with(self.script.without_launcher_option(place.name))
        bare = place.name in self.bare_flags
        return self._with(self.script.without_flag(place.name, bare=bare))

    def _home(self, place: Place) -> Place:
        if place.kind is PlaceKind.FLAG and self.script.is_launcher_option(place.name):
            return Place(PlaceKind.LAUNCHER, place.name)
        return place

    def config(self, path: str) -> Config:
        """A configuration file as it is after the changes so far, also one of a heredoc."""
        document = self._document(path)
        if document is not None and not document.why:
            return read_config(document.text, path, document.unknown)
        text = self.configs.get(path)
        return read_config(self.sources.text(path) if text is None else text, path)

    def _with_config(self, place: Place, config: Config) -> "LaunchText":
        if place.file == self.path:
            raise UserError(f"`{place}` lies in the launch script, which is no configuration file")
        document = self._document(place.file)
        if document is not None:
            return self._with(self.script.with_document(document.path, config.text))
        text = self.configs.get(place.file)
        before = self.sources.text(place.file) if text is None else text
        if config.text == before:
            return self
        return replace(self, configs={**self.configs, place.file: config.text})

    def _document(self, path: str) -> Document | None:
        """The heredoc of the launch script that writes a file of the project."""
        found = {posixpath.normpath(d.path): d for d in self.script.documents()}
        if path in found:
            return found[path]
        words = _split(self.command)
        if words[:1] == ["cd"] and words[2:3] == ["&&"]:
            return found.get(posixpath.relpath(path, words[1]))
        return None

    def assigns(self, name: str) -> bool:
        """Whether the text itself sets this variable, so that one given from outside is lost."""
        given = self.script.training_command().environment
        return name in given or name in self.script.assignments()

    def _with(self, script: Script) -> "LaunchText":
        return replace(self, script=script, command=self.command if self.path else script.text)

    def _flag_word(self, name: str, value: Scalar) -> str | Literal[True] | None:
        """What a flag is given: a job that writes `--bf16 true` gets its truth values as words."""
        if not isinstance(value, bool):
            return plain(value)
        given = self.script.training_command().argument(name)
        for yes, no in _WORDS.items():
            if given is not None and given.value in (yes, no):
                return yes if value else no
        return True if value else None


def plain(value: Scalar) -> str:
    """A value as a word; truth values as 1 and 0."""
    if isinstance(value, bool):
        return "1" if value else "0"
    return str(value)


def _key(place: Place) -> Key:
    return split_key(place.key)


def calls(command: str, path: str) -> bool:
    """Whether a command starts this script itself, and not another one that calls it."""
    return _position(_split(command), path) is not None


def script_arguments(command: str, path: str) -> tuple[str, ...]:
    """What a command such as `bash train.sh a b` gives to the script."""
    words = _split(command)
    at = _position(words, path)
    return () if at is None else tuple(words[at + 1 :])


def leading_variables(command: str, path: str) -> dict[str, str]:
    """The variables that a command such as `X=1 bash train.sh` sets for the script."""
    words = _split(command)
    at = _position(words, path)
    found = {}
    first = max((i + 1 for i, word in enumerate(words[: at or 0]) if word == "&&"), default=0)
    for word in words[first : at or 0]:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            break
        found[name] = value
    return found


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _position(words: list[str], path: str) -> int | None:
    """The index of the script among the words of a command that may change folder first."""
    folder = words[1] if words[:1] == ["cd"] and words[2:3] == ["&&"] else ""
    wanted = {PurePosixPath(path), PurePosixPath(posixpath.relpath(path, folder or "."))}
    return next((i for i, word in enumerate(words) if PurePosixPath(word) in wanted), None)


def _bare_flags(project: Project) -> list[str]:
    found = []
    for knob in project.knobs:
        for value in knob.values:
            if value == knob.reference:
                continue
            change = knob.change(value)
            found += [p.name for p, v in change.set if p.kind is PlaceKind.FLAG and v is True]
    return found

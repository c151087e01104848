"""The dialects that a job speaks: what a setting's name and word mean in them.

A name that the job writes is understood whatever the version. One that it does not write is taken
for understood where its own program defines it, or where the version of the stack is known and
knows the name.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from infrarsi.contract import Scalar
from infrarsi.draft.settings import Setting
from infrarsi.draft.versions import Versions
from infrarsi.families import Dialect, StackSpelling, dialects

_IN_PROJECT = re.compile(r"\.(py|ya?ml|json|toml):\d+$")
_NO = (False, "false", "False", "no", "off")


@dataclass(frozen=True)
class Meaning:
    """A family and the canonical value that a setting has today, None where it has none of them."""

    family: str
    value: Scalar | None
    setting: Setting
    spelling: StackSpelling


@dataclass(frozen=True)
class Speech:
    """The dialects of a job, most particular first, and what decides on their names.

    `conditions` are the words of `only` that hold for the job.
    """

    names: tuple[str, ...]
    versions: Versions
    conditions: frozenset[str] = field(default_factory=frozenset)

    def spellings(self, setting: Setting) -> tuple[tuple[Dialect, StackSpelling], ...]:
        """What the name of a setting spells, in the first dialect that knows it."""
        for dialect in (dialects()[name] for name in self.names):
            for name in names_of(setting):
                found = dialect.of_name(name)
                if found:
                    return tuple((dialect, each) for each in found)
        return ()

    def meanings(self, settings: tuple[Setting, ...]) -> Iterator[Meaning]:
        """What the settings say, written ones first; a name of several families by its word."""
        for setting in sorted(settings, key=lambda s: (not s.is_given, not is_there(s))):
            for dialect, spelling in self.spellings(setting):
                if not setting.is_given and spelling.default is None:
                    continue  # its value by default says nothing of the job
                value = reference(spelling, setting)
                is_hidden = not setting.is_known or is_there(setting)
                is_said = value is not None or (setting.is_given and is_hidden)
                if is_said and self.takes(dialect, spelling, setting):
                    yield Meaning(spelling.family, value, setting, spelling)

    def today(self, settings: tuple[Setting, ...]) -> dict[str, Meaning]:
        """What each family is today, as far as the settings say it."""
        found: dict[str, Meaning] = {}
        for meaning in self.meanings(settings):
            found.setdefault(meaning.family, meaning)
        return found

    def takes(self, dialect: Dialect, spelling: StackSpelling, setting: Setting) -> bool:
        """Whether the job's version of a stack takes a name, for a job of this kind."""
        if setting.is_given:
            return True
        if spelling.only is not None and spelling.only not in self.conditions:
            return False
        if _IN_PROJECT.search(setting.origin):
            return True
        if spelling.since is None and spelling.until is None:
            return True
        version = self.versions.of(dialect.package)
        return version is not None and spelling.is_taken_by(version.number)


def names_of(setting: Setting) -> list[str]:
    """The names to look a setting up by: its flags, or its key and, in a section, its last part."""
    place = setting.place
    if place.kind == "config":
        first, _, last = place.key.rpartition(".")
        return [place.key, last] if first.endswith("_config") else [place.key]
    own = setting.definition.names if setting.definition is not None else ()
    return [place.name, *own]


def is_there(setting: Setting) -> bool:
    """Whether a switch is written, or a key is anything but false; values are always there."""
    definition = setting.definition
    if definition is not None and definition.action == "store_false":
        return setting.value is False  # the flag takes away what is on without it
    if definition is not None and definition.action == "store_true":
        return setting.value is True
    return setting.value not in _NO and setting.value is not None


def reference(spelling: StackSpelling, setting: Setting) -> Scalar | None:
    """The canonical value that a setting has today; None where it cannot be known."""
    if setting.is_given and not setting.is_known and setting.value is None:
        return None  # a value without that is known, and cannot be changed
    if spelling.present is not None:
        return spelling.present if is_there(setting) else spelling.default
    if setting.value is None:
        return spelling.default if not setting.is_given else None
    switch = setting.definition is not None and setting.definition.action == "store_false"
    if spelling.sets and setting.is_switch and not switch and not is_there(setting):
        return spelling.default
    value = setting.value
    is_whole = isinstance(value, float) and value.is_integer()
    return spelling.read(int(value) if is_whole else value)  # 5e8 of a JSON file is a count

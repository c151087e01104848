"""A Hydra configuration composed without running it: defaults lists, groups, packages.

What is here follows Hydra 1.3: a defaults list without `_self_` has it last. What this reader does
not understand is an unknown with its line, and all keys that it may set are then not known.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from infrarsi.configs import Config, Entry
from infrarsi.contract import Scalar
from infrarsi.draft.argument_systems.job import Job
from infrarsi.errors import UserError

_PACKAGE = re.compile(r"^#\s*@package\s+(\S+)\s*$", re.M)
_CHOICE = re.compile(r"(?P<words>(?:(?:override|optional)\s+)*)(?P<group>[^@\s]+)(?:@(?P<at>\S+))?")
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_MISSING = "???"
_ROUNDS = 8


@dataclass(frozen=True)
class Leaf:
    """One value of the composed configuration and where it is written."""

    value: Scalar | None
    place: str
    why: str = ""
    is_reference: bool = False


@dataclass
class Composition:
    """The values by key, the group choices by group, and what could not be followed."""

    leaves: dict[str, Leaf] = field(default_factory=dict)
    choices: dict[str, tuple[str, str]] = field(default_factory=dict)  # group: (choice, place)
    unknowns: list[str] = field(default_factory=list)


class Composer:
    """Composes the configurations of one folder; `chosen` are groups that the command sets."""

    def __init__(
        self,
        job: Job,
        folder: str,
        chosen: Mapping[str, str | None],
        stored: Mapping[str, Mapping[str, Leaf]],
    ) -> None:
        self.job, self.folder = job, folder
        self.chosen: dict[str, str | None] = dict(chosen)
        self.stored = stored
        self.made = Composition()
        self._depth = 0

    def compose(self, name: str) -> Composition:
        """The whole configuration of that name.

        An `override` counts for groups that were taken before it is read, so all is read again
        until no new one is found.
        """
        for _ in range(_ROUNDS):
            before, self.made = dict(self.chosen), Composition()
            found = self._load(name.removesuffix(".yaml"), "", "")
            if self.chosen == before:
                break
        if not found:
            self.made.unknowns.append(f"{self.folder}: there is no configuration {name!r}")
        _resolve(self.made, self.job.environment)
        return self.made

    def _load(self, name: str, group: str, package: str) -> bool:
        """Put one configuration file, or stored class, into the whole; False where it is not."""
        path = f"{group}/{name}" if group else name
        self._depth += 1
        try:
            config = self.job.config(self._file(path)) if self._depth < 30 else None
        except UserError as error:
            self.made.unknowns.append(f"{error.where}: {error.what}")
            config = None
        if config is not None:
            self._take(config, path, package)
        elif path in self.stored:
            for key, leaf in self.stored[path].items():
                self._put(_join(package, key), leaf)
        self._depth -= 1
        return config is not None or path in self.stored

    def _file(self, path: str) -> str:
        return f"{self.folder}/{path}.yaml" if self.folder not in ("", ".") else f"{path}.yaml"

    def _take(self, config: Config, path: str, package: str) -> None:
        header = _PACKAGE.search(config.text)
        if header is not None:
            package = {"_global_": "", "_group_": package}.get(header.group(1), header.group(1))
        for note in config.notes:
            self.made.unknowns.append(note)
        group = path.rpartition("/")[0]
        defaults = [entry for entry in config.entries if entry.key[0] == "defaults"]
        if not any(entry.value == "_self_" for entry in defaults):
            defaults.append(Entry(("defaults", "-1"), "_self_", 1))
        for entry in defaults:
            self._override(entry)
        for entry in defaults:
            if entry.value == "_self_":
                self._values(config, package)
            else:
                self._default(entry, config.path, group, package)

    def _values(self, config: Config, package: str) -> None:
        for entry in config.entries:
            if entry.key[0] != "defaults":
                place = f"{config.path}:{entry.line}"
                why = entry.why
                if entry.value == _MISSING:
                    why = "it must be given on the command line (`???`)"
                self._put(_join(package, entry.name), Leaf(entry.value, place, why))

    def _put(self, key: str, leaf: Leaf) -> None:
        """A later value takes the place of an earlier one, and of everything below it."""
        leaves = self.made.leaves
        for other in [k for k in leaves if k.startswith(key + ".") or key.startswith(k + ".")]:
            del leaves[other]
        leaves.pop(key, None)
        leaves[key] = leaf

    def _override(self, entry: Entry) -> None:
        match = _CHOICE.fullmatch(entry.key[-1]) if len(entry.key) > 2 else None
        if match is not None and "override" in match["words"] and not entry.why:
            value = None if entry.value is None else str(entry.value)
            group = match["group"].lstrip("/")
            self.chosen.setdefault(f"{group}@{match['at']}" if match["at"] else group, value)

    def _default(self, entry: Entry, where: str, group: str, package: str) -> None:
        place = f"{where}:{entry.line}"
        if len(entry.key) == 2:  # `- base`: a configuration of the same group
            if not isinstance(entry.value, str) or "${" in entry.value:
                self.made.unknowns.append(f"{place}: this default cannot be followed")
                return
            own, inner = self._named(entry.value, group)
            base, _, at = own.partition("@")
            inner_package = _package(at, package) if at else package
            if not self._load(base, inner, inner_package):
                self.made.unknowns.append(f"{place}: there is no configuration {base!r}")
            return
        match = _CHOICE.fullmatch(entry.key[-1])
        if match is None:
            self.made.unknowns.append(f"{place}: `{entry.key[-1]}` is no default that is read")
            return
        if "override" in match["words"] or match["group"].lstrip("/").startswith("hydra"):
            return
        self._group(entry, match, place, group, package)

    def _named(self, value: str, group: str) -> tuple[str, str]:
        """(name, group) of `base`, `sub/base` or `/top/base`."""
        if value.startswith("/"):
            inner, _, name = value[1:].rpartition("/")
            return name, inner
        inner, _, name = value.rpartition("/")
        return name, "/".join(part for part in (group, inner) if part)

    def _group(
        self, entry: Entry, match: "re.Match[str]", place: str, group: str, package: str
    ) -> None:
        name = match["group"]
        whole = name[1:] if name.startswith("/") else "/".join(p for p in (group, name) if p)
        at = match["at"]
        inner_package = _package(at, package) if at else whole.replace("/", ".")
        key = f"{whole}@{at}" if at else whole
        choice: str | None = None if entry.value is None else str(entry.value)
        if key in self.chosen:
            choice = self.chosen[key]
        if choice is None:
            return
        if entry.why or "${" in choice or choice == _MISSING:
            self.made.unknowns.append(
                f"{place}: which `{whole}` is taken is only known at run time (`{choice}`)"
            )
            return
        self.made.choices[key] = (choice, place)
        choice = choice.removesuffix(".yaml")
        inner, _, file = choice.rpartition("/")
        found = self._load(file, "/".join(p for p in (whole, inner) if p), inner_package)
        if not found and "optional" not in match["words"]:
            self.made.unknowns.append(f"{place}: there is no `{whole}/{choice}`")


def _package(at: str, above: str) -> str:
    if at == "_global_":
        return ""
    if at == "_here_":
        return above
    if at.startswith("_global_."):
        return at.removeprefix("_global_.")
    return _join(above, at)


def _join(package: str, key: str) -> str:
    return f"{package}.{key}" if package else key


def _resolve(made: Composition, environment: Mapping[str, str | None]) -> None:
    """Values that refer to others, or to the environment."""
    for key, leaf in made.leaves.items():
        if isinstance(leaf.value, str) and "${" in leaf.value:
            value, why = resolved(leaf.value, key, made.leaves, environment, 0)
            made.leaves[key] = Leaf(value, leaf.place, why, True)


def resolved(
    text: str,
    key: str,
    leaves: Mapping[str, Leaf],
    environment: Mapping[str, str | None],
    depth: int,
) -> tuple[Scalar | None, str]:
    """(value, why it is not known) of a text with `${...}` in it."""
    why = f"`{text}` is only known at run time"
    if depth > 20:
        return None, why
    parts: dict[str, Scalar | None] = {}
    for reference in _REFERENCE.findall(text):
        found = _referred(reference, key, leaves, environment, depth)
        if found is None:
            return None, why
        parts[reference] = found[0]
    whole = _REFERENCE.fullmatch(text)
    if whole is not None:
        return parts[whole.group(1)], ""
    result = _REFERENCE.sub(lambda m: str(parts[m.group(1)]), text)
    return (None, why) if "${" in result else (result, "")


def _referred(
    reference: str,
    key: str,
    leaves: Mapping[str, Leaf],
    environment: Mapping[str, str | None],
    depth: int,
) -> tuple[Scalar | None] | None:
    if reference.startswith("oc.env:"):
        name, comma, default = reference.removeprefix("oc.env:").partition(",")
        seen = environment.get(name.strip())
        if seen is not None:
            return (seen,)
        is_hidden = name.strip() in environment
        return (default.strip(),) if comma and not is_hidden else None
    if ":" in reference:
        return None
    name = reference
    if name.startswith("."):
        parents = key.split(".")
        dots = len(name) - len(name.lstrip("."))
        name = ".".join([*parents[: len(parents) - dots], name.lstrip(".")])
    leaf = leaves.get(name)
    if leaf is None or leaf.why:
        return None
    if isinstance(leaf.value, str) and "${" in leaf.value:
        value, why = resolved(leaf.value, name, leaves, environment, depth + 1)
        return None if why else (value,)
    return (leaf.value,)

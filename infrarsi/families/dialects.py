"""How each training stack writes the families: its own flags, keys and variables, by version.

One file a dialect in `dialects/`, one `[[spelling]]` a name. A dialect belongs to a stack; a job
may speak several (an accelerate job with a DeepSpeed file). Names are compared without regard to
`-` and `_`, leading dashes and case: `--dataloader-num-workers` is `dataloader_num_workers`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from infrarsi.contract import Scalar
from infrarsi.families.catalogue import Catalogue, Family, catalogue, key_of, same
from infrarsi.families.lines import Lines

Only = Literal["moe", "several", "ddp", "nodes", "megatron", "zero", "zero3"]
"""What a spelling needs of a job: experts, several processes, plain DDP among them, several nodes,
Megatron, a ZeRO stage above 0, stage 3."""

_FOLDER = Path(__file__).with_name("dialects")
_NOTHING: Mapping[Any, Any] = MappingProxyType({})
_KEYS = {"name", "stack", "package", "spelling"}


@dataclass(frozen=True)
class StackSpelling:
    """One name of one family in a dialect.

    `words[value]` are the job's words for a canonical value, the first of which is written; a value
    without words is written as it is. `present` is the value that a switch, or a key that is true,
    stands for. `sets[value]` are all names that a value sets, where one is not enough; the other
    names of `sets` are then removed. `default` is the value of a job that does not write the name,
    None where it is not known. `caveat` says when it is another one: where the setting `unless` is
    on, and the name is then not offered. `offer` are the values to offer beside today's. `since`
    and `until` are versions of the dialect's package: the first that knows the name, the first that
    does not.
    """

    family: str
    name: str
    words: Mapping[Scalar, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)
    present: Scalar | None = None
    sets: Mapping[Scalar, Mapping[str, Scalar]] = field(default_factory=lambda: _NOTHING)
    default: Scalar | None = None
    offer: tuple[Scalar, ...] = ()
    since: str | None = None
    until: str | None = None
    only: Only | None = None
    caveat: str = ""
    unless: str = ""

    def is_taken_by(self, version: str) -> bool:
        """Whether a version of the package knows the name."""
        here = _version(version)
        if self.since is not None and here < _version(self.since):
            return False
        return self.until is None or here < _version(self.until)

    def read(self, word: Scalar) -> Scalar | None:
        """The canonical value of a job's word; None where the dialect gives it no meaning."""
        text = key_of(word).lower()
        if self.present is not None:
            return self.present if text in ("true", "1", "yes") else None
        for value, words in self.words.items():
            if text in (each.lower() for each in words):
                return value
        for value, names in self.sets.items():
            if any(_normal(n) == _normal(self.name) and same(w, word) for n, w in names.items()):
                return value
        family = catalogue()[self.family]
        found = family.canonical(word)
        if family.values and not any(same(found, own) for own in family.values):
            return None
        return None if found in self.words or self.sets else found

    def write(self, value: Scalar) -> Scalar:
        """The word for a canonical value."""
        words = self.words.get(value)
        return words[0] if words else value


@dataclass(frozen=True)
class Dialect:
    """All spellings of one argument or configuration system; `stack` is "" where any job has it."""

    name: str
    stack: str
    package: str
    spellings: tuple[StackSpelling, ...]

    def of_name(self, name: str) -> tuple[StackSpelling, ...]:
        """The spellings of a flag, key or variable."""
        wanted = _normal(name)
        return tuple(each for each in self.spellings if _normal(each.name) == wanted)

    def of_family(self, family: str) -> tuple[StackSpelling, ...]:
        """The names of a family."""
        return tuple(each for each in self.spellings if each.family == family)


@cache
def dialects() -> Mapping[str, Dialect]:
    """Every dialect by its name; raises ValueError with file and line if a file is wrong."""
    found = [
        read_dialect(path.read_text(encoding="utf-8"), path.name, catalogue())
        for path in sorted(_FOLDER.glob("*.toml"))
    ]
    return MappingProxyType({dialect.name: dialect for dialect in found})


def read_dialect(text: str, file: str, known: Catalogue) -> Dialect:
    """A dialect from TOML text; raises ValueError with the line on whatever is wrong."""
    lines = Lines(text, file, "spelling")
    strange = sorted(set(lines.document) - _KEYS)
    if strange:
        fact = f"unknown key {strange[0]!r}; known are {sorted(_KEYS)}"
        raise lines.wrong_key(fact, strange[0])
    spellings = tuple(
        _spelling(entry, lines, at, known) for at, entry in enumerate(lines.entries())
    )
    seen: set[tuple[str, str, str | None]] = set()
    for at, each in enumerate(spellings):
        key = (_normal(each.name), each.family, each.since)
        if key in seen:
            raise lines.wrong(at, f"{each.name!r} is a spelling of {each.family!r} twice")
        seen.add(key)
    document = lines.document
    return Dialect(document["name"], document.get("stack", ""), document["package"], spellings)


def _spelling(entry: dict[str, Any], lines: Lines, at: int, known: Catalogue) -> StackSpelling:
    name = entry.get("name", "?")
    try:
        family = known.get(entry["family"])
        if family is None:
            near = known.nearest(entry["family"])
            raise ValueError(f"there is no family {entry['family']!r}; did you mean {near!r}?")
        fields = dict(entry)
        fields["family"] = family.name
        fields["offer"] = tuple(fields.get("offer", ()))
        for key in ("words", "sets"):
            held = {_value(word, family): each for word, each in fields.get(key, {}).items()}
            fields[key] = MappingProxyType(
                {v: tuple(each) if isinstance(each, list) else each for v, each in held.items()}
            )
        made = StackSpelling(**fields)
        _check(made, family)
    except (TypeError, KeyError, ValueError) as error:
        raise lines.wrong(at, f"spelling {name!r}: {error}") from error
    return made


def _value(word: str, family: Family) -> Scalar:
    """The canonical value that a key of TOML, always a text, stands for."""
    for value in family.values:
        if key_of(value) == word:
            return value
    raise ValueError(f"{word!r} is not one of the values {list(family.values)}")


def _check(made: StackSpelling, family: Family) -> None:
    values = [made.present, made.default, *made.offer]
    for value in values:
        if value is None:
            continue
        if family.values and not any(same(value, own) for own in family.values):
            raise ValueError(f"{key_of(value)!r} is not one of the values {list(family.values)}")
        if not family.values and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{key_of(value)!r} is no number")
    if made.only is not None and made.only not in get_args(Only):
        raise ValueError(f"only is {made.only!r}; known are {list(get_args(Only))}")
    if made.sets and _normal(made.name) not in {
        _normal(name) for names in made.sets.values() for name in names
    }:
        raise ValueError(f"no value of `sets` sets {made.name!r} itself")
    for text in (made.since, made.until):
        if text is not None:
            _version(text)
    if made.since and made.until and _version(made.since) >= _version(made.until):
        raise ValueError(f"since {made.since!r} is not before until {made.until!r}")


def _version(text: str) -> tuple[int, ...]:
    """`4.50.0.dev0` as (4, 50, 0): what comes behind the numbers does not count."""
    numbers: list[int] = []
    for part in text.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    if not numbers:
        raise ValueError(f"{text!r} is no version")
    while numbers[-1:] == [0] and len(numbers) > 1:
        numbers.pop()
    return tuple(numbers)


def _normal(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()


def spelled(name: str, chain: Sequence[Dialect]) -> tuple[StackSpelling, ...]:
    """The spellings of a name in the first dialect of a chain that knows it."""
    for dialect in chain:
        found = dialect.of_name(name)
        if found:
            return found
    return ()

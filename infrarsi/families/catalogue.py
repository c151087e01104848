"""The knob families, read from `catalogue.toml` and checked completely on reading."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from infrarsi.contract import Constraint, Project, Scalar
from infrarsi.errors import UserError
from infrarsi.families.lines import Lines

Device = Literal["cpu", "gpu"]
Law = Literal["table", "doubling"]
Phase = Literal["data", "fwd", "bwd", "opt", "eval", "other"]
"""Parts of a step, as the witness times them; `data` is waiting for a DataLoader."""

_FILE = Path(__file__).with_name("catalogue.toml")
_TRUTH = {"1": "true", "yes": "true", "on": "true", "0": "false", "no": "false", "off": "false"}
_LAW_KEYS = ("from_zero", "doubling")


class Risk(StrEnum):
    """What a family may do to the numbers of a job."""

    EXACT = "E"  # bitwise the same is possible
    NUMERICS = "N"  # the same within rounding; must be checked
    JOB = "J"  # another job: offered only where the contract's `allow` names it


@dataclass(frozen=True)
class Prior:
    """What is believed of one value against the family's plain value, before any trial.

    `log_time`, `log_memory`: mean and standard deviation of the change of log step time and of log
    activation memory. `one_off_s`: start-up cost, cold. `source` says where the figures come from.
    """

    source: str
    log_time: tuple[float, float] = (0.0, 0.03)
    log_memory: tuple[float, float] = (0.0, 0.02)
    one_off_s: float = 0.0


_INERT = Prior("it does nothing on such a device", (0.0, 0.005), (0.0, 0.01))


@dataclass(frozen=True)
class Spelling:
    """How a family is written in jobs of native PyTorch DDP.

    `flags` and `launcher` in their dashed form; `values` maps a job's word to the canonical value.
    `recipes`: names of the code patches that have this family.
    """

    flags: tuple[str, ...] = ()
    launcher: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    recipes: tuple[str, ...] = ()
    values: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class Family:
    """What one kind of setting means, wherever it is written.

    `values` are the canonical ones, empty for a number. `effects[device][value]` holds a prior for
    every canonical value but `plain`; with the law `doubling` the keys are `doubling` (per doubling
    of the number) and `from_zero`. `recipe_value` is what a code patch of this family sets.
    `devices`: where it does anything. `allow_as`: words of `allow` that permit it beside its name.
    `rules`: constraints in the grammar of infrarsi.yaml, over families and canonical values.
    `phase`: the one part of a step that it can make shorter, where that is so: it cannot gain more
    than this part takes. `fault_signs`: regular expressions for the text of a failure that is
    likely to be this family's doing.
    """

    name: str
    meaning: str
    risk: Risk
    effects: Mapping[Device, Mapping[str, Prior]]
    law: Law = "table"
    values: tuple[Scalar, ...] = ()
    plain: Scalar | None = None
    recipe_value: Scalar | None = None
    devices: tuple[Device, ...] = ("cpu", "gpu")
    spelling: Spelling = Spelling()
    requires: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    conflicts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    allow_as: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    phase: Phase | None = None
    fault_signs: tuple[str, ...] = ()

    def canonical(self, value: Scalar) -> Scalar:
        """The catalogue's word for a job's value; the value itself where it has none."""
        if any(same(value, own) for own in self.values):
            return value
        words = self.spelling.values
        spelled = str(value).lower()
        for word in (str(value), spelled, _TRUTH.get(spelled, spelled)):
            if word in words:
                return words[word]
        truth = _TRUTH.get(spelled, spelled) == "true"
        is_truth = spelled in _TRUTH or spelled in ("true", "false")
        return truth if is_truth and set(self.values) == {False, True} else value

    def is_too_coarse(self, project: Project) -> bool:
        """Whether it may round otherwise where a contract asks for equality to the last bit."""
        return project.bitwise and self.risk is Risk.NUMERICS

    def is_allowed(self, allow: tuple[str, ...]) -> bool:
        """Whether a contract with these `allow` entries lets it be searched."""
        return self.risk is not Risk.JOB or bool(
            {self.name, *self.also, *self.allow_as} & set(allow)
        )


class Catalogue:
    """All families, by name (or by an older name), by flag, and by environment variable."""

    def __init__(self, families: tuple[Family, ...]) -> None:
        self.families = families
        self._by_name = {name: f for f in families for name in (f.name, *f.also)}
        self._by_flag = {normal_flag(flag): f for f in families for flag in f.spelling.flags}
        self._by_env = {name: f for f in families for name in f.spelling.env}

    def __getitem__(self, name: str) -> Family:
        return self._by_name[name]

    def get(self, name: str) -> Family | None:
        """The family of that name, None if the catalogue has no such."""
        return self._by_name.get(name)

    def nearest(self, name: str) -> str | None:
        """The family whose name is most like `name`, for a message."""
        near = difflib.get_close_matches(name, list(self._by_name), n=1)
        return near[0] if near else None

    def by_flag(self, flag: str) -> Family | None:
        """The family that a flag is usually a spelling of; `_` and `-` are the same."""
        return self._by_flag.get(normal_flag(flag))

    def by_env(self, name: str) -> Family | None:
        """The family that an environment variable sets."""
        return self._by_env.get(name)


def normal_flag(flag: str) -> str:
    """`--Batch_Size` as `--batch-size`; short flags keep their case."""
    return flag.replace("_", "-").lower() if flag.startswith("--") else flag


@cache
def catalogue() -> Catalogue:
    """The catalogue that ships; raises ValueError with the line if the file is wrong."""
    return read(_FILE.read_text(encoding="utf-8"))


def read(text: str, name: str = _FILE.name) -> Catalogue:
    """A catalogue from TOML text; raises ValueError with the line on what a later use would trip
    over. `name` is the file's name in messages."""
    lines = Lines(text, name, "family")
    families = tuple(_family(entry, lines, at) for at, entry in enumerate(lines.entries()))
    _check_unique([[f.name, *f.also] for f in families], "name", lines)
    _check_unique([[normal_flag(x) for x in f.spelling.flags] for f in families], "flag", lines)
    _check_unique([list(f.spelling.env) for f in families], "environment variable", lines)
    names = {name for f in families for name in (f.name, *f.also)}
    for at, family in enumerate(families):
        strange = sorted(set(family.conflicts) - names)
        if strange:
            fact = f"family {family.name!r}: conflicts with unknown {strange[0]!r}"
            raise lines.wrong(at, fact, strange[0])
        for rule in family.rules:
            _check_rule(rule, family, names, lines, at)
    return Catalogue(families)


def _check_rule(rule: str, family: Family, names: set[str], lines: Lines, at: int) -> None:
    try:
        strange = sorted(Constraint.parse(rule).names - names)
    except UserError as error:
        raise lines.wrong(at, f"family {family.name!r}: {error.what}", rule) from error
    if strange:
        fact = f"family {family.name!r}: the rule {rule!r} names unknown {strange[0]!r}"
        raise lines.wrong(at, fact, rule)


def _check_unique(names: list[list[str]], what: str, lines: Lines) -> None:
    seen: set[str] = set()
    for at, own in enumerate(names):
        for name in own:
            if name in seen:
                raise lines.wrong(at, f"the {what} {name!r} belongs to two families", name)
            seen.add(name)


def _family(entry: dict[str, Any], lines: Lines, at: int) -> Family:
    name = entry.get("name", "?")
    try:
        fields = _frozen(entry)
        effects = fields.pop("effects")
        spelling = fields.pop("spelling", {})
        fields["conflicts"] = MappingProxyType(fields.get("conflicts", {}))
        family = Family(
            **{**fields, "risk": Risk(fields["risk"])},
            effects=MappingProxyType({}),
            spelling=_spelling(spelling),
        )
        priors = {device: _priors(family, device, effects) for device in get_args(Device)}
        family = replace(family, effects=priors)
        _check(family, effects)
    except (TypeError, KeyError, ValueError) as error:
        raise lines.wrong(at, f"family {name!r}: {error}") from error
    return family


def _spelling(entry: dict[str, Any]) -> Spelling:
    fields = _frozen(entry)
    fields["values"] = MappingProxyType(fields.get("values", {}))
    return Spelling(**fields)


def _priors(family: Family, device: Device, effects: dict[str, Any]) -> Mapping[str, Prior]:
    """The priors of one device; where the family does nothing they need not be written."""
    if device not in effects and device not in family.devices:
        keys = ["doubling"] if family.law == "doubling" else _keys(family)
        return MappingProxyType(dict.fromkeys(keys, _INERT))
    entries = effects.pop(device)
    return MappingProxyType({key: Prior(**_frozen(entry)) for key, entry in entries.items()})


def _keys(family: Family) -> list[str]:
    return [key_of(value) for value in family.values if not same(value, family.plain)]


def _frozen(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}


def _check(family: Family, other_devices: Mapping[str, Any]) -> None:
    if other_devices:
        raise ValueError(f"unknown devices {sorted(other_devices)}; known are {get_args(Device)}")
    if not family.meaning:
        raise ValueError("it must say what it means")
    if family.law not in get_args(Law):
        raise ValueError(f"law is {family.law!r}; known are {get_args(Law)}")
    expected = set(_keys(family))
    for device, priors in family.effects.items():
        if family.law == "doubling":
            if "doubling" not in priors or set(priors) - set(_LAW_KEYS):
                raise ValueError(f"effects on {device} must be among {_LAW_KEYS}, with doubling")
        elif set(priors) != expected:
            raise ValueError(
                f"effects on {device} are for {sorted(priors)}, not {sorted(expected)}"
            )
        for prior in priors.values():
            _check_prior(prior)
    if family.law == "table" and family.plain not in family.values:
        raise ValueError(f"plain is {family.plain!r}, which is not one of {family.values}")
    if family.phase is not None and family.phase not in get_args(Phase):
        raise ValueError(f"phase is {family.phase!r}; known are {get_args(Phase)}")
    for sign in family.fault_signs:
        _check_sign(sign)
    for value in family.spelling.values.values():
        if value not in family.values:
            raise ValueError(f"a spelling means {value!r}, which is not one of {family.values}")


def _check_sign(sign: str) -> None:
    try:
        matches_all = re.search(sign, "") is not None
    except re.error as error:
        raise ValueError(f"fault sign {sign!r} is no regular expression: {error}") from error
    if matches_all:
        raise ValueError(f"fault sign {sign!r} matches every text")


def _check_prior(prior: Prior) -> None:
    if not prior.source:
        raise ValueError("every prior must name its source")
    for mean, spread in (prior.log_time, prior.log_memory):
        if spread <= 0 or abs(mean) > 3:
            raise ValueError(f"({mean}, {spread}) is no belief: the spread must be above 0")


def same(a: Scalar | None, b: Scalar | None) -> bool:
    """Equality that does not take True for 1."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def key_of(value: Scalar) -> str:
    """The name of a value in the file: `true` for True."""
    return str(value).lower() if isinstance(value, bool) else str(value)

"""The catalogue's rules and a job's arithmetic as constraints over the knobs of this job.

A rule speaks of families and canonical values. What is no knob is put in as the value that it has;
where that is not known the rule cannot be kept, so the knobs that it belongs to are left out.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from infrarsi.contract import Constraint, Knob, Scalar
from infrarsi.draft.knobs import Found
from infrarsi.families import catalogue

_NAME = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_]\w*")
_WORDS = ("and", "or", "not", "in", "true", "false")
_MOST = 64  # combinations that are written out


def with_rules(
    offered: Sequence[Found], fixed: Mapping[str, Scalar], notes: list[str]
) -> list[Found]:
    """The knobs with the constraints of their families; those whose rule cannot be kept are gone.

    `fixed` are the values of families that are no knobs.
    """
    kept = {item.knob.family: item for item in offered}
    known = dict(fixed)
    while True:
        gone = None
        made: list[Found] = []
        for item in kept.values():
            family = catalogue().get(item.knob.family)
            constraints: list[str] = []
            for rule in family.rules if family is not None else ():
                bound = bind(rule, [k.knob for k in kept.values()], known)
                if bound is None:
                    missing = sorted(_unbound(rule, kept, known))
                    notes.append(
                        f"`{item.knob.family}` is not searched: it depends on {missing[0]!r}, "
                        "whose value today is not known"
                    )
                    gone = item
                    break
                constraints += bound
            made.append(replace(item, constraints=(*item.constraints, *constraints)))
        if gone is None:
            return made
        known[gone.knob.family] = canonical(gone.knob, gone.knob.reference)
        del kept[gone.knob.family]


def bind(text: str, knobs: Sequence[Knob], known: Mapping[str, Scalar]) -> list[str] | None:
    """A rule as constraints over these knobs; None where it names what nobody knows.

    A rule that the job as it is does not keep is none for this job, and one without a knob says
    nothing: both give no constraint.
    """
    by_family = {knob.family: knob for knob in knobs}
    if _unbound(text, by_family, known):
        return None
    involved = [by_family[name] for name in sorted(_names(text)) if name in by_family]
    today = {k.family: canonical(k, k.reference) for k in involved}
    if not involved or not Constraint.parse(text).holds({**known, **today}):
        return []
    if all(_is_canonical(knob) for knob in involved):
        return [_substituted(text, by_family, known)]
    return list(_written_out(text, involved, known))


def canonical(knob: Knob, value: Scalar) -> Scalar:
    """A knob's value in the family's words."""
    family = catalogue().get(knob.family)
    return value if family is None else family.canonical(value)


def _names(text: str) -> set[str]:
    found = {match.group() for match in _NAME.finditer(text)}
    return {name for name in found if name not in _WORDS and name[0] not in "'\""}


def _unbound(text: str, knobs: Mapping[str, object], known: Mapping[str, Scalar]) -> set[str]:
    return _names(text) - knobs.keys() - known.keys()


def _is_canonical(knob: Knob) -> bool:
    return all(
        canonical(knob, value) == value and isinstance(value, bool) == isinstance(c, bool)
        for value in knob.values
        for c in [canonical(knob, value)]
    )


def _substituted(text: str, knobs: Mapping[str, Knob], known: Mapping[str, Scalar]) -> str:
    def literal(match: re.Match[str]) -> str:
        name = match.group()
        if name in _WORDS or name[0] in "'\"" or name in knobs:
            return name
        return _literal(known[name])

    return _NAME.sub(literal, text)


def _written_out(text: str, involved: Sequence[Knob], known: Mapping[str, Scalar]) -> Iterator[str]:
    """One constraint for each combination that the rule forbids, in the knobs' own words."""
    rule = Constraint.parse(text)
    for values in itertools.islice(itertools.product(*(k.values for k in involved)), _MOST):
        pairs = list(zip(involved, values, strict=True))
        meant = {k.family: canonical(k, value) for k, value in pairs}
        if not rule.holds({**known, **meant}):
            words = " and ".join(f"{k.family} == {_literal(value)}" for k, value in pairs)
            yield f"not ({words})"


def _literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)

"""Knobs out of the settings of a training stack, by the way its dialects spell the families.

A value of such a knob is the family's own word; what it sets in the job is the dialect's. What the
job does not set is offered only where its stack takes the setting: because the program defines it,
or because the stack's version is known and knows the name.
"""

from collections.abc import Sequence

from infrarsi.contract import Knob, Scalar, ValueChange
from infrarsi.draft.knobs import Found, Surroundings
from infrarsi.draft.settings import Setting
from infrarsi.draft.speech import Speech, is_there, reference
from infrarsi.families import Family, StackSpelling, catalogue

_MANY = 6  # values of one knob


def from_settings(
    settings: Sequence[Setting], speech: Speech, around: Surroundings, *, but: Sequence[str]
) -> list[Found]:
    """One knob for each family that the settings spell; a given name counts before a default.

    `but` are families that other code offers. A setting whose value cannot be read makes no knob
    and is an unknown.
    """
    found: dict[str, Found] = {}
    closed: set[str] = set(but)
    for setting in sorted(settings, key=lambda s: (not s.is_given, not is_there(s))):
        for dialect, spelling in speech.spellings(setting):
            family = catalogue()[spelling.family]
            if family.name in closed or not _is_for(family, around):
                continue
            if setting.is_given and not setting.is_known:
                name = setting.place.name
                around.unknowns.append(f"`{name}` ({setting.origin}): {setting.why}")
                closed.add(family.name)
                continue
            if not speech.takes(dialect, spelling, setting) or _is_decided(spelling, settings):
                continue
            if setting.is_given and is_there(setting):
                closed.add(family.name)
            made = stack_knob(spelling, setting)
            if made is not None:
                found.setdefault(family.name, made)
                closed.add(family.name)
    return list(found.values())


def _is_decided(spelling: StackSpelling, settings: Sequence[Setting]) -> bool:
    """Whether another setting decides on the default of a name, or may do so."""
    deciding = [s for s in settings if spelling.unless and s.dest == spelling.unless]
    return any(not s.is_known or is_there(s) for s in deciding)


def _is_for(family: Family, around: Surroundings) -> bool:
    return ("gpu" if around.is_gpu else "cpu") in family.devices


def stack_knob(spelling: StackSpelling, setting: Setting) -> Found | None:
    """The knob of one name; None where its value means nothing, or there is no other to offer."""
    today = reference(spelling, setting)
    definition = setting.definition
    if today is None or not spelling.offer:
        return None
    if definition is not None and setting.place.name in getattr(definition, "negatives", ()):
        return None  # switched off by a flag of its own, beside which the other would stand
    changes = _changes(spelling, setting)
    changes[today] = _as_it_is(spelling, setting, today)
    if len(changes) < 2:
        return None
    family = catalogue()[spelling.family]
    ordered = _ordered(changes, family, today)
    knob = Knob(name=family.name, family=family.name, values=ordered, reference=today)
    return Found(knob, told(setting, spelling))


def _changes(spelling: StackSpelling, setting: Setting) -> dict[Scalar, ValueChange]:
    """What each offered value sets; a value that the program's choices leave out is not offered."""
    definition = setting.definition
    choices = [] if definition is None else [str(c).lower() for c in definition.choices]
    found: dict[Scalar, ValueChange] = {}
    for value in (*spelling.offer, *([] if spelling.default is None else [spelling.default])):
        word = str(spelling.write(value)).lower()
        if choices and not spelling.sets and spelling.present is None and word not in choices:
            continue
        change = _change(spelling, setting, value)
        if change is not None:
            found.setdefault(value, change)
    return found


def _change(spelling: StackSpelling, setting: Setting, value: Scalar) -> ValueChange | None:
    """What a value sets and removes; None where the setting cannot be given it."""
    if spelling.sets:
        wanted = spelling.sets[value]
        others = {name for names in spelling.sets.values() for name in names} - set(wanted)
        return ValueChange(
            set={beside(setting, name): word for name, word in wanted.items()},
            remove=[beside(setting, name) for name in sorted(others)],
        )
    if spelling.present is not None:
        return _switch(spelling, setting, value)
    word = spelling.write(value)
    truth = {"true": True, "false": False}.get(str(word).lower())
    if truth is not None:
        return _truth(setting, truth)
    return ValueChange(set={str(setting.place): word})


def _truth(setting: Setting, truth: bool) -> ValueChange | None:
    """A yes or no, as a key, a flag with a word, or a flag with a counterpart."""
    place = str(setting.place)
    if setting.place.kind == "config":
        return ValueChange(set={place: truth})
    definition = setting.definition
    if definition is not None and definition.action == "optional":
        name = definition.flag if truth else definition.negative
        other = definition.negative if truth else definition.flag
        return ValueChange(set={f"flag:{name}": True}, remove=[f"flag:{other}"])
    if setting.is_switch:
        return ValueChange(set={place: True}) if truth else ValueChange(remove=[place])
    return ValueChange(set={place: str(truth).lower()})


def _switch(spelling: StackSpelling, setting: Setting, value: Scalar) -> ValueChange | None:
    """A name whose presence alone stands for a value; HfArgumentParser takes a word with it."""
    is_wanted = value == spelling.present
    if setting.place.kind == "config":
        return ValueChange(set={str(setting.place): is_wanted})
    place = str(setting.place)
    return ValueChange(set={place: True}) if is_wanted else ValueChange(remove=[place])


def beside(setting: Setting, name: str) -> str:
    """The place of another name of the same kind."""
    place = setting.place
    if place.kind == "config":
        return f"config:{place.file}:{name.lstrip('-')}"
    return f"{place.kind}:{name}"


def _as_it_is(spelling: StackSpelling, setting: Setting, today: Scalar) -> ValueChange:
    """The job as it is, as a value: nothing is done for the reference, it only says what is."""
    if spelling.sets and today in spelling.sets:
        return _change(spelling, setting, today) or ValueChange()
    if setting.value is None or isinstance(setting.value, bool):
        return _change(spelling, setting, today) or ValueChange()
    return ValueChange(set={str(setting.place): setting.value})


def _ordered(
    changes: dict[Scalar, ValueChange], family: Family, today: Scalar
) -> dict[Scalar, ValueChange]:
    """In the family's order, numbers by size; at most six, today's among them."""
    if family.values:
        keys = sorted(changes, key=lambda v: [str(o) for o in family.values].index(str(v)))
    else:
        keys = sorted(changes, key=float)
        while len(keys) > _MANY:
            keys.remove(keys[0] if keys[0] != today else keys[-1])
    return {key: changes[key] for key in keys}


def told(setting: Setting, spelling: StackSpelling) -> str:
    """Where a value was read."""
    name = setting.place.name
    if setting.is_given:
        shown = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
        return f"{setting.origin} passes {name} {shown}"
    if setting.value is None:
        caveat = f", {spelling.caveat}" if spelling.caveat else ""
        default = spelling.default
        shown = str(default).lower() if isinstance(default, bool) else default
        return f"the job does not set {name}; {shown} is what it then has{caveat}"
    shown = str(setting.value).lower() if isinstance(setting.value, bool) else setting.value
    return f"{setting.origin} defaults to {name} {shown}"

"""Changing flags and launcher options: which bytes to replace, or why that is not safe."""

from collections.abc import Sequence
from typing import Literal, NoReturn

from infrarsi.errors import UserError
from infrarsi.scripts.atoms import Field, Hole
from infrarsi.scripts.launchers import of_another, spelled, starts_itself
from infrarsi.scripts.launching import Launched, Slot
from infrarsi.scripts.literals import line_start
from infrarsi.scripts.model import option_key
from infrarsi.scripts.reading import Reading
from infrarsi.scripts.spelling import (
    Edit,
    after,
    indentation,
    quote,
    removing,
    replacing,
    span_of,
)

Value = str | Literal[True]
_HARMLESS = ("echo", "printf", "cat", "tee")
_PASSED_ON = ('"$@"', "$@", "$*", '"${@}"')  # what the script is called with stays last, and wins


def set_flag(reading: Reading, name: str, value: Value, *, joined: bool = False) -> list[Edit]:
    """The edits that give the program's flag this value; `joined`: a new one as `--flag=value`."""
    launched = single_launch(reading, name)
    slots = [slot for slot in launched.slots if slot.argument.name == name]
    if slots:
        slot = _only(reading, slots, name)
        at = launched.slots.index(slot)
        if any(s.flag.text == "--" for s in launched.slots[:at]):
            _refuse(reading, slot.flag, name)
        _refuse_hidden(reading, launched.slots[at + 1 :], name)
        return _change(reading, slot, name, value)
    _refuse_hidden(reading, launched.slots, name)
    return [_append(reading, launched, _spelled(launched, name, value, joined))]


def remove_flag(reading: Reading, name: str, *, bare: bool) -> list[Edit]:
    """The edits that take the program's flag out."""
    launched = single_launch(reading, name)
    slots = [slot for slot in launched.slots if slot.argument.name == name]
    _refuse_hidden(reading, [slot for slot in launched.slots if slot not in slots], name)
    if not slots:
        return []
    return _remove(reading, _only(reading, slots, name), name, bare)


def set_option(reading: Reading, name: str, value: Value) -> list[Edit]:
    """The edits that give the launcher's option this value."""
    launched = single_launch(reading, name)
    if starts_itself(launched.launcher):
        line = reading.expander.line(launched.invocation.node)
        raise UserError(
            f"`{name}` is an option of torchrun, but the training is started by "
            f"{launched.launcher} itself",
            where=f"{reading.where}:{line}",
            fix="start the training by torchrun, or take `launcher:` places out of the knobs",
        )
    other = of_another(launched.launcher, name)
    if other is not None:
        raise UserError(
            f"`{name}` is an option of {other}, but the training is started by {launched.launcher}",
            where=f"{reading.where}:{reading.expander.line(launched.invocation.node)}",
            fix="name the option that this launcher has for it",
        )
    name = spelled(launched.launcher, name)
    slots = _options(launched, name)
    _refuse_shortened(reading, launched, name)
    if slots:
        slot = _only(reading, slots, name)
        _refuse_hidden(reading, launched.options[launched.options.index(slot) + 1 :], name)
        return _change(reading, slot, slot.argument.name, value)
    _refuse_hidden(reading, launched.options, name)
    own = launched.invocation.fields[launched.launcher_end - 1]
    joined = not any(s.value for s in launched.options)
    if value is True:
        words = [name]
    else:
        words = [f"{name}={value}"] if joined else [name, value]
    edit = after(own, words)
    if edit is None:
        _refuse(reading, own, name)
    _refuse_shared(reading, launched, [own], name)
    return [edit]


def remove_option(reading: Reading, name: str) -> list[Edit]:
    """The edits that take the launcher's option out."""
    launched = single_launch(reading, name)
    slots = _options(launched, name)
    _refuse_shortened(reading, launched, name)
    _refuse_hidden(reading, [slot for slot in launched.options if slot not in slots], name)
    return _remove(reading, _only(reading, slots, name), name, bare=False) if slots else []


def single_launch(reading: Reading, name: str) -> Launched:
    """The training command, refused if it runs several times."""
    launched = reading.launched()
    if reading.is_repeated(launched):
        line = reading.expander.line(launched.invocation.node)
        raise UserError(
            f"`{name}` cannot be changed, because the training command runs more than once "
            "(it is in a loop, or in a function that is called several times)",
            where=f"{reading.where}:{line}",
            fix="make a script that starts the training once",
        )
    return launched


def _options(launched: Launched, name: str) -> list[Slot]:
    return [s for s in launched.options if option_key(s.argument.name) == option_key(name)]


def _only(reading: Reading, slots: list[Slot], name: str) -> Slot:
    if len(slots) > 1:
        lines = " and ".join(str(slot.argument.line) for slot in slots)
        raise UserError(
            f"`{name}` is given {len(slots)} times, in lines {lines}",
            where=f"{reading.where}:{slots[-1].argument.line}",
            fix="give it once",
        )
    slot = slots[0]
    if slot.argument.condition:
        raise UserError(
            f"whether `{name}` is given depends on {slot.argument.condition}",
            where=f"{reading.where}:{slot.argument.line}",
            fix="give it unconditionally, or not at all",
        )
    return slot


def _change(reading: Reading, slot: Slot, name: str, value: Value) -> list[Edit]:
    launched = reading.launched()
    if value is True:
        if slot.value is not None:
            raise UserError(
                f"`{name}` is given with the value {slot.argument.value!r}, "
                "but is to be set as a flag without a value",
                where=f"{reading.where}:{slot.argument.line}",
                fix="give the values of this knob as text",
            )
        if not slot.joined:
            return []
        touched, edit = slot.flag, replacing(slot.flag, name)
    elif slot.joined:
        touched, edit = slot.flag, replacing(slot.flag, f"{name}={value}")
    elif slot.value is not None:
        touched, edit = slot.value, replacing(slot.value, value)
    else:
        touched, edit = slot.flag, after(slot.flag, [value])
    if edit is None:
        _refuse(reading, touched, name)
    _refuse_shared(reading, launched, [touched], name)
    return [edit]


def _remove(reading: Reading, slot: Slot, name: str, bare: bool) -> list[Edit]:
    fields = [slot.flag]
    if slot.value is not None and not bare:
        fields.append(slot.value)
    _refuse_shared(reading, reading.launched(), fields, name)
    edits = removing(reading.expander.source, fields)
    if edits is None:
        _refuse(reading, next(f for f in fields if span_of(f) is None), name)
    return edits


def _spelled(launched: Launched, name: str, value: Value, is_joined: bool) -> list[str]:
    """A new flag in the style of the others."""
    if value is True:
        return [name]
    if is_joined:
        return [f"{name}={value}"]
    flags = [s for s in launched.slots if s.argument.name.startswith("-")]
    joined = sum(s.joined for s in flags)
    separate = sum(s.value is not None for s in flags)
    if not name.startswith("-") or joined > separate:
        return [f"{name}={value}"]
    return [name, value]


def _append(reading: Reading, launched: Launched, texts: list[str]) -> Edit:
    """More words at the end of the command; on a line of their own where the others have one."""
    source = reading.expander.source
    node = launched.invocation.node
    end = next((s.flag for s in launched.slots if s.flag.text == "--"), None)
    if end is not None and end.word is None:
        _refuse(reading, end, texts[0])
    if end is not None and end.word is not None:  # what follows `--` is no flag
        return Edit(end.word[0], end.word[0], b"".join(quote(text) + b" " for text in texts))
    words = [
        word
        for word, found in zip(launched.invocation.words, launched.invocation.fields, strict=True)
        if found.word is not None or reading.expander.raw(word) not in _PASSED_ON
    ]
    last = max(words, key=lambda word: word.end_byte)
    written = b" ".join(quote(text) for text in texts)
    start = line_start(source, last.start_byte)
    if start > node.start_byte and source[start - 2 : start] == b"\\\n":
        separator = b" \\\n" + indentation(source, last.start_byte)
    else:
        separator = b" "
    return Edit(last.end_byte, last.end_byte, separator + written)


def _refuse_shortened(reading: Reading, launched: Launched, name: str) -> None:
    """Launchers take `--nproc` for `--nproc-per-node`; which one wins depends on their order."""
    key = option_key(name)
    for slot in launched.options:
        own = option_key(slot.argument.name)
        if len(own) > 1 and own != key and key.startswith(own):
            raise UserError(
                f"`{name}` is already given in a shortened form, `{slot.argument.raw}`",
                where=f"{reading.where}:{slot.argument.line}",
                fix="write the option's name out",
            )


def _refuse_hidden(reading: Reading, slots: Sequence[Slot], name: str) -> None:
    """A flag that is not seen may hide in an argument that the script computes."""
    for slot in slots:
        hole = slot.flag.hole
        if hole is None or hole.unassigned or slot.joined or slot.flag.known_prefix:
            continue
        if slot.flag.word is not None and hole.guarded:
            continue
        raise UserError(
            f"`{name}` may be part of `{hole.expression}`, whose value cannot be known "
            "without running the script",
            where=f"{reading.where}:{slot.argument.line}",
            fix="write the program's arguments out",
        )


def _refuse(reading: Reading, touched: Field, name: str) -> NoReturn:
    hole = next((atom for atom in touched.atoms if isinstance(atom, Hole)), None)
    source = f"`{hole.expression}`" if hole is not None else "another expression"
    raise UserError(
        f"`{name}` cannot be changed where it is written, because it comes out of {source} "
        "or the new value cannot be written there",
        where=f"{reading.where}:{touched.line or 1}",
        fix="write the flag and its value out in the training command",
    )


def _refuse_shared(reading: Reading, launched: Launched, fields: list[Field], name: str) -> None:
    """A change in an array or string must not reach another command."""
    node = launched.invocation.node
    spans = [span for span in map(span_of, fields) if span is not None]
    for other in reading.invocations:
        command = other.fields[0].text if other.fields else None
        if other.node.start_byte == node.start_byte or command in _HARMLESS:
            continue
        if any(_overlaps(found, span) for found in other.fields for span in spans):
            line = reading.expander.line(other.node)
            raise UserError(
                f"`{name}` cannot be changed, because `{command}` in line {line} gets the same "
                "arguments",
                where=f"{reading.where}:{fields[0].line}",
                fix="give the training command a list of arguments of its own",
            )


def _overlaps(field: Field, span: tuple[int, int]) -> bool:
    if field.word is not None and field.word[0] < span[1] and span[0] < field.word[1]:
        return True
    return any(
        not isinstance(atom, Hole) and span[0] <= atom.start < span[1] for atom in field.atoms
    )

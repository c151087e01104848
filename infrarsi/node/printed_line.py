"""The numbers in one line of output: what each is called, its unit, and which step they are about.

Read are the ways in which training jobs write: `step 12/36 loss 3.41 time 210ms`, dicts and JSON,
`key=value`, `key: value | key: value`, `time (ms) | forward: 94.1 | step: 45.0`, progress bars.
A number's label is the few words before it, or, where a cell begins with it, those behind it.
"""

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass

SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "\u00b5s", "usec"), 1e-6),
}
_NUMBER = re.compile(
    r"(?<![\w.\\/])[-+]?"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)"
    r"(?P<suffix>[kKM](?![A-Za-z]))?"
    r"(?P<unit>[A-Za-z\u00b5%]+(?:/[A-Za-z]+){0,2})?"
    r"|(?<![\w.\\/-])-?(?P<word>nan|NaN|inf|Infinity)(?![\w])"
)
_DETACHED = re.compile(
    r" ?([A-Za-z\u00b5%]+(?:/[A-Za-z]+){0,2})(?=[\s,;|)\]}]|$)(?!\s*[:=]?\s*[-+.]?\d)"
)
_LABEL = re.compile(
    r"(?P<words>[A-Za-z_][\w./-]*(?: [A-Za-z_@][\w./-]*){0,4})"
    r"(?: \(\w+ \d+\))?\s*(?:[(\[](?P<unit>[A-Za-z\u00b5/]+)[)\]])?[\"']?"
    r"\s*(?:[:=]|->|is)?\s*[\"'\[({<$]*$"
)
_BEHIND = re.compile(r"\s*(?P<words>[A-Za-z]\w*(?:[ /][A-Za-z]\w*){0,2})\s*(?:[|,;]|$)")
_SEPARATORS = ("|", ",", ";")
_OF_THE_LINE = re.compile(r"\b(?:time|times|timers?|memory) \((?P<unit>[A-Za-z]+)\)\s*\|")
_PER_STEP = ("it", "iter", "step", "batch", "update", "iteration")
_PER_DEVICE = ("gpu", "device", "rank", "chip")
_SIZES = ("%", "b", "kb", "mb", "gb", "kib", "mib", "gib", "tflops", "x", "g")
_MULTIPLIER = {"k": 1e3, "K": 1e3, "M": 1e6}
_COUNTERS = ("global_step", "num_updates", "step", "steps", "iteration", "iter", "update")
_ANY_COUNTER = (*_COUNTERS, "batch", "it")
_RANK_OF_COUNTER = {name: rank for rank, name in enumerate((*_ANY_COUNTER, "epoch"))}
_NO_COUNTER = re.compile(r"(^|_)(per|max|total|num|warmup|every|of|time|sec|remaining|left)(_|$)")
_IN_BRACKETS = re.compile(r"\[\s*(\d+)/\s*\d+\s*[\](]")
_IN_A_BAR = re.compile(r"(\d+)/\d+ (?:\[|[\u2500-\u257f])")
_IN_A_NAME = re.compile(r"\w\([-+.\deE]+\)[\"']?\s*[:=]")  # `lr(1e-3): 0.2`
_OF_A_NAME = re.compile(r"\(\w+ \d+\)[\"']?\s*[:=]")  # `lr (group 0)=0.2`
_JOINING = {"at", "after", "for", "in", "on", "the", "@"}
_DATE = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?")
_CLOCK = re.compile(r"^\[?(?:[IWE] )?\[?(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?[\]\s]")
_KEYED = re.compile(  # `"key": "train_loss", "value": 2.5` of event logs
    r"([\"'])(?:key|name|metric|tag)\1:\s*([\"'])(?P<name>[A-Za-z][\w/.-]*)\2,\s*"
    r"([\"'])(?:value|val)\4:\s*(?=[-+\d.])"
)
_STAMP_WITHIN = 120


@dataclass(frozen=True)
class Printed:
    """One number of a line.

    A time is in seconds and has the unit `s`; any other value is as printed, in `unit` (lower
    case, "" where none is written). `suffix`: a multiplier that was written and is in the value.
    `label` is "" only for a time that stands alone in its cell.
    """

    label: str
    value: float
    unit: str = ""
    suffix: str = ""

    @property
    def name(self) -> str:
        """The label with the unit where the value is a time or a rate."""
        per = "/" in self.unit
        if self.unit in SECONDS:
            ends = self.label.endswith(("_s", "s/it")) or self.label.startswith("s/")
            return self.label if ends or not self.label else f"{self.label}_s"
        if per:
            label = self.label
            return label if label.endswith(self.unit) else f"{label}_{self.unit}".strip("_")
        return self.label


def numbers_of(text: str) -> list[Printed]:
    """The numbers of one line, in its order; a counter's label is its own word."""
    if "value" in text:
        text = _KEYED.sub(r'"\g<name>": ', text)
    found: list[Printed] = []
    end, before = 0, ""
    header = _OF_THE_LINE.search(text) if " (" in text else None
    common = header["unit"].lower() if header is not None else ""
    for match in _NUMBER.finditer(text):
        if match.start() < end:
            continue
        value, unit, stop = _value(match, text)
        if value is None:
            continue
        gap = text[end : match.start()]
        words, inner = _label(gap)
        label = words
        begins_cell = not words and (gap.rstrip(" (")[-1:] or ("" if end else "|")) in _SEPARATORS
        if begins_cell:
            behind = _BEHIND.match(text, stop)
            label = _joined(behind["words"]) if behind is not None else ""
        if not label and before:
            label = before  # `loss at step 12: 3.41`
        before = _before_counter(words)
        unit = unit or inner or (common if header and match.start() > header.end() else "")
        one = _in_seconds(label, value, unit, match["suffix"] or "")
        if one.label or (one.unit == "s" and begins_cell):
            found.append(one)
        end = stop
    return found


def step_of(found: Sequence[Printed], text: str, *, is_bar: bool) -> float | None:
    """The counter of a line: a word such as `step`, `[12/36]`, a bar's count, else the epoch."""
    known: dict[str, float] = {}
    for one in found:
        word = one.label if one.label == "num_updates" else one.label.rpartition("_")[2]
        counter = "global_step" if one.label.endswith("global_step") else word
        if counter in _RANK_OF_COUNTER and counter not in known and _counts(one, counter):
            known[counter] = one.value
    best = min(known, key=_RANK_OF_COUNTER.__getitem__, default="epoch")
    if best == "epoch":
        bracket = (_IN_A_BAR if is_bar else _IN_BRACKETS).search(text)
        if bracket is not None:
            return float(bracket.group(1))
    return known.get(best)


def _counts(one: Printed, counter: str) -> bool:
    whole = abs(one.value) < 1e15 and one.value == int(one.value)
    if one.unit or not (whole or counter == "epoch"):
        return False
    return one.label == counter or not _NO_COUNTER.search(one.label)


def is_counter(one: Printed) -> bool:
    """Whether a number only says where a line is."""
    return one.label.split("_")[-1] in (*_ANY_COUNTER, "epoch") and not one.unit


def stamp_of(text: str) -> float | None:
    """The time that a logger put at a line's begin, in seconds; of a day where no date is there."""
    date = _DATE.search(text[:_STAMP_WITHIN])
    clock = _CLOCK.match(text)
    match = date or clock
    if match is None:
        return None
    *whole, fraction = match.groups()
    parts = [int(part) for part in whole]
    seconds = calendar.timegm((*parts, 0, 0, 0)) if date else _of_day(parts)
    return seconds + (float(f"0.{fraction}") if fraction else 0.0)


def _of_day(parts: Sequence[int]) -> int:
    hours, minutes, seconds = parts
    return 3600 * hours + 60 * minutes + seconds


def _value(match: re.Match[str], text: str) -> tuple[float | None, str, int]:
    """The value, its unit and where both end; None for a part of a date, a time or a name."""
    if match["word"]:
        return float(match[0].lower().replace("infinity", "inf")), "", match.end()
    if re.match(r"[-:]\d", text[match.end() :]) or _is_of_a_name(text, match):
        return None, "", match.end()
    unit, end = (match["unit"] or "").lower(), match.end()
    if unit and not _is_unit(unit):
        return None, "", end
    number = match[0][: match.end("digits") - match.start()].replace(",", "")
    value = float(number) * _MULTIPLIER.get(match["suffix"] or "", 1.0)
    if not unit:
        detached = _DETACHED.match(text, end)
        if detached and _is_unit(detached[1].lower()):
            unit, end = detached[1].lower(), detached.end()
    return value, unit, end


def _is_of_a_name(text: str, match: re.Match[str]) -> bool:
    """Whether a number stands in brackets that end a label."""
    if text[match.end() : match.end() + 1] != ")":
        return False
    bracket = text.rfind("(", max(0, match.start() - 20), match.start())
    named = bracket >= 0 and _OF_A_NAME.match(text, bracket)
    return bool(named or _IN_A_NAME.match(text, match.start() - 2))


def _is_unit(unit: str) -> bool:
    what, *per = unit.split("/")
    if len(per) == 2:
        return per[0] in SECONDS and per[1] in _PER_DEVICE
    if per:
        return per[0] in SECONDS or (what in SECONDS and per[0] in _PER_STEP)
    return unit in SECONDS or unit in _SIZES


def _label(gap: str) -> tuple[str, str]:
    """The words right before a number, joined by `_`, and a unit in brackets behind them."""
    match = _LABEL.search(gap)
    if match is None:
        return "", ""
    unit = (match["unit"] or "").lower()
    return _joined(match["words"]).removesuffix("_is"), unit if _is_unit(unit) else ""


def _joined(words: str) -> str:
    return words.lower().strip("-./").replace(" ", "_")


def _in_seconds(label: str, value: float, unit: str, suffix: str) -> Printed:
    what, *per = unit.split("/")
    if what in SECONDS:
        label = label or (f"s/{per[0]}" if per else "")
        return Printed(label, value * SECONDS[what], "s")
    if per:
        device = f"/{per[1]}" if len(per) > 1 else ""
        rate = f"{what}/s{device}"
        return Printed(label or rate, value, rate, suffix)
    return Printed(label, value, unit, suffix)


def _before_counter(words: str) -> str:
    parts = words.split("_")
    if len(parts) < 3 or parts[-1] not in _ANY_COUNTER or parts[-2] not in _JOINING:
        return ""
    return "_".join(part for part in parts[:-2] if part not in _JOINING)

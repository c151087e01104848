"""Plain words of YAML as values, and values as words that every YAML loader reads alike."""

import json
import math
import re

from infrarsi.contract import Scalar

_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON")
_FALSE = ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF")
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*)")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_OTHER_INT = re.compile(r"[-+]?0[0-9_]+|0[bo][0-9_]+|[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9_]*)?")
_FLOAT = re.compile(r"[-+]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
_SPECIAL = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([Tt \t].*)?")
_PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./+-]*")
_READ_OTHERWISE = {word.lower() for word in (*_NULL, *_TRUE, *_FALSE, "y", "n", "none")}


def read_plain(text: str) -> tuple[Scalar | None, str]:
    """The value of a word without quotes as PyYAML reads it, and why it cannot be known.

    `1e-4` is a number here, although PyYAML leaves it a text: a program that takes it for a
    learning rate makes a number of it.
    """
    if text in _NULL:
        return None, ""
    if text in _TRUE or text in _FALSE:
        return text in _TRUE, ""
    if _INT.fullmatch(text):
        return int(text.replace("_", "")), ""
    if _HEX.fullmatch(text):
        return int(text, 16), ""
    if _OTHER_INT.fullmatch(text):
        return None, f"`{text}` is another number to each version of YAML"
    if _DATE.fullmatch(text):
        return None, f"`{text}` is a date"
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", "")), ""
    if text.lower() in _SPECIAL:
        return _SPECIAL[text.lower()], ""
    return text, ""


def written(value: Scalar, like: str = "") -> str:
    """A value as a word; `like` is what stands there now, whose quotes a text keeps."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float(value)
    quote = like[:1]
    if quote == "'" and "\n" not in value:
        return "'" + value.replace("'", "''") + "'"
    is_plain = _PLAIN_WORD.fullmatch(value) and value.lower() not in _READ_OTHERWISE
    return value if is_plain and quote != '"' else json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    """With a point, without which an exponent is a text to PyYAML."""
    if math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    if math.isnan(value):
        return ".nan"
    mantissa, exponent, power = repr(value).partition("e")
    if exponent and "." not in mantissa:
        mantissa += ".0"
    return mantissa + exponent + power

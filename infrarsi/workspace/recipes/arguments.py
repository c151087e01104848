"""Adding keyword arguments to a call in the way the call is already written."""

import libcst as cst

from infrarsi.workspace.recipes.source import Edit, Source

LINE_LENGTH = 100


def add_keywords(source: Source, call: cst.Call, text: str) -> list[Edit]:
    """Edits that append `text` (`fused=True`, or several joined by `, `) to a call's arguments.

    One argument a line stays one argument a line, a trailing comma stays trailing, and a bare
    generator, which may not have a neighbour, gets its brackets.
    """
    if not call.args:
        end = source.span(call)[1] - 1 - len(call.rpar)
        end = source.text.rindex(")", 0, end + 1)
        return [Edit(end, end, text)]
    last = call.args[-1]
    end = source.span(last)[1]
    edits: list[Edit] = []
    if isinstance(last.value, cst.GeneratorExp) and not last.value.lpar:
        start = source.span(last.value)[0]
        edits.append(Edit(start, start, "("))
        text = "), " + text
        return [*edits, Edit(end, end, text)]
    comma_end = _comma_end(source, last, end)
    if _one_a_line(source, call):
        return edits + _own_lines(source, last, end, comma_end, text)
    if comma_end is not None:
        return [*edits, Edit(comma_end, comma_end, f" {text},")]
    line_start = source.text.rfind("\n", 0, end) + 1
    line_end = source.text.find("\n", end)
    length = (line_end if line_end >= 0 else len(source.text)) - line_start + len(text) + 2
    if length > LINE_LENGTH:
        column = source.span(call.args[0])[0]
        column -= source.text.rfind("\n", 0, column) + 1
        return [*edits, Edit(end, end, "," + source.newline + " " * column + text)]
    return [*edits, Edit(end, end, f", {text}")]


def _comma_end(source: Source, last: cst.Arg, end: int) -> int | None:
    if not isinstance(last.comma, cst.Comma):
        return None
    between = source.text.index(",", end)
    return between + 1


def _one_a_line(source: Source, call: cst.Call) -> bool:
    """Whether the first and the last argument each stand at the start of a line."""
    return all(_starts_line(source, arg) for arg in (call.args[0], call.args[-1]))


def _starts_line(source: Source, arg: cst.Arg) -> bool:
    start = source.span(arg)[0]
    return not source.text[source.text.rfind("\n", 0, start) + 1 : start].strip()


def _own_lines(
    source: Source, last: cst.Arg, end: int, comma_end: int | None, text: str
) -> list[Edit]:
    start = source.span(last)[0]
    indent = source.text[source.text.rfind("\n", 0, start) + 1 : start]
    after = comma_end if comma_end is not None else end
    line_end = source.text.find("\n", after)
    rest = source.text[after:line_end].strip()
    lines = source.newline.join(indent + part for part in text.split(", "))
    if comma_end is not None:
        lines = lines.replace(source.newline, "," + source.newline) + ","
    else:
        lines = lines.replace(source.newline, "," + source.newline)
    if rest and not rest.startswith("#"):
        join = " " if comma_end is not None else ", "
        return [Edit(after, after, join + text)]
    edits = [] if comma_end is not None else [Edit(end, end, ",")]
    at = line_end - (1 if source.text[:line_end].endswith("\r") else 0)
    return [*edits, Edit(at, at, source.newline + lines)]

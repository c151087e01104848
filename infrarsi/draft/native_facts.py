"""The split of an update in a program with a loop of its own, where no stack's words say it.

A batch flag is one process's batch unless the program divides it; then what it means is not told
by its name. Nothing is assumed of a program that speaks of accumulation without a flag for it.
"""

import ast
import re
from collections.abc import Iterator

from infrarsi.draft.batch import Batch
from infrarsi.draft.settings import Setting
from infrarsi.draft.slicing import cut_at
from infrarsi.draft.sources import Sources, mentions
from infrarsi.draft.workload import Length
from infrarsi.draft.workload_facts import Fact

_ACCUMULATES = re.compile(r"accum|no_sync|micro_?step|micro_?batch|update_freq", re.IGNORECASE)


def split_facts(batch: Batch, sources: Sources, data_parallel: int | None) -> Iterator[Fact]:
    """Micro batch, accumulation and the whole, as far as flags and code say them."""
    size = _micro(batch, sources)
    if size is None:
        yield from _of_the_whole(batch, sources, data_parallel)
        return
    yield size
    times = _times(batch, size, sources, data_parallel)
    if times is None:
        return
    yield times
    if data_parallel is not None:
        whole = int(size.value) * int(times.value) * data_parallel
        told = f"{size.told}; {times.told}; {data_parallel} data-parallel processes"
        yield Fact("global_batch", whole, told)


def length_facts(size: Length) -> Iterator[Fact]:
    """The epochs of a job whose length is not written in steps."""
    if size.epochs is not None:
        value = size.epochs.value
        if isinstance(value, int | float) and value > 0:
            whole = int(value) if value == int(value) else value
            yield Fact("epochs", whole, _told(size.epochs))


def _micro(batch: Batch, sources: Sources) -> Fact | None:
    setting = batch.micro
    if setting is None or not _is_count(setting) or _is_divided(setting, sources):
        return None
    if cut_at(sources):
        return None
    return Fact("micro_batch", int(setting.value or 0), _told(setting))


def _times(batch: Batch, size: Fact, sources: Sources, data_parallel: int | None) -> Fact | None:
    setting = batch.accumulation
    if setting is None:
        if batch.whole is not None:
            return _of_a_whole(batch.whole, size, sources, data_parallel)
        if not any(_ACCUMULATES.search(file.text) for file in sources.files):
            return Fact("accumulation", 1, "nothing in the program accumulates gradients")
        return None
    if not _is_count(setting):
        return None
    times = int(setting.value or 0)
    if _is_divided(setting, sources):
        if data_parallel is None or times % data_parallel:
            return None
        told = f"{_told(setting)}, divided by {data_parallel} processes"
        return Fact("accumulation", times // data_parallel, told)
    return Fact("accumulation", times, _told(setting))


def _of_a_whole(
    setting: Setting, size: Fact, sources: Sources, data_parallel: int | None
) -> Fact | None:
    """One process's share is the quotient; of several it depends on what else is divided."""
    if data_parallel != 1 or not _is_count(setting) or not _is_divided(setting, sources):
        return None
    times, rest = divmod(int(setting.value or 0), int(size.value))
    told = f"{_told(setting)}, divided by the micro batch"
    return None if rest or not times else Fact("accumulation", times, told)


def _of_the_whole(batch: Batch, sources: Sources, data_parallel: int | None) -> Iterator[Fact]:
    """A program that is given the whole and divides it by nothing but the processes."""
    setting = batch.whole
    if setting is None or batch.micro is not None or batch.accumulation is not None:
        return
    if not _is_count(setting) or data_parallel is None or int(setting.value or 0) % data_parallel:
        return
    if any(_ACCUMULATES.search(file.text) for file in sources.files):
        return
    if _is_divided(setting, sources):
        told = f"{_told(setting)}, divided by {data_parallel} processes"
        yield Fact("micro_batch", int(setting.value or 0) // data_parallel, told)
        yield Fact("accumulation", 1, "nothing in the program accumulates gradients")


def _is_divided(setting: Setting, sources: Sources) -> bool:
    """Whether the program divides the value; a number of workers or a rate is no such quotient."""
    for file in sources.files:
        if not file.has_near(setting.dest, ("/",)):
            continue
        nodes: list[ast.AugAssign | ast.BinOp] = [*file.of(ast.AugAssign), *file.of(ast.BinOp)]
        for node in nodes:
            divided = node.target if isinstance(node, ast.AugAssign) else node.left
            if isinstance(node.op, ast.Div | ast.FloorDiv) and _is_it(divided, setting):
                return True
    return False


def _is_it(node: ast.expr, setting: Setting) -> bool:
    plain = isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
    return plain and mentions(node, setting.dest)


def _is_count(setting: Setting) -> bool:
    value = setting.value
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _told(setting: Setting) -> str:
    verb = "passes" if setting.is_given else "defaults to"
    return f"{setting.origin} {verb} {setting.place.name} {setting.value}"

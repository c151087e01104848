"""Recipes: the training DataLoader gets worker processes, and pinned memory.

`persistent_workers=True` is deliberately not set: an iterator of a DataLoader draws one number
from torch's global generator, persistent workers keep their first iterator, and so from the second
epoch on shuffling and dropout would see other random numbers (tested).
"""

from collections.abc import Mapping

import libcst as cst

from infrarsi.workspace.recipes.arguments import add_keywords
from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.batch_moves import moves
from infrarsi.workspace.recipes.loader_safety import is_evaluation, worker_hazard
from infrarsi.workspace.recipes.source import Edit, Source, argument, is_starred, literal, parse_all

LOADER = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
_NO_LOADER = "no torch DataLoader is constructed in the editable files"


class DataLoaderWorkers:
    """Adds `num_workers=2` to training DataLoaders that load in the training process.

    Fits only where the dataset's class is seen and neither draws random numbers nor keeps state.
    """

    name = "dataloader_workers"
    family = "dataloader_workers"
    title = "batches loaded by worker processes"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`: every DataLoader is judged by itself; one that fits is enough."""
        sources = parse_all(files)
        if isinstance(sources, Declined):
            return sources
        changed, notes, refusals = {}, [], []
        for source in sources:
            edits: list[Edit] = []
            for call in source.calls(*LOADER):
                reason = _workers_refusal(source, call) or worker_hazard(sources, source, call)
                if reason is not None:
                    refusals.append(
                        reason if ".py:" in reason else f"{source.where(call)}: {reason}"
                    )
                    continue
                given = argument(call, "num_workers", 5)
                edits += (
                    [source.replace(given, "2")]
                    if given is not None
                    else add_keywords(source, call, "num_workers=2")
                )
                notes.append(f"{source.where(call)}: batches are loaded by 2 worker processes")
            if edits:
                changed[source.path] = source.edited(edits)
        if changed:
            return Applied(changed, tuple(notes + [f"left as it is: {r}" for r in refusals]))
        return Declined(refusals[0] if refusals else _NO_LOADER)


def _workers_refusal(source: Source, call: cst.Call) -> str | None:
    if is_starred(call):
        return "some of its arguments are not seen"
    given = argument(call, "num_workers", 5)
    if given is not None and literal(given) is ...:
        return f"`num_workers` is a setting of the job already (`{source.code(given)}`)"
    if given is not None and literal(given) != 0:
        return "already has worker processes"
    if is_evaluation(source, call):
        return "is for evaluation only"
    for name in ("worker_init_fn", "generator", "multiprocessing_context", "timeout"):
        if argument(call, name) is not None:
            return f"`{name}` ties it to the way it loads now"
    return None


class PinMemory:
    """Adds `pin_memory=True` to training DataLoaders and `non_blocking=True` where batches move."""

    name = "pin_memory"
    family = "dataloader_pin_memory"
    title = "pinned batches, copied without waiting"
    needs: tuple[str, ...] = ()

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        sources = parse_all(files)
        if isinstance(sources, Declined):
            return sources
        edits: dict[str, list[Edit]] = {}
        notes, refusals = [], []
        for source in sources:
            for call in source.calls(*LOADER):
                reason = _pin_refusal(source, call)
                if reason is not None:
                    refusals.append(f"{source.where(call)}: {reason}")
                    continue
                given = argument(call, "pin_memory", 7)
                edits.setdefault(source.path, []).extend(
                    [source.replace(given, "True")]
                    if given is not None
                    else add_keywords(source, call, "pin_memory=True")
                )
                notes.append(f"{source.where(call)}: batches are built in pinned memory")
        if not edits:
            return Declined(refusals[0] if refusals else _NO_LOADER)
        found = moves(sources)
        if isinstance(found, Declined):
            return found
        for source, call, text in found:
            edits.setdefault(source.path, []).extend(add_keywords(source, call, text))
            notes.append(f"{source.where(call)}: the copy does not wait")
        changed = {s.path: s.edited(edits[s.path]) for s in sources if s.path in edits}
        return Applied(changed, tuple(notes))


def _pin_refusal(source: Source, call: cst.Call) -> str | None:
    if is_starred(call):
        return "some of its arguments are not seen"
    given = argument(call, "pin_memory", 7)
    if given is not None and literal(given) is ...:
        return f"`pin_memory` is a setting of the job already (`{source.code(given)}`)"
    if given is not None and literal(given) is True:
        return "already pins its batches"
    if is_evaluation(source, call):
        return "is for evaluation only"
    return None

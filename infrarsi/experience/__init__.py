"""Packs: write what a run measured, read it back, and say what packs make likely of a job."""

from infrarsi.experience.canonical import Words
from infrarsi.experience.files import as_lines, as_yaml, lines_of, load
from infrarsi.experience.library import Library, library_folder, read_library, selected, store
from infrarsi.experience.pack import SCHEMA, Change, Context, Pack
from infrarsi.experience.prior import Matched, matched
from infrarsi.experience.record import context, context_of, pack_from, pack_of
from infrarsi.experience.similarity import similarity

__all__ = [
    "SCHEMA",
    "Change",
    "Context",
    "Library",
    "Matched",
    "Pack",
    "Words",
    "as_lines",
    "as_yaml",
    "context",
    "context_of",
    "library_folder",
    "lines_of",
    "load",
    "matched",
    "pack_from",
    "pack_of",
    "read_library",
    "selected",
    "similarity",
    "store",
]

"""The user's project: copied once, varied for each trial, and changed only by `applying`."""

from infrarsi.workspace.applying import Change, FileChange, plan, write, write_on_branch
from infrarsi.workspace.frozen import differing, freeze
from infrarsi.workspace.frozen_tests import frozen_tests
from infrarsi.workspace.overlay import overlay, resuming
from infrarsi.workspace.patching import PatchFailed
from infrarsi.workspace.snapshot import (
    Limits,
    digests,
    notes,
    take,
    tree_digest,
    verify_unchanged,
)
from infrarsi.workspace.sources import Sources

__all__ = [
    "Change",
    "FileChange",
    "Limits",
    "PatchFailed",
    "Sources",
    "differing",
    "digests",
    "freeze",
    "frozen_tests",
    "notes",
    "overlay",
    "plan",
    "resuming",
    "take",
    "tree_digest",
    "verify_unchanged",
    "write",
    "write_on_branch",
]

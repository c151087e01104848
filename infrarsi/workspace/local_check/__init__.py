"""Local checks: old and new code of a patch, run on recorded inputs before it costs a trial."""

from infrarsi.workspace.local_check.changes import has_checkable
from infrarsi.workspace.local_check.check import check
from infrarsi.workspace.local_check.outcome import CheckOutcome, CheckStatus
from infrarsi.workspace.local_check.recording import Recording, record

__all__ = ["CheckOutcome", "CheckStatus", "Recording", "check", "has_checkable", "record"]

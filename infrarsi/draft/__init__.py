"""Reading a job: a launch script and its program become a first infrarsi.yaml; nothing is run."""

from infrarsi.draft.completing import complete, is_short
from infrarsi.draft.drafting import Draft, Evidence, Question, draft
from infrarsi.draft.launching import Today, today
from infrarsi.draft.machine import Machine

__all__ = [
    "Draft",
    "Evidence",
    "Machine",
    "Question",
    "Today",
    "complete",
    "draft",
    "is_short",
    "today",
]

"""Launch scripts: what they start, with which arguments, and how to change one of them.

    script = Script.parse(text, "train.sh")
    script.training_command().argument("--lr").value
    script.with_flag("--lr", "3e-4").text

Used by `draft` (reading) and `workspace` (editing).
"""

from infrarsi.scripts.documents import Document
from infrarsi.scripts.launchers import CONSOLE
from infrarsi.scripts.model import (
    Argument,
    Assignment,
    Mount,
    ScriptCall,
    TrainingCommand,
    Wrapping,
    Write,
)
from infrarsi.scripts.script import Script

__all__ = [
    "CONSOLE",
    "Argument",
    "Assignment",
    "Document",
    "Mount",
    "Script",
    "ScriptCall",
    "TrainingCommand",
    "Wrapping",
    "Write",
]

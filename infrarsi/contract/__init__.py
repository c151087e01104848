"""The words of the project as types: what is written down, asked for, and sent back.

No room below imports anything but `infrarsi.errors`; nothing here does I/O except `files`.
"""

from infrarsi.contract.candidate import Candidate, Patch, PatchOrigin
from infrarsi.contract.constraints import Constraint
from infrarsi.contract.execution import (
    CHECKPOINT_DIR_TOKEN,
    CHECKPOINT_TOKEN,
    SINKS_TOKEN,
    ExecutionRequest,
    ExecutionResult,
    NodeInfo,
    Overlay,
    Purpose,
    RunKind,
    SnapshotRef,
)
from infrarsi.contract.learned import Experience, Fault, Learned, LearnedEffect, Normal
from infrarsi.contract.outcome import Outcome
from infrarsi.contract.places import Place, PlaceChange, PlaceKind, Scalar
from infrarsi.contract.project import (
    BACKENDS,
    CONTRACT_KEYS,
    SCHEMA,
    STACKS,
    Budget,
    Knob,
    Launch,
    Project,
    ValueChange,
    Workload,
)
from infrarsi.contract.record import RankRecord, StepRecord
from infrarsi.contract.space import Dimension, DimensionKind, Effect, Point, Space, point_key
from infrarsi.contract.touch import AREAS, Touch
from infrarsi.contract.trial import ActiveTrial, Exhausted, NotYet, Proposal, Setting, Trial
from infrarsi.contract.verdict import CHECKS, LAYERS, CheckResult, Status, Verdict

__all__ = [
    "AREAS",
    "BACKENDS",
    "CHECKPOINT_DIR_TOKEN",
    "CHECKPOINT_TOKEN",
    "CHECKS",
    "CONTRACT_KEYS",
    "LAYERS",
    "SCHEMA",
    "SINKS_TOKEN",
    "STACKS",
    "ActiveTrial",
    "Budget",
    "Candidate",
    "CheckResult",
    "Constraint",
    "Dimension",
    "DimensionKind",
    "Effect",
    "ExecutionRequest",
    "ExecutionResult",
    "Exhausted",
    "Experience",
    "Fault",
    "Knob",
    "Launch",
    "Learned",
    "LearnedEffect",
    "NodeInfo",
    "Normal",
    "NotYet",
    "Outcome",
    "Overlay",
    "Patch",
    "PatchOrigin",
    "Place",
    "PlaceChange",
    "PlaceKind",
    "Point",
    "Project",
    "Proposal",
    "Purpose",
    "RankRecord",
    "RunKind",
    "Scalar",
    "Setting",
    "SnapshotRef",
    "Space",
    "Status",
    "StepRecord",
    "Touch",
    "Trial",
    "ValueChange",
    "Verdict",
    "Workload",
    "point_key",
]

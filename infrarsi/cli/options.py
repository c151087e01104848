"""The options that several commands share, and how their values are read."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from infrarsi.errors import UserError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(h|m|s|min|)")
HERE = Path()
_HOURS = {"h": 1.0, "": 1.0, "m": 1 / 60, "min": 1 / 60, "s": 1 / 3600}


class OnInterrupt(StrEnum):
    """What Ctrl-C does during the search."""

    VERIFY = "verify"
    STOP = "stop"


class SearcherName(StrEnum):
    """The search strategies."""

    HYPOTHESIS = "hypothesis"
    OPTUNA = "optuna"
    HYPEROPT = "hyperopt"
    RANDOM = "random"
    OFAT = "ofat"


Llm = Annotated[
    str | None,
    typer.Option("--llm", help="Model that proposes; only `none` in this version."),
]
Screens = Annotated[
    int | None, typer.Option("--screens", "--trials", min=1, help="Budget in trials [16].")
]
WallClock = Annotated[
    str | None,
    typer.Option("--max-wallclock", "--wall-hours", help="Budget of time: 90m, 2h, 3600s, hours."),
]
GpuHours = Annotated[float | None, typer.Option("--gpu-hours", min=0, help="Budget in GPU-hours.")]
TargetSpeedup = Annotated[
    float | None, typer.Option("--target-speedup", help="Stop the search at this speed-up (> 1).")
]
Tolerance = Annotated[
    float | None, typer.Option("--tolerance", help="Accepted relative loss deviation [0.03].")
]
Searcher = Annotated[
    SearcherName | None, typer.Option("--searcher", help="Search strategy [hypothesis].")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the search [0].")]
Interrupt = Annotated[
    OnInterrupt,
    typer.Option(
        "--on-interrupt", help="Ctrl-C in the search: verify the best so far, or stop at once."
    ),
]
Experience = Annotated[
    str | None,
    typer.Option(
        "--experience", help="Packs to start from: auto (all), off, or patterns of ids [auto]."
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder of the runs [.infrarsi/runs here].")
]
RayAddress = Annotated[
    str | None, typer.Option("--ray-address", help="Use this Ray cluster instead of a local one.")
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print every progress line.")]
Yes = Annotated[
    bool, typer.Option("-y", "--yes", help="No questions; the verified change is applied.")
]
Interactive = Annotated[
    bool | None,
    typer.Option("--interactive/--no-interactive", help="Ask before starting [in a terminal]."),
]
Entry = Annotated[
    str | None, typer.Option("--entry", help="Training entry script, relative to the project.")
]
Command = Annotated[
    str | None, typer.Option("--command", help="The command line that the job runs with today.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Draft infrarsi.yaml again even if one exists.")
]
NoDoctor = Annotated[
    bool, typer.Option("--no-doctor", help="Only the reference runs that the search needs.")
]
Branch = Annotated[
    str | None, typer.Option("--branch", help="Write the change on this new git branch.")
]
Target = Annotated[
    Path, typer.Argument(help="Launch script, folder, or infrarsi.yaml [this folder].")
]
RunDir = Annotated[
    Path | None,
    typer.Argument(
        metavar="[RUN]",
        help="Run directory, the name of a run, or a project [this folder's newest run].",
    ),
]
ProjectDir = Annotated[
    Path | None,
    typer.Option("--project", help="The project that is changed [the one the run was made of]."),
]

Rejudge = Annotated[
    bool,
    typer.Option("--rejudge", help="Judge the stored receipts again, offline; 2 if they differ."),
]
Baseline = Annotated[
    Path | None,
    typer.Option("--baseline", help="Known-good figures (YAML or JSON) to check the reference by."),
]


@dataclass(frozen=True)
class Preferences:
    """Command-line values that stand above those of infrarsi.yaml; None leaves the file's."""

    llm: str | None = None
    screens: int | None = None
    wall_hours: float | None = None
    gpu_hours: float | None = None
    target_speedup: float | None = None
    tolerance: float | None = None
    searcher: str | None = None
    seed: int | None = None
    ray_address: str | None = None
    experience: str | None = None


def hours(text: str | None) -> float | None:
    """Hours from `90m`, `2h`, `3600s` or plain hours."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or float(match.group(1)) <= 0:
        raise UserError(
            f"`--max-wallclock` is {text!r}, but must be a duration above zero",
            where="command line",
            fix="write it as 90m, 2h, 3600s or, in hours, 2.5",
        )
    return float(match.group(1)) * _HOURS[match.group(2)]

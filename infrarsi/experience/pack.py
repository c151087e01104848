"""Packs: what a run measured, in the words of knob families so that it carries over."""

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from infrarsi.contract import Outcome, Scalar
from infrarsi.runs import RunState

SCHEMA = "infrarsi-pack-v1"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class MeasuredOn(_Model):
    """What it was measured on."""

    stack: str
    gpu: str | None
    nodes: int
    gpus_per_node: int
    cpus_per_node: int
    samples_per_update: int | None
    elements_per_update: dict[str, int]
    reference_step_s: float
    step_log_sd: float


class Experiment(_Model):
    """One trial: family values that differ from the reference, and what came of it."""

    changes: dict[str, Scalar]
    outcome: str
    same_job: bool | None
    log_time: float | None = None  # log of step time over the reference's; negative is faster
    peak_bytes: int | None = None


class Winner(_Model):
    """The verified change."""

    changes: dict[str, Scalar]
    recipes: list[str]
    patch: str
    speedup: float
    speedup_low: float
    speedup_high: float
    pairs: int


class Pack(_Model):
    """One run's experience."""

    schema_: Literal["infrarsi-pack-v1"] = Field("infrarsi-pack-v1", alias="schema")
    id: str
    title: str
    measured_on: MeasuredOn
    families: dict[str, str]  # change name to knob family
    reference: dict[str, Scalar]
    experiments: list[Experiment]
    winner: Winner | None


def pack_of(state: RunState) -> Pack:
    """The pack of a run whose reference has been measured."""
    import math

    dimensions = state.space.get("dimensions", [])
    reference = {d["name"]: d["reference"] for d in dimensions}
    base = state.reference["step_time_s"]
    node = next((e.nodes[0] for e in state.executions if e.nodes), {})

    def changes(point: dict[str, Any]) -> dict[str, Scalar]:
        return {k: v for k, v in point.items() if reference.get(k) != v}

    experiments = [
        Experiment(
            changes=changes(line.trial.point),
            outcome=str(line.trial.outcome),
            same_job=line.trial.same_job,
            log_time=math.log(line.trial.step_time_s / base)
            if line.trial.step_time_s and line.trial.outcome is Outcome.OK
            else None,
            peak_bytes=line.trial.peak_bytes,
        )
        for line in state.trials
        if line.trial.device_s
    ]
    return Pack(
        schema=SCHEMA,
        id=f"{state.started['name']}-{state.started['run_id']}",
        title=f"{state.started['name']} on {node.get('gpu_name') or 'CPU'}",
        measured_on=MeasuredOn(
            stack=state.started["stack"],
            gpu=node.get("gpu_name"),
            nodes=1,
            gpus_per_node=len(node.get("gpus") or ()),
            cpus_per_node=node.get("cpus", 0),
            samples_per_update=state.reference["samples_per_update"],
            elements_per_update=state.reference["elements_per_update"],
            reference_step_s=base,
            step_log_sd=state.reference["step_log_sd"],
        ),
        families={d["name"]: d["family"] for d in dimensions},
        reference=reference,
        experiments=experiments,
        winner=_winner(state, changes(state.points.get(state.promoted_id or "", {}))),
    )


def _winner(state: RunState, changes: dict[str, Scalar]) -> Winner | None:
    promoted = state.promoted_id
    if promoted is None:
        return None
    entry, candidate = state.verified[promoted], state.candidates[promoted]
    return Winner(
        changes=changes,
        recipes=list(candidate.patch_names),
        patch=candidate.patch.diff if candidate.patch else "",
        speedup=entry["speedup"],
        speedup_low=entry["low"],
        speedup_high=entry["high"],
        pairs=len(state.pairs_of(promoted)),
    )


def dumps(pack: Pack) -> str:
    """The pack as YAML text."""
    import io

    from ruamel.yaml import YAML

    stream = io.StringIO()
    yaml = YAML()
    yaml.width = 4096
    yaml.dump(pack.model_dump(mode="json", by_alias=True), stream)
    return stream.getvalue()


def load(path: Path) -> Pack:
    """Read a pack; raises UserError naming the file."""
    from pydantic import ValidationError
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from infrarsi.errors import UserError

    try:
        return Pack.model_validate(YAML(typ="safe").load(path.read_text()))
    except (OSError, YAMLError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UserError(
            f"the pack cannot be read: {first}",
            where=str(path),
            fix=f"its `schema` must be {SCHEMA!r}",
        ) from error

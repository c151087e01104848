"""What a run measured, as a pack. Names, paths, hosts, commands and logs of the job stay out."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from infrarsi import contract
from infrarsi.contract import (
    Dimension,
    DimensionKind,
    Learned,
    Outcome,
    PatchOrigin,
    Scalar,
    Trial,
)
from infrarsi.experience.canonical import Words
from infrarsi.experience.pack import (
    Change,
    Context,
    Effect,
    Failure,
    Pack,
    PatchRecord,
)
from infrarsi.runs import RunState

_OUT_OF_MEMORY = (Outcome.OOM_GPU, Outcome.OOM_HOST)
_NOT_THE_SAME_JOB = "not_the_same_job"
_INTEGERS = ("int64", "int32", "int16", "uint8", "int8")


def pack_of(state: RunState) -> Pack:
    """The pack of a run whose reference has been measured."""
    words = Words([_dimension(each) for each in state.space.get("dimensions", ())])
    context = context_of(state)
    started, reference = state.started, state.reference
    return pack_from(
        f"{_short(context)}-{started['run_id']}",
        title_of(context),
        context,
        words,
        Learned.from_dict(state.learned) if state.learned else Learned(),
        [line.trial for line in state.trials if line.trial.device_s],
        change=_change(state, words),
        reference_step_s=reference["step_time_s"],
        step_log_sd=reference["step_log_sd"],
    )


def pack_from(
    pack_id: str,
    title: str,
    context: Context,
    words: Words,
    learned: Learned,
    trials: Sequence[Trial],
    *,
    change: Change | None = None,
    reference_step_s: float | None = None,
    step_log_sd: float | None = None,
) -> Pack:
    """The pack of these trials, of which `learned` is what they teach."""
    faults = [
        (values, fault.probability, ended)
        for fault in learned.faults
        if (values := _values(words, fault.settings)) and (ended := _ended(fault.settings, trials))
    ]
    records = [Failure(values=v, outcome=o, probability=min(p, 1.0)) for v, p, o in faults]
    return Pack(
        schema="infrarsi-pack-v1",
        id=pack_id,
        title=title,
        context=context,
        reference=words.reference,
        reference_step_s=reference_step_s,
        step_log_sd=step_log_sd,
        trials=len(trials),
        effects=[
            Effect(
                family=word[0],
                value=word[1],
                log_time=_rounded(each.log_time),
                log_memory=_rounded(each.log_memory),
            )
            for each in learned.effects
            if (word := words.word(*each.setting))
        ],
        failures=[*_out_of_memory(words, trials), *(r for r in records if len(r.values) == 1)],
        conflicts=[record for record in records if len(record.values) > 1],
        change=change,
    )


def context_of(state: RunState) -> Context:
    """What a run runs on, as far as its journal knows."""
    nodes = next((e.nodes for e in state.executions if e.nodes), ())
    node: Mapping[str, Any] = nodes[0] if nodes else {}
    reference = state.reference
    return context(
        stack=state.started["stack"],
        gpu=node.get("gpu_name"),
        nodes=len(nodes),
        gpus_per_node=len(node.get("gpus") or ()),
        samples=reference.get("samples_per_update"),
        elements=reference.get("elements_per_update") or {},
        num_parameters=reference.get("num_parameters"),
        versions=reference.get("versions") or {},
    )


def context(
    *,
    stack: str,
    gpu: str | None,
    nodes: int,
    gpus_per_node: int,
    samples: int | None,
    elements: Mapping[str, int],
    num_parameters: int | None,
    versions: Mapping[str, str],
) -> Context:
    """A context; `elements` of an update's inputs by `name:dtype` give the sequence length."""
    tokens = [n for name, n in elements.items() if name.rpartition(":")[2] in _INTEGERS]
    length = max(tokens, default=0) // samples if samples else 0
    return Context(
        stack=stack,
        gpu=re.sub(r"[^\w .()+-]", " ", gpu)[:80] if gpu else None,
        nodes=max(nodes, 1),
        gpus_per_node=gpus_per_node,
        num_parameters=num_parameters or None,
        sequence_length=length if length > 1 else None,
        samples_per_update=samples or None,
        versions={k: v for k, v in versions.items() if re.fullmatch(r"[0-9][\w.+-]{0,40}", v)},
    )


def title_of(context: Context) -> str:
    """What a pack is called where nobody names it."""
    if context.gpu is None:
        return f"{context.stack} on a CPU"
    return f"{context.stack} on {context.nodes}x{max(context.gpus_per_node, 1)} {context.gpu}"


def _short(context: Context) -> str:
    """`h200-native-ddp`, for an id that patterns can be written for."""
    gpu = re.sub(r"[^A-Za-z0-9]+", "-", (context.gpu or "cpu").removeprefix("NVIDIA ")).strip("-")
    return f"{gpu.lower()}-{context.stack}"


def _dimension(entry: Mapping[str, Any]) -> Dimension:
    values = tuple(entry["values"])
    return Dimension(
        entry["name"],
        entry["family"],
        DimensionKind(entry["kind"]),
        values,
        entry["reference"],
        (contract.Effect(),) * len(values),
    )


def _values(words: Words, settings: Sequence[tuple[str, Scalar]]) -> dict[str, Scalar]:
    """The settings in canonical words; empty where one of them has none."""
    found = [words.word(*setting) for setting in settings]
    known = [word for word in found if word is not None]
    return dict(known) if len(known) == len(found) else {}


def _ended(settings: Sequence[tuple[str, Scalar]], trials: Sequence[Trial]) -> str | None:
    """How the first failed trial with these settings ended."""
    for trial in trials:
        if trial.outcome is Outcome.OK and trial.same_job is not False:
            continue
        if trial.outcome in _OUT_OF_MEMORY or trial.outcome is Outcome.STOPPED:
            continue
        if all(trial.point.get(name) == value for name, value in settings):
            return _NOT_THE_SAME_JOB if trial.outcome is Outcome.OK else str(trial.outcome)
    return None


def _out_of_memory(words: Words, trials: Sequence[Trial]) -> list[Failure]:
    """The changes that ran out of memory, without those that hold all of another one."""
    ended = [
        (changes, str(trial.outcome))
        for trial in trials
        if trial.outcome in _OUT_OF_MEMORY and (changes := words.changes(trial.point))
    ]
    found: list[Failure] = []
    for changes, outcome in sorted(ended, key=lambda one: len(one[0])):
        if not any(each.values.items() <= changes.items() for each in found):
            found.append(Failure(values=changes, outcome=outcome))
    return found


def _rounded(normal: tuple[float, float] | None) -> tuple[float, float] | None:
    """Four digits behind the point: nothing is measured better."""
    return None if normal is None else (round(normal[0], 4), max(round(normal[1], 4), 1e-4))


def _change(state: RunState, words: Words) -> Change | None:
    promoted = state.promoted_id
    if promoted is None:
        return None
    entry, candidate = state.verified[promoted], state.candidates[promoted]
    if not all(map(math.isfinite, (entry["speedup"], entry["low"], entry["high"]))):
        return None
    is_recipe = candidate.patch is not None and candidate.patch.origin is PatchOrigin.RECIPE
    return Change(
        values=words.changes(state.points.get(promoted, {})),
        patches=[PatchRecord(recipe=name) for name in candidate.patch_names if is_recipe],
        speedup=entry["speedup"],
        speedup_low=entry["low"],
        speedup_high=entry["high"],
        pairs=len(state.pairs_of(promoted)),
    )

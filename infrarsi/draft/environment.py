"""Knobs in the environment of the process that a job need not know of: threads, allocator, NCCL."""

from collections.abc import Mapping

from infrarsi.contract import Knob, Scalar, ValueChange
from infrarsi.draft.knobs import Found, Surroundings, powers_up_to
from infrarsi.draft.target import Target

_THREADS = "OMP_NUM_THREADS"
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_EXPANDABLE = "expandable_segments:True"
_CHANNELS = "NCCL_MIN_NCHANNELS"
_MIN_CHANNELS = (16, 32)


def environment_knobs(
    target: Target, around: Surroundings, environ: Mapping[str, str]
) -> list[Found]:
    """What can be offered for this launch; none for a variable whose value cannot be read."""
    if not around.is_gpu:
        found = _threads(target, around, environ)
        return [found] if found else []
    offers = [_allocator(target, around, environ)]
    if around.processes > 1:
        offers.append(_channels(target, around, environ))
    return [offer for offer in offers if offer is not None]


def _seen(
    name: str, target: Target, around: Surroundings, environ: Mapping[str, str]
) -> tuple[str | None, str] | None:
    """(value or None if unset, where), or None if it cannot be known."""
    assignment = target.training.environment.get(name)
    if assignment is not None:
        where = f"{target.where}:{assignment.line}"
        if assignment.value is None:
            around.unknowns.append(f"`{name}` ({where}): it depends on `{assignment.raw}`")
            return None
        return assignment.value, f"{where} exports {name}={assignment.value}"
    if name in environ:
        return environ[name], f"the environment has {name}={environ[name]}"
    return None, ""


def _threads(target: Target, around: Surroundings, environ: Mapping[str, str]) -> Found | None:
    """torchrun sets one thread where several processes start and nothing is set."""
    seen = _seen(_THREADS, target, around, environ)
    if seen is None:
        return None
    text, where = seen
    if text is not None and text.isdigit():
        reference = int(text)
    elif text is not None:
        return None
    elif target.training.launcher != "python" and around.processes > 1:
        reference, where = 1, "torchrun sets one thread where the job sets none"
    else:
        reference, where = around.machine.cpus, "torch takes all cores where the job sets none"
    values: list[Scalar] = sorted({*powers_up_to(around.cores_each), reference})
    if len(values) < 2:
        return None
    knob = Knob(
        name="cpu_threads",
        family="cpu_threads",
        at=f"env:{_THREADS}",
        values=values,
        reference=reference,
    )
    return Found(knob, where)


def _allocator(target: Target, around: Surroundings, environ: Mapping[str, str]) -> Found | None:
    for name in _ALLOCATOR:
        seen = _seen(name, target, around, environ)
        if seen is None or seen[0] is not None:
            return None  # the job has its own settings for the allocator: they stay
    place = f"env:{_ALLOCATOR[0]}"
    knob = Knob(
        name="allocator",
        family="allocator",
        values={
            "default": ValueChange(remove=[place]),
            "expandable": ValueChange(set={place: _EXPANDABLE}),
        },
        reference="default",
    )
    return Found(knob, "the job does not set it")


def _channels(target: Target, around: Surroundings, environ: Mapping[str, str]) -> Found | None:
    seen = _seen(_CHANNELS, target, around, environ)
    if seen is None or (seen[0] is not None and not seen[0].isdigit()):
        return None
    place = f"env:{_CHANNELS}"
    reference: Scalar = "default" if seen[0] is None else int(seen[0])
    values: dict[Scalar, ValueChange] = {"default": ValueChange(remove=[place])}
    for number in sorted({*_MIN_CHANNELS, *([reference] if isinstance(reference, int) else [])}):
        values[number] = ValueChange(set={place: number})
    knob = Knob(name="nccl_channels", family="nccl_channels", values=values, reference=reference)
    return Found(knob, seen[1] or "the job does not set it")

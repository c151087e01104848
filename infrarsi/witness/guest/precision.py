"""Autocast, dtypes and matrix-product flags, read from the host on close looks."""

import torch

from .states import dtype_lines

TYPES = ("cuda", "cpu")


def autocast_dtype(kind):
    """The dtype that autocast casts to on a device type now, None where it is off."""
    try:
        if torch.is_autocast_enabled(kind):
            return str(torch.get_autocast_dtype(kind))[6:]
    except TypeError:  # torch before 2.4
        if kind == "cpu" and torch.is_autocast_cpu_enabled():
            return str(torch.get_autocast_cpu_dtype())[6:]
        if kind == "cuda" and torch.is_autocast_enabled():
            return str(torch.get_autocast_gpu_dtype())[6:]
    return None


def note_autocast(seen):
    """Add what autocast does now to `seen`, {device type: set of dtypes}."""
    for kind in TYPES:
        dtype = autocast_dtype(kind)
        if dtype is not None:
            seen.setdefault(kind, set()).add(dtype)


class Seen(object):
    """What calls of one kind, training or evaluation, were computed in during one step."""

    def __init__(self):
        self.autocast, self.flags, self.parameters = {}, [], set()

    def note(self):
        """Add what autocast and the switches do now."""
        note_autocast(self.autocast)
        found = flags()
        if found not in self.flags:
            self.flags.append(found)


def flag(read):
    """A flag's value; None where this torch has none or refuses to say."""
    try:
        value = read()
    except Exception:  # old and new names of one setting were mixed: torch raises
        return None
    return value if isinstance(value, (bool, str)) else str(value)


def fp32_precision(backend, operator):
    return flag(lambda: torch._C._get_fp32_precision_getter(backend, operator))


def flags():
    """How torch may round matrix products and convolutions."""
    c = torch._C
    matmul = flag(lambda: c._get_cublas_allow_tf32())
    cudnn = flag(lambda: c._get_cudnn_allow_tf32())
    named = {
        "fp32_precision_cuda": fp32_precision("cuda", "matmul"),
        "fp32_precision_cudnn": fp32_precision("cuda", "conv"),
        "fp32_precision_cpu": fp32_precision("mkldnn", "matmul"),
    }
    if matmul is None:
        matmul = named["fp32_precision_cuda"] == "tf32"
    if cudnn is None:
        cudnn = named["fp32_precision_cudnn"] == "tf32"
    named.update(
        {
            "allow_tf32_matmul": matmul,
            "allow_tf32_cudnn": cudnn,
            "float32_matmul_precision": flag(torch.get_float32_matmul_precision),
            "bf16_reduced": flag(lambda: c._get_cublas_allow_bf16_reduced_precision_reduction()),
            "fp16_reduced": flag(lambda: c._get_cublas_allow_fp16_reduced_precision_reduction()),
            "cudnn_deterministic": flag(lambda: c._get_cudnn_deterministic()),
        }
    )
    return named


def names(dtypes):
    return sorted(str(dtype)[6:] for dtype in dtypes)


def facts(recorder, step, before):
    """All but the step of a precision line; `before` is the last one of a timed run, or None.

    Later close looks of a timed run walk no modules for buffers, and look at autocast in the first
    few module calls only: what they do not see stays as it was said.
    """
    if before is not None:
        buffers = before["buffers"]
    else:
        buffers = names({b.dtype for root in recorder.models for _, b, _ in root.buffers()})
    evaluated = names(step.evaluated.parameters)
    return {
        "autocast": dtypes_of(step.trained, before and before["autocast"]),
        "eval_autocast": dtypes_of(step.evaluated, before and before["eval_autocast"]),
        "eval_parameters": evaluated or (before["eval_parameters"] if before else []),
        "flags": flags(),
        "parameters": names({p.dtype for p in recorder.all_model_parameters()}),
        "gradients": names(step.gradient_dtypes),
        "buffers": buffers,
    }


def dtypes_of(seen, said):
    """What autocast cast to, by device type; what was not seen is as it was said."""
    said = said or {}
    return {k: "+".join(sorted(seen.autocast.get(k, ()))) or said.get(k) for k in TYPES}


def say(recorder, step):
    """Say precision where it changed, and in a timed run once the dtypes of optimizer states.

    Switches that a job sets for a part of the step have a line of their own.
    """
    before = recorder.said_precision
    said = facts(recorder, step, None if recorder.audit else before)
    for found in step.trained.flags + step.evaluated.flags + [said["flags"]]:
        line = dict(said, flags=found)
        if line != recorder.said_precision:
            recorder.said_precision = line
            recorder.channel.line("precision", dict(line, i=step.index), now=False)
    if not recorder.audit and before is None:
        for fields in dtype_lines(recorder):
            recorder.channel.line("state", dict(fields, i=step.index), now=False)

"""Which figure of training a printed label means, and in which unit: by the words of the label.

What the words leave open stays open: `time` is a step's only if the log shows that it is, `GB` may
be 10**9 or 2**30 bytes, `loss` beside `eval` is no training loss.
"""

import re
from enum import StrEnum

from infrarsi.node.printed_line import SECONDS, Printed


class Metric(StrEnum):
    """A figure of a training run that logs hold."""

    STEP_TIME = "step_time_s"
    LOSS = "loss"
    GRAD_NORM = "grad_norm"
    LEARNING_RATE = "learning_rate"
    TOKENS = "tokens_per_s"
    SAMPLES = "samples_per_s"
    TFLOPS = "tflops"
    MFU = "mfu"
    MEMORY = "memory_bytes"


NOT_TRAINING = re.compile(
    r"(^|[/_.-])(eval|evaluation|valid|validation|val|test|dev|heldout)([/_.-]|$)"
)
_LOSS_NAMES = (
    ("loss", "lm_loss", "train_loss", "train/loss", "training_loss", "loss/train", "loss_train"),
    (
        "train_loss_step",
        "loss_step",
        "step_loss",
        "reduced_train_loss",
        "train/lm_loss",
        "train_lm_loss",
    ),
    ("total_loss", "train/total_loss", "loss/total", "loss/train/total", "loss_total"),
    ("train/crossentropyloss", "train/cross_entropy", "cross_entropy_loss", "ce_loss", "nll_loss"),
    ("loss_metrics/global_avg_loss", "avg_loss", "average_loss", "loss_avg", "mean_loss"),
)
_NOT_LOSS = re.compile(
    r"scale|aux|balanc|router|(^|[/_])z_?loss|mtp|kl_|regular|penalty|(^|[/_])(ema|best|min|max|prev|"
    r"last|target|tol|tolerance|weight|coef|threshold|delta|diff|ratio|std|var|steps?|num)([/_]|$)"
    r"|loss_(fn|type|func|mask|time)|_s$"
)
_GRAD_NORM = (
    re.compile(r"(^|[/_])(global_)?grad(ient)?s?[/_]?norm$|^gnorm$|^grdn$|^train/grad_norm$"),
    re.compile(r"(^|/)(total_)?(grad_)?norm$|^total_grad_norm$|^grad$"),
)
_NOT_GRAD_NORM = re.compile(r"max_|clip|param|weight|update|layer|\d")
_LEARNING_RATE = (
    re.compile(r"(^|[/_])(lr|learning_rate)$|^optim\d_lr\d$"),
    re.compile(r"^lr[-/_](\w*adam\w*|sgd|group_?0|pg0|0)|^learning_rate[/_](group_?)?0"),
)
_NOT_LEARNING_RATE = re.compile(r"(^|[/_])(max|min|base|init\w*|peak|end|final|warmup\w*)[/_]")
_RATES = (
    (Metric.TOKENS, re.compile(r"^(tok|toks|token|tokens|words)$")),
    (
        Metric.SAMPLES,
        re.compile(r"^(samples?|imgs?|images?|ex|examples?|seqs?|sequences?|clips?|rows?)$"),
    ),
    (Metric.TFLOPS, re.compile(r"^(tflops?)$")),
    (Metric.STEP_TIME, re.compile(r"^(it|its|iters?|iterations?|steps?|updates?|batch(es)?)$")),
)
_RATE_LABELS = (
    (
        Metric.TOKENS,
        re.compile(r"(tok|token|words)s?(/|_?per_?)(gpu/|gpu_?per_?)?s(ec(ond)?s?)?(_|/|$)"),
    ),
    (Metric.TOKENS, re.compile(r"(^|[/_])(tps|wps|tgs|tok/sec)$")),
    (
        Metric.SAMPLES,
        re.compile(
            r"(samples?|imgs?|images?|examples?|seqs?|sequences?)(/|_?per_?)s(ec(ond)?)?(_|$)"
        ),
    ),
    (
        Metric.STEP_TIME,
        re.compile(r"(it|iters?|steps?|batch(es)?|updates?)(/|_per_)s(ec(ond)?)?$|^ups$"),
    ),
)
DEVICE = re.compile(r"gpu|device|(^|[/_])tgs$|per_rank")
_PER_STEP = re.compile(
    r"per_(step|iter|iteration|update|batch)|^time/(iter|step|batch)"
    r"|(step|iter|iteration|batch|update)_(time|timing|duration|took|dur|latency)|^s/(it|iter|step|"
    r"batch|update|iteration)$|s_per_(step|it)|(^|/)(iteration|step)_time|step_(ms|s)$|step_avg"
    r"|^(sec|secs|seconds|ms)/(step|it|iter|batch)|_s/(step|it|iter)$"
)
_SOME_TIME = re.compile(
    r"^(train[/_])?(dt|time|duration|took|elapsed|elapsed_time|time_elapsed|ms|latency|train_time|"
    r"training_time|time_taken|seconds|timing|delta_t|step_took|t)(_(s|sec|secs|seconds|ms|us|in_s|in_ms))?$|^$"
)
_OTHER_TIME = re.compile(
    r"data|load|(^|[/_])(fwd|bwd|opt|comm|eta|wall|total|epoch)|forward|backward|optim|eval|val|save"
    r"|ckpt|checkpoint|compil|warm|start|remain|left|runtime|init|sync|reduce|gather|generat|rollout"
    r"|micro|inner|last_|max_|min_|budget|limit|timeout|interval"
)
_MEMORY = re.compile(r"mem|alloc|reserved|vram|(^|[/_])(ma|max_ma|ca|max_ca)$")
_NOT_MEMORY = re.compile(
    r"cpu|host|swap|vms|rss|virtual|free|total|limit|capacity|percent|frac|util|retr"
)
_MFU = re.compile(r"(^|[/_])mfu($|[/_(])|model_flops_utili[sz]ation")
_TFLOPS = re.compile(r"tflops?($|[/_])|^flops$|throughput_per_gpu$")
_HARDWARE_FLOPS = re.compile(r"hfu|hardware|hw_")
_LABEL_UNIT = re.compile(r"(?:^|[/_])(?:in_)?(us|ms|s|secs?|seconds?)(?:$|/|_per_)")
_BYTES = {
    "b": 1,
    "bytes": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
_EITHER = {
    "kb": (10**3, 2**10),
    "mb": (10**6, 2**20),
    "gb": (10**9, 2**30),
    "k": (10**3, 2**10),
    "m": (10**6, 2**20),
    "g": (10**9, 2**30),
}


def metric_of(one: Printed) -> tuple[Metric, int] | None:
    """The figure that a number may be, and how good its name is for it: 0 is best."""
    label = _canonical(one.label)
    if NOT_TRAINING.search(label):
        return None
    for find in (_rate, _time, _size, _plain):
        found = find(label, one)
        if found is not None:
            return found
    return None


def is_rate_of_steps(one: Printed) -> bool:
    """Whether a number counts steps in a second instead of seconds of a step."""
    label, what = _canonical(one.label), one.unit.partition("/")[0]
    by_unit = "/" in one.unit and bool(_RATES[3][1].match(what))
    return by_unit or (one.unit != "s" and bool(_RATE_LABELS[3][1].search(label)))


def is_per_step(one: Printed) -> bool:
    """Whether a time says by its label that it is one step's."""
    return bool(_PER_STEP.search(_canonical(one.label)))


def seconds_of(one: Printed) -> tuple[float, ...]:
    """What a time may be in seconds: one reading where its unit is known, else several."""
    if one.unit == "s":
        return (one.value,)
    match = _LABEL_UNIT.search(_canonical(one.label))
    if match is not None:
        return (one.value * SECONDS[match[1]],)
    return (one.value, one.value * 1e-3)


def bytes_of(one: Printed) -> tuple[float, ...]:
    """What a size may be in bytes; MB and GB are written for both powers."""
    unit = one.unit or one.suffix.lower()
    value = one.value
    if one.suffix:
        value /= 1e6 if one.suffix == "M" else 1e3
    if not unit:
        match = re.search(r"(?:^|_)(bytes|[kmg]i?b)$", _canonical(one.label))
        unit = match[1] if match is not None else ""
    if unit in _BYTES:
        return (value * _BYTES[unit],)
    return tuple(value * factor for factor in _EITHER.get(unit, ()))


def share_of(one: Printed) -> tuple[float, ...]:
    """What a utilization may be as a share of one."""
    if one.unit == "%" or "percent" in one.label or one.value > 1.0:
        return (one.value / 100,)
    if one.value >= 0.05:
        return (one.value,)
    return (one.value, one.value / 100)


def _canonical(label: str) -> str:
    return label.lower().replace("-", "_").replace(" ", "_")


def _rate(label: str, one: Printed) -> tuple[Metric, int] | None:
    what, _, per = one.unit.partition("/")
    if per:
        return next(((metric, 0) for metric, pattern in _RATES if pattern.match(what)), None)
    if one.unit:
        return None
    for metric, pattern in _RATE_LABELS:
        if pattern.search(label) and "time" not in label and not _HARDWARE_FLOPS.search(label):
            return metric, 1 if "avg" in label or "average" in label else 0
    return None


def _time(label: str, one: Printed) -> tuple[Metric, int] | None:
    if one.unit not in ("", "s") or _OTHER_TIME.search(label.replace("train_", "")):
        return None
    if _PER_STEP.search(label):
        return Metric.STEP_TIME, 2 if "avg" in label else 0
    if one.unit == "s" or label:
        return (Metric.STEP_TIME, 3) if _SOME_TIME.match(label) else None
    return None


def _size(label: str, one: Printed) -> tuple[Metric, int] | None:
    if not _MEMORY.search(label) or _NOT_MEMORY.search(label) or one.unit in ("%", "s"):
        return None
    peak = 0 if re.search(r"max|peak", label) else 2
    kind = 0 if re.search(r"reserved|(^|_)ca$", label) else 1 if "alloc" in label else 2
    return Metric.MEMORY, 3 * peak + kind


def _plain(label: str, one: Printed) -> tuple[Metric, int] | None:
    if _MFU.search(label) and not _HARDWARE_FLOPS.search(label):
        return Metric.MFU, 0
    if (_TFLOPS.search(label) or one.unit == "tflops") and one.unit in ("", "tflops"):
        return Metric.TFLOPS, 1 if _HARDWARE_FLOPS.search(label) else 0
    if one.unit:
        return None
    for rank, names in enumerate(_LOSS_NAMES):
        if label in names:
            return Metric.LOSS, rank
    if "loss" in label and not _NOT_LOSS.search(label):
        return Metric.LOSS, len(_LOSS_NAMES)
    for metric, patterns, other in (
        (Metric.GRAD_NORM, _GRAD_NORM, _NOT_GRAD_NORM),
        (Metric.LEARNING_RATE, _LEARNING_RATE, _NOT_LEARNING_RATE),
    ):
        for rank, pattern in enumerate(patterns):
            if pattern.search(label) and (rank or not other.search(label)):
                return metric, rank
    return None

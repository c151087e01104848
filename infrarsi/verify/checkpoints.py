"""Whether a run leaves the checkpoints that the reference leaves, as far as a manifest can tell.

A manifest (`ExecutionResult.checkpoints`, made by the node) has for each file below the sinks its
size and kind and, after audit and perturbed runs, for a checkpoint its keys with shape, dtype, norm
and projection, and its plain values. Names are compared modulo the numbers in them.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import numpy as np

from infrarsi.contract import ExecutionResult
from infrarsi.verify.fingerprints import Print, distance, fingerprint
from infrarsi.verify.floors import FINE, FLOORS, WORST_END
from infrarsi.verify.numerics import EPSILON, FACTOR

Manifest = Mapping[str, Any]
Manifests = Mapping[str, Manifest]

_NO_CHECKPOINT = re.compile(
    r"events\.out|\.(log|txt|csv|jsonl|png|html)$|(^|[:/])(logs?|wandb|mlruns|tensorboard|runs)/",
    re.I,
)
_WRAPPERS = ("_orig_mod.", "module.", "_fsdp_wrapped_module.")
_OPTIMIZER = re.compile(r"(^|[/:])(optim\w*|opt)([/.]|$)|(^|/)state/\d+/|exp_avg|momentum_buffer")
_RANDOM = re.compile(r"rng|random|generator", re.I)
_OPTIONS = re.compile(
    r"(^|[/:])(\w+_)?(args|arguments|config|cfg|hparams|hyper_?parameters|options|opts|flags)"
    r"(\.\w+:|/|$)"
)
_IMPLEMENTATION = ("foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay")
_COUNTERS = ("step", "global_step", "current_step", "epoch", "iter", "num_updates", "last_epoch")
"""Equal whatever happens; other whole numbers where the perturbed run has the same one."""
_RATES = re.compile(r"(^|/)(lr|initial_lr|weight_decay|_last_lr/\d+|base_lrs/\d+)$")
_QUANTILE = 0.8
_WORST_LOW = 0.1
"""As `WORST_END`, where the job computes in 16 bits, and of matrices alone."""
_SAVED_EXACTLY, _SAVED_ROUGHLY = 1e-6, 1e-3
"""Relative, of norms: what the reference saves as it was trained, and what a run may save for it.
Averages may have the norm of the weights by chance, so the second is wider."""
_SHARE_MOVED = 0.1  # of its norm, where it is not known how far a tensor has travelled
_EMPTY = 1e-3
_LEAST_SIZE = 0.5  # of a file; formats of one content differ by less


@dataclass(frozen=True)
class Alike:
    """Two sets of checkpoints: what is wrong (`fault`), else how much agrees.

    `unread` are reference checkpoints that could not be read, with why.
    """

    fault: str = ""
    checkpoints: int = 0
    tensors: int = 0
    entries: int = 0
    worst: str = ""
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Allowed:
    """How far values may stray: the precision whose floors apply, and how far parameters moved.

    `travelled` is by a parameter's name, in the reference. `bitwise`: not at all. `growth` widens
    what is allowed beyond the perturbed run's own deviation; a job that is `beyond` its horizon
    (`chaos.py`) does not repeat its own numbers, so that only emptied tensors are judged.
    """

    lowest: str
    travelled: Mapping[str, float]
    bitwise: bool = False
    growth: float = 1.0
    beyond: bool = False
    trained: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {})
    """Norms of the last recorded weights, by name: the reference's, and the judged run's own."""


def checkpoints_in(manifests: Manifests) -> dict[str, Manifest]:
    """Those that are checkpoints, of all files that a run left."""
    return {name: m for name, m in manifests.items() if m.get("kind", "file") != "file"}


def to_resume_from(manifests: Manifests, pattern: str | None = None) -> str | None:
    """The checkpoint that a resumed run is given: the first of those that hold most tensors.

    `pattern` narrows it, and may name a folder that holds the checkpoint; then the folder is
    given, as for one of torch.distributed.checkpoint. None where there is none.
    """
    readable = {n: m for n, m in checkpoints_in(manifests).items() if m.get("tensors")}
    if pattern is not None:
        folders = sorted({f for name in manifests for f in _folders(name)}, key=_natural)
        named = [*sorted(readable, key=_natural), *folders]
        level = pattern.count("/")
        fitting = (n for n in named if n.count("/") == level and fnmatch(n, pattern))
        return next(fitting, None)
    most = max((len(m["tensors"]) for m in readable.values()), default=0)
    full = [name for name, m in readable.items() if len(m["tensors"]) == most]
    first = min(full, key=_natural, default=None)
    return first.removesuffix("/.metadata") if first is not None else None


def compare(ours: Manifests, theirs: Manifests, own: Manifests, allowed: Allowed) -> Alike:
    """The reference's checkpoints against a run's.

    `own` are those of the perturbed run, empty where there is none.
    """
    counts = _counts(own) if own else None
    wanted = {n: m for n, m in ours.items() if not _NO_CHECKPOINT.search(n)}
    if counts is not None:  # a name that differs from run to run is no promise
        mine = _counts(ours)
        wanted = {n: m for n, m in wanted.items() if counts.get(_form(n), 0) == mine[_form(n)]}
    found = Alike()
    for name, partner, twin in _paired(wanted, theirs, own):
        if partner is None:
            return Alike(f"`{name}` is not there, which the reference leaves")
        if ours[name].get("kind") == "file":
            if ours[name].get("size") and not theirs[partner].get("size"):
                return Alike(f"`{partner}` is empty")
            continue
        if "unread" in ours[name]:
            found = _with(found, unread=(*found.unread, f"`{name}`: {ours[name]['unread']}"))
            continue
        fault = _content(name, ours[name], theirs[partner], own.get(twin or "", {}))
        worst = ""
        if not fault:
            fault = _not_trained(ours[name], theirs[partner], allowed.trained)
        if not fault:
            three = (ours[name], theirs[partner], own.get(twin or "", {}))
            fault, worst = _values(name, three, allowed)
        if fault:
            return Alike(f"`{partner}`: {fault}")
        found = _with(
            found,
            checkpoints=found.checkpoints + 1,
            tensors=found.tensors + len(ours[name].get("tensors", {})),
            entries=found.entries + len(ours[name].get("scalars", {})),
            worst=worst or found.worst,
        )
    return found


def not_left(ours: Manifests, theirs: Manifests, own: Iterable[Manifests]) -> str:
    """What a timed run does not leave of the files that the reference does, in words; "" if none.

    `own` are the reference's timed runs: a file that one of them does not leave is no promise. Of a
    file that nobody read the size tells whether something was saved.
    """
    counts = [_counts(manifests) for manifests in own]
    mine = _counts(ours)
    wanted = {
        name: manifest
        for name, manifest in ours.items()
        if not _NO_CHECKPOINT.search(name)
        and all(known.get(_form(name), 0) == mine[_form(name)] for known in counts)
    }
    for name, partner, _ in _paired(wanted, theirs, {}):
        if partner is None:
            return f"`{name}` is not there, which the reference leaves"
        sizes = [int(side.get("size") or 0) for side in (ours[name], theirs[partner])]
        if sizes[1] < _LEAST_SIZE * sizes[0]:
            return f"`{partner}` has {sizes[1]} bytes, the reference's has {sizes[0]}"
    return ""


def travelled_by(result: ExecutionResult | None) -> dict[str, float]:
    """How far each parameter of a run moved from its first to its last recorded weights."""
    found: dict[str, float] = {}
    for rank in result.ranks[:1] if result is not None else ():
        starts = _weights(rank.weights, "start")
        for (model, name), end in _weights(rank.weights, "end").items():
            start = starts.get((model, name))
            if start is not None:
                found[name] = max(found.get(name, 0.0), distance(start, end))
    return found


def trained_norms(result: ExecutionResult) -> dict[str, float]:
    """The norm of each parameter in the first rank's last recorded weights, by name."""
    lines = result.ranks[0].weights if result.ranks else ()
    return {name: norm for (_, name), (norm, _) in _weights(lines, "end").items()}


def _weights(lines: Iterable[Mapping[str, Any]], when: str) -> dict[tuple[Any, str], Print]:
    found = {}
    for line in lines:
        tensors = line.get("tensors")
        if line.get("when") != when or not isinstance(tensors, Mapping):
            continue
        for name, value in tensors.items():
            seen = fingerprint(value)
            if seen is not None:
                found[(line.get("model"), str(name))] = seen
    return found


def _with(alike: Alike, **changes: Any) -> Alike:
    return Alike(**{**alike.__dict__, **changes})


def _form(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _counts(manifests: Manifests) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in manifests:
        found[_form(name)] = found.get(_form(name), 0) + 1
    return found


def _natural(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", name)
    return [(1, int(p), "") if p.isdigit() else (0, 0, p) for p in parts]


def _folders(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def _paired(
    ours: Manifests, theirs: Manifests, own: Manifests
) -> Iterator[tuple[str, str | None, str | None]]:
    """(our file, theirs, the perturbed run's): names of one form in the order of their numbers."""
    for name in sorted(ours, key=_natural):
        yield name, _partner(name, ours, theirs), _partner(name, ours, own)


def _partner(name: str, ours: Manifests, others: Manifests) -> str | None:
    if name in others:
        return name
    same = sorted((n for n in ours if _form(n) == _form(name)), key=_natural)
    there = sorted((n for n in others if _form(n) == _form(name)), key=_natural)
    return there[same.index(name)] if len(there) == len(same) else None


def _content(name: str, ours: Manifest, theirs: Manifest, own: Manifest) -> str:
    """What differs in keys, shapes, dtypes and plain values; "" if nothing."""
    if theirs.get("kind") != ours.get("kind"):
        return f"it is of kind {theirs.get('kind')}, the reference's of kind {ours.get('kind')}"
    if "unread" in theirs:
        return f"it cannot be read: {theirs['unread']}"
    a, b = ours.get("tensors", {}), theirs.get("tensors", {})
    missing, extra = [k for k in a if k not in b], [k for k in b if k not in a]
    if missing:
        prefix = next((w for w in _WRAPPERS if any(w in k for k in extra)), "")
        if prefix and not any(prefix in key for key in missing):
            return (
                f"its keys have the prefix `{prefix}` ({extra[0]}), so the unmodified code cannot "
                "load it"
            )
        return f"`{missing[0]}` is missing ({len(missing)} of {len(a)} tensors are)"
    if extra:
        return f"`{extra[0]}` is in it, which the reference has not"
    for key, entry in a.items():
        for part in ("shape", "dtype"):
            if entry.get(part) != b[key].get(part):
                return f"`{key}` has {part} {b[key].get(part)}, in the reference {entry.get(part)}"
    return _plain(name, *(manifest.get("scalars", {}) for manifest in (ours, theirs, own)))


def _plain(
    name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], own: Mapping[str, Any]
) -> str:
    for key, value in ours.items():
        last = key.rpartition("/")[2]
        place = f"{name}:{key}"
        if last in _IMPLEMENTATION or _OPTIONS.search(place):
            continue
        if key not in theirs:
            return f"the entry `{key}` is missing"
        other = theirs[key]
        counts = last in _COUNTERS or (type(value) is int and own.get(key) == value)
        if counts and not _RANDOM.search(place) and not _equal(value, other, 0.0):
            return f"`{key}` is {other!r}, in the reference {value!r}"
        if _RATES.search(key) and not _equal(value, other, 1e-6):
            return f"`{key}` is {other!r}, in the reference {value!r}"
    return ""


def _not_trained(
    ours: Manifest, theirs: Manifest, trained: tuple[Mapping[str, float], Mapping[str, float]]
) -> str:
    """A tensor that the reference saves as it was trained last, and the run does not.

    It takes the run's own weights as the witness saw them, so it holds in a chaotic job as well.
    """
    for key, entry in ours.get("tensors", {}).items():
        name = key.rpartition("/")[2]
        last = [norms.get(name) for norms in trained]
        seen = [fingerprint(e.get("values")) for e in (entry, theirs["tensors"][key])]
        if last[0] is None or last[1] is None or seen[0] is None or seen[1] is None:
            continue
        if not math.isclose(seen[0][0], last[0], rel_tol=_SAVED_EXACTLY):
            continue
        if not math.isclose(seen[1][0], last[1], rel_tol=_SAVED_ROUGHLY, abs_tol=1e-12):
            return f"`{key}` has norm {seen[1][0]:.6g}, but {last[1]:.6g} was trained"
    return ""


def _equal(a: Any, b: Any, relative: float) -> bool:
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    if not numbers or isinstance(a, bool) or isinstance(b, bool):
        return bool(a == b)
    return math.isclose(a, b, rel_tol=relative, abs_tol=0.0) or (a != a and b != b)


def _values(
    name: str,
    three: tuple[Manifest, Manifest, Manifest],
    allowed: Allowed,
) -> tuple[str, str]:
    """(what is wrong, the worst of what is not) with the values of one checkpoint."""
    ours, theirs, own = (m.get("tensors", {}) for m in three)
    groups: dict[bool, list[str]] = {True: [], False: []}
    for key, entry in ours.items():
        if entry.get("values") is None or theirs[key].get("values") is None:
            continue
        if not str(entry["dtype"]).startswith(("float", "bfloat", "complex")):
            same = entry["values"] == theirs[key]["values"]
            if not same and entry["dtype"] != "uint8" and not _RANDOM.search(f"{name}:{key}"):
                return f"`{key}` differs from the reference's, and it is no rounded number", ""
            continue
        if allowed.bitwise and entry["values"] != theirs[key]["values"]:
            return f"`{key}` is not bitwise the reference's", ""
        if not _RANDOM.search(f"{name}:{key}"):
            groups[bool(_OPTIMIZER.search(f"{name}:{key}"))].append(key)
    worst = ""
    for is_state, keys in groups.items():
        if keys:
            table = _Deviations.of(keys, ours, theirs, own, {} if is_state else allowed.travelled)
            fault, told = table.judge(allowed, is_state)
            if fault:
                return fault, ""
            worst = told if not is_state else worst or told
    return "", worst


@dataclass(frozen=True)
class _Deviations:
    """Tensors of one checkpoint: distance from the reference's over the way travelled."""

    keys: tuple[str, ...]
    found: np.ndarray[Any, np.dtype[np.float64]]
    own: np.ndarray[Any, np.dtype[np.float64]]
    has_own: bool
    is_matrix: np.ndarray[Any, np.dtype[np.bool_]]
    emptied: tuple[str, ...]

    @classmethod
    def of(
        cls,
        keys: list[str],
        ours: Mapping[str, Manifest],
        theirs: Mapping[str, Manifest],
        own: Mapping[str, Manifest],
        travelled: Mapping[str, float],
    ) -> "_Deviations":
        prints = [_print(ours, key) for key in keys]
        numel = np.asarray([max(1, math.prod(ours[key]["shape"])) for key in keys], dtype=float)
        ways = np.asarray(
            [
                travelled.get(key.rpartition("/")[2], _SHARE_MOVED * p[0])
                for key, p in zip(keys, prints, strict=True)
            ]
        )
        ways = np.where(np.isfinite(ways), ways, 0.0)
        typical = math.sqrt(float(np.sum(ways**2)) / float(np.sum(numel)))
        scale = np.maximum(np.maximum(ways, 0.25 * typical * np.sqrt(numel)), 1e-30)
        rounding = np.asarray(
            [
                EPSILON.get(ours[k]["dtype"], 0.0) * abs(p[0])
                for k, p in zip(keys, prints, strict=True)
            ]
        )

        def off(others: Mapping[str, Manifest]) -> np.ndarray[Any, np.dtype[np.float64]]:
            apart = [
                distance(p, _print(others, key)) if key in others else 0.0
                for key, p in zip(keys, prints, strict=True)
            ]
            beyond = np.maximum(np.nan_to_num(np.asarray(apart), nan=0.0) - rounding, 0.0)
            return np.asarray(beyond / scale, dtype=np.float64)

        emptied = tuple(
            key
            for key, p in zip(keys, prints, strict=True)
            if len(ours[key]["shape"]) > 1 and _print(theirs, key)[0] < _EMPTY * p[0]
        )
        matrix = np.asarray([len(ours[key]["shape"]) > 1 for key in keys])
        return cls(tuple(keys), off(theirs), off(own), bool(own), matrix, emptied)

    def judge(self, allowed: Allowed, is_state: bool) -> tuple[str, str]:
        """(what is wrong, else the figures)."""
        lowest, factor = allowed.lowest, FACTOR * allowed.growth
        what = "the optimizer state" if is_state else "the weights"
        if self.emptied:
            return f"`{self.emptied[0]}` is zero, in the reference it is not", ""
        if allowed.beyond:
            return "", "values are not compared, since the reference departs from itself"
        floor = FLOORS[lowest].gradient / _SHARE_MOVED if is_state else FLOORS[lowest].end
        off = float(np.quantile(self.found, _QUANTILE))
        most = max(floor, factor * float(np.quantile(self.own, _QUANTILE)))
        told = f"{what} off by {off:.2g} of their way, {most:.2g} is allowed"
        if off > most:
            at = int(np.argmax(self.found))
            return f"{told}; most in `{self.keys[at]}`", ""
        if not is_state:
            # In 16 bits some vectors are noise (biases of keys), which no perturbed run shows.
            is_fine = lowest in FINE
            judged = self.is_matrix | (self.has_own and is_fine)
            limit = (WORST_END if is_fine else _WORST_LOW) + factor * self.own
            over = np.where(judged, self.found / limit, 0.0)
            at = int(np.argmax(over))
            if over[at] > 1.0:
                return (
                    f"`{self.keys[at]}` is off by {self.found[at]:.2g} of its way, "
                    f"{limit[at]:.2g} is allowed"
                ), ""
        return "", told


def _print(tensors: Mapping[str, Manifest], key: str) -> Print:
    seen = fingerprint(tensors[key].get("values"))
    return seen if seen is not None else (math.nan, math.nan)

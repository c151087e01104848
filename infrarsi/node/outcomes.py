"""From what was seen of one execution to its outcome: a pure function."""

import math
import re
import signal
from dataclasses import dataclass
from enum import StrEnum

from infrarsi.contract import Outcome, RankRecord
from infrarsi.node import memory_needed
from infrarsi.node.failures import Exceptional, kind_of, line_naming, primary_exception

_KILLED = re.compile(
    r"exitcode\s*: -9\b|Signal 9 \(SIGKILL\) received|\(exitcode: -9\)"
    r"|^Killed$|: line \d+:.*Killed",
    re.MULTILINE,
)
_ROOT_CAUSE = re.compile(  # torchrun's summary
    r"Root Cause.*?rank\s+: (?P<rank>\d+).*?exitcode\s+: (?P<code>-?\d+)", re.DOTALL
)
_REASON_CHARS = 300


class Ending(StrEnum):
    """Who ended the command, and why."""

    FINISHED = "finished"  # it did itself
    STOPPED = "stopped"  # the launcher was asked to
    SLOWER = "slower"  # early stop
    START_TIMEOUT = "start_timeout"
    STALL = "stall"
    TIMEOUT = "timeout"
    LOST = "lost"  # the supervisor died

    @property
    def is_time_out(self) -> bool:
        """Whether the launcher lost patience."""
        return self in (Ending.START_TIMEOUT, Ending.STALL, Ending.TIMEOUT)


@dataclass(frozen=True)
class Evidence:
    """What was seen of one execution.

    `detail` is one sentence with the figures behind an ending that the launcher chose. `folder` is
    the project's copy, so that a place in it can be named relative to the project. `kernel_kills`
    is how often the kernel's out-of-memory killer acted meanwhile, None where that is not known.
    `withheld` names variables that the command did not get because they look secret.
    """

    ending: Ending
    exit_code: int | None
    ranks: tuple[RankRecord, ...]
    log: str
    optimizer_steps: int
    ends_by: str = "witness"
    detail: str = ""
    folder: str = ""
    kernel_kills: int | None = None
    withheld: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judged:
    """An outcome, one sentence, and for an out-of-memory run the memory it needed at least."""

    outcome: Outcome
    reason: str
    peak_at_least_bytes: int | None = None


def classify(evidence: Evidence) -> Judged:
    """The outcome of one execution.

    ok needs exit code 0 and a sealed record of every rank with every requested optimizer step. A
    run that the launcher ended because it hung is a time-out unless a rank ran out of memory or a
    compiler failed, which is what the other ranks then wait for.
    """
    if evidence.ending is Ending.LOST:
        return Judged(Outcome.INFRA, evidence.detail or "the supervisor of the command died")
    if evidence.ending in (Ending.STOPPED, Ending.SLOWER):
        return Judged(Outcome.STOPPED, evidence.detail or "stopped on request")
    gap = _gap(evidence)
    complete = evidence.ending is Ending.FINISHED and evidence.exit_code == 0 and not gap
    if not complete:
        judged = _failure(evidence)
        if judged is not None:
            return judged
    not_a_number = _not_a_number(evidence.ranks)
    if not_a_number and not evidence.ending.is_time_out:
        return Judged(Outcome.NUMERIC, not_a_number)
    if complete:
        return Judged(Outcome.OK, f"all {evidence.optimizer_steps} optimizer steps on every rank")
    if evidence.ending.is_time_out:
        return Judged(Outcome.TIMEOUT, evidence.detail)
    return Judged(Outcome.USER_ERROR, _user_error(evidence, gap))


def judge_plain(ending: Ending, exit_code: int | None, detail: str) -> Judged:
    """The outcome of a command that is not the job: ok is exit code 0."""
    if ending is Ending.LOST:
        return Judged(Outcome.INFRA, detail)
    if ending is Ending.STOPPED:
        return Judged(Outcome.STOPPED, "stopped on request")
    if ending.is_time_out:
        return Judged(Outcome.TIMEOUT, detail)
    if exit_code == 0:
        return Judged(Outcome.OK, "exit code 0")
    return Judged(Outcome.USER_ERROR, f"it ended with {_exit(exit_code)}")


def _failure(evidence: Evidence) -> Judged | None:
    """A failure that the record or the log names, None if neither does."""
    exception = primary_exception(evidence.log, evidence.folder)
    kind = _kind(evidence, exception)
    if kind is None:
        return _killed(evidence)
    message = exception.message if exception else ""
    line = line_naming(message, kind) or line_naming(evidence.log, kind) or message
    reason = _cut(line) or kind.sentence
    if exception is not None and exception.place and line in message:
        reason += f" ({exception.place})"
    return Judged(kind, reason, _needed(evidence) if kind is Outcome.OOM_GPU else None)


def _kind(evidence: Evidence, exception: Exceptional | None) -> Outcome | None:
    if any(rank.oom for rank in evidence.ranks):
        return Outcome.OOM_GPU
    kind = kind_of(exception.message) or kind_of(exception.text) if exception is not None else None
    if kind is None and (exception is None or exception.is_secondary):
        kind = kind_of(evidence.log)
    if kind is None:
        kind = kind_of("\n".join(rank.error or "" for rank in evidence.ranks))
    if kind is Outcome.NUMERIC and evidence.exit_code == 0:
        return None
    return kind


def _killed(evidence: Evidence) -> Judged | None:
    """A process ended by SIGKILL that the launcher did not send."""
    by_signal = evidence.exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if evidence.ending is not Ending.FINISHED:
        return None
    if not by_signal and not (evidence.exit_code and _KILLED.search(evidence.log)):
        return None
    if evidence.kernel_kills == 0:
        return Judged(
            Outcome.INFRA,
            "a process of the job was ended by SIGKILL, by neither this program nor the kernel's "
            "out-of-memory killer",
        )
    return Judged(
        Outcome.OOM_HOST, "a process of the job was ended by the kernel's out-of-memory killer"
    )


def _needed(evidence: Evidence) -> int | None:
    bounds = [memory_needed.from_text(evidence.log)]
    bounds += [memory_needed.from_record(rank.oom) for rank in evidence.ranks if rank.oom]
    known = [bound for bound in bounds if bound is not None]
    return max(known) if known else None


def _gap(evidence: Evidence) -> str:
    """What the records lack for a complete run, "" if nothing."""
    ranks, asked = evidence.ranks, evidence.optimizer_steps
    if not ranks:
        return "no process made an optimizer step that the witness could see"
    numbers = sorted(rank.rank for rank in ranks)
    world = max(rank.world_size for rank in ranks)
    if len(set(numbers)) < len(numbers):
        again = next(n for n in numbers if numbers.count(n) > 1)
        return f"rank {again} opened {numbers.count(again)} records: the job restarted itself"
    if numbers != list(range(world)):
        return f"{len(numbers)} of {world} ranks left a record"
    fewest = min(ranks, key=lambda rank: len(rank.steps))
    if len(fewest.steps) < asked:
        how = "by itself " if evidence.ending is Ending.FINISHED else ""
        return (
            f"the job ended {how}after {len(fewest.steps)} optimizer steps (rank {fewest.rank}), "
            f"but `workload.optimizer_steps` is {asked}" + _unseen(fewest)
        )
    unsealed = [rank for rank in ranks if not rank.sealed]
    if unsealed:
        why = "; ".join(unsealed[0].problems) or "its end line is missing"
        return f"the record of rank {unsealed[0].rank} is not sealed: {why}"
    return ""


def _unseen(rank: RankRecord) -> str:
    """What the witness says of a rank that trained without a step that it could see."""
    said = [] if rank.steps else [p for p in rank.problems if "optimizer" in p or "graph" in p]
    return f": {said[0]}" if said else ""


def _not_a_number(ranks: tuple[RankRecord, ...]) -> str:
    for rank in ranks:
        for step in rank.steps:
            if step.loss is not None and not math.isfinite(step.loss):
                return f"the loss is {step.loss} at optimizer step {step.index} (rank {rank.rank})"
    return ""


def _user_error(evidence: Evidence, gap: str) -> str:
    if evidence.exit_code == 0:
        return gap
    exception = primary_exception(evidence.log, evidence.folder)
    said = exception.line if exception else next((r.error for r in evidence.ranks if r.error), "")
    place = f" ({exception.place})" if exception and exception.place else ""
    ended = f"the command ended with {_exit(evidence.exit_code)}"
    root = _ROOT_CAUSE.search(evidence.log)
    if root is not None and (exception is None or exception.is_secondary):
        return f"{ended}: rank {root['rank']} ended with {_exit(int(root['code']))}"
    if not said:
        last = [line.strip() for line in evidence.log.splitlines() if line.strip()][-1:]
        return f"{ended}; its output ends with {_cut(last[0])!r}" if last else f"{ended}, silently"
    hidden = [name for name in evidence.withheld if name in said]
    hint = (
        f"; `{hidden[0]}` was withheld because its name looks secret: "
        f"list it in `launch.env_pass` if the job needs it"
        if hidden
        else ""
    )
    return f"{ended}: {_cut(said)}{place}{hint}"


def _exit(code: int | None) -> str:
    if code is None:
        return "no exit code"
    number = -code if code < 0 else code - 128
    if code < 0 or (code > 128 and number in set(signal.Signals)):
        return f"signal {number} ({signal.Signals(number).name})"
    return f"exit code {code}"


def _cut(text: str) -> str:
    return text if len(text) <= _REASON_CHARS else text[: _REASON_CHARS - 3] + "..."

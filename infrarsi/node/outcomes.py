"""From what was seen of one execution to its outcome: a pure function."""

import math
import signal
from dataclasses import dataclass, replace
from enum import StrEnum

from infrarsi.contract import Outcome, RankRecord
from infrarsi.node import memory_needed
from infrarsi.node.failure_wordings import BUS_ERROR, KILLED, SECONDARY, UNEXPLAINED
from infrarsi.node.failures import (
    Exceptional,
    consequence_in,
    hardware_fault,
    kind_of,
    line_naming,
    primary_exception,
    root_cause,
    tracebacks,
)
from infrarsi.node.log_lines import plain, split_tag

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
    evidence = replace(evidence, log=plain(evidence.log))
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
        return _by_signal(evidence, exception) or _consequence(evidence, exception)
    message = exception.message if exception else ""
    line = line_naming(message, kind) or line_naming(evidence.log, kind) or message
    reason = _cut(line) or kind.sentence
    if exception is not None and exception.place and line in message:
        reason += f" ({exception.place})"
    return Judged(kind, reason, _needed(evidence) if kind is Outcome.OOM_GPU else None)


def _kind(evidence: Evidence, exception: Exceptional | None) -> Outcome | None:
    if any(_fatal_oom(rank) for rank in evidence.ranks):
        return Outcome.OOM_GPU
    kind = kind_of(exception.message) or kind_of(exception.text) if exception is not None else None
    if kind is None and exception is not None and UNEXPLAINED.search(exception.message):
        kind = hardware_fault(_untagged(evidence.log))
    if kind is None and (exception is None or exception.is_secondary):
        kind = kind_of(_untagged(evidence.log))
    if kind is None and (exception is None or exception.is_secondary):
        kind = kind_of("\n".join(rank.error or "" for rank in evidence.ranks))
    if kind is Outcome.NUMERIC and evidence.exit_code == 0:
        return None
    return kind


def _fatal_oom(rank: RankRecord) -> bool:
    """Whether memory ran out on this rank and it did not train on."""
    if not rank.oom:
        return False
    step = rank.oom.get("step")
    return not isinstance(step, int) or len(rank.steps) <= step + 1


def _untagged(log: str) -> str:
    return "\n".join(split_tag(line)[1] for line in log.splitlines())


def _by_signal(evidence: Evidence, exception: Exceptional | None) -> Judged | None:
    """A process ended by SIGKILL or SIGBUS that the launcher did not send."""
    if evidence.ending is not Ending.FINISHED:
        return None
    root = root_cause(evidence.log)
    explained = root is not None or (exception is not None and not exception.is_secondary)

    def ended_by(number: signal.Signals, said: bool) -> bool:
        if evidence.exit_code in (-number, 128 + number):
            return True
        if root is not None and root.exit_code == -number:
            return True
        return said and bool(evidence.exit_code) and not explained

    if ended_by(signal.SIGBUS, bool(BUS_ERROR.search(_untagged(evidence.log)))):
        return Judged(
            Outcome.OOM_HOST,
            "a process of the job was ended by a bus error (SIGBUS), which is what shared memory "
            "(/dev/shm) that is full leads to",
        )
    if not ended_by(signal.SIGKILL, bool(KILLED.search(_untagged(evidence.log)))):
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


def _consequence(evidence: Evidence, exception: Exceptional | None) -> Judged | None:
    """What can be said where nobody names a cause: a time-out of NCCL, a signal, a lost peer."""
    if evidence.ending is not Ending.FINISHED or not evidence.exit_code:
        return None
    if exception is not None and not exception.is_secondary:
        return None
    root = root_cause(evidence.log)
    crash = root.exit_code if root is not None else evidence.exit_code
    if crash < 0 and -crash not in (signal.SIGABRT, signal.SIGTERM, signal.SIGINT):
        return None  # it crashed; what the others say follows from that
    kind = consequence_in(_untagged(evidence.log))
    if kind is not None:
        return Judged(kind, _cut(line_naming(evidence.log, kind, cause=False)))
    if evidence.exit_code in (-signal.SIGTERM, 128 + signal.SIGTERM) or crash == -signal.SIGTERM:
        return Judged(
            Outcome.INFRA, "the job was ended by SIGTERM, which this program did not send"
        )
    if evidence.exit_code in (-signal.SIGINT, 128 + signal.SIGINT):
        return Judged(Outcome.STOPPED, "the job was interrupted (SIGINT) by somebody else")
    return None


def _needed(evidence: Evidence) -> int | None:
    """The lower bound of the ranks that failed; what was caught before does not count."""
    failed = [
        item.text
        for item in tracebacks(evidence.log, evidence.folder)
        if kind_of(item.text) is Outcome.OOM_GPU
    ]
    bounds = [memory_needed.from_text(text) for text in failed or [_untagged(evidence.log)]]
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
    errors = [rank.error for rank in evidence.ranks if rank.error]
    first = next((error for error in errors if not SECONDARY.search(error)), "".join(errors[:1]))
    said = exception.line if exception else first
    place = f" ({exception.place})" if exception and exception.place else ""
    ended = f"the command ended with {_exit(evidence.exit_code)}"
    root = root_cause(evidence.log)
    if root is not None and (exception is None or exception.is_secondary):
        return f"{ended}: rank {root.rank} ended with {_exit(root.exit_code)}"
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

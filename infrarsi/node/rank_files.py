"""Reading and writing `witness/rank<R>.jsonl`: one rank's lines, each with the harness's stamp.

A line is the guest's own JSON object with `"at": seconds` put in front, so the guest's text can be
recovered to the byte and its hash chain checked. `infrarsi/witness/README.md` lists the lines.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infrarsi.contract.record import RankRecord, StepRecord

_OLDER = "infrarsi-witness-v1"
_STAMP = re.compile(rb'^\{"at":([0-9.]+),')
_CHAIN = re.compile(rb'^\{"h":"([0-9a-f]{16})",')


def stamped(line: bytes, at_s: float) -> bytes:
    """The text kept for a line that arrived `at_s` seconds after the command's start."""
    front = b'{"at":%.6f,' % at_s
    if line.startswith(b"{") and line.endswith(b"}") and len(line) > 2:
        return front + line[1:] + b"\n"
    torn = json.dumps({"k": "torn", "text": line[:2000].decode("utf-8", "replace")})
    return front + torn[1:].encode() + b"\n"


def mark(at_s: float) -> bytes:
    """The text kept for a beat that arrived `at_s` seconds after the command's start."""
    return b'{"at":%.6f,"k":"mark"}\n' % at_s


def load_ranks(receipt_dir: Path) -> tuple[RankRecord, ...]:
    """The records of every rank that trained, by rank, then by order of opening.

    A process that said hello and nothing else did not train; one whose lines do not follow from
    each other has a record, which is not whole.
    """
    paths = (receipt_dir / "witness").glob("rank*.jsonl")
    return tuple(
        record
        for path in sorted(paths, key=_file_order)
        if (record := load_rank(path)).head or record.steps or record.problems
    )


def _file_order(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.name))


def load_rank(path: Path) -> RankRecord:
    """One rank's record; sealed only if the chain is whole and ends with the end line."""
    lines, problem = _checked(path.read_bytes().split(b"\n"))
    found = _Lines(lines)
    end = found.first("end")
    problems = list(end.get("problems", ()))
    problems += [str(line.get("text", "")) for line in found.all("fault")]
    marks, steps = len(found.all("mark")), len(found.all("step"))
    if not problem and end and marks != steps and not found.is_older:
        problem = f"{marks} ends of steps were told, but {steps} steps"
    if problem:
        problems.append(problem)
    last = lines[-1].get("k") if lines else None
    hello = found.first("hello")
    error = found.first("error")
    oom = found.first("oom")
    return RankRecord(
        rank=int(hello.get("rank", 0)),
        world_size=int(end.get("world_size", hello.get("world_size", 1))),
        pid=int(hello.get("pid", 0)),
        sealed=not problem and last == "end",
        head=found.first("head"),
        model=found.first("model"),
        optimizers=tuple(found.all("optimizer")),
        steps=_steps(found),
        end=end,
        problems=tuple(problems),
        oom=oom or None,
        error=f"{error['type']}: {error.get('text', '')}" if error else None,
        outside_writes=tuple(str(line["path"]) for line in found.all("write")),
        models=tuple(found.all("model")),
        settings=(*found.all("settings"), *_settings(found)),
        weights=tuple(found.all("weights")),
        companions=tuple(found.all("companion")),
        states=tuple(found.all("state")),
        precision=tuple(found.all("precision")),
    )


class _Lines:
    """Lines by kind, without the fields that only serve the transport."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        self._by_kind: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            kind = str(line.get("k"))
            body = {name: value for name, value in line.items() if name not in ("h", "n", "k")}
            self._by_kind.setdefault(kind, []).append(body)

    def all(self, kind: str) -> list[dict[str, Any]]:
        return self._by_kind.get(kind, [])

    def first(self, kind: str) -> dict[str, Any]:
        return next(iter(self.all(kind)), {})

    @property
    def is_older(self) -> bool:
        """Whether beats are lines of their own."""
        return bool(self.first("head").get("schema") == _OLDER)


def _checked(raw: list[bytes]) -> tuple[list[dict[str, Any]], str]:
    """Parsed lines up to the first fault of the chain, and the fault in words ("" if none)."""
    lines: list[dict[str, Any]] = []
    chain = b""
    number = 0
    for text in raw:
        if not text:
            continue
        stamp = _STAMP.match(text)
        try:
            line = json.loads(text)
        except ValueError:
            return lines, f"line {len(lines) + 1} of the record is torn"
        if stamp is None or not isinstance(line, dict):
            return lines, f"line {len(lines) + 1} of the record has no stamp"
        if line.get("k") == "mark" or (line.get("k") == "hello" and not lines):
            lines.append(line)
            continue
        own = b"{" + text[stamp.end() :]
        said = _CHAIN.match(own)
        if said is None:
            return lines, f"line {len(lines) + 1} of the record is torn"
        chain = hashlib.blake2b(chain + b"{" + own[said.end() :], digest_size=8).digest()
        if line.get("n") != number or said.group(1).decode() != chain.hex():
            return lines, f"the chain of the record breaks at its line {len(lines) + 1}"
        number += 1
        lines.append(line)
    return lines, ""


def _steps(found: _Lines) -> tuple[StepRecord, ...]:
    """Step lines joined with the arrival of their beats; a step without its beat is left out.

    The beats of older records are lines of their own, which say their step and its `w`.
    """
    if found.is_older:
        beats = {int(beat["i"]): beat for beat in found.all("beat")}
    else:
        beats = dict(enumerate(found.all("mark")))
    lines = {int(line["i"]): line for line in found.all("step")}
    return tuple(_step(lines[index], beats[index]) for index in sorted(lines) if index in beats)


def _settings(found: _Lines) -> Iterator[dict[str, Any]]:
    """What changed in optimizers' parameter groups, in order, each with its step."""
    for line in found.all("step"):
        for optimizer, group, changed in line.get("settings", ()):
            yield {"i": line["i"], "optimizer": optimizer, "group": group, "settings": changed}


def _step(line: dict[str, Any], beat: dict[str, Any]) -> StepRecord:
    return StepRecord(
        index=int(line["i"]),
        close_look=bool(line.get("look", False)),
        harness_s=float(beat["at"]),
        witness_s=float(line["w"] if "w" in line else beat["w"]),
        event_s=line.get("event_s"),
        loss=line.get("loss"),
        forwards=int(line.get("forwards", 0)),
        backwards=int(line.get("backwards", 0)),
        samples=int(line.get("samples", 0)),
        elements=dict(line.get("elements", {})),
        shapes=dict(line.get("shapes", {})),
        digests=_digests(line.get("digests", {})),
        weights=tuple(line.get("weights", ())),
        optimizer_calls=dict(line.get("optimizer_calls", {})),
        learning_rates=tuple(line.get("learning_rates", ())),
        skipped=int(line.get("skipped", 0)),
        data_wait_s=float(line.get("data_wait_s", 0.0)),
        compile_s=float(line.get("compile_s", 0.0)),
        phases_s=dict(line.get("phases_s", {})),
        eval_calls=int(line.get("eval_calls", 0)),
        eval_samples=int(line.get("eval_samples", 0)),
        eval_losses=tuple(line.get("eval_losses", ())),
        gradients=dict(line.get("gradients", {})),
        matmul_dtypes=tuple(line.get("matmul_dtypes", ())),
        random=dict(line.get("random", {})),
        dropout_calls=dict(line.get("dropout_calls", {})),
        eval_digests=_digests(line.get("eval_digests", {})),
        eval_outputs=tuple(line.get("eval_outputs", ())),
        sketches=_sketches(line.get("sketches", {})),
        eval_sketches=_sketches(line.get("eval_sketches", {})),
    )


def _digests(said: dict[str, Any]) -> dict[str, tuple[int, int]]:
    return {name: (int(sums[0]), int(sums[1])) for name, sums in said.items()}


def _sketches(said: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(float(number) for number in sums) for name, sums in said.items()}

"""Runs one changed job for real and says which check rejects it.

A base is a training job in `jobs/<base>/` with its `infrarsi.yaml` (base `images-gan`:
`jobs/images/gan.yaml`). A case is a change of it: a
patch (`edits`), settings, new files, another command, variables. Its runs and those of the
untouched job go through the product's own parts: snapshot, patch, overlay, launcher, witness,
verdict.
"""

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from infrarsi.contract import (
    Candidate,
    CheckResult,
    ExecutionRequest,
    ExecutionResult,
    Overlay,
    Project,
    RunKind,
    SnapshotRef,
    Status,
)
from infrarsi.contract.files import load
from infrarsi.node.local_bench import LocalBench
from infrarsi.verify import (
    Evidence,
    Pair,
    PairedComparison,
    judge,
    measure,
    promotion_rules,
    reference_evidence,
)
from infrarsi.workspace.overlay import overlay
from infrarsi.workspace.patch_audit import audit
from infrarsi.workspace.patching import apply, make
from infrarsi.workspace.snapshot import take
from infrarsi.workspace.sources import Sources

JOBS = Path(__file__).with_name("jobs")
REFERENCE_PLAN = (
    RunKind.TIMED,
    RunKind.AUDIT,
    RunKind.TIMED,
    RunKind.PERTURBED,
    RunKind.TIMED,
)
PATCH_AUDIT = "patch_audit"
"""The static audit of a patch counts as a check of its own: what it refuses is never launched."""
BROKEN = "completes"
"""All that a run which failed by itself says: its patch may be broken. One that ends well after too
few updates says more."""
PAIRS = "speed_reproduces"
"""Judged by paired runs, and only where a case expects it."""


@dataclass(frozen=True)
class Edit:
    """`old`, which is in `file` exactly once, becomes `new`; `old` may span lines."""

    file: str
    old: str
    new: str


@dataclass(frozen=True)
class Case:
    """One change of a base.

    `rows`: those of the catalogue of observed cheats that it belongs to. Edits of editable files
    are made into a patch; those of other files (the launch script) are put in place as they are,
    as are `files` (path to text), which are new or replace a file. `command` replaces the command;
    `env` is added to the command's variables. `settings` are (knob, value).
    `expected`: the checks of which one must fail; empty for an honest change. `first`: the kind of
    run that shows it soonest.
    """

    name: str
    base: str
    rows: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[tuple[str, str | int | float | bool], ...] = ()
    expected: frozenset[str] | set[str] = frozenset()
    first: RunKind = RunKind.AUDIT

    @property
    def id(self) -> str:
        """Unique over all cases."""
        return f"{self.base}-{self.name}"

    @property
    def honest(self) -> bool:
        """Whether it must be accepted."""
        return not self.expected


@dataclass(frozen=True)
class Finding:
    """What became of a case: the run that decided and what rejected it (nothing for `accepted`)."""

    case: Case
    kind: str
    rejected_by: tuple[CheckResult, ...]
    seconds: float

    @property
    def caught_by(self) -> tuple[CheckResult, ...]:
        """The rejections by a check that is meant to see this cheat."""
        return tuple(r for r in self.rejected_by if r.check in self.case.expected)

    @property
    def right(self) -> bool:
        """Whether a cheat is caught by an expected check, or an honest change accepted."""
        return not self.rejected_by if self.case.honest else bool(self.caught_by)

    def __str__(self) -> str:
        failed = [f"  {r.check}: {r.reason}" for r in self.rejected_by] or ["  no check failed"]
        wanted = ", ".join(sorted(self.case.expected)) or "accepted"
        return "\n".join([f"{self.case.id} ({self.kind}), wanted: {wanted}", *failed])


@dataclass(frozen=True)
class Base:
    """A job, its contract, and the copy that all its runs start from."""

    name: str
    project: Project
    snapshot: SnapshotRef

    @property
    def sources(self) -> Sources:
        """Its files."""
        return Sources.of(self.snapshot)

    def patched(self, case: Case) -> dict[str, str]:
        """The files that the case's patch changes, made from its diff as a search would."""
        changed = self._edited([e for e in case.edits if e.file in self.project.editable])
        if not changed:
            return {}
        texts = self.sources.texts(self.project.editable)
        done = apply(make(texts, {**texts, **changed}), texts)
        return {path: text for path, text in done.items() if text is not None}

    def refusals(self, case: Case) -> tuple[CheckResult, ...]:
        """What the static audit has against the case's patch; in a search it is not launched."""
        after = self.patched(case)
        found = audit(self.sources.texts(after), after).refusals
        return tuple(CheckResult(PATCH_AUDIT, Status.FAILED, str(refusal)) for refusal in found)

    def overlay(self, case: Case) -> Overlay:
        """How the case's copy differs, whatever the static audit says; ValueError for an edit that
        does not fit."""
        made = overlay(self.project, self.sources, Candidate.of(dict(case.settings)))
        others = [e for e in case.edits if e.file not in self.project.editable]
        return replace(
            made,
            files={
                **made.files,
                **self.patched(case),
                **self._edited(others, made.files),
                **case.files,
            },
            command=case.command or made.command,
            env={**made.env, **case.env},
        )

    def _edited(self, edits: list[Edit], texts: Mapping[str, str] | None = None) -> dict[str, str]:
        found: dict[str, str] = {}
        for edit in edits:
            text = found.get(edit.file) or (texts or {}).get(edit.file)
            text = text or self.sources.text(edit.file)
            if text.count(edit.old) != 1:
                raise ValueError(
                    f"{edit.file} of {self.name} has {text.count(edit.old)} times {edit.old!r}"
                )
            found[edit.file] = text.replace(edit.old, edit.new)
        return found


class Workbench:
    """Runs bases and cases below one folder, one at a time; every base is measured once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = secrets.token_hex(16)
        self._bases: dict[str, Base] = {}
        self._evidence: dict[str, Evidence] = {}

    def base(self, name: str) -> Base:
        """The base, its snapshot taken when first asked for."""
        if name not in self._bases:
            folder, _, variant = name.partition("-")
            project = load(JOBS / folder / f"{variant or 'infrarsi'}.yaml").project
            snapshot = take(JOBS / folder, self.folder / name / "store")
            self._bases[name] = Base(name, project, snapshot)
        return self._bases[name]

    def evidence(self, name: str) -> Evidence:
        """The untouched job's runs."""
        if name not in self._evidence:
            base = self.base(name)
            plain = base.overlay(Case("reference", name))
            runs = [
                self.run(base, plain, kind, f"reference-{number}-{kind}")
                for number, kind in enumerate(REFERENCE_PLAN)
            ]
            steps = base.project.workload.optimizer_steps
            self._evidence[name] = reference_evidence(runs, optimizer_steps=steps)
        return self._evidence[name]

    def run(self, base: Base, changed: Overlay, kind: RunKind, name: str) -> ExecutionResult:
        """One execution in a fresh copy; its receipt is kept."""
        launch, workload = base.project.launch, base.project.workload
        receipt = self.folder / base.name / name
        request = ExecutionRequest(
            execution_id=name,
            kind=kind,
            snapshot=base.snapshot,
            overlay=changed,
            receipt_dir=str(receipt),
            cache_dir=str(self.folder / base.name / "cache"),
            optimizer_steps=workload.optimizer_steps,
            ends_by=workload.ends_by,
            witness_key=self.key,
            start_timeout_s=launch.start_timeout_s,
            timeout_s=launch.timeout_s,
            frozen=dict(base.project.frozen),
        )
        with LocalBench() as bench:
            result = bench.start(request).wait()
        assert result is not None
        if result.crashed_at_exit and not name.endswith("-again"):
            return self.run(base, changed, kind, f"{name}-again")
        (receipt / "receipt.json").write_text(json.dumps(result.to_dict()))
        return result

    def try_case(self, case: Case) -> Finding:
        """Audit and timed run of a case; a cheat stops at the first run that an expected check
        rejects."""
        base = self.base(case.base)
        began = time.monotonic()
        refused = base.refusals(case)
        if case.expected == {PATCH_AUDIT} or (case.honest and refused):
            return Finding(case, "none", refused, time.monotonic() - began)
        evidence = self.evidence(case.base)
        changed = base.overlay(case)
        kinds = sorted((RunKind.AUDIT, RunKind.TIMED), key=lambda kind: kind is not case.first)
        found = Finding(case, "none", (), 0.0)
        for kind in kinds:
            result = self.run(base, changed, kind, f"{case.name}-{kind}")
            rejected = judge(evidence, result, base.project).failed
            if result.exit_code != 0 and BROKEN not in case.expected:
                rejected = tuple(r for r in rejected if r.check == BROKEN)
            found = _with(found, kind, rejected, began)
            if found.caught_by or (case.honest and rejected):
                return found
        if PATCH_AUDIT in case.expected and refused:
            return _with(found, "none", refused, began)
        if PAIRS in case.expected:
            found = _with(found, "pairs", self._pairs(base, changed, case), began)
        return found

    def _pairs(self, base: Base, changed: Overlay, case: Case) -> tuple[CheckResult, ...]:
        """The paired comparison of the case, to its end; what it says unless it promotes."""
        plain = base.overlay(Case("reference", base.name))
        rules = promotion_rules(base.project, self.evidence(base.name).noise())
        state = PairedComparison(replace(rules, max_pairs=4))
        while state.promotion.decision == "continue":
            number = len(state.pairs)
            order = [("a", plain), ("b", changed)]
            times = {}
            for side, layout in order if number % 2 == 0 else reversed(order):
                name = f"{case.name}-pair{number}{side}"
                times[side] = measure(self.run(base, layout, RunKind.TIMED, name))
            assert times["a"] is not None
            assert times["b"] is not None
            state = state.with_pair(Pair.of(times["a"], times["b"]))
        check = state.promotion.check
        return () if state.promotion.decision == "promote" else (check,)


def _with(found: Finding, kind: str, rejected: tuple[CheckResult, ...], began: float) -> Finding:
    """The finding after one more run; an unexpected rejection of an earlier run is kept."""
    return replace(
        found,
        kind=str(kind),
        rejected_by=(*found.rejected_by, *rejected),
        seconds=time.monotonic() - began,
    )

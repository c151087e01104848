"""Recipes, patches and overlays of one project, as a campaign asks for them."""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from infrarsi.campaign import Interrupts, Prepared, RecipeReport, ReferenceFacts, Refused
from infrarsi.cli.console import Console
from infrarsi.contract import (
    Candidate,
    Constraint,
    Dimension,
    ExecutionRequest,
    Overlay,
    Point,
    Project,
    RunKind,
    Scalar,
    SnapshotRef,
    Space,
    Touch,
)
from infrarsi.errors import Interrupted, UserError
from infrarsi.runs import RunDirectory

if TYPE_CHECKING:
    from infrarsi.families import Device
    from infrarsi.workspace.local_check import CheckOutcome, Recording
    from infrarsi.workspace.recipes.base import Recipe
    from infrarsi.workspace.recipes.combine import Combined

_CHECK_TIMEOUT_S = 120.0
_RECORD_TIMEOUT_S = 600.0
_SPLITS = ("micro_batch", "gradient_accumulation")


class Workbench:
    """Recipes, patches and overlays of one project."""

    def __init__(
        self, project: Project, run: RunDirectory, console: Console, interrupts: Interrupts
    ) -> None:
        self._interrupts = interrupts
        self._project = project
        self._run = run
        self._console = console
        self._build = lru_cache(maxsize=None)(self._combined)
        self._touched = lru_cache(maxsize=None)(self._touches)

    def prepare(
        self, snapshot: SnapshotRef, facts: ReferenceFacts, known: Sequence[RecipeReport]
    ) -> Prepared:
        """Try each recipe alone, check it on recorded calls, and build the space.

        `known` is what an earlier process found of them; then nothing is tried again.
        """
        from infrarsi.families import dimensions
        from infrarsi.node.inventory import local_node

        node = local_node()
        device: Device = "gpu" if node.gpus else "cpu"
        reports = list(known) or self._recipe_reports(snapshot, device)
        offered = [(r.name, r.family) for r in reports if r.status == "offered"]
        shares = {name: seconds / facts.step_time_s for name, seconds in facts.phases_s.items()}
        found = dimensions(self._project, offered, device, shares=shares)
        fixed = self._fixed(found, facts)
        space = Space(
            dimensions=tuple(each for each in found if each not in fixed),
            constraints=tuple(Constraint.parse(text) for text in self._project.constraints),
            derived=(
                ("world", _world(self._project)),
                *((name, int(d.reference)) for d in fixed for name in (d.name, d.family)),
            ),
            planned_steps=self._project.workload.planned_steps,
            memory_limit_bytes=node.memory_bytes if device == "cpu" else None,
        )
        return Prepared(space, tuple(reports))

    def _fixed(self, found: Sequence[Dimension], facts: ReferenceFacts) -> tuple[Dimension, ...]:
        """The split of an update where every other one would fail `same_workload`."""
        if not facts.has_uneven_rows:
            return ()
        fixed = tuple(each for each in found if each.family in _SPLITS)
        if fixed:
            self._console.say(
                "The rows of an update differ in length and are padded to the longest of their "
                "micro-batch, so another micro-batch is other work: it is not searched."
            )
        return fixed

    def _recipe_reports(self, snapshot: SnapshotRef, device: "Device") -> list[RecipeReport]:
        from infrarsi.workspace.recipes import recipes
        from infrarsi.workspace.recipes.base import Declined

        files = self._sources(snapshot)
        reports: list[RecipeReport] = []
        fitting: list[tuple[RecipeReport, Combined]] = []
        for recipe in recipes():
            missing = [name for name in recipe.needs if name not in self._project.allow]
            status, reason = self._left_out(recipe, device)
            if status:
                reports.append(_report(recipe, status, reason))
                continue
            answer = recipe.apply(files)
            if isinstance(answer, Declined):
                reports.append(_report(recipe, "declined", answer.reason))
            elif missing:
                reason = f"changes precision: it needs `allow: [{missing[0]}]`"
                reports.append(_report(recipe, "not_allowed", reason))
            else:
                built = self._build(snapshot.root, (recipe.name,))
                if isinstance(built, Refused):
                    reports.append(_report(recipe, "declined", built.reason))
                else:
                    offered = _report(recipe, "offered", "", built.notes)
                    fitting.append((offered, built))
                    reports.append(offered)
        return self._checked(snapshot, files, reports, fitting)

    def _left_out(self, recipe: "Recipe", device: "Device") -> tuple[str, str]:
        """Status and reason of a recipe that need not be tried on this job; ("", "") otherwise."""
        from infrarsi.families import catalogue

        family = catalogue().get(recipe.family)
        if family is not None and device not in family.devices:
            return "declined", "it does nothing without a GPU"
        if not self._is_asked_for(recipe):
            return "not_allowed", "`search.patches` leaves it out"
        if family is not None and family.is_too_coarse(self._project):
            return "not_allowed", "it may round otherwise, and `numerics: bitwise` is asked for"
        return "", ""

    def _is_asked_for(self, recipe: "Recipe") -> bool:
        asked = self._project.search.patches
        return asked == "all" or (asked != "none" and recipe.name in asked)

    def _checked(
        self,
        snapshot: SnapshotRef,
        files: dict[str, str],
        reports: list[RecipeReport],
        fitting: "Sequence[tuple[RecipeReport, Combined]]",
    ) -> list[RecipeReport]:
        """Old and new code of each recipe, run on recorded calls before it costs a trial."""
        from infrarsi.workspace.local_check import (
            CheckOutcome,
            CheckStatus,
            check,
            has_checkable,
        )

        if not any(has_checkable(files, {**files, **built.files}) for _, built in fitting):
            return reports
        folder = self._run.path / "recorded"
        self._console.say("Code changes that fit are checked on recorded calls of the job.")
        self._console.status("  the calls are being recorded")
        recording = self._record(snapshot, files, folder)
        found: dict[str, RecipeReport] = {}
        python = shutil.which("python3") or sys.executable
        for offered, built in fitting:
            self._heed()
            self._console.status(f"  {offered.name} is being checked")
            outcome = (
                recording
                if isinstance(recording, CheckOutcome)
                else check(
                    python,
                    files,
                    {**files, **built.files},
                    recording=recording,
                    timeout_s=_CHECK_TIMEOUT_S,
                )
            )
            failed = outcome.status is CheckStatus.FAILED
            found[offered.name] = RecipeReport(
                offered.name,
                offered.family,
                offered.title,
                "failed_check" if failed else "offered",
                f"local check {outcome.status.replace('_', ' ')}: {outcome.reason}",
                offered.notes,
            )
            self._console.say(f"  {offered.name}: {found[offered.name].reason}", False)
        self._heed()
        shutil.rmtree(folder, ignore_errors=True)
        return [found.get(report.name, report) for report in reports]

    def _heed(self) -> None:
        if self._interrupts.requested:
            shutil.rmtree(self._run.path / "recorded", ignore_errors=True)
            raise Interrupted

    def _record(
        self, snapshot: SnapshotRef, files: dict[str, str], folder: Path
    ) -> "Recording | CheckOutcome":
        from infrarsi.node.inventory import local_node
        from infrarsi.workspace.local_check import record

        overlay = self.overlay(snapshot, Candidate.of())
        assert isinstance(overlay, Overlay)
        shutil.rmtree(folder, ignore_errors=True)
        request = ExecutionRequest(
            execution_id="recorded",
            kind=RunKind.AUDIT,
            snapshot=snapshot,
            overlay=overlay,
            receipt_dir=str(folder),
            cache_dir=str(self._run.path / "cache"),
            optimizer_steps=1,
            ends_by="witness",
            witness_key="",
            gpus_per_node=self._project.launch.gpus_per_node,
            env_pass=tuple(self._project.launch.env_pass),
        )
        return record(
            request,
            local_node(),
            base=os.environ,
            files=files,
            into=folder,
            timeout_s=_RECORD_TIMEOUT_S,
        )

    def _sources(self, snapshot: SnapshotRef) -> dict[str, str]:
        from infrarsi.workspace.sources import Sources

        sources = Sources.of(snapshot)
        return sources.texts(p for p in self._project.editable if sources.exists(p))

    def _combined(self, root: str, names: tuple[str, ...]) -> "Combined | Refused":
        from infrarsi.workspace.recipes import recipes
        from infrarsi.workspace.recipes.combine import NotCombined, combine

        snapshot = SnapshotRef("", root, "")
        chosen = [recipe for recipe in recipes() if recipe.name in names]
        built = combine(chosen, self._sources(snapshot))
        if isinstance(built, NotCombined):
            return Refused(f"{built.recipe}: {built.reason}")
        return built

    def assemble(self, snapshot: SnapshotRef, point: Point) -> Candidate | Refused:
        """The candidate of a point: knobs as settings, recipes as one combined patch."""
        from infrarsi.workspace.recipes import RECIPE_NAMES

        reference = {knob.name: knob.reference for knob in self._project.knobs}
        settings: dict[str, Scalar] = {
            name: value
            for name, value in point.items()
            if name in reference and value != reference[name]
        }
        names = tuple(name for name in RECIPE_NAMES if point.get(name) is True)
        if not names:
            return Candidate.of(settings)
        built = self._build(snapshot.root, names)
        if isinstance(built, Refused):
            return built
        touches = self._touched(snapshot.root, names)
        return Candidate.of(settings, replace(built.patch, touches=touches))

    def _touches(self, root: str, names: tuple[str, ...]) -> tuple[Touch, ...]:
        """What the lines of a set of recipes touch, for the reviewer; refusing is `overlay`'s."""
        from infrarsi.workspace.patch_audit import audit

        built = self._build(root, names)
        if isinstance(built, Refused):
            return ()
        return audit(self._sources(SnapshotRef("", root, "")), built.files).touches

    def overlay(self, snapshot: SnapshotRef, candidate: Candidate) -> Overlay | Refused:
        """How the candidate's copy differs from the snapshot."""
        from infrarsi.workspace import PatchFailed, Sources, overlay

        try:
            return overlay(self._project, Sources.of(snapshot), candidate)
        except PatchFailed as error:
            return Refused(str(error))
        except UserError as error:
            if candidate.is_reference:
                raise
            return Refused(f"{error.where}: {error.what}" if error.where else error.what)

    def resume(self, snapshot: SnapshotRef) -> Overlay | Refused:
        """The untouched job, told to go on from a checkpoint."""
        from infrarsi.workspace import Sources, resuming

        try:
            return resuming(self._project, Sources.of(snapshot))
        except UserError as error:
            return Refused(f"{error.where}: {error.what}" if error.where else error.what)

    def test_files(self, snapshot: SnapshotRef) -> dict[str, str]:
        """Digests of the project's tests, which no patch may touch."""
        from infrarsi.workspace import frozen_tests

        return frozen_tests(self._project, snapshot)


def _world(project: Project) -> int:
    """The processes of the job over all its nodes, one for each GPU."""
    return max(1, project.launch.gpus_per_node) * max(1, project.launch.nodes)


def _report(recipe: "Recipe", status: str, reason: str, notes: Sequence[str] = ()) -> RecipeReport:
    return RecipeReport(recipe.name, recipe.family, recipe.title, status, reason, tuple(notes))

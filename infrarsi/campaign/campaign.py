"""One campaign: reference, search, verification, written down as it goes."""

from collections.abc import Sequence
from dataclasses import dataclass

from infrarsi.campaign.execution import Desk
from infrarsi.campaign.parts import Judge, Parts, Prepared, RecipeReport, Searcher
from infrarsi.campaign.reference import FULL_PLAN, SHORT_PLAN, measure_reference
from infrarsi.campaign.search import SearchSession
from infrarsi.campaign.verification import Verification
from infrarsi.contract import Point, Project, RunKind, Trial
from infrarsi.contract.wording import counted, duration, why_stopped
from infrarsi.runs import Journal, RunDirectory, RunState

STOPPED_BY = (
    "screens",
    "target_speedup",
    "wall_hours",
    "gpu_hours",
    "space_exhausted",
    "no_gain_expected",
    "interrupt",
    "cut_off",
)
"""Every value of `stopped_by`; `cut_off` is a search that `finish` found without an end."""


@dataclass(frozen=True)
class Start:
    """What is fixed at the start of a run and written into its first line."""

    project_root: str
    tree_digest: str
    argv: tuple[str, ...]
    version: str


class Campaign:
    """One run directory's campaign, new or continued.

    The stages may be called one by one; each does only what the journal does not hold yet.
    """

    def __init__(
        self,
        project: Project,
        run: RunDirectory,
        journal: Journal,
        parts: Parts,
        witness_key: str,
    ) -> None:
        self._journal = journal
        self._parts = parts
        self._desk = Desk(project, run, journal, parts.snapshot(), witness_key, parts)
        self._judge: Judge | None = None
        self._prepared: Prepared | None = None

    @property
    def state(self) -> RunState:
        """The state as the journal has it now."""
        return RunState.of(self._journal.events)

    def begin(self, start: Start) -> None:
        """Write the run's first line, once."""
        if self.state.started:
            return
        project = self._desk.project
        self._journal.append(
            "run_started",
            run_id=self._desk.run.run_id,
            name=project.name,
            stack=project.stack,
            command=project.launch.command,
            contract_hash=project.contract_hash(),
            project_root=start.project_root,
            tree_digest=start.tree_digest,
            snapshot=self._desk.snapshot.digest,
            snapshot_root=self._desk.snapshot.root,
            optimizer_steps=project.workload.optimizer_steps,
            planned_steps=project.workload.planned_steps,
            ends_by=project.workload.ends_by,
            searcher=project.search.searcher,
            seed=project.search.seed,
            budget=project.search.budget.model_dump(exclude_none=True),
            llm=project.llm.model_dump(exclude_none=True),
            confidence=project.verify.confidence,
            experience=project.experience if "experience" in project.model_fields_set else None,
            argv=list(start.argv),
            version=start.version,
        )

    def resume(self) -> None:
        """Write down that this process goes on with the run; the time between does not count."""
        self._journal.append("resumed")

    def doctor(self, *, full: bool = True) -> Judge:
        """Measure the reference; cheap when the journal has it."""
        if self._judge is None:
            plan: Sequence[RunKind] = FULL_PLAN if full else SHORT_PLAN
            self._judge = measure_reference(self._desk, self.state, plan)
        return self._judge

    def prepare(self) -> Prepared:
        """Try the recipes and build the space."""
        if self._prepared is None:
            facts = self.doctor().facts
            state = self.state
            known = [RecipeReport(**recipe) for recipe in state.recipes] if state.space else []
            self._prepared = self._parts.prepare(self._desk.snapshot, facts, known)
            if not state.space:
                self._write_space(self._prepared)
        return self._prepared

    def _write_space(self, prepared: Prepared) -> None:
        for recipe in prepared.recipes:
            self._journal.append("recipe", **recipe.__dict__)
            if recipe.status != "offered":
                self._parts.say(f"  {recipe.name} does not fit: {recipe.reason}", False)
        dimensions = prepared.space.dimensions
        self._journal.append(
            "space",
            size=prepared.space.size(),
            dimensions=[
                {
                    "name": d.name,
                    "family": d.family,
                    "kind": str(d.kind),
                    "values": list(d.values),
                    "reference": d.reference,
                }
                for d in dimensions
            ],
        )
        names = ", ".join(d.name for d in dimensions) or "nothing"
        self._parts.say(
            f"  {counted(prepared.space.size(), 'combination')} of {names} can be tried.", True
        )

    def search(self) -> str:
        """Search until a limit is reached; returns `stopped_by`.

        One that the user interrupted has not ended: a resumed run goes on with it, unless
        `end_search` says otherwise.
        """
        state = self.state
        if state.stopped_by is not None:
            return state.stopped_by
        judge, prepared = self.doctor(), self.prepare()
        searcher = self._parts.searcher(prepared.space, judge.facts)
        session = SearchSession(self._desk, judge, prepared.space, searcher, state)
        budget = self._desk.project.search.budget
        left = max(0, min(budget.screens, prepared.space.size() - 1) - session.screens)
        each = judge.facts.command_s
        self._parts.say(
            f"Search: up to {counted(left, 'trial')} of about {duration(each)} each, "
            f"so {duration(left * each)} in all.",
            True,
        )
        self._parts.loop().run(
            suggest=session.suggest,
            is_over=session.is_over,
            on_result=session.on_result,
            on_progress=session.on_progress,
        )
        stopped_by = session.stopped_by or "space_exhausted"
        if stopped_by == "interrupt":
            self._journal.append("interrupted", stage="search")
        else:
            self._journal.append("search_ended", stopped_by=stopped_by)
        self._parts.say(
            f"  The search is over: {why_stopped(stopped_by, budget.model_dump())}.", True
        )
        return stopped_by

    def end_search(self, stopped_by: str) -> None:
        """End a search that was cut short, so that its best candidates can be verified."""
        if self.state.stopped_by is None:
            self._journal.append("search_ended", stopped_by=stopped_by)

    def verify(self) -> str | None:
        """Verify the best candidates; returns the promoted candidate's id."""
        state = self.state
        if state.finished is not None:
            return state.promoted_id
        judge = self.doctor()
        self._write_learned()
        promoted = Verification(self._desk, judge, state).run(self.ranking())
        self._journal.append("finished", promoted=promoted)
        self._desk.run.forget_kept()
        return promoted

    def _write_learned(self) -> None:
        """What the search taught, once, for the pack."""
        if self.state.learned is None:
            searcher, history = self._searched()
            self._journal.append("learned", **searcher.learned(history).to_dict())

    def _searched(self) -> tuple[Searcher, list[Trial]]:
        """A searcher, and the history of the search so far."""
        judge, prepared = self.doctor(), self.prepare()
        searcher = self._parts.searcher(prepared.space, judge.facts)
        session = SearchSession(self._desk, judge, prepared.space, searcher, self.state)
        return searcher, session.history

    def ranking(self) -> list[Point]:
        """The points to verify, best first."""
        state = self.state
        if state.ranking:
            return [state.points[candidate_id] for candidate_id in state.ranking]
        searcher, history = self._searched()
        return searcher.ranking(history)

    def note_interrupt(self, stage: str) -> None:
        """Write down that a stage was cut short."""
        self._journal.append("interrupted", stage=stage)


__all__ = ["STOPPED_BY", "Campaign", "Start"]

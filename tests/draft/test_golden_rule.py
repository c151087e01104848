"""The golden rule: what a draft says of a job is what its training processes count.

Every folder of `examples/` with a launch script or a program is drafted, its reference is run from
the draft by the product's own parts, and the witness's counts are held against the draft. A stack
that is not installed is skipped; a job whose launch script says `needs a GPU` in a comment has the
marker `gpu`. One alone: `pytest -m stacks tests/draft/test_golden_rule.py -k hf_trainer`.
"""

import importlib.util
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from infrarsi.contract import Candidate, ExecutionRequest, Outcome, RankRecord, RunKind
from infrarsi.draft import Draft, draft
from infrarsi.draft.sources import read
from infrarsi.node.local_bench import LocalBench
from infrarsi.workspace.overlay import overlay
from infrarsi.workspace.snapshot import take
from infrarsi.workspace.sources import Sources

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS_GPU = re.compile(r"^\s*#.*\bneeds a GPU\b", re.MULTILINE | re.IGNORECASE)


def launch(folder: Path) -> Path:
    """What a person names: `train.sh`, the only script, or the folder."""
    scripts = sorted(folder.glob("*.sh"))
    named = [script for script in scripts if script.name == "train.sh"] or scripts
    return named[0] if len(named) == 1 else folder


JOBS = sorted(
    folder
    for folder in EXAMPLES.iterdir()
    if folder.is_dir() and any(folder.glob(pattern) for pattern in ("*.sh", "*.py"))
)


def marks(folder: Path) -> list[pytest.MarkDecorator]:
    """What an example needs."""
    text = "".join(script.read_text(encoding="utf-8") for script in folder.glob("*.sh"))
    return [pytest.mark.gpu] if NEEDS_GPU.search(text) else [pytest.mark.stacks, pytest.mark.slow]


def insist_on_stack(drafted: Draft) -> None:
    """Skip a job that imports a package which is not installed."""
    entry = drafted.project.editable[0]
    external = read(drafted.root, entry, [str(Path(entry).parent)]).external
    missing = [name for name in external if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed (the extra `stacks`)")


def run(drafted: Draft, folder: Path) -> tuple[Outcome, tuple[RankRecord, ...]]:
    """The reference, run once and looked at closely, as the draft says."""
    project = drafted.project
    snapshot = take(drafted.root, folder / "store")
    request = ExecutionRequest(
        execution_id="reference",
        kind=RunKind.AUDIT,
        snapshot=snapshot,
        overlay=overlay(project, Sources.of(snapshot), Candidate.of({})),
        receipt_dir=str(folder / "receipt"),
        cache_dir=str(folder / "cache"),
        optimizer_steps=project.workload.optimizer_steps,
        ends_by=project.workload.ends_by,
        witness_key=secrets.token_hex(16),
        start_timeout_s=300,
        timeout_s=900,
        frozen=dict(project.frozen),
    )
    with LocalBench() as bench:
        result = bench.start(request).wait()
    assert result is not None
    return result.outcome, result.ranks


@dataclass(frozen=True)
class Count:
    """One number twice: as the draft says it, and as the training processes counted it."""

    name: str
    said: int
    seen: frozenset[int]

    @property
    def is_right(self) -> bool:
        return self.seen == {self.said}


def counts(drafted: Draft, ranks: Sequence[RankRecord]) -> list[Count]:
    """Everything that a draft says in numbers, beside what was counted."""
    workload = drafted.project.workload
    facts = {fact.name: int(fact.value) for fact in drafted.facts if _is_number(fact.value)}
    world = frozenset({len(ranks), *(rank.world_size for rank in ranks)})
    found = [
        Count("optimizer steps", workload.optimizer_steps, _over(ranks, lambda r: len(r.steps))),
        Count("processes", facts.get("processes", 0), world),
    ]
    # The ranks of one model-parallel group read the same samples.
    shares = facts.get("processes", 1) // facts.get("data_parallel", 1)
    updates = list(zip(*(rank.steps for rank in ranks), strict=False))
    if "global_batch" in facts:
        samples = frozenset(sum(s.samples for s in update) // shares for update in updates)
        found.append(Count("samples per update (fact)", facts["global_batch"], samples))
        if workload.samples_per_update is not None:
            found.append(Count("samples per update", workload.samples_per_update, samples))
    if workload.tokens_per_update is not None:
        tokens = frozenset(sum(_tokens(s.elements) for s in u) // shares for u in updates)
        found.append(Count("tokens per update", workload.tokens_per_update, tokens))
    if "accumulation" in facts:
        calls = frozenset(step.forwards for rank in ranks for step in rank.steps)
        found.append(Count("micro-steps", facts["accumulation"], calls))
    if "micro_batch" in facts:
        sizes = frozenset(s.samples // max(1, s.forwards) for r in ranks for s in r.steps)
        found.append(Count("micro batch", facts["micro_batch"], sizes))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _over(ranks: Sequence[RankRecord], read: Callable[[RankRecord], int]) -> frozenset[int]:
    return frozenset(read(rank) for rank in ranks)


def _tokens(elements: dict[str, int]) -> int:
    """Elements of the input that holds the tokens: ids, masks and labels are all as large."""
    return max(elements.values(), default=0)


def longest_row(ranks: Sequence[RankRecord]) -> int:
    """The longest row of all inputs of two dimensions: `input_ids:int64:4x128`."""
    lengths = [
        int(match[1])
        for rank in ranks
        for step in rank.steps
        for shape in step.shapes
        if (match := re.search(r":\[?\(?\d+[x,] ?(\d+)\)?\]?$", shape))
    ]
    return max(lengths, default=0)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "folder", [pytest.param(job, id=job.name, marks=marks(job)) for job in JOBS]
)
def test_the_training_processes_count_what_the_draft_says(folder: Path, tmp_path: Path) -> None:
    job = Path(shutil.copytree(folder, tmp_path / folder.name))
    drafted = draft(launch(job))
    insist_on_stack(drafted)
    assert drafted.unknowns == ()
    outcome, ranks = run(drafted, tmp_path)
    assert outcome is Outcome.OK
    found = counts(drafted, ranks)
    assert [count for count in found if not count.is_right] == []
    said = {count.name for count in found}
    assert drafted.project.stack == "native-ddp" or "samples per update" in said
    facts = {fact.name: fact.value for fact in drafted.facts}
    if "sequence_length" in facts:
        assert 0 < longest_row(ranks) <= int(facts["sequence_length"])
    for wrong in perturbed(drafted):
        assert any(not count.is_right for count in counts(wrong, ranks))


def perturbed(drafted: Draft) -> Iterator[Draft]:
    """Drafts of the same job that say something else than what it does."""
    workload = drafted.project.workload
    changes = [{"optimizer_steps": workload.optimizer_steps + 1}]
    for name in ("samples_per_update", "tokens_per_update"):
        value = getattr(workload, name)
        changes += [] if value is None else [{name: 2 * value}]
    for change in changes:
        other = workload.model_copy(update=change)
        project = drafted.project.model_copy(update={"workload": other})
        yield replace(drafted, project=project)
    for at, fact in enumerate(drafted.facts):
        if fact.name in ("processes", "global_batch", "accumulation", "micro_batch"):
            facts = list(drafted.facts)
            facts[at] = replace(fact, value=2 * int(fact.value))
            yield replace(drafted, facts=tuple(facts))


def test_every_example_with_a_launch_script_is_tried() -> None:
    names = {folder.name for folder in JOBS}
    assert {"ddp_gpt", "hf_trainer", "trl_sft"} <= names
    assert all(launch(folder).suffix == ".sh" for folder in JOBS)

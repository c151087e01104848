"""What the reference measured takes settings out of the search that could only fail."""

import io
from typing import Any, cast

import pytest

from infrarsi.campaign import RecipeReport, ReferenceFacts
from infrarsi.cli.console import Console
from infrarsi.cli.workbench import Workbench
from infrarsi.contract import Knob, Launch, Project, Workload

FACTS: dict[str, Any] = {
    "step_time_s": 0.2,
    "step_log_sd": 0.01,
    "one_off_s": 5.0,
    "command_s": 20.0,
    "peak_bytes": None,
    "samples_per_update": 8,
    "elements_per_update": {},
    "resolvable_gain": 0.02,
    "max_pairs": 8,
    "coverage": {},
}
PROJECT = Project(
    schema="infrarsi-project-v1",
    name="job",
    launch=Launch(command="bash train.sh"),
    workload=Workload(planned_steps=1000, optimizer_steps=20),
    knobs=[
        Knob(name="batch", family="micro_batch", at="flag:--batch", values=[1, 2, 4], reference=1),
        Knob(
            name="workers",
            family="dataloader_workers",
            at="flag:--workers",
            values=[0, 1, 2],
            reference=0,
        ),
    ],
    constraints=["micro_batch <= 2 or dataloader_workers == 0"],
)


@pytest.mark.parametrize("uneven", [False, True])
def test_another_split_of_padded_rows_is_not_searched(uneven: bool) -> None:
    out = io.StringIO()
    bench = Workbench(PROJECT, cast(Any, None), Console(verbose=False, out=out), cast(Any, None))
    facts = ReferenceFacts(**FACTS, has_uneven_rows=uneven)
    known = [RecipeReport("sdpa_attention", "attention_backend", "SDPA", "declined", "no", ())]
    space = bench.prepare(cast(Any, None), facts, known).space
    assert [d.name for d in space.dimensions] == (["workers"] if uneven else ["batch", "workers"])
    assert ("padded to the longest" in out.getvalue()) is uneven
    assert space.is_valid({"workers": 2, **({} if uneven else {"batch": 1})})

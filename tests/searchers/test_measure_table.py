"""The measurement of tables: what is planned, kept and made of it; a tiny job the whole way."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from benchmark_module import FOLDER, load

from infrarsi.families import catalogue

TINY = ["--device", "cpu", "--tiny", "--values", "micro_batch=4,8", "recompute=none",
        "attention=sdpa", "grouped_experts=true", "loss=eager", "compile=off",
        "optimizer=foreach", "python_gc=on", "max_connections=default"]  # fmt: skip
FACTS = {"table": "t", "gpu": "g", "gpus": 1, "capacity_gib": 10.0, "static_gib": 1.0, "params": 7,
         "workload": {}, "versions": {}, "date": "2026-01-01"}  # fmt: skip


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    sys.path.insert(0, str(FOLDER))
    yield load("measure_table")
    sys.path.remove(str(FOLDER))


@pytest.fixture
def small(tool: ModuleType) -> Any:
    """A job of four configurations, and an optimizer measured apart."""
    values = [v for v in TINY[4:] if not v.startswith(("recompute", "optimizer"))]
    values += ["optimizer=foreach,fused"]
    job = tool.with_values(tool.job_named("moe"), values)
    assert len(list(job.product())) == 4
    return job


def measured_lines(tool: ModuleType, job: Any, fused: float) -> list[dict[str, Any]]:
    """Lines of a made-up machine: half a second at most, every fused row `fused` times as long."""
    lines: list[dict[str, Any]] = [{"facts": FACTS}]
    for number, (settings, repeat) in enumerate(tool.shuffled(job)):
        step_s = 0.5 / settings["micro_batch"] * (1.001 if number % 2 else 1.0)
        step_s *= fused if settings["optimizer"] == "fused" else 1.0
        lines.append({"settings": settings, "repeat": repeat, "status": "ok", "step_s": step_s,
                      "peak_gib": 2.0, "wall_s": 3.0})  # fmt: skip
    return lines


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("name", ["ddp", "fsdp2", "hf-trainer", "moe", "moe-long"])
def test_jobs_speak_the_catalogue(tool: ModuleType, name: str) -> None:
    job = tool.job_named(name)
    for knob in job.knobs:
        family = catalogue()[knob.family]
        assert knob.reference in knob.values
        if family.law != "doubling":
            assert {family.canonical(v) for v in knob.values} <= set(family.values)
    assert 90 <= len(list(job.product())) <= 200


def test_parts_are_the_whole(tool: ModuleType, small: Any) -> None:
    todo = tool.shuffled(small)
    parts = [tool.part_of(todo, f"{i}/3") for i in (1, 2, 3)]
    assert sorted(map(str, todo)) == sorted(str(t) for part in parts for t in part)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_what_is_measured_is_not_measured_again(
    tool: ModuleType, small: Any, tmp_path: Path
) -> None:
    lines = measured_lines(tool, small, 1.0)
    out = written(tmp_path / "a.jsonl", lines[:4])
    with out.open("a") as file:
        file.write('{"settings": {"mic')  # a process that was killed
    todo = tool.shuffled(small)
    task = tool.Task("t", small, small.tiny, "cpu", 1.0, (), 0.0, out, 0)
    assert tool.Campaign(task, "fork")._left(todo) == todo[3:]


def test_a_table_is_read_by_replay(tool: ModuleType, small: Any, tmp_path: Path) -> None:
    out = written(tmp_path / "m.jsonl", measured_lines(tool, small, 0.8))
    table = load("replay").Table(written(tmp_path / "t.jsonl", tool.table_lines(
        tool.Measured([out]), small)))  # fmt: skip
    fastest = table.reference | {"micro_batch": 8, "optimizer": "fused"}
    assert len(table._rows) == 8  # four measured, times two optimizers measured apart
    assert table.share(fastest) == 1.0
    assert math.isclose(table.row(fastest)["step_s"], 0.5 / 8 * 0.8, rel_tol=0.002)
    assert 0 < table.header["noise_log_sd"] < 0.002
    assert table.space({}).memory_limit_bytes == 10 * 2**30


def test_a_knob_without_effect_is_left_out_of_the_rows(
    tool: ModuleType, small: Any, tmp_path: Path
) -> None:
    out = written(tmp_path / "m.jsonl", measured_lines(tool, small, 1.0))
    header, *rows = tool.table_lines(tool.Measured([out]), small)
    assert len(rows) == 4
    assert "optimizer" not in rows[0]["settings"]
    assert "optimizer" in [k["name"] for k in header["space"]]


def test_another_ranks_failure_does_not_hide_out_of_memory(
    tool: ModuleType, small: Any, tmp_path: Path
) -> None:
    oom = {"settings": small.reference, "repeat": 0, "status": "oom", "message": "out of memory",
           "peak_gib_at_least": 10.0, "wall_s": 1.0}  # fmt: skip
    error = {**oom, "status": "error", "message": "connection closed"}
    for lines in ([oom, error], [error, oom]):
        measured = tool.Measured([written(tmp_path / "m.jsonl", lines)])
        assert [r["status"] for r in measured.rows.values()] == ["oom"]


@pytest.mark.slow
def test_out_of_memory_is_a_row_with_its_message(tool: ModuleType, small: Any) -> None:
    torch = pytest.importorskip("torch")
    text = "CUDA out of memory. Tried to allocate 12.00 GiB."

    def train(_settings: object, _run: object) -> None:
        raise torch.OutOfMemoryError(text)

    worker = sys.modules["table_jobs.worker"]
    job = replace(small, train=train)
    task = tool.Task("t", job, job.tiny, "cpu", 10.0, (), 0.0, Path("unused"), 0)
    row = worker.measure(task, job.reference, worker.Run(job.tiny, "cpu"))
    assert row.pop("wall_s") < 60
    assert row == {"status": "oom", "message": text, "peak_gib_at_least": 12.0}


@pytest.mark.slow
@pytest.mark.parametrize("job", ["moe"])
def test_a_tiny_job_is_measured_the_whole_way(tmp_path: Path, job: str) -> None:
    command = [sys.executable, str(FOLDER / "measure_table.py"), job, *TINY]
    command += ["--out", str(tmp_path / "tiny.measured.jsonl"), "--seconds", "250"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    assert "0 failed, 0 of the product missing" in done.stdout
    table = load("replay").Table(tmp_path / "tiny.jsonl")
    assert len(table._rows) == 2
    assert table.header["params"] > 0

"""The jobs that `measure_table.py` measures: training steps of a stack in its stock manner."""

from importlib import import_module

from table_jobs.job import Job

MODULES = {
    "ddp": "ddp",
    "fsdp2": "fsdp2",
    "hf-trainer": "hf_trainer",
    "moe": "moe",
    "moe-long": "moe",
}


def job_named(name: str) -> Job:
    """The job of that name. Its stack's own packages are imported when it is measured."""
    job: Job = import_module(f"table_jobs.{MODULES[name]}").JOBS[name]
    return job

"""Imports torch once, with the witness in place, and then runs each job it is told of in a fork.

One JSON line in names the job: `folder`, `argv`, `stdout`, `stderr`. One line out is its status.
Importing torch is most of a tiny job's time; everything else here is a real process of its own.
"""

import json
import os
import runpy
import sys

import torch
import torch._dynamo  # the first optimizer step would import it


def next_job():
    """Fork one job after another; returns, in the child, what to run there."""
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            return job
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        sys.stdout.write(f"{status}\n")
        sys.stdout.flush()
    return None


job = next_job()
if job is not None:
    assert torch.__version__
    for name, target in (("stdout", 1), ("stderr", 2)):
        os.dup2(os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), target)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(job["folder"])
    sys.argv = job["argv"]
    runpy.run_path(sys.argv[0], run_name="__main__")

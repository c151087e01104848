"""Launches that cannot be placed, reached or read: the line, the fact and what to do."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from launched_jobs import TRAIN
from reading_jobs import read

from infrarsi.errors import UserError

Make = Callable[[Mapping[str, str]], Path]
RUN = "torchrun --nproc_per_node=2 train.py --steps 60"


def refused(root: Path, name: str, words: str) -> UserError:
    with pytest.raises(UserError, match=words) as caught:
        read(root / name)
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (f"#SBATCH -N 1\n#SBATCH --array=0-3%2\n{RUN}", 3, r"`--array=0-3%2` makes several jobs"),
        (f"#SBATCH -a1-4\n{RUN}", 2, "makes several jobs"),
        (f"#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n{RUN}", 3, "a job of several parts"),
        (f"srun --het-group=0,1 {RUN}", 2, "a job of several parts"),
        (f"#PBS -l select=2:ngpus=8\n{RUN}", 2, "the header of another scheduler"),
        (f"#SBATCH --nodes=$N\n{RUN}", 2, r"`--nodes` is '\$N'"),
        (f"#SBATCH --gpus=16\n{RUN}", 2, "16 GPUs, but not how many of them are on one node"),
        (f"#SBATCH --job-name='x\n{RUN}", 2, "is not understood: No closing quotation"),
        (f"srun -N $N {RUN}", 2, "`--nodes` of srun is what only a run can tell"),
        (f"#SBATCH -N1\n#SBATCH --ntasks-per-node=4\nsrun {RUN}", 3, "4 processes on a node start"),
        (f'ssh node1 "cd job && {RUN}"', 2, "starts the training on other hosts .node1"),
        (f"pdsh -w n[1-4] {RUN}", 2, r"on other hosts \(n\[1-4\]\)"),
        (f"docker exec -w /w box {RUN}", 2, "enters a container that is there already"),
        (f"docker run img {RUN}", 2, "is the image's own, or no mount holds it"),
        (f"sudo docker run -v $PWD:/w -w /w img {RUN}", 2, "`sudo docker run` is not looked up"),
        (f"/usr/bin/docker run -v $PWD:/w -w /w img {RUN}", 2, "is not looked up in PATH"),
        ("accelerate launch --config_file gone.yaml train.py", 2, "'gone.yaml', which does not"),
        ('accelerate launch --config_file "$CFG" train.py', 2, r"which file accelerate reads"),
        ("accelerate launch --num_machines 2 --num_processes 3 train.py", 2, "3 processes cannot"),
        ("deepspeed --num_gpus $G train.py", 2, r"the number of GPUs is '\$G'"),
        ("deepspeed --hostfile gone train.py", 2, "'gone', which does not exist"),
        ("mpirun -np $N python train.py", 2, "the number of processes is"),
        ("sbatch --wait job.sbatch", 2, "hands 'job.sbatch' to `sbatch`"),
        ("kubectl apply -n ml -f deploy/job.yaml", 2, "hands 'deploy/job.yaml' to `kubectl`"),
    ],
)
def test_a_launch_that_cannot_be_read_or_reached(
    write: Make, text: str, line: int, words: str
) -> None:
    root = write({"go.sh": f"#!/bin/bash\n{text}\n", "train.py": TRAIN})
    assert refused(root, "go.sh", words).where == f"go.sh:{line}"


def test_the_users_own_folder_is_not_mounted_in_place_of_a_copy(write: Make) -> None:
    root = write({"train.py": TRAIN})
    (root / "go.sh").write_text(f"docker run -v {root}:/w -w /w img {RUN}\n")
    assert refused(root, "go.sh", "would train the original").where == "go.sh:1"


@pytest.mark.parametrize(
    ("files", "command", "where", "words"),
    [
        ({"a.yaml": "num_processes: [1\n"}, "accelerate launch --config_file a.yaml", "a.yaml:1",
         "this is not YAML"),
        ({"a.yaml": "x: 1\nnum_processes: many\n"}, "accelerate launch --config_file a.yaml",
         "a.yaml:2", "`num_processes` is 'many'"),
        ({"a.yaml": "- 1\n"}, "accelerate launch --config_file a.yaml", "a.yaml", "has no keys"),
        ({"h": "a slots=8\nb eight\n"}, "deepspeed --hostfile h", "h:2", "'b eight' is no host"),
        ({"h": "# none\n"}, "deepspeed --hostfile h", "h", "the list of hosts is empty"),
        ({"h": "a slots=8\nb slots=4\n"}, "deepspeed --hostfile h", "go.sh:1",
         "different numbers of slots"),
    ],
)  # fmt: skip
def test_a_file_of_a_launcher_that_says_nothing(
    write: Make, files: dict[str, str], command: str, where: str, words: str
) -> None:
    root = write({**files, "go.sh": f"{command} train.py\n", "train.py": TRAIN})
    assert refused(root, "go.sh", words).where == where


def test_two_scripts_that_train_are_named(write: Make) -> None:
    files = {"go.sh": "bash a.sh\nbash b.sh\n", "a.sh": RUN, "b.sh": RUN, "train.py": TRAIN}
    error = refused(write(files), "go.sh", "'a.sh' in line 1, 'b.sh' in line 2")
    assert "--command" in error.fix


POD = """apiVersion: batch/v1
kind: Job
spec:
  template:
    spec:
      containers:
      - name: t
        image: img
        command: [python, train.py]
"""
ROLES = """apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Master:
      template: {spec: {containers: [{name: pytorch, command: [torchrun, train.py]}]}}
    Worker:
      template: {spec: {containers: [{name: pytorch, command: [torchrun, other.py]}]}}
"""
RAY = """apiVersion: ray.io/v1
kind: RayJob
spec:
  entrypoint: python train.py
  rayClusterSpec:
    workerGroupSpecs:
    - template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 8}}}]}}
    - template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 4}}}]}}
"""


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (POD + "---\n" + POD, 12, "2 jobs are in this file: Job in line 2, Job in line 12"),
        (POD.replace("img", "{{ .Values.image }}"), 8, "this is a template"),
        (POD.replace("        command: [python, train.py]\n", ""), 7, "there is no `command`"),
        (POD.replace("[python, train.py]", "python train.py"), 9, "must be a list of words"),
        (POD.replace("template:", "parallelism: 4\n  template:", 1), 4, "`parallelism` is 4"),
        (POD.replace("[python, train.py]", "[python, train.py"), 9, "this is not YAML"),
        (POD.replace("kind: Job", "kind: MPIJob"), 2, "a MPIJob is not read"),
        (ROLES, 7, "the Worker runs something else than the Master"),
        (RAY, 8, "groups with 8 and with 4 GPUs on a node"),
        ("apiVersion: v1\nkind: Service\n", None, "no training job is in this file, only Service"),
        (POD.replace("train.py", "gone.py"), None, "is not in its folder"),
        (
            "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nspec:\n"
            "  runtimeRef: {name: torch}\n  trainer:\n    args: [x]\n",
            5,
            "is in the runtime 'torch' of the cluster",
        ),
    ],
)
def test_a_manifest_that_does_not_say_enough(
    write: Make, text: str, line: int | None, words: str
) -> None:
    root = write({"job.yaml": text, "train.py": TRAIN})
    where = refused(root, "job.yaml", words).where
    assert where == f"job.yaml:{line}" if line else where.endswith("job.yaml")


def test_a_program_that_places_its_own_workers_is_no_command_of_one_node(write: Make) -> None:
    code = "import torch\nfrom ray.train.torch import TorchTrainer\n" + TRAIN
    one_group = "\n".join(RAY.splitlines()[:-1])
    root = write({"job.yaml": one_group, "train.py": code})
    assert refused(root, "job.yaml", "its own workers by Ray Train").where == "train.py:2"


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        (b"#!/bin/bash\n# l\xe4uft\npython train.py\n", 2, "the byte 0xe4 is not UTF-8"),
        ("#!/bin/bash\npython train.py\n".encode("utf-16"), 1, r"byte order mark \(UTF-16\)"),
        (b"\xef\xbb\xbf#!/bin/bash\npython train.py\n", 1, r"byte order mark \(UTF-8\)"),
        (b"#!/bin/bash\r\npython train.py\r\n", 1, "end as on Windows"),
    ],
    ids=["latin-1", "UTF-16", "UTF-8 with a mark", "CRLF"],
)
def test_a_script_in_another_encoding(write: Make, data: bytes, line: int, words: str) -> None:
    root = write({"train.py": TRAIN})
    (root / "go.sh").write_bytes(data)
    assert refused(root, "go.sh", words).where == f"{root / 'go.sh'}:{line}"


def test_a_script_that_bash_cannot_parse(write: Make) -> None:
    root = write({"go.sh": "if true; then\n  torchrun train.py ) --steps 60\nfi\n", "train.py": ""})
    assert refused(root, "go.sh", "the shell syntax").where == "go.sh:2"


def test_a_loop_of_links_is_no_target(write: Make) -> None:
    root = write({"train.py": TRAIN})
    (root / "a.sh").symlink_to("b.sh")
    (root / "b.sh").symlink_to("a.sh")
    refused(root, "a.sh", "is a link that leads nowhere")
    assert read(root).project.launch.command == "python train.py"


def test_a_file_that_may_not_be_read(write: Make) -> None:
    root = write({"go.sh": RUN, "train.py": TRAIN})
    (root / "go.sh").chmod(0)
    if os.access(root / "go.sh", os.R_OK):
        (root / "go.sh").unlink()
        (root / "go.sh").symlink_to("/proc/self/mem")  # root may open everything but not read this
    assert refused(root, "go.sh", "the file cannot be read").where


def test_a_script_and_a_batch_script_are_two_candidates(write: Make) -> None:
    files = {"a.sbatch": f"#!/bin/bash\n{RUN}\n", "b.sh": RUN, "train.py": TRAIN}
    refused(write(files), ".", "2 files may start the training: 'a.sbatch', 'b.sh'")


def test_a_manifest_alone_is_the_job_of_its_folder(write: Make) -> None:
    root = write({"deploy/job.yaml": POD, "train.py": TRAIN, ".git/HEAD": ""})
    assert read(root).project.launch.command == "python train.py"

"""Launch scripts and manifests in the manner of each stack, with the contract expected of each.

`expects` has: command, script (None: the command itself), entry, cwd, nodes, processes on a node,
GPUs on a node as far as the launch says (None: it does not), and some of the environment.
"""

from dataclasses import dataclass, field

TRAIN = """import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
args, _ = parser.parse_known_args()
loss = torch.zeros(1, requires_grad=True, device="cuda" if torch.cuda.is_available() else "cpu")
loss.sum().backward()
if __name__ == "__main__":
    pass
"""


@dataclass(frozen=True)
class Expected:
    """What the draft must say; `processes` is None where the machine's GPUs decide."""

    command: str
    entry: str
    script: str | None = None
    cwd: str = "."
    nodes: int = 1
    processes: int | None = 1
    gpus: int | None = None
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """A job: its files, the one that is named, and what is expected."""

    files: dict[str, str]
    target: str
    expected: Expected


JOBS = {
    "slurm, megatron in one torchrun a node": Written(
        {
            "pretrain.sbatch": """#!/bin/bash
#SBATCH --job-name=gpt
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=h100:8   # whole nodes
#SBATCH --time=24:00:00
#SBATCH --output=logs/%j.out

export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NNODES=$SLURM_NNODES
head_node=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES \\
    --rdzv_id $SLURM_JOB_ID --rdzv_backend c10d --rdzv_endpoint $head_node:29500"
GPT_ARGS="
    --num-layers 24
    --hidden-size 1024
    --steps 60
"
srun torchrun $DISTRIBUTED_ARGS pretrain_gpt.py $GPT_ARGS --bf16
""",
            "pretrain_gpt.py": TRAIN,
        },
        "pretrain.sbatch",
        Expected(
            command="SLURM_NNODES=4 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=1 bash pretrain.sbatch",
            script="pretrain.sbatch",
            entry="pretrain_gpt.py",
            nodes=4,
            processes=8,
            gpus=8,
            env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        ),
    ),
    "slurm, one process a GPU by srun": Written(
        {
            "job.slurm": """#!/usr/bin/env bash
#SBATCH -N2
#SBATCH -n 8
#SBATCH --ntasks-per-node 4
#SBATCH --gres=gpu:a100:4,lscratch:100
#SBATCH -c 12
set -e
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export WORLD_SIZE=$SLURM_NTASKS
srun --cpu-bind=none python -u train.py --steps 60
""",
            "train.py": TRAIN,
        },
        "job.slurm",
        Expected(
            command="SLURM_NNODES=2 SLURM_NTASKS=8 SLURM_NTASKS_PER_NODE=4 SLURM_CPUS_PER_TASK=12 "
            "bash job.slurm",
            script="job.slurm",
            entry="train.py",
            nodes=2,
            processes=4,
            gpus=4,
            env={"OMP_NUM_THREADS": "12", "WORLD_SIZE": "8"},
        ),
    ),
    "slurm, srun's own options win over the header": Written(
        {
            "run.sh": """#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
srun --nodes=8 --ntasks=8 --ntasks-per-node=1 --gpus-per-node=4 --job-name python \\
  torchrun --nnodes 8 --nproc-per-node 4 src/train.py --steps 60
""",
            "src/train.py": TRAIN,
        },
        "run.sh",
        Expected(
            command="SLURM_NNODES=8 SLURM_NTASKS=8 SLURM_NTASKS_PER_NODE=1 bash run.sh",
            script="run.sh",
            entry="src/train.py",
            nodes=8,
            processes=4,
            gpus=4,
        ),
    ),
    "slurm, bash -c with ranks of the inner shell": Written(
        {
            "scripts/launch.sbatch": """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus=16
#SBATCH --ntasks-per-node=1
#SBATCH --export=ALL,NCCL_DEBUG=WARN
export MASTER_PORT=29501
CMD="train.py --steps 60"
srun --kill-on-bad-exit=1 bash -c "torchrun --nnodes $SLURM_NNODES \\
   --node_rank \\$SLURM_NODEID --nproc_per_node 8 --master_port $MASTER_PORT $CMD"
""",
            "train.py": TRAIN,
        },
        "scripts/launch.sbatch",
        Expected(
            command="SLURM_NNODES=2 SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=1 NCCL_DEBUG=WARN "
            "bash scripts/launch.sbatch",
            script="scripts/launch.sbatch",
            entry="train.py",
            nodes=2,
            processes=8,
            gpus=8,
            env={"MASTER_PORT": "29501"},
        ),
    ),
    "slurm, a script inside": Written(
        {
            "submit.sbatch": """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-task=2
#SBATCH --ntasks=1
cd $SLURM_SUBMIT_DIR
export HF_HUB_OFFLINE=1
srun bash inner/train.sh 60
""",
            "inner/train.sh": """#!/bin/bash
STEPS=${1:-100}
torchrun --standalone --nproc_per_node=${NPROC:-2} inner/train.py --steps $STEPS
""",
            "inner/train.py": TRAIN,
        },
        "submit.sbatch",
        Expected(
            command="SLURM_NNODES=1 SLURM_SUBMIT_DIR=. SLURM_NTASKS=1 bash submit.sbatch",
            script="inner/train.sh",
            entry="inner/train.py",
            processes=2,
            gpus=2,
            env={},
        ),
    ),
    "pyxis": Written(
        {
            "enroot.sh": """#!/bin/bash
#SBATCH -N 1
#SBATCH --gpus-per-node 8
IMAGE=nvcr.io#nvidia/pytorch:24.07-py3
srun --container-image=$IMAGE --no-container-mount-home \\
     --container-mounts="$PWD:/workspace,/data:/data:ro" --container-workdir /workspace \\
     torchrun --nproc_per_node=8 train.py --data /data --steps 60
""",
            "train.py": TRAIN,
        },
        "enroot.sh",
        Expected(
            command="SLURM_NNODES=1 bash enroot.sh",
            script="enroot.sh",
            entry="train.py",
            processes=8,
            gpus=8,
        ),
    ),
    "docker": Written(
        {
            "docker.sh": """#!/bin/bash
IMAGE="mine/train:1.2"
docker run --rm -it --gpus all --ipc=host --ulimit memlock=-1 \\
  -v "$(pwd)":/workspace -w /workspace/code -e NCCL_P2P_LEVEL=NVL -e HF_HOME \\
  "$IMAGE" \\
  torchrun --standalone --nproc_per_node 4 train.py --steps 60
""",
            "code/train.py": TRAIN,
        },
        "docker.sh",
        Expected(
            command="bash docker.sh",
            script="docker.sh",
            entry="code/train.py",
            cwd="code",
            processes=4,
            env={"NCCL_P2P_LEVEL": "NVL"},
        ),
    ),
    "docker with a shell inside": Written(
        {
            "go.sh": """#!/bin/bash
docker run --gpus '"device=0,1"' --shm-size 16g --mount type=bind,source="$PWD",target=/job img \\
  bash -lc 'export TOKENIZERS_PARALLELISM=false; cd /job && python -m torch.distributed.run \\
     --nproc-per-node=2 train.py --steps 60'
""",
            "train.py": TRAIN,
        },
        "go.sh",
        Expected(
            command="bash go.sh",
            script="go.sh",
            entry="train.py",
            processes=2,
            env={"TOKENIZERS_PARALLELISM": "false"},
        ),
    ),
    "podman": Written(
        {
            "p.sh": "podman run --rm --device nvidia.com/gpu=all -v .:/w:Z -w /w localhost/t "
            "python train.py --steps 60\n",
            "train.py": TRAIN,
        },
        "p.sh",
        Expected(command="bash p.sh", script="p.sh", entry="train.py", processes=None),
    ),
    "apptainer": Written(
        {
            "a.sh": """#!/bin/bash
export APPTAINERENV_X=1 WANDB_MODE=offline
apptainer exec --nv --bind /scratch:/scratch torch.sif \\
    torchrun --nproc_per_node=2 train.py --steps 60
""",
            "train.py": TRAIN,
        },
        "a.sh",
        Expected(
            command="bash a.sh",
            script="a.sh",
            entry="train.py",
            processes=2,
            env={"WANDB_MODE": "offline"},
        ),
    ),
    "singularity in srun, another folder": Written(
        {
            "s.sbatch": """#!/bin/bash
#SBATCH --nodes=1 --ntasks=1 --gres=gpu:2
srun singularity exec -C --nv -B $PWD/src:/src --pwd /src image.sif python3 train.py --steps 60
""",
            "src/train.py": TRAIN,
        },
        "s.sbatch",
        Expected(
            command="SLURM_NNODES=1 SLURM_NTASKS=1 bash s.sbatch",
            script="s.sbatch",
            entry="src/train.py",
            cwd="src",
            processes=1,
            gpus=2,
        ),
    ),
    "enroot": Written(
        {
            "e.sh": "enroot start --rw --mount $PWD:/w --env NCCL_DEBUG=INFO pytorch "
            "bash -c 'cd /w; torchrun --nproc_per_node=8 train.py --steps 60'\n",
            "train.py": TRAIN,
        },
        "e.sh",
        Expected(
            command="bash e.sh",
            script="e.sh",
            entry="train.py",
            processes=8,
            env={"NCCL_DEBUG": "INFO"},
        ),
    ),
    "mpirun on one host": Written(
        {
            "mpi.sh": """#!/bin/bash
mpirun -np 4 -H localhost:4 --bind-to none --map-by slot -x NCCL_DEBUG=WARN -x PATH \\
    --mca pml ob1 --mca btl ^openib --allow-run-as-root python train.py --steps 60
""",
            "train.py": TRAIN,
        },
        "mpi.sh",
        Expected(
            command="bash mpi.sh",
            script="mpi.sh",
            entry="train.py",
            processes=4,
            env={"NCCL_DEBUG": "WARN"},
        ),
    ),
    "mpirun over a hostfile": Written(
        {
            "mpi.sh": "mpirun -np 16 --hostfile hosts.txt -N 8 python train.py --steps 60\n",
            "hosts.txt": "# two nodes\nnode-a slots=8\nnode-b slots=8\n",
            "train.py": TRAIN,
        },
        "mpi.sh",
        Expected(command="bash mpi.sh", script="mpi.sh", entry="train.py", nodes=2, processes=8),
    ),
    "mpiexec of MPICH": Written(
        {
            "mpi.sh": "mpiexec -n 6 -ppn 3 -hosts a,b -genv OMP_NUM_THREADS 4 python train.py\n",
            "train.py": TRAIN,
        },
        "mpi.sh",
        Expected(command="bash mpi.sh", script="mpi.sh", entry="train.py", nodes=2, processes=3),
    ),
    "accelerate with its configuration": Written(
        {
            "run.sh": """#!/bin/bash
ACCELERATE_CONFIG=configs/fsdp.yaml
accelerate launch --config_file $ACCELERATE_CONFIG train.py --steps 60
""",
            "configs/fsdp.yaml": """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_offload_params: false
machine_rank: 0
mixed_precision: bf16
num_machines: 2
num_processes: 16
use_cpu: false
""",
            "train.py": TRAIN,
        },
        "run.sh",
        Expected(command="bash run.sh", script="run.sh", entry="train.py", nodes=2, processes=8),
    ),
    "accelerate's options win": Written(
        {
            "run.sh": "accelerate launch --config_file a.yaml --num_processes=4 --num_machines 1 "
            "--mixed_precision bf16 train.py --steps 60\n",
            "a.yaml": "num_machines: 2\nnum_processes: 16\n",
            "train.py": TRAIN,
        },
        "run.sh",
        Expected(command="bash run.sh", script="run.sh", entry="train.py", processes=4),
    ),
    "deepspeed with a hostfile": Written(
        {
            "ds.sh": """#!/bin/bash
DIR=$(cd "$(dirname "$0")" && pwd)
deepspeed --hostfile=$DIR/hostfile --master_port 29600 train.py \\
   --deepspeed --deepspeed_config ds_config.json --steps 60
""",
            "hostfile": "w1 slots=8\nw2 slots=8\nw3 slots=8\n",
            "ds_config.json": '{"train_micro_batch_size_per_gpu": 4}\n',
            "train.py": TRAIN,
        },
        "ds.sh",
        Expected(command="bash ds.sh", script="ds.sh", entry="train.py", nodes=3, processes=8),
    ),
    "deepspeed on some GPUs": Written(
        {
            "ds.sh": 'deepspeed --include "localhost:0,2-3" train.py --deepspeed_config ds.json\n',
            "ds.json": "{}",
            "train.py": TRAIN,
        },
        "ds.sh",
        Expected(command="bash ds.sh", script="ds.sh", entry="train.py", processes=3),
    ),
    "deepspeed by numbers": Written(
        {
            "ds.sh": "deepspeed --num_nodes 2 --num_gpus=4 train.py --steps 60\n",
            "train.py": TRAIN,
        },
        "ds.sh",
        Expected(command="bash ds.sh", script="ds.sh", entry="train.py", nodes=2, processes=4),
    ),
    "deepspeed, every GPU": Written(
        {"ds.sh": "deepspeed train.py --steps 60\n", "train.py": TRAIN},
        "ds.sh",
        Expected(command="bash ds.sh", script="ds.sh", entry="train.py", processes=None),
    ),
    "elastic torchrun": Written(
        {
            "el.sh": "torchrun --nnodes=1:4 --nproc-per-node=gpu --max-restarts 3 --rdzv-id j "
            "--rdzv-backend c10d --rdzv-endpoint $HOST:29400 train.py --steps 60\n",
            "train.py": TRAIN,
        },
        "el.sh",
        Expected(command="bash el.sh", script="el.sh", entry="train.py", nodes=4, processes=None),
    ),
    "torch.distributed.launch": Written(
        {
            "l.sh": "PET_NNODES=2 python3 -m torch.distributed.launch --nproc_per_node=8 "
            "--use_env train.py --steps 60\n",
            "train.py": TRAIN,
        },
        "l.sh",
        Expected(command="bash l.sh", script="l.sh", entry="train.py", nodes=2, processes=8),
    ),
    "uv and numactl": Written(
        {
            "u.sh": "numactl --cpunodebind=0 -m 0 uv run --with numpy --no-sync torchrun "
            "--nproc_per_node 2 train.py --steps 60\n",
            "train.py": TRAIN,
        },
        "u.sh",
        Expected(command="bash u.sh", script="u.sh", entry="train.py", processes=2),
    ),
    "a program that uv runs": Written(
        {"u.sh": "uv run train.py --steps 60\n", "train.py": TRAIN},
        "u.sh",
        Expected(command="bash u.sh", script="u.sh", entry="train.py", processes=None),
    ),
    "conda, nsys and timeout": Written(
        {
            "c.sh": "timeout -k 30 2h nsys profile -t cuda,nvtx -o report --force-overwrite true "
            "conda run -n torch --no-capture-output python -u train.py --steps 60\n",
            "train.py": TRAIN,
        },
        "c.sh",
        Expected(command="bash c.sh", script="c.sh", entry="train.py", processes=None),
    ),
    "PyTorchJob with two roles": Written(
        {
            "deploy/job.yaml": """apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata:
  name: llama
spec:
  nprocPerNode: "8"
  pytorchReplicaSpecs:
    Master: &role
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          containers:
            - name: pytorch
              image: mine/llama:3
              workingDir: /workspace/llama
              command: ["torchrun"]
              args:
                - src/train.py
                - --steps=60
                - --run=$(RUN_NAME)
              env:
                - {name: RUN_NAME, value: first run}
                - name: HF_TOKEN
                  valueFrom: {secretKeyRef: {name: hf, key: token}}
              resources:
                limits: {nvidia.com/gpu: 8, memory: 500Gi}
    Worker:
      <<: *role
      replicas: 3
""",
            "src/train.py": TRAIN,
            ".git/HEAD": "",
        },
        "deploy/job.yaml",
        Expected(
            command="export RUN_NAME='first run' PET_NPROC_PER_NODE=8\n"
            "torchrun src/train.py --steps=60 '--run=first run'",
            entry="src/train.py",
            nodes=4,
            processes=8,
            gpus=8,
            env={"RUN_NAME": "first run"},
        ),
    ),
    "PyTorchJob with a shell": Written(
        {
            "job.yml": """apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: small}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - name: sidecar
            image: logs
            command: [tail, -f, /dev/null]
          - name: pytorch
            image: x
            command:
            - /bin/bash
            - -c
            - |
              set -e
              cd /app/code
              export NCCL_DEBUG=INFO
              torchrun --nnodes=$PET_NNODES --nproc_per_node=2 train.py \\
                --data /data/corpus --steps 60
            resources: {requests: {nvidia.com/gpu: "2"}}
""",
            "train.py": TRAIN,
        },
        "job.yml",
        Expected(
            command="set -e\ncd .\nexport NCCL_DEBUG=INFO\n"
            "torchrun --nnodes=$PET_NNODES --nproc_per_node=2 train.py \\\n"
            "  --data /data/corpus --steps 60",
            entry="train.py",
            nodes=2,
            processes=2,
            gpus=2,
            env={"NCCL_DEBUG": "INFO"},
        ),
    ),
    "TrainJob": Written(
        {
            "trainjob.yaml": """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: tj
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    image: mine/t:1
    numNodes: 2
    numProcPerNode: 4
    command: [torchrun, /opt/job/train.py]
    args: ["--steps", "60"]
    env:
      - name: NCCL_DEBUG
        value: WARN
    resourcesPerNode:
      limits:
        nvidia.com/gpu: 4
""",
            "train.py": TRAIN,
        },
        "trainjob.yaml",
        Expected(
            command="export NCCL_DEBUG=WARN PET_NPROC_PER_NODE=4\ntorchrun ./train.py --steps 60",
            entry="train.py",
            nodes=2,
            processes=4,
            gpus=4,
            env={"NCCL_DEBUG": "WARN"},
        ),
    ),
    "RayJob": Written(
        {
            "ray.yaml": """apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: rj
spec:
  entrypoint: python code/train.py --steps 60
  runtimeEnvYAML: |
    working_dir: "https://example.org/job.zip"
    env_vars:
      NCCL_DEBUG: "WARN"
  rayClusterSpec:
    headGroupSpec:
      template:
        spec:
          containers:
            - name: ray-head
              resources: {limits: {cpu: "4"}}
    workerGroupSpecs:
      - groupName: gpu
        replicas: 1
        template:
          spec:
            containers:
              - name: ray-worker
                resources:
                  limits:
                    nvidia.com/gpu: 1
""",
            "code/train.py": TRAIN,
        },
        "ray.yaml",
        Expected(
            command="export NCCL_DEBUG=WARN\npython code/train.py --steps 60",
            entry="code/train.py",
            processes=None,
            gpus=1,
            env={"NCCL_DEBUG": "WARN"},
        ),
    ),
    "Job with a script out of a ConfigMap": Written(
        {
            "k.yaml": """apiVersion: v1
kind: ConfigMap
metadata: {name: scripts}
data:
  run.sh: |
    #!/bin/bash
    python train.py --steps $1
---
apiVersion: batch/v1
kind: Job
metadata: {name: one}
spec:
  template:
    spec:
      containers:
      - name: t
        image: x
        workingDir: /job
        command: [bash, /scripts/run.sh, "60"]
        volumeMounts: [{name: s, mountPath: /scripts}]
        resources: {limits: {nvidia.com/gpu: 1}}
      volumes:
      - name: s
        configMap: {name: scripts}
""",
            "train.py": TRAIN,
        },
        "k.yaml",
        Expected(
            command="set -- 60\n#!/bin/bash\npython train.py --steps $1",
            entry="train.py",
            processes=None,
            gpus=1,
        ),
    ),
}

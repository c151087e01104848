"""One small job in the manner of each stack: the launch, the program, and its files."""

MEGATRON = {
    "train.sh": """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
MODEL=(--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096)
torchrun --nproc_per_node 8 pretrain_gpt.py "${MODEL[@]}" \\
  --group-query-attention --num-query-groups 8 \\
  --micro-batch-size 1 --global-batch-size 128 --train-iters 50000 \\
  --tensor-model-parallel-size 2 --sequence-parallel \\
  --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\
  --use-distributed-optimizer --bf16 --save ckpt --load ckpt --wandb-project gpt
""",
    "pretrain_gpt.py": """import torch
from megatron.training import pretrain

if __name__ == "__main__":
    pretrain(None, None, None, None)
""",
}

MIXTURE = {
    **MEGATRON,
    "train.sh": MEGATRON["train.sh"].replace(
        "--use-distributed-optimizer",
        "--num-experts 8 --expert-model-parallel-size 4 --use-distributed-optimizer",
    ),
}

TRAINER = {
    "train.sh": """#!/bin/bash
torchrun --nproc_per_node 8 train.py --output_dir out --per_device_train_batch_size 4 \\
  --gradient_accumulation_steps 8 --bf16 True --gradient_checkpointing True --max_steps 1000 \\
  --optim adamw_torch --report_to wandb --deepspeed ds.json
""",
    "train.py": """import torch
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
(args,) = parser.parse_args_into_dataclasses()
trainer = Trainer(args=args)
trainer.train()
if args.push_to_hub:
    trainer.push_to_hub()
""",
    "ds.json": """{
  "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8},
  "bf16": {"enabled": "auto"},
  "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto"
}
""",
}

TORCHTITAN = {
    "run.sh": """torchrun --nproc_per_node=8 train.py --job.config_file train.toml \\
  --training.local_batch_size 2 --training.steps 2000 --activation_checkpoint.mode full \\
  --parallelism.tensor_parallel_degree 2
""",
    "train.py": "import torch\nfrom torchtitan.train import Trainer, main\n\nmain(Trainer)\n",
    "train.toml": """[model]
name = "llama3"
flavor = "8B"

[training]
seq_len = 8192

[compile]
enable = false
""",
}

DEEPSPEED = {
    "train.sh": "torchrun --nproc_per_node 4 train.py --deepspeed_config ds.json --out out\n",
    "train.py": """import argparse
import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--out", default="out")
parser.add_argument("--steps", type=int, default=500)
parser = deepspeed.add_config_arguments(parser)
args = parser.parse_args()
model = torch.nn.Linear(4, 4)
engine, _, loader, _ = deepspeed.initialize(args=args, model=model, training_data=[1, 2])
engine.save_checkpoint(args.out)
""",
    "ds.json": """{
  "train_micro_batch_size_per_gpu": 2,
  "gradient_accumulation_steps": 4,
  "optimizer": {"type": "AdamW"},
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3},
  "tensorboard": {"enabled": true, "output_path": "tb"}
}
""",
}

AXOLOTL = {
    "train.sh": "torchrun --nproc_per_node 2 train.py config.yaml\n",
    "train.py": """import sys

import torch
from axolotl.train import train

train(sys.argv[1])
""",
    "config.yaml": """base_model: mistralai/Mixtral-8x7B-v0.1
sequence_len: 2048
micro_batch_size: 2
gradient_accumulation_steps: 4
max_steps: 300
gradient_checkpointing: true
sample_packing: false
optimizer: adamw_torch
bf16: true
output_dir: ./out
wandb_project: tune
""",
}

FACTORY = {
    "train.sh": "torchrun --nproc_per_node 2 train.py sft.yaml\n",
    "train.py": """import torch
from llamafactory.train.tuner import run_exp

run_exp()
""",
    "sft.yaml": """model_name_or_path: some/dense-7b
cutoff_len: 1024
flash_attn: fa2
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
max_steps: 400
bf16: true
output_dir: saves/sft
report_to: none
""",
}

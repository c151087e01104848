#!/usr/bin/env bash
# A small GPT under DeepSpeed ZeRO on made-up sequences; two processes on a CPU, or one a GPU.
set -euo pipefail
cd "$(dirname "$0")"

NPROC=${NPROC:-2}
export OMP_NUM_THREADS=1
if ! command -v nvidia-smi >/dev/null; then
    export DS_ACCELERATOR=cpu
fi

deepspeed --num_gpus "$NPROC" train.py \
    --deepspeed \
    --deepspeed_config ds_config.json \
    --save-dir checkpoints \
    --seq-length 128 \
    --num-layers 4 \
    --hidden-size 128 \
    --num-heads 4 \
    --dropout 0.0 \
    --train-steps 40 \
    --eval-interval 20 \
    --seed 1234

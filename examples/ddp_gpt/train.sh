#!/usr/bin/env bash
# Character-level GPT on the tales corpus, data parallel over all GPUs (or CPU processes).
set -euo pipefail
cd "$(dirname "$0")"

NPROC=${NPROC:-2}
export OMP_NUM_THREADS=1

torchrun --standalone --nproc_per_node="$NPROC" train.py \
    --data data/tales.txt \
    --out-dir out \
    --block-size 256 \
    --n-layer 4 \
    --n-head 4 \
    --n-embd 128 \
    --batch-size 1 \
    --grad-accum 4 \
    --max-steps 36 \
    --warmup-steps 10 \
    --lr 1e-3 \
    --weight-decay 0.1 \
    --eval-every 18 \
    --eval-batches 4 \
    --log-every 6 \
    --num-workers 0 \
    --seed 1337

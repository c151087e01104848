#!/usr/bin/env bash
# Small GPT with a hand-written loop, one process.
set -euo pipefail
cd "$(dirname "$0")"

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

python train.py \
    --out-dir out \
    --batch-size 8 \
    --grad-accum 4 \
    --max-iters 12 \
    --warmup-iters 4 \
    --lr 3e-3 \
    --eval-interval 5 \
    --eval-iters 4

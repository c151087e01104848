#!/usr/bin/env bash
# Small GPT with experts, data parallel.
set -euo pipefail
cd "$(dirname "$0")"

NPROC=${NPROC:-2}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

torchrun --standalone --nproc_per_node="$NPROC" train.py \
    --out-dir out \
    --block-size 96 \
    --n-layer 2 \
    --n-embd 64 \
    --dropout 0.1 \
    --batch-size 4 \
    --grad-accum 2 \
    --max-steps 12 \
    --warmup-steps 4 \
    --lr 2e-3 \
    --eval-every 5 \
    --seed 1337

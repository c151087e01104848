#!/usr/bin/env bash
set -e
cd "$(dirname "${BASH_SOURCE[0]}")"
python train.py --batch_size=8 --gradient_accumulation_steps=2 --max_iters=500 \
    --attention=manual --pin_memory --compile --tf32=false --out_dir=runs/a --fused

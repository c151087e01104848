#!/usr/bin/env bash
# Trains a small diffusion model; the averaged weights are what is saved.
set -euo pipefail
cd "$(dirname "$0")"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
python train.py --steps 12 --batch-size 32 --lr 2e-3 --ema-decay 0.9 --eval-every 4 --save-every 6 --out-dir out

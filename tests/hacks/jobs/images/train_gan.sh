#!/usr/bin/env bash
# Trains a small GAN: two models, two optimizers, averaged weights of the generator.
set -euo pipefail
cd "$(dirname "$0")"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
python train_gan.py --steps 12 --batch-size 32 --lr 1e-3 --ema-decay 0.9 --eval-every 4 --out-dir out

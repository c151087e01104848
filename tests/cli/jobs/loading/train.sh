#!/usr/bin/env bash
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1
python train.py --max-steps 12 --out out

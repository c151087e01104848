#!/usr/bin/env bash
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1
python train.py --micro-batch-size 1 --gradient-accumulation-steps 4 --max-steps 12 --out out

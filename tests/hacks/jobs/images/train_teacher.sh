#!/usr/bin/env bash
# Trains a student beside a teacher that is its own running average; the teacher is the result.
set -euo pipefail
cd "$(dirname "$0")"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
python train_teacher.py --steps 12 --batch-size 24 --lr 1e-3 --teacher-decay 0.8 --out-dir out

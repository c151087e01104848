#!/bin/sh
OMP_NUM_THREADS=2 python src/main.py --batch-size 64 --grad-accum 4 --epochs 3 > train.log 2>&1

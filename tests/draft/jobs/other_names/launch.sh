#!/bin/bash
torchrun --nproc-per-node 4 main.py \
  --micro-bsz 4 --accumulate 8 --iters 20000 \
  --logging-dir logs --save-every 500 --workers 3

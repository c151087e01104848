#!/bin/bash
ROOT="$(cd "$(dirname "$0")/../.." && pwd)"
cd "$ROOT"
export PYTHONPATH="$ROOT/src:$PYTHONPATH"
torchrun --standalone --nproc_per_node=gpu -m tiny.train --total-steps 5000 --device-batch-size 2 \
  --total-batch-size 16 --save-dir work/ckpt

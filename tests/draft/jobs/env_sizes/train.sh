#!/bin/bash
: "${NGPU:=2}"
BATCH=${BATCH:-4}
ACCUM=$((16 / BATCH))
export NUM_WORKERS=${NUM_WORKERS:-1}
export RUN_DIR=${RUN_DIR:-/scratch/runs}
mkdir -p "$RUN_DIR"
torchrun --nproc_per_node $NGPU train.py --batch $BATCH --grad-acc $ACCUM --lr ${LR:-0.01} 2>&1 | tee "$RUN_DIR/log.txt"

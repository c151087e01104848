#!/bin/bash
cd "$(dirname "$0")" || exit 1
MODEL_ARGS=(
  --width 64
)
TRAIN_ARGS=(
  -b 2
  --accum-iter 6
  --num-st 80      # argparse takes an abbreviation
  --output_dir "checkpoints/run1"
)
if [[ -n "$DEBUG" ]]; then
  TRAIN_ARGS+=(--num-workers 0)
fi
exec python -m torch.distributed.run --standalone --nproc_per_node 2 train.py \
  "${MODEL_ARGS[@]}" "${TRAIN_ARGS[@]}" "$@"

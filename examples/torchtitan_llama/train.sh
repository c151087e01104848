#!/usr/bin/env bash
# A debug-size Llama under torchtitan's own trainer (FSDP2); two processes on a CPU, or one a GPU.
set -euo pipefail
cd "$(dirname "$0")"

NGPU=${NGPU:-2}
CONFIG_FILE=${CONFIG_FILE:-llama_debug.toml}
export OMP_NUM_THREADS=1

torchrun --nproc_per_node="$NGPU" --rdzv_backend c10d --rdzv_endpoint="localhost:0" \
    --local-ranks-filter 0 --role rank --tee 3 \
    train.py --job.config_file "$CONFIG_FILE" --training.steps 30

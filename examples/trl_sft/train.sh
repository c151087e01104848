#!/usr/bin/env bash
# Fine-tunes a small chat model with TRL's SFTTrainer: two processes on a CPU. All settings are in
# sft.yaml; what is passed to this script overrides them.
set -euo pipefail
cd "$(dirname "$0")"

export OMP_NUM_THREADS=1
export TOKENIZERS_PARALLELISM=false

torchrun --standalone --nproc_per_node="${NPROC:-2}" sft.py --config sft.yaml "$@"

#!/usr/bin/env bash
# Trains a small GPT-2 with the Trainer of transformers, offline and on made sentences.
set -euo pipefail
cd "$(dirname "$0")"
export HF_HUB_OFFLINE=1
python train.py training.json

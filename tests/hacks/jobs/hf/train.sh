#!/usr/bin/env bash
# Trains a small GPT-2 with the Trainer of transformers, offline and on made sentences.
set -euo pipefail
cd "$(dirname "$0")"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
export HF_HUB_OFFLINE=1
python train.py \
  --width 48 --layers 2 --heads 4 --dropout 0.1 --attention sdpa \
  --block_size 48 --train_rows 512 --eval_rows 32 \
  --output_dir out \
  --per_device_train_batch_size 4 \
  --per_device_eval_batch_size 8 \
  --gradient_accumulation_steps 2 \
  --max_steps 10 \
  --learning_rate 2e-3 \
  --weight_decay 0.1 \
  --warmup_steps 2 \
  --lr_scheduler_type cosine \
  --max_grad_norm 0.5 \
  --optim adamw_torch \
  --logging_steps 1 \
  --eval_strategy steps \
  --eval_steps 5 \
  --save_strategy steps \
  --save_steps 5 \
  --seed 17 \
  --use_cpu true \
  --report_to none \
  --disable_tqdm true

#!/usr/bin/env bash
# Pre-trains a small Llama from scratch with the Trainer of transformers: two processes on a CPU;
# with NPROC=<number of GPUs> and DEVICE_ARGS="--bf16 true" one a GPU.
set -euo pipefail
cd "$(dirname "$0")"

NPROC=${NPROC:-2}
DEVICE_ARGS=${DEVICE_ARGS:---use_cpu true --ddp_backend gloo}
export OMP_NUM_THREADS=1
export TOKENIZERS_PARALLELISM=false

torchrun --standalone --nproc_per_node="$NPROC" run_clm.py \
    --hidden_size 128 \
    --num_hidden_layers 3 \
    --num_attention_heads 4 \
    --num_documents 800 \
    --block_size 128 \
    --output_dir out \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 4 \
    --per_device_eval_batch_size 8 \
    --gradient_checkpointing true \
    --max_steps 24 \
    --learning_rate 1e-3 \
    --lr_scheduler_type cosine \
    --warmup_steps 4 \
    --weight_decay 0.1 \
    --logging_steps 4 \
    --eval_strategy steps \
    --eval_steps 12 \
    --save_strategy steps \
    --save_steps 12 \
    --save_total_limit 2 \
    --dataloader_num_workers 0 \
    --report_to none \
    --seed 1234 \
    $DEVICE_ARGS

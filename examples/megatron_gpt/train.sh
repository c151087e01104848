#!/usr/bin/env bash
# A small GPT of Megatron-Core on its mock data; two processes on a CPU, or one a GPU.
set -euo pipefail
cd "$(dirname "$0")"

GPUS_PER_NODE=${GPUS_PER_NODE:-2}
SAVE=${SAVE:-checkpoints}
export OMP_NUM_THREADS=1
export CUDA_DEVICE_MAX_CONNECTIONS=1

DISTRIBUTED_ARGS=(
    --nproc_per_node "$GPUS_PER_NODE"
    --nnodes 1
    --master_addr localhost
    --master_port "${MASTER_PORT:-6000}"
)

MODEL_ARGS=(
    --num-layers 4
    --hidden-size 128
    --num-attention-heads 4
    --seq-length 128
    --max-position-embeddings 128
    --attention-dropout 0.0
    --hidden-dropout 0.0
)

TRAINING_ARGS=(
    --micro-batch-size 2
    --global-batch-size 16
    --train-iters 40
    --lr 1e-3
    --min-lr 1e-4
    --lr-warmup-iters 10
    --weight-decay 0.1
    --clip-grad 1.0
    --seed 1234
)

PARALLEL_ARGS=(
    --tensor-model-parallel-size 1
    --pipeline-model-parallel-size 1
)

DATA_AND_OUTPUT_ARGS=(
    --mock-data
    --vocab-size 512
    --log-interval 5
    --eval-interval 20
    --eval-iters 1
    --save "$SAVE"
)

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    "${TRAINING_ARGS[@]}" \
    "${PARALLEL_ARGS[@]}" \
    "${DATA_AND_OUTPUT_ARGS[@]}"

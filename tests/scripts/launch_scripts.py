"""Launch scripts in the spellings that people use; each starts one training, all values known.

Each has a flag `--lr` with the value 3e-4 and a launcher option for two processes, none has
`--new`, and each runs in an empty folder.
"""

SCRIPTS = {
    "one line": "torchrun --nproc_per_node=2 train.py --lr 3e-4 --steps 10\n",
    "no newline at the end": "torchrun --nproc_per_node=2 train.py --lr 3e-4",
    "continuation lines": """#!/bin/bash
set -euo pipefail
# the job
torchrun --standalone \\
    --nproc-per-node 2 \\
    train.py \\
    --data "my data/x" \\
    --lr 3e-4 \\
    --bf16

echo done  # here
""",
    "flag and value joined": "torchrun --nproc_per_node=2 train.py --a=1 --lr=3e-4 --b=2\n",
    "variables": """#!/bin/bash
GPUS=${GPUS:-2}
LR=3e-4
NAME="run_$LR"
export OMP_NUM_THREADS=1 MODE='a b'
torchrun --nproc_per_node=$GPUS train.py --lr $LR --name "$NAME"
""",
    "array": """#!/bin/bash
ARGS=(
  --data d   # where it is
  --lr 3e-4
  --bf16     # no value
)
ARGS+=(--name "x y")
torchrun --nproc_per_node=2 train.py "${ARGS[@]}"
""",
    "array in one line": """A=(--nproc_per_node=2); B=(--lr 3e-4 --x 1)
torchrun "${A[@]}" train.py "${B[@]}"
""",
    "strings": """#!/bin/bash
DISTRIBUTED_ARGS="--nproc_per_node 2 --nnodes 1"
GPT_ARGS="
    --num-layers 4 \\
    --lr 3e-4
    --seq-length 128
"
torchrun $DISTRIBUTED_ARGS pretrain.py $GPT_ARGS --fp16
""",
    "strings that grow": """
ARGS="--lr 3e-4"
ARGS="$ARGS --steps 5"
ARGS+=" --seed 1"
torchrun --nproc_per_node=2 train.py $ARGS
""",
    "command in a string": """
CMD="torchrun --nproc_per_node=2 train.py --lr 3e-4 --steps 3"
echo $CMD
$CMD
""",
    "eval": """
OPTS="--lr 3e-4"
run_cmd="torchrun --nproc_per_node=2 train.py $OPTS"
echo ${run_cmd}
eval ${run_cmd}
""",
    "exec, tee and redirection": """
mkdir -p logs
exec torchrun --nproc_per_node=2 train.py --lr 3e-4 --steps 3 2>&1 | tee -a "logs/out.txt"
""",
    "redirection before the last argument": """
torchrun --nproc_per_node=2 train.py &> log.txt --steps 3 --lr 3e-4
""",
    "prefix": "OMP_NUM_THREADS=4 A='x y' torchrun --nproc_per_node=2 train.py --lr 3e-4\n",
    "env": "env OMP_NUM_THREADS=4 torchrun --nproc_per_node=2 train.py --lr 3e-4\n",
    "time and nohup": "time nohup torchrun --nproc_per_node=2 train.py --lr 3e-4 < /dev/null\n",
    "background": "torchrun --nproc_per_node=2 train.py --lr 3e-4 &\nwait\n",
    "own folder": """
cd "$(dirname "$0")"
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
torchrun --nproc_per_node=2 ./train.py --lr 3e-4
""",
    "python module": """
python3 -m torch.distributed.run --nproc_per_node=2 -m pkg.train --lr 3e-4
""",
    "function": """
train() {
    torchrun --nproc_per_node=2 train.py "$@"
}
train --steps 3 --lr 3e-4
""",
    "main function": """
main() {
  local lr=3e-4
  torchrun --nproc_per_node=2 train.py --lr $lr
}
main "$@"
""",
    "condition that holds": """
if [ -z "${DEBUG:-}" ]; then
  EXTRA="--steps 5"
else
  EXTRA="--steps 1"
fi
if [[ "$EXTRA" == "--steps 5" && 2 -gt 1 ]]; then
    torchrun --nproc_per_node=2 train.py --lr 3e-4 $EXTRA
fi
""",
    "single-GPU branch": """
NNODES=${NNODES:-1}
if (( NNODES > 1 )); then
    torchrun --nnodes $NNODES train.py --lr 1
else
    torchrun --nproc_per_node=2 train.py --lr 3e-4
fi
""",
    "case": """
SIZE=${1:-small}
case "$SIZE" in
  small|tiny) LAYERS=2 ;;
  *) LAYERS=12 ;;
esac
torchrun --nproc_per_node=2 train.py --layers $LAYERS --lr 3e-4
""",
    "arithmetic": """
GPUS=2; NODES=1
WORLD=$((GPUS * NODES))
torchrun --nproc_per_node=$WORLD train.py --accum $((64 / (4 * WORLD))) --lr 3e-4
""",
    "quotes": r"""
torchrun --nproc_per_node=2 train.py \
  --a 'it'"'"'s' --b "x\$y\"z" --c a\ b --d $'t\tu' --lr 3e-4 --e ""
""",
    "key=value": "torchrun --nproc_per_node=2 train.py model.layers=4 +lr_x=2 --lr 3e-4\n",
    "negative numbers": "torchrun --nproc_per_node=2 train.py --bias -1.5 --lr 3e-4 --seed -1\n",
    "unicode": "torchrun --nproc_per_node=2 train.py --name 'Größe €' --lr 3e-4  # für\n",
    "arguments passed on": 'torchrun --nproc_per_node=2 train.py --lr 3e-4 "$@"\n',
    "and list": "mkdir -p out && torchrun --nproc_per_node=2 train.py --lr 3e-4 || exit 1\n",
    "subshell": "(cd . && torchrun --nproc_per_node=2 train.py --lr 3e-4)\n",
    "preparation first": """
python prepare.py --out x
torchrun --nproc_per_node=2 train.py --lr 3e-4
""",
    "indexed and star": """
A=(2 3e-4)
B=(--steps 3)
torchrun --nproc_per_node=${A[0]} train.py --lr ${A[1]} ${B[*]}
""",
    "trailing comment": """
torchrun --nproc_per_node=2 train.py \\
  --steps 3 \\
  --lr 3e-4  # tuned
# --old 1
""",
    "blank line after a continuation": """
torchrun --nproc_per_node=2 train.py \\
  --lr 3e-4 \\

echo end
""",
    "arrays without quotes": """
CHECKPOINT_PATH=$1 #<Specify path>
DISTRIBUTED_ARGS=(
    --nproc_per_node 2
    --nnodes 1
)
TRAINING_ARGS=(
    --micro-batch-size 1
    --fp16
    --lr 3e-4 # Can use 1e-4
    --two "words in one"
)
EVAL_ARGS=(--save "$CHECKPOINT_PATH" --log-interval 100)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py \\
    ${TRAINING_ARGS[@]} \\
    ${EVAL_ARGS[@]}
""",
    "function that runs its arguments": """
function run { echo "+ $*"; "$@"; }
args="--lr 3e-4"
[ "$COMPILE" = 1 ] && args+=" --compile"
run torchrun --standalone --nproc_per_node=2 train.py config/x.py $args
""",
    "text of bash -c": """
export N=2
nice -n 5 bash -c "torchrun --nproc_per_node=2 train.py \\
   --lr 3e-4 --name \\"x y\\" --rank \\$N --steps 3"
""",
    "text of bash -c in single quotes": """
timeout 60 bash -ec 'cd . && export A=1
torchrun --nproc_per_node=2 train.py --lr 3e-4 --name "a b"'
""",
    "text of bash -c with arguments": """
bash -c 'torchrun --nproc_per_node=2 train.py --lr 3e-4 --steps "$1"' run 5
""",
    "text of bash -c out of a variable": """
CMD="train.py \\
    --lr 3e-4 \\
    --steps 7"
LAUNCHER="torchrun --nproc_per_node 2"
echo "$LAUNCHER $CMD"
bash -c "$LAUNCHER $CMD"
""",
    "eval of quoted text": """
CMD="torchrun --nproc_per_node=2 train.py --name 'a b' --lr 3e-4"
eval "$CMD"
""",
    "suffix removed": """
NAME=run.yaml
torchrun --nproc_per_node=2 train.py --name ${NAME%.yaml} --dir ${NAME##*.} --lr 3e-4
""",
}

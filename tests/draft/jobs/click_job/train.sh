cd "$(dirname "$0")" && torchrun --nproc_per_node=1 train.py --batch-size 4 --grad-accum-steps 3 --no-compile

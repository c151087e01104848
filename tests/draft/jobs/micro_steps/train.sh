#!/bin/bash
cd "$(dirname "$0")"
mkdir -p out
python3 -u train.py --micro-batch-size 2 --gradient-accumulation-steps 4 --max-steps 320 --save out

#!/bin/bash
python train.py --mbs 8 --no-pin-memory

"""Fits a small network; reading a micro-batch waits, as on a slow disk, so large ones are faster.

The waits make up nearly all of a step, so a busy machine changes little of what is measured.
"""

import argparse
import pathlib
import time

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch-size", type=int, default=1)
parser.add_argument("--gradient-accumulation-steps", type=int, default=1)
parser.add_argument("--max-steps", type=int, default=10)
parser.add_argument("--out", default="out", help="folder of the model")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_num_threads(1)
size = args.micro_batch_size
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows = torch.randn(4 * args.max_steps, 8)
targets = rows[:, :1].sin()

at = 0
for step in range(args.max_steps):
    for _ in range(args.gradient_accumulation_steps):
        time.sleep(0.012)
        x, y = rows[at : at + size], targets[at : at + size]
        at += size
        loss = (model(x) - y).pow(2).mean() / args.gradient_accumulation_steps
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.4f}", flush=True)

pathlib.Path(args.out).mkdir(exist_ok=True)
torch.save(model.state_dict(), f"{args.out}/model.pt")

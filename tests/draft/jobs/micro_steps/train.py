import argparse

import torch

from network import Net
from rows import Rows

parser = argparse.ArgumentParser()
parser.add_argument("--micro-batch-size", type=int, default=1)
parser.add_argument("--gradient-accumulation-steps", type=int, default=1)
parser.add_argument("--max-steps", type=int, default=1)
parser.add_argument("--save", default=None, help="where the model goes")
args = parser.parse_args()

torch.set_num_threads(1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(args.max_steps):
    if (step + 1) % args.gradient_accumulation_steps == 0:
        optimizer.step()
if args.save:
    torch.save(model.state_dict(), f"{args.save}/model.pt")

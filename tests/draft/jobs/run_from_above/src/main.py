import argparse

import torch
from torch.utils.data import DataLoader

from network import Net
from rows import Rows

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64, help="samples per update")
parser.add_argument("--grad-accum", type=int, default=1)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--ckpt", default="ckpt/last.pt")
args = parser.parse_args()

micro = args.batch_size // args.grad_accum
loader = DataLoader(Rows(8192), batch_size=micro)
model = Net()
try:
    model.load_state_dict(torch.load(args.ckpt))
except FileNotFoundError:
    pass
for epoch in range(args.epochs):
    torch.save(model.state_dict(), args.ckpt)

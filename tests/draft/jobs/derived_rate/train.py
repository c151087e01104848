import argparse

import torch
from torch.utils.data import DataLoader

from network import Net
from rows import Rows

parser = argparse.ArgumentParser()
parser.add_argument("--mbs", type=int, default=4)
parser.add_argument("--accum", type=int, default=2)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--no-pin-memory", action="store_true")
parser.add_argument("--results", default="results.json", help="file that the metrics are written to")
args = parser.parse_args()

lr = args.lr * args.mbs / 256
device = "cuda" if torch.cuda.is_available() else "cpu"
loader = DataLoader(Rows(4096), batch_size=args.mbs, pin_memory=not args.no_pin_memory)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=lr)
with open(args.results, "w") as f:
    f.write("{}")

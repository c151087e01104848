import argparse
import os

import torch
from torch.utils.data import DataLoader

from rows import Rows
from network import Net

p = argparse.ArgumentParser()
p.add_argument("--batch_size", "-b", type=int, default=4)
p.add_argument("--gradient_accumulation_steps", type=int, default=1)
p.add_argument("--max_iters", type=int, default=100)
p.add_argument("--attention", choices=["manual", "flash"], default="flash")
p.add_argument("--pin_memory", action="store_true")
p.add_argument("--compile", action=argparse.BooleanOptionalAction, default=False)
p.add_argument("--no-fused", "--no_fused", action="store_true")
p.add_argument("--fused", action="store_true")
p.add_argument("--tf32", type=lambda s: s == "true", default=False)
p.add_argument("--out_dir", type=str, default=None)
args = p.parse_args()

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Net().to(device)
if args.compile:
    model = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), fused=args.fused)
loader = DataLoader(Rows(8192), batch_size=args.batch_size, pin_memory=args.pin_memory)
os.makedirs(args.out_dir, exist_ok=True)
torch.save(model.state_dict(), os.path.join(args.out_dir, "model.pt"))

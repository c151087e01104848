import argparse
import os

import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from network import Net
from rows import Rows

WORKERS = int(os.environ.get("NUM_WORKERS", "0"))
RUN_DIR = os.environ["RUN_DIR"]
MAX_STEPS = 3 * 100

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--grad-acc", type=int, default=int(os.environ.get("GRAD_ACC", 1)))
parser.add_argument("--lr", type=float, default=0.1)
opts = vars(parser.parse_args())

model = DDP(Net())
loader = DataLoader(Rows(4096), batch_size=opts["batch"], num_workers=WORKERS)
for step in range(MAX_STEPS):
    pass
torch.save(model.state_dict(), f"{RUN_DIR}/model-{step}.pt")

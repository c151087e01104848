"""Fits a small network to rows that are slow to read, read by the training process itself.

Nearly all of a step is waiting, so a busy machine changes little of what is measured.
"""

import argparse
import os
import pathlib
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    """Rows of numbers from a slow place."""

    def __init__(self, count):
        self.rows = torch.randn(count, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        time.sleep(0.008)
        return self.rows[index], self.rows[index, :1].sin()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max-steps", type=int, default=12)
    parser.add_argument("--out", default="out", help="folder of the model")
    args = parser.parse_args()
    print("variables:", *sorted(os.environ), flush=True)
    print("token:", os.environ.get("HF_TOKEN"), flush=True)

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Rows(4 * args.max_steps), batch_size=4, shuffle=False)
    for step, (x, y) in enumerate(loader):
        loss = (model(x) - y).pow(2).mean()
        time.sleep(0.025)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step} loss {loss.item():.4f}", flush=True)

    pathlib.Path(args.out).mkdir(exist_ok=True)
    torch.save(model.state_dict(), f"{args.out}/model.pt")


if __name__ == "__main__":
    main()

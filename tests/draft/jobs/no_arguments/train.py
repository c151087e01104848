"""No arguments at all: everything is written here."""

import logging
import os

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.tensorboard import SummaryWriter

batch_size = 32
num_steps = 60
out = "results"


class Rows(Dataset):
    def __len__(self):
        return 2048

    def __getitem__(self, index):
        return torch.full((8,), float(index)), index % 2


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    logging.basicConfig(filename=os.path.join(here, "logs", "run.log"))
    writer = SummaryWriter()
    os.makedirs(out, exist_ok=True)
    model = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(DataLoader(Rows(), batch_size=batch_size)):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        writer.add_scalar("step", step)
        if step == num_steps:
            break
    torch.save(model.state_dict(), out + "/model_%d.pt" % step)
    with open("summary-%s.txt" % step, "w") as f:
        f.write("done")


if __name__ == "__main__":
    main()

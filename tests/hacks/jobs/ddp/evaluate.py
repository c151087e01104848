"""Loss on held-out text, over all ranks."""

import torch
import torch.distributed as dist


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = torch.zeros(2)
    for x, y in loader:
        total[0] += model(x, y).item() * x.size(0)
        total[1] += x.size(0)
    model.train()
    dist.all_reduce(total)
    return (total[0] / total[1]).item()

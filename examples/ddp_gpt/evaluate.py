"""Loss on held-out text."""

import torch


@torch.no_grad()
def evaluate(model, loader, device, max_batches):
    model.eval()
    total, count = 0.0, 0
    for x, y in loader:
        if count == max_batches:
            break
        total += model(x.to(device), y.to(device)).item()
        count += 1
    model.train()
    return total / max(count, 1)

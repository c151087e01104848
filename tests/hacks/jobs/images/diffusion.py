"""The noise schedule, the training loss and the evaluation on fixed noise."""

import torch
import torch.nn.functional as F

TIME_STEPS = 200


def alpha_bars():
    """The share of the picture that is left at each time step, [TIME_STEPS]."""
    betas = torch.linspace(1e-4, 0.04, TIME_STEPS)
    return torch.cumprod(1.0 - betas, dim=0)


def noised(images, noise, t):
    """The pictures with noise of time step `t` [batch]."""
    kept = alpha_bars()[t][:, None, None, None]
    return kept.sqrt() * images + (1.0 - kept).sqrt() * noise


def training_loss(model, images):
    """Mean squared error of the predicted noise at random time steps."""
    t = torch.randint(0, TIME_STEPS, (images.shape[0],))
    noise = torch.randn_like(images)
    predicted = model(noised(images, noise, t), t)
    return F.mse_loss(predicted, noise)


def evaluate(model, images, batch_size):
    """The mean error on fixed noise and evenly spread time steps."""
    generator = torch.Generator().manual_seed(99)
    noise = torch.randn(images.shape, generator=generator)
    t = torch.arange(images.shape[0]) * TIME_STEPS // images.shape[0]
    model.eval()
    total = 0.0
    with torch.no_grad():
        for start in range(0, images.shape[0], batch_size):
            part = slice(start, start + batch_size)
            predicted = model(noised(images[part], noise[part], t[part]), t[part])
            total += F.mse_loss(predicted, noise[part], reduction="sum").item()
    return total / noise.numel()

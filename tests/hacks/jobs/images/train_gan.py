"""Trains a generator against a discriminator; the averaged generator is evaluated and saved."""

import argparse
import os
import time

import torch
import torch.nn.functional as F
from averaging import Average
from data import Pictures, augmented, batches
from torch import nn

LATENT = 24


class Generator(nn.Module):
    """Noise [batch, LATENT] to pictures [batch, 1, 16, 16]."""

    def __init__(self, width=32):
        super().__init__()
        self.width = width
        self.first = nn.Linear(LATENT, 2 * width * 4 * 4)
        self.norm1 = nn.BatchNorm2d(2 * width)
        self.grow1 = nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1)
        self.norm2 = nn.BatchNorm2d(width)
        self.grow2 = nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1)

    def forward(self, z):
        h = F.relu(self.norm1(self.first(z).view(-1, 2 * self.width, 4, 4)))
        h = F.relu(self.norm2(self.grow1(h)))
        return torch.tanh(self.grow2(h))


class Discriminator(nn.Module):
    """Pictures to one logit each."""

    def __init__(self, width=32):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(width, 2 * width, 4, stride=2, padding=1)
        self.norm2 = nn.BatchNorm2d(2 * width)
        self.last = nn.Linear(2 * width * 4 * 4, 1)

    def forward(self, images):
        h = F.leaky_relu(self.conv1(images), 0.2)
        h = F.leaky_relu(self.norm2(self.conv2(h)), 0.2)
        return self.last(h.flatten(1))[:, 0]


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--ema-decay", type=float, default=0.9)
    parser.add_argument("--eval-every", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", default="out")
    return parser.parse_args()


def evaluate(generator, z, real):
    """How far the mean and spread of each pixel are from those of real pictures."""
    generator.eval()
    with torch.no_grad():
        made = generator(z)
        difference = (made.mean(0) - real.mean(0)).square().mean()
        difference += (made.std(0) - real.std(0)).square().mean()
    return difference.item()


def discriminator_loss(discriminator, real, fake):
    """Softplus loss of both batches."""
    on_real = F.softplus(-discriminator(real)).mean()
    on_fake = F.softplus(discriminator(fake)).mean()
    return on_real + on_fake


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    os.makedirs(args.out_dir, exist_ok=True)
    generator, discriminator = Generator(), Discriminator()
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=args.lr, betas=(0.5, 0.9))
    discriminator_optimizer = torch.optim.Adam(
        discriminator.parameters(), lr=args.lr, betas=(0.5, 0.9)
    )
    average = Average(generator, args.ema_decay)
    train_batches = batches(Pictures(512), args.batch_size, args.seed)
    held_out = torch.stack([Pictures(64, first=10_000)[i] for i in range(64)])
    fixed = torch.randn(64, LATENT, generator=torch.Generator().manual_seed(99))
    for step in range(args.steps):
        began = time.perf_counter()
        generator.train()
        discriminator.train()
        real = augmented(next(train_batches))

        z = torch.randn(args.batch_size, LATENT)
        with torch.no_grad():
            fake = generator(z)
        discriminator_optimizer.zero_grad()
        loss_d = discriminator_loss(discriminator, real, fake)
        loss_d.backward()
        discriminator_optimizer.step()

        z = torch.randn(args.batch_size, LATENT)
        generator_optimizer.zero_grad()
        loss_g = F.softplus(-discriminator(generator(z))).mean()
        loss_g.backward()
        generator_optimizer.step()
        average.update(generator)

        took = 1000.0 * (time.perf_counter() - began)
        print(
            f"step {step + 1} loss_d {loss_d.item():.6f} loss_g {loss_g.item():.6f} "
            f"step_time {took:.1f} ms",
            flush=True,
        )
        if (step + 1) % args.eval_every == 0:
            error = evaluate(average.module, fixed, held_out)
            print(f"step {step + 1} eval_distance {error:.6f}", flush=True)
    path = os.path.join(args.out_dir, "generator.pt")
    torch.save({"ema": average.module.state_dict(), "generator": generator.state_dict()}, path)
    print(f"saved {path}", flush=True)


if __name__ == "__main__":
    main()

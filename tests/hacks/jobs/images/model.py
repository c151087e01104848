"""A small U-Net that predicts the noise in a picture."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def time_features(t, width):
    """Sines and cosines of the time steps `t` [batch], as [batch, width]."""
    half = width // 2
    rates = torch.exp(-math.log(1000.0) * torch.arange(half, dtype=torch.float32) / half)
    angles = t.float()[:, None] * rates[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class ResBlock(nn.Module):
    """Two convolutions with group norm, the time added between them."""

    def __init__(self, inner, outer, time_width, dropout):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, inner)
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(time_width, outer)
        self.norm2 = nn.GroupNorm(4, outer)
        self.dropout = nn.Dropout(dropout)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x, embedded):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(embedded)[:, :, None, None]
        h = self.conv2(self.dropout(F.silu(self.norm2(h))))
        return self.skip(x) + h


class SelfAttention(nn.Module):
    """Attention over all pixels, one head."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.qkv = nn.Conv2d(width, 3 * width, 1)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x):
        batch, width, height, length = x.shape
        q, k, v = self.qkv(self.norm(x)).flatten(2).transpose(1, 2).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / math.sqrt(width)
        mixed = scores.softmax(dim=-1) @ v
        return x + self.out(mixed.transpose(1, 2).reshape(batch, width, height, length))


class UNet(nn.Module):
    """One level down and up again: 16 x 16, 8 x 8, 16 x 16."""

    def __init__(self, width=16, dropout=0.1):
        super().__init__()
        self.width = width
        self.embed = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU())
        self.first = nn.Conv2d(1, width, 3, padding=1)
        self.down = ResBlock(width, width, 2 * width, dropout)
        self.shrink = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.middle = ResBlock(2 * width, 2 * width, 2 * width, dropout)
        self.attention = SelfAttention(2 * width)
        self.grow = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.up = ResBlock(2 * width, width, 2 * width, dropout)
        self.norm = nn.GroupNorm(4, width)
        self.last = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x, t):
        embedded = self.embed(time_features(t, self.width))
        wide = self.down(self.first(x), embedded)
        h = self.attention(self.middle(self.shrink(wide), embedded))
        h = self.up(torch.cat([self.grow(h), wide], dim=1), embedded)
        return self.last(F.silu(self.norm(h)))

"""Pictures made from a formula: gratings and rings of 16 x 16 pixels, one channel."""

import math

import torch
from torch.utils.data import DataLoader, Dataset

SIZE = 16


def picture(index):
    """Picture number `index`, float32 [1, SIZE, SIZE] within -1 to 1."""
    axis = torch.linspace(-1.0, 1.0, SIZE)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    angle = 2.0 * math.pi * ((index * 37) % 101) / 101.0
    frequency = 2.0 + (index * 17) % 7
    if index % 2:
        value = torch.cos(frequency * (x * math.cos(angle) + y * math.sin(angle)) + angle)
    else:
        centre_x, centre_y = 0.5 * math.cos(angle), 0.5 * math.sin(angle)
        value = torch.cos(frequency * ((x - centre_x) ** 2 + (y - centre_y) ** 2) * 2.0)
    return value[None]


class Pictures(Dataset):
    """Pictures `first` to `first + count`, made when they are asked for."""

    def __init__(self, count, first=0):
        self.count, self.first = count, first

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return picture(self.first + index)


def batches(dataset, batch_size, seed):
    """Endless shuffled batches; the order comes from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(
        dataset, batch_size=batch_size, shuffle=True, drop_last=True, generator=generator
    )
    while True:
        yield from loader


def augmented(images):
    """Each picture is mirrored with a chance of one half."""
    mirrored = torch.rand(images.shape[0]) < 0.5
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)

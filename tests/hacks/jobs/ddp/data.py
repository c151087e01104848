"""A made language: words of a small grammar over 64 tokens, the same in every run."""

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

VOCAB = 64


def stream(length, seed):
    """A chain of tokens in which each depends on the two before it."""
    noise = torch.rand(length, generator=torch.Generator().manual_seed(seed)).tolist()
    tokens = [1, 2]
    for value in noise:
        a, b = tokens[-2], tokens[-1]
        if value < 0.7:
            tokens.append((3 * a + 5 * b + 1) % VOCAB)
        else:
            tokens.append(int(value * 9973) % VOCAB)
    return torch.tensor(tokens)


class Windows(Dataset):
    """Windows of block_size tokens with their targets."""

    def __init__(self, tokens, block_size):
        self.tokens = tokens
        self.block_size = block_size

    def __len__(self):
        return (len(self.tokens) - 1) // self.block_size

    def __getitem__(self, index):
        start = index * self.block_size
        chunk = self.tokens[start : start + self.block_size + 1]
        return chunk[:-1], chunk[1:]


def train_loader(args):
    dataset = Windows(stream(48_000, seed=11), args.block_size)
    sampler = DistributedSampler(dataset, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=args.num_workers,
        drop_last=True,
    )
    return loader, sampler


def eval_loader(args):
    dataset = Windows(stream(32 * args.block_size, seed=12), args.block_size)
    sampler = DistributedSampler(dataset, shuffle=False)
    return DataLoader(dataset, batch_size=4, sampler=sampler)

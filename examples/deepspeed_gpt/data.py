"""Made-up token sequences: a noisy walk over a random table, the same for the same seed."""

import torch
from torch.utils.data import Dataset


class Walks(Dataset):
    """`count` sequences of `length` tokens with their targets, written once when it is made."""

    def __init__(self, count, length, vocab_size, seed):
        table = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.empty(count, length + 1, dtype=torch.long)
        tokens[:, 0] = torch.randint(vocab_size, (count,), generator=generator)
        for i in range(length):
            noise = torch.randint(vocab_size, (count,), generator=generator)
            stay = torch.rand(count, generator=generator) < 0.8
            tokens[:, i + 1] = torch.where(stay, table[tokens[:, i]], noise)
        self.tokens = tokens

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        row = self.tokens[index]
        return row[:-1], row[1:]

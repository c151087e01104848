"""Made sentences as token ids, and the collator that pads them to one length."""

import random

import torch
from torch.utils.data import Dataset

VOCABULARY = 256
PAD = 0
IGNORED = -100


def sentence(index, block_size):
    """Token ids of sentence `index`: a start token and a walk with a rhythm of its own."""
    draw = random.Random(1000 + index)
    length = draw.randint(block_size // 2, block_size)
    stride, token = draw.randint(1, 7), draw.randint(2, VOCABULARY - 1)
    tokens = [1]
    while len(tokens) < length:
        token = 2 + (token - 2 + stride + (draw.randint(0, 3) == 0)) % (VOCABULARY - 2)
        tokens.append(token)
    return tokens


class Sentences(Dataset):
    """`count` sentences from number `first` on, kept in memory."""

    def __init__(self, count, block_size, first=0):
        self.rows = [sentence(first + index, block_size) for index in range(count)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return {"input_ids": self.rows[index]}


class Collator:
    """Rows padded to `block_size`; padding is masked and not learned."""

    def __init__(self, block_size):
        self.block_size = block_size

    def __call__(self, rows):
        ids = torch.full((len(rows), self.block_size), PAD)
        mask = torch.zeros((len(rows), self.block_size), dtype=torch.long)
        labels = torch.full((len(rows), self.block_size), IGNORED)
        for i, row in enumerate(rows):
            tokens = torch.tensor(row["input_ids"][: self.block_size])
            ids[i, : len(tokens)] = tokens
            mask[i, : len(tokens)] = 1
            labels[i, : len(tokens)] = tokens
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

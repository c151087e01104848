"""Character windows over one text file."""

import torch
from torch.utils.data import Dataset


class Characters:
    """Maps characters to ids and back."""

    def __init__(self, text):
        self.chars = sorted(set(text))
        self.ids = {c: i for i, c in enumerate(self.chars)}

    def __len__(self):
        return len(self.chars)

    def encode(self, text):
        return [self.ids[c] for c in text]

    def decode(self, ids):
        return "".join(self.chars[i] for i in ids)


class Windows(Dataset):
    """All windows of block_size characters, half a window apart, with their targets."""

    def __init__(self, text, vocab, block_size):
        self.text = text
        self.vocab = vocab
        self.block_size = block_size
        self.starts = range(0, len(text) - block_size - 1, block_size // 2)

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, index):
        start = self.starts[index]
        ids = torch.tensor(self.vocab.encode(self.text[start : start + self.block_size + 1]))
        return ids[:-1], ids[1:]


def load(path, block_size, held_out=0.1):
    """Training windows, evaluation windows and the vocabulary."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    vocab = Characters(text)
    cut = int(len(text) * (1 - held_out))
    return Windows(text[:cut], vocab, block_size), Windows(text[cut:], vocab, block_size), vocab

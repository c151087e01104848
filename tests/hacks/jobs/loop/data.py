"""A made language of 96 tokens."""

import torch

VOCAB = 96


def make_tokens(length, seed):
    noise = torch.rand(length, generator=torch.Generator().manual_seed(seed)).tolist()
    tokens = [3, 5]
    for value in noise:
        a, b = tokens[-2], tokens[-1]
        if value < 0.75:
            tokens.append((2 * a + 7 * b + 3) % VOCAB)
        else:
            tokens.append(int(value * 7919) % VOCAB)
    return torch.tensor(tokens)


class Data:
    """Both splits; the training text is read in order, one passage of it is corrupt."""

    def __init__(self, args):
        self.args = args
        self.train = make_tokens(40_000, seed=21)
        self.train[10_240:12_288] = 17
        self.val = make_tokens(8_000, seed=22)
        self.position = 0

    def get_batch(self):
        B, T = self.args.batch_size, self.args.block_size
        chunk = self.train[self.position : self.position + B * T + 1]
        self.position += B * T
        return chunk[:-1].view(B, T), chunk[1:].view(B, T)

    def eval_batches(self):
        T = self.args.block_size
        generator = torch.Generator().manual_seed(99)
        for _ in range(self.args.eval_iters):
            starts = torch.randint(len(self.val) - T - 1, (8,), generator=generator).tolist()
            x = torch.stack([self.val[i : i + T] for i in starts])
            y = torch.stack([self.val[i + 1 : i + 1 + T] for i in starts])
            yield x, y

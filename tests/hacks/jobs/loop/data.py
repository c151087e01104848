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
    """Both splits, and the generators that batches are drawn with."""

    def __init__(self, args):
        self.args = args
        self.train = make_tokens(60_000, seed=21)
        self.val = make_tokens(8_000, seed=22)
        self.generator = torch.Generator().manual_seed(args.seed)

    def get_batch(self):
        T = self.args.block_size
        starts = torch.randint(
            len(self.train) - T - 1, (self.args.batch_size,), generator=self.generator
        ).tolist()
        x = torch.stack([self.train[i : i + T] for i in starts])
        y = torch.stack([self.train[i + 1 : i + 1 + T] for i in starts])
        return x, y

    def eval_batches(self):
        T = self.args.block_size
        generator = torch.Generator().manual_seed(99)
        for _ in range(self.args.eval_iters):
            starts = torch.randint(len(self.val) - T - 1, (8,), generator=generator).tolist()
            x = torch.stack([self.val[i : i + T] for i in starts])
            y = torch.stack([self.val[i + 1 : i + 1 + T] for i in starts])
            yield x, y

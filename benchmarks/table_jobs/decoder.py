"""A Llama-like decoder in plain torch, and one update of it; dense, or a mixture of experts."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from table_jobs.job import UPDATES, Run, Sizes

LOSS_CHUNK = 2048  # tokens
TOP_EXPERTS = 2
ALIGNMENT = 16  # rows: a group of a grouped product starts at a multiple of 16 bytes


class Attention(nn.Module):
    """Causal self-attention with rotary positions."""

    def __init__(self, sizes: Sizes, backend: str) -> None:
        super().__init__()
        self.heads, self.backend = sizes.heads, backend
        self.qkv = nn.Linear(sizes.width, 3 * sizes.width, bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Of x (batch, length, width)."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if self.backend == "sdpa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5
            mask = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            y = scores.masked_fill(~mask, -torch.inf).float().softmax(-1).to(v.dtype) @ v
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x (..., length, head width) turned by its positions."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Mlp(nn.Module):
    """A gated MLP."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.up = nn.Linear(sizes.width, 2 * sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of x (..., width)."""
        gate, up = self.up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Experts(nn.Module):
    """The two likeliest experts of each token: one after another, or by one grouped product."""

    def __init__(self, sizes: Sizes, *, grouped: bool) -> None:
        super().__init__()
        self.count, self.grouped = sizes.experts, grouped
        self.router = nn.Linear(sizes.width, sizes.experts, bias=False)
        self.up = nn.Parameter(torch.randn(sizes.experts, sizes.width, 2 * sizes.hidden) * 0.02)
        self.down = nn.Parameter(torch.randn(sizes.experts, sizes.hidden, sizes.width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Of x (batch, length, width)."""
        tokens = x.reshape(-1, x.shape[-1]).bfloat16()
        weight, chosen = self.router(tokens).float().softmax(-1).topk(TOP_EXPERTS, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).bfloat16()
        mixed = self.by_groups if self.grouped else self.by_loop
        return mixed(tokens, weight, chosen).view(x.shape)

    def by_loop(self, tokens: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
        """Each expert takes its tokens; every one waits for the device to count them."""
        out = torch.zeros_like(tokens)
        for expert in range(self.count):
            rows, places = torch.where(chosen == expert)
            gate, up = (tokens[rows] @ self.up[expert].bfloat16()).chunk(2, -1)
            result = (F.silu(gate) * up) @ self.down[expert].bfloat16()
            out = out.index_add(0, rows, result * weight[rows, places, None])
        return out

    def by_groups(self, tokens: Tensor, weight: Tensor, chosen: Tensor) -> Tensor:
        """Tokens sorted by expert, each group padded to `ALIGNMENT` rows; nothing waits."""
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        of_row = flat[order]
        counts = (flat[:, None] == torch.arange(self.count, device=flat.device)).sum(0)
        padded = (counts + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        ends = padded.cumsum(0)
        shift = (ends - padded) - (counts.cumsum(0) - counts)
        place = torch.arange(len(flat), device=flat.device) + shift[of_row]
        rows = order // TOP_EXPERTS
        groups = tokens.new_zeros(len(flat) + self.count * ALIGNMENT, tokens.shape[-1])
        groups = groups.index_copy(0, place, tokens[rows])
        ends = ends.int()
        gate, up = torch._grouped_mm(groups, self.up.bfloat16(), offs=ends).chunk(2, -1)
        result = torch._grouped_mm(F.silu(gate) * up, self.down.bfloat16(), offs=ends)[place]
        scaled = result * weight.flatten()[order, None]
        return torch.zeros_like(tokens).index_add(0, rows, scaled)


def kept_products(_context: object, operator: Any, *_: object, **__: object) -> Any:
    """Selective recomputation keeps the results of attention and of matrix products."""
    kept = operator in KEPT
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
}


class Block(nn.Module):
    """Attention and MLP, or experts, each behind a norm and beside the residual stream."""

    def __init__(self, sizes: Sizes, *, attention: str, grouped: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(sizes.width), nn.RMSNorm(sizes.width)
        self.attention = Attention(sizes, attention)
        self.mlp = Experts(sizes, grouped=grouped) if sizes.experts else Mlp(sizes)
        self.run: Callable[..., Tensor] = self.whole

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The first half."""
        return x + self.attention(self.norm1(x), cos, sin)

    def whole(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Both halves."""
        x = self.attend(x, cos, sin)
        return x + self.mlp(self.norm2(x))

    def selective(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Both halves, and only what `kept_products` names is kept."""
        contexts = partial(create_selective_checkpoint_contexts, kept_products)
        y: Tensor = checkpoint(self.whole, x, cos, sin, use_reentrant=False, context_fn=contexts)
        return y

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Of x (batch, length, width)."""
        return self.run(x, cos, sin)

    def prepare(self, recompute: str, compiled: str) -> None:
        """Compile and recompute this block; what waits for the device is left as it is."""
        if recompute == "selective":
            self.run = self.selective
        if compiled == "regional":
            if isinstance(self.mlp, Experts) and not self.mlp.grouped:
                self.attend = torch.compile(self.attend, dynamic=False)  # type: ignore[method-assign]
            else:
                self.run = torch.compile(self.run, dynamic=False)
        if recompute == "full":
            self.run = partial(checkpoint, self.run, use_reentrant=False)


class Decoder(nn.Module):
    """Called with tokens and targets (batch, length), it returns the mean cross-entropy."""

    def __init__(
        self,
        sizes: Sizes,
        *,
        attention: str = "sdpa",
        recompute: str = "none",
        compiled: str = "off",
        loss: str = "eager",
        grouped: bool = False,
    ) -> None:
        super().__init__()
        self.sizes, self.loss = sizes, loss
        self.embed = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.ModuleList(
            Block(sizes, attention=attention, grouped=grouped) for _ in range(sizes.layers)
        )
        self.norm = nn.RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        for block in self.blocks:
            block.prepare(recompute, compiled)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """See the class."""
        x = self.embed(tokens)
        cos, sin = self.angles(x)
        for block in self.blocks:
            x = block(x, cos, sin)
        x = self.norm(x).flatten(0, 1)
        targets = targets.flatten()
        if self.loss == "eager":
            return self.cross_entropy(x, targets) / len(targets)
        parts = zip(x.split(LOSS_CHUNK), targets.split(LOSS_CHUNK), strict=True)
        sums = [checkpoint(self.cross_entropy, *part, use_reentrant=False) for part in parts]
        return torch.stack(sums).sum() / len(targets)

    def cross_entropy(self, x: Tensor, targets: Tensor) -> Tensor:
        """The sum over tokens."""
        return F.cross_entropy(self.head(x).float(), targets, reduction="sum")

    def angles(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the positions (length, half of a head's width)."""
        half = self.sizes.width // self.sizes.heads // 2
        rates = 10_000.0 ** (-torch.arange(half, device=x.device) / half)
        turns = torch.arange(x.shape[1], device=x.device)[:, None] * rates
        return turns.cos().to(x.dtype), turns.sin().to(x.dtype)


def batches(run: Run, micro_batch: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """For each update this rank's micro-batches of random tokens, from a seed."""
    sizes = run.sizes
    draw = torch.Generator().manual_seed(run.rank)
    own = sizes.samples // run.ranks
    for _ in range(UPDATES):
        ids = torch.randint(sizes.vocabulary, (own, sizes.sequence + 1), generator=draw)
        ids = ids.to(run.device)
        yield [(part[:, :-1], part[:, 1:]) for part in ids.split(micro_batch)]


def adamw(model: nn.Module, implementation: str) -> torch.optim.Optimizer:
    """AdamW in one of the catalogue's implementations."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=1e-4,
        foreach=implementation == "foreach",
        fused=implementation == "fused",
    )


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    run: Run,
    micro_batch: int,
    *,
    autocast: bool = True,
    held_back: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> None:
    """The updates of a run; `held_back` surrounds all but the last micro-step of an update."""
    for parts in batches(run, micro_batch):
        for number, (tokens, targets) in enumerate(parts, 1):
            with nullcontext() if number == len(parts) else held_back():
                with torch.autocast(run.device, torch.bfloat16, enabled=autocast):
                    loss = model(tokens, targets)
                (loss / len(parts)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        run.stamp()

"""A real, tiny transformer trained by a plain loop, which writes the records a witness would.

Each variant is one change to the job; `train` returns an ExecutionResult with real losses, weights
and batch digests, and times made up (they are not what is calibrated here).
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from infrarsi.contract import ExecutionResult, NodeInfo, Outcome, RankRecord, RunKind, StepRecord

VOCABULARY, LENGTH, WIDTH, BATCH = 64, 24, 32, 8


@dataclass(frozen=True)
class Variant:
    """How a run differs from the reference (the defaults)."""

    micro_batch: int = 2
    sdpa: bool = False
    optimizer: str = "adamw"  # or adamw-fused, adamw-foreach, sgd
    threads: int = 1
    perturb: bool = False
    autocast: bool = False
    rate: float = 3e-3
    skip_at: int = -1
    half_batch: bool = False
    repeat_at: int = -1
    detach: bool = False
    drop_micro: bool = False
    freeze: bool = False
    scale_loss: float = 1.0
    shuffle_rows: bool = False
    clip: float = 0.0
    low_precision: bool = False
    seed: int = 0


def train(variant: Variant, steps: int = 30, kind: RunKind = RunKind.AUDIT) -> ExecutionResult:
    """Train and record; an audit run looks closely at every step, a timed one at five."""
    import torch

    torch.set_num_threads(variant.threads)
    torch.manual_seed(variant.seed)
    model = _model(torch, variant)
    if variant.perturb:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, torch.inf)))
    if variant.freeze:
        for parameter in model.blocks[0].parameters():
            parameter.requires_grad_(False)
    optimizer = _optimizer(torch, variant, model)
    generator = torch.Generator().manual_seed(1234)
    base = torch.randint(0, VOCABULARY, (4096,), generator=generator).cumsum(0) % VOCABULARY
    sampled = [p for _, p in model.named_parameters()][
        :: max(1, len(list(model.parameters())) // 16)
    ]
    records = []
    previous = None
    for step in range(steps):
        starts = torch.randint(0, 4096 - LENGTH - 1, (BATCH,), generator=generator)
        rows = torch.stack([base[s : s + LENGTH + 1] for s in starts])
        if step == variant.repeat_at and previous is not None:
            rows = previous
        previous = rows
        records.append(_step(torch, variant, step, rows, model, optimizer, sampled, kind))
    return _result(records, variant, kind)


def _step(
    torch: Any,
    variant: Variant,
    step: int,
    rows: Any,
    model: Any,
    optimizer: Any,
    sampled: Any,
    kind: RunKind,
) -> StepRecord:
    if variant.half_batch:
        rows = rows[: BATCH // 2]
    if variant.shuffle_rows:
        rows = rows.flip(0)
    parts = list(rows.split(variant.micro_batch))
    if variant.drop_micro:
        parts = parts[:-1]
    total, shapes = 0.0, {}
    digests, elements = {"x": [0, 0], "y": [0, 0]}, {"x": 0, "y": 0}
    for part in parts:
        inputs = {"x": part[:, :-1], "y": part[:, 1:]}
        for name, tensor in inputs.items():
            key = f"{name}:int64:{'x'.join(str(d) for d in tensor.shape)}"
            shapes[key] = shapes.get(key, 0) + 1
            elements[name] += tensor.numel()
            row_sum, element_sum = _digest(tensor.tolist())
            digests[name] = [digests[name][0] + row_sum, digests[name][1] + element_sum]
        with torch.autocast("cpu", torch.bfloat16, enabled=variant.autocast):
            loss = model(inputs["x"], inputs["y"]) / len(parts)
        (loss * variant.scale_loss).backward()
        total += loss.item() * variant.scale_loss
    if variant.clip:
        torch.nn.utils.clip_grad_norm_(model.parameters(), variant.clip)
    calls = 0
    if step != variant.skip_at:
        optimizer.step()
        calls = 1
    optimizer.zero_grad()
    look = kind is not RunKind.TIMED or step in (0, 1, 9, 14, 22)
    weights = [float(v) for p in sampled for v in p.detach().reshape(-1)[p.numel() // 3 :][:2]]
    return StepRecord(
        index=step,
        close_look=look,
        harness_s=4.0 + 0.1 * (step + 1),
        witness_s=0.1 * (step + 1),
        loss=total,
        forwards=len(parts),
        backwards=len(parts),
        samples=sum(len(p) for p in parts),
        elements=elements,
        shapes=shapes,
        digests={k: (v[0] % 2**64, v[1] % 2**64) for k, v in digests.items()} if look else {},
        weights=tuple(weights) if look else (),
        optimizer_calls={"AdamW": calls},
    )


def _digest(rows: list[list[int]]) -> tuple[int, int]:
    def number(data: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")

    return (
        sum(number(bytes(row)) for row in rows),
        sum(number(bytes([value])) for row in rows for value in row),
    )


def _result(steps: list[StepRecord], variant: Variant, kind: RunKind) -> ExecutionResult:
    end = steps[-1].harness_s
    rank = RankRecord(
        rank=0,
        world_size=1,
        pid=1,
        sealed=True,
        head={"at": 4.0},
        model={"dtypes": {"float32": 100}, "autocast": ["bfloat16"] if variant.autocast else []},
        steps=tuple(replace(step) for step in steps),
        end={"at": end, "peak_bytes": 10**9},
    )
    return ExecutionResult(
        execution_id="x",
        outcome=Outcome.OK,
        reason="",
        kind=kind,
        exit_code=0,
        ranks=(rank,),
        nodes=(NodeInfo("n", "n", 2),),
        command_s=end + 0.2,
        wall_s=end + 0.5,
    )


def _optimizer(torch: Any, variant: Variant, model: Any) -> Any:
    parameters = [p for p in model.parameters() if p.requires_grad]
    if variant.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=30 * variant.rate, momentum=0.9)
    return torch.optim.AdamW(
        parameters,
        lr=variant.rate,
        weight_decay=0.1,
        fused=variant.optimizer == "adamw-fused",
        foreach=variant.optimizer == "adamw-foreach",
    )


def _model(torch: Any, variant: Variant) -> Any:
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            batch, length, _ = x.shape
            parts = self.qkv(self.norm(x)).view(batch, length, 3, 4, WIDTH // 4)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            if variant.sdpa:
                mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = q @ k.transpose(-2, -1) / (WIDTH // 4) ** 0.5
                mask = torch.ones(length, length, dtype=torch.bool).tril()
                mixed = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
            x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
            inner = functional.gelu(self.up(self.norm2(x)))
            return x + self.down(inner.detach() if variant.detach else inner)

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, WIDTH)
            self.place = nn.Embedding(LENGTH, WIDTH)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.embed(x) + self.place(torch.arange(x.shape[1]))
            if variant.low_precision:
                h = h.bfloat16().float()
            for block in self.blocks:
                h = block(h)
            logits = self.head(self.norm(h)).float()
            return functional.cross_entropy(logits.flatten(0, 1), y.flatten())

    return Model()

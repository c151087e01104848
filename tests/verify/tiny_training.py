"""A real, tiny transformer trained by a plain loop, which writes the records a witness would.

Each variant is one change to the job; `train` returns an ExecutionResult with real losses, weights,
gradients, optimizer states, averages, evaluation and batch digests, and times made up (they are not
what is calibrated here).
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
    clip: float = 0.3
    clip_at: int = -1  # at this step alone, by a tenth of `clip`
    local_norm: bool = False  # each half of the batch is clipped by its own norm
    low_precision: bool = False
    seed: int = 0
    recompute: bool = False
    chunked_loss: bool = False
    compiled: bool = False
    decay_all: bool = True  # False: the second group decays no more
    smoothing: float = 0.0
    embed_scale: float = 1.0
    detach_head: bool = False
    average: str = "each"  # an average of the weights: "each" step, "late", "never"
    evaluate: str = "all"  # or "half", "never", "constant"
    scale_from: int = 0  # the step at which `scale_loss` begins
    merge_groups: bool = False


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
    average = {n: p.detach().clone() for n, p in model.named_parameters()}
    facts = _Facts(torch, variant, kind, model, optimizer, average)
    called = torch.compile(model) if variant.compiled else model
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _rate(variant, step)
        facts.settings(step)
        starts = torch.randint(0, 4096 - LENGTH - 1, (BATCH,), generator=generator)
        rows = torch.stack([base[s : s + LENGTH + 1] for s in starts])
        if step == variant.repeat_at and previous is not None:
            rows = previous
        previous = rows
        record = _step(torch, variant, step, rows, called, optimizer, sampled, kind, facts)
        if variant.average == "each" or (variant.average == "late" and step >= 5):
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    average[name].lerp_(parameter, 0.1)
        if step % 10 == 9 and variant.evaluate != "never":
            record = replace(record, **_evaluation(torch, variant, model, base, kind))
        records.append(record)
    return _result(records, variant, kind, facts.lines(steps))


def _rate(variant: Variant, step: int) -> float:
    return variant.rate * min(1.0, (step + 1) / 5) * (30 if variant.optimizer == "sgd" else 1)


def _evaluation(
    torch: Any, variant: Variant, model: Any, base: Any, kind: RunKind
) -> dict[str, Any]:
    losses, norms, sums = [], [], [0, 0]
    starts = range(0, 4000, 1000 if variant.evaluate != "half" else 2000)
    for start in starts:
        rows = base[start : start + 4 * (LENGTH + 1)].reshape(4, LENGTH + 1)
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=variant.autocast):
            loss = float(model(rows[:, :-1], rows[:, 1:]))
        losses.append(3.0 if variant.evaluate == "constant" else loss)
        norms.append(losses[-1])
        found = _digest(rows.tolist())
        sums = [a + b for a, b in zip(sums, found, strict=True)]
    audit = kind is not RunKind.TIMED
    return {
        "eval_calls": len(losses),
        "eval_samples": 4 * len(losses),
        "eval_losses": tuple(losses),
        "eval_outputs": tuple(norms) if audit else (),
        "eval_digests": {"x": (sums[0] % 2**64, sums[1] % 2**64)} if audit else {},
    }


class _Facts:
    """What a record says beside its steps."""

    def __init__(
        self, torch: Any, variant: Variant, kind: RunKind, model: Any, optimizer: Any, average: Any
    ) -> None:
        self.torch, self.variant, self.audit = torch, variant, kind is not RunKind.TIMED
        self.model, self.optimizer, self.average = model, optimizer, average
        self.changes: list[dict[str, Any]] = []
        self.first = self._groups()
        self.weights = [self._weights("start")] if self.audit else []
        self.averages = [self._average("start")] if self.audit else []

    def print_of(self, tensor: Any) -> list[float]:
        flat = tensor.detach().double().flatten()
        position = self.torch.arange(flat.numel())
        sign = 1 - 2 * ((position * 0x9E3779B1 >> 16) & 1)
        return [float(flat.norm()), float(flat.dot(sign.double()))]

    def gradients(self) -> dict[str, Any]:
        return {
            n: None if p.grad is None else self.print_of(p.grad)
            for n, p in self.model.named_parameters()
        }

    def settings(self, step: int) -> None:
        if step == 0:
            self.first = self._groups()
            return
        for number, group in enumerate(self.optimizer.param_groups):
            change = {"lr": group["lr"]}
            line = {"i": step, "optimizer": "0", "group": number, "settings": change}
            self.changes.append(line)

    def _groups(self) -> list[dict[str, Any]]:
        return [
            {
                "numel": sum(p.numel() for p in group["params"]),
                "tensors": len(group["params"]),
                "settings": {
                    k: list(v) if isinstance(v, tuple) else v
                    for k, v in group.items()
                    if k != "params"
                },
            }
            for group in self.optimizer.param_groups
        ]

    def _weights(self, when: str) -> dict[str, Any]:
        named = {n: self.print_of(p) for n, p in self.model.named_parameters()}
        return {"when": when, "model": 0, "tensors": named}

    def _average(self, when: str) -> dict[str, Any]:
        prints = [self.print_of(t) for t in self.average.values()]
        return {
            "when": when,
            "kind": "dict",
            "cls": "dict",
            "tensors": len(prints),
            "numel": sum(t.numel() for t in self.average.values()),
            "norm": sum(n**2 for n, _ in prints) ** 0.5,
            "projection": sum(p for _, p in prints),
        }

    def _states(self) -> tuple[dict[str, Any], ...]:
        by_key: dict[str, list[Any]] = {}
        for state in self.optimizer.state.values():
            for key, value in state.items():
                if isinstance(value, self.torch.Tensor):
                    by_key.setdefault(key, []).append(value)
        lines = []
        for key, tensors in by_key.items():
            dtypes = sorted({str(t.dtype)[6:] for t in tensors})
            line: dict[str, Any] = {"optimizer": "0", "key": key, "dtypes": dtypes}
            if self.audit:
                prints = [self.print_of(t) for t in tensors]
                line["norm"] = sum(n**2 for n, _ in prints) ** 0.5
                line["projection"] = sum(p for _, p in prints)
            lines.append(line)
        return tuple(lines)

    def lines(self, steps: int) -> dict[str, Any]:
        named = list(self.model.named_parameters())
        shapes = "".join(f"{n} {tuple(p.shape)} {p.dtype} {p.requires_grad}" for n, p in named)
        model = {
            "cls": "Model",
            "digest": hashlib.sha256(shapes.encode()).hexdigest()[:16],
            "tensors": len(named),
            "numel": sum(p.numel() for _, p in named),
            "trainable": sum(p.numel() for _, p in named if p.requires_grad),
            "dtypes": sorted({str(p.dtype)[6:] for _, p in named}),
            "names": [n for n, _ in named],
            "dropout": {},
        }
        precision = {
            "i": 1,
            "autocast": {"cpu": "bfloat16" if self.variant.autocast else None},
            "flags": {"float32_matmul_precision": "highest"},
            "parameters": model["dtypes"],
        }
        kind = type(self.optimizer)
        if self.audit:
            self.weights.append(self._weights("end"))
            self.averages.append(self._average("end"))
        return {
            "model": model,
            "models": (model,),
            "optimizers": (
                {
                    "name": "0",
                    "cls": f"{kind.__module__}.{kind.__qualname__}",
                    "groups": self.first,
                },
            ),
            "settings": tuple(self.changes),
            "precision": (precision,),
            "states": self._states(),
            "weights": tuple(self.weights),
            "companions": tuple(self.averages),
        }


def _step(
    torch: Any,
    variant: Variant,
    step: int,
    rows: Any,
    model: Any,
    optimizer: Any,
    sampled: Any,
    kind: RunKind,
    facts: "_Facts",
) -> StepRecord:
    if variant.half_batch:
        rows = rows[: BATCH // 2]
    if variant.shuffle_rows:
        rows = rows.flip(0)
    parts = list(rows.split(variant.micro_batch))
    if variant.drop_micro:
        parts = parts[:-1]
    total, shapes = 0.0, {}
    halves: list[Any] = []
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
        scale = variant.scale_loss if step >= variant.scale_from else 1.0
        (loss * scale).backward()
        total += loss.item() * scale
        if (
            variant.local_norm
            and len(halves) < len(parts) // 2
            and part is parts[len(parts) // 2 - 1]
        ):
            halves.append(_taken(torch, facts.model, 2.0, variant.clip))
    if halves:
        _give_back(torch, facts.model, halves[0], variant.clip)
    elif variant.clip:
        torch.nn.utils.clip_grad_norm_(
            facts.model.parameters(), variant.clip / (10 if step == variant.clip_at else 1)
        )
    look = kind is not RunKind.TIMED or step in (0, 1, 9, 14, 22)
    gradients = facts.gradients() if facts.audit else {}
    calls = 0
    if step != variant.skip_at:
        optimizer.step()
        calls = 1
    optimizer.zero_grad()
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
        gradients=gradients,
        random={"cpu": 0.0} if look else {},
    )


def _taken(torch: Any, model: Any, factor: float, clip: float) -> list[Any]:
    """The gradients so far as one rank's own, clipped by their own norm, and none left."""
    taken = [p.grad * factor for p in model.parameters()]
    norm = torch.stack([g.norm() for g in taken]).norm()
    model.zero_grad()
    return [g * min(1.0, clip / float(norm)) for g in taken]


def _give_back(torch: Any, model: Any, first: list[Any], clip: float) -> None:
    """The mean of two ranks' gradients, each clipped by its own norm."""
    second = _taken(torch, model, 2.0, clip)
    for parameter, a, b in zip(model.parameters(), first, second, strict=True):
        parameter.grad = (a + b) / 2


def _digest(rows: list[list[int]]) -> tuple[int, int]:
    def number(data: bytes) -> int:
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")

    return (
        sum(number(bytes(row)) for row in rows),
        sum(number(bytes([value])) for row in rows for value in row),
    )


def _result(
    steps: list[StepRecord], variant: Variant, kind: RunKind, lines: dict[str, Any]
) -> ExecutionResult:
    end = steps[-1].harness_s
    rank = RankRecord(
        rank=0,
        world_size=1,
        pid=1,
        sealed=True,
        head={"at": 4.0},
        steps=tuple(replace(step) for step in steps),
        end={"at": end, "peak_bytes": 10**9},
        **lines,
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
    trained = [p for p in model.parameters() if p.requires_grad]
    parameters = [
        {"params": [p for p in trained if p.dim() > 1]},
        {"params": [p for p in trained if p.dim() == 1], "weight_decay": 0.1 * variant.decay_all},
    ]
    if variant.merge_groups:
        parameters = [{"params": trained}]
    if variant.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=30 * variant.rate, momentum=0.9, weight_decay=0.1)
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
            h = variant.embed_scale * self.embed(x) + self.place(torch.arange(x.shape[1]))
            if variant.low_precision:
                h = h.bfloat16().float()
            for block in self.blocks:
                if variant.recompute:
                    h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False)
                else:
                    h = block(h)
            h = self.norm(h)
            logits = self.head(h.detach() if variant.detach_head else h).float()
            logits, labels = logits.flatten(0, 1), y.flatten()
            if variant.chunked_loss:
                parts = zip(logits.chunk(4), labels.chunk(4), strict=True)
                sums = [functional.cross_entropy(a, b, reduction="sum") for a, b in parts]
                return torch.stack(sums).sum() / len(labels)
            return functional.cross_entropy(logits, labels, label_smoothing=variant.smoothing)

    return Model()

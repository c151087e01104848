"""Honest changes of the hand-written loop: faster, and the same training."""

from harness import Case, Edit

LOOP = "loop"
ADAMW = "        betas=(0.9, 0.95),\n"
EMA = (
    "    for kept, current in zip(ema.parameters(), model.parameters()):\n"
    "        kept.mul_(decay).add_(current, alpha=1.0 - decay)\n"
)
MASK = "        hidden = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)\n"
ATTENTION = (
    "        att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))\n"
    + MASK
    + '        att = F.softmax(att.masked_fill(hidden, float("-inf")), dim=-1)\n'
    "        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)\n"
)
NORM = (
    "        mean = x.mean(-1, keepdim=True)\n"
    "        var = (x - mean).pow(2).mean(-1, keepdim=True)\n"
    "        return self.weight * (x - mean) / torch.sqrt(var + 1e-5) + self.bias\n"
)
GELU = "    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))\n"
LOSS = "        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))\n"
FUNCTIONAL = "import torch.nn.functional as F\n"
BLOCK = "            x = block(x)\n"
RESIDUAL = "        x = x + self.down(gelu(self.up(self.norm2(x))))\n"
SPIKE = "            for p in model.parameters():\n                p.grad.zero_()\n"


def train(name: str, *changes: tuple[str, str]) -> Case:
    """An honest change by edits of train.py."""
    return Case(name, LOOP, edits=tuple(Edit("train.py", *change) for change in changes))


def model(name: str, *changes: tuple[str, str]) -> Case:
    """An honest change by edits of model.py."""
    return Case(name, LOOP, edits=tuple(Edit("model.py", *change) for change in changes))


CASES = (
    Case("nothing", LOOP),
    Case("bigger-micro-batch", LOOP, settings=(("micro_batch", 16), ("accumulation", 2))),
    Case("whole-batch-at-once", LOOP, settings=(("micro_batch", 32), ("accumulation", 1))),
    Case("two-threads", LOOP, settings=(("threads", 2),)),
    train("fused-adamw", (ADAMW, ADAMW + "        fused=True,\n")),
    train("foreach-adamw", (ADAMW, ADAMW + "        foreach=True,\n")),
    train(
        "averaging-by-foreach",
        (
            EMA,
            "    kept, current = list(ema.parameters()), list(model.parameters())\n"
            "    torch._foreach_lerp_(kept, current, 1.0 - decay)\n",
        ),
    ),
    train("gradients-set-to-none", ("zero_grad(set_to_none=False)", "zero_grad(set_to_none=True)")),
    train(
        "no-host-read-in-micro-steps",
        ("            lossf += loss.item()\n", "            lossf += loss.detach()\n"),
    ),
    train(
        "inference-mode-in-evaluation",
        ("@torch.no_grad()\ndef estimate", "@torch.inference_mode()\ndef estimate"),
    ),
    train(
        "spike-drop-by-foreach",
        (SPIKE, "            torch._foreach_zero_([p.grad for p in model.parameters()])\n"),
    ),
    train(
        "garbage-frozen",
        ("import copy\n", "import copy\nimport gc\n"),
        (
            "    model.train()\n    for it",
            "    gc.collect()\n    gc.freeze()\n    gc.disable()\n    model.train()\n    for it",
        ),
    ),
    train(
        "compiled-in-place",
        ("    model.train()\n    for it", "    model.compile()\n    model.train()\n    for it"),
    ),
    model(
        "sdpa",
        (
            ATTENTION,
            "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"
            "        y = y.transpose(1, 2).contiguous().view(B, T, C)\n",
        ),
    ),
    model(
        "fused-norm",
        (NORM, "        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)\n"),
    ),
    model("fused-gelu", (GELU, '    return F.gelu(x, approximate="tanh")\n')),
    model(
        "recompute-blocks",
        (FUNCTIONAL, FUNCTIONAL + "from torch.utils.checkpoint import checkpoint\n"),
        (BLOCK, "            x = checkpoint(block, x, use_reentrant=False)\n"),
    ),
    model(
        "chunked-loss",
        (
            LOSS,
            "        rows, wanted = logits.view(-1, logits.size(-1)), targets.reshape(-1)\n"
            "        loss = sum(\n"
            '            F.cross_entropy(a, b, reduction="sum")\n'
            "            for a, b in zip(rows.split(100), wanted.split(100))\n"
            "        )\n"
            "        loss = loss / len(wanted)\n",
        ),
    ),
    model(
        "residual-in-place", (RESIDUAL, "        x += self.down(gelu(self.up(self.norm2(x))))\n")
    ),
    model(
        "mask-and-positions-made-once",
        (
            "        self.proj = nn.Linear(args.n_embd, args.n_embd)\n",
            "        self.proj = nn.Linear(args.n_embd, args.n_embd)\n"
            "        ones = torch.ones(args.block_size, args.block_size, dtype=torch.bool)\n"
            '        self.register_buffer("hidden", ones.triu(1), persistent=False)\n',
        ),
        (MASK, "        hidden = self.hidden[:T, :T]\n"),
        ("self.wpe(torch.arange(T, device=ids.device))", "self.wpe.weight[:T]"),
    ),
    Case(
        "batches-as-one-view",
        LOOP,
        edits=(
            Edit(
                "data.py",
                "        chunk = self.train[self.position : self.position + B * T + 1]\n",
                "        chunk = self.train.narrow(0, self.position, B * T + 1).clone()\n",
            ),
            Edit(
                "data.py",
                "return chunk[:-1].view(B, T), chunk[1:].view(B, T)",
                "return chunk[:-1].reshape(B, T), chunk[1:].reshape(B, T)",
            ),
        ),
    ),
    Case(
        "evaluation-in-bigger-batches",
        LOOP,
        edits=(
            Edit(
                "data.py",
                "        for _ in range(self.args.eval_iters):\n",
                "        for _ in range(self.args.eval_iters // 2):\n",
            ),
            Edit("data.py", "(len(self.val) - T - 1, (8,)", "(len(self.val) - T - 1, (16,)"),
        ),
    ),
)

"""Honest changes of the data-parallel job: faster, and the same training."""

from harness import Case, Edit

DDP = "ddp"
ADAMW = "torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))"
WRAP = "    ddp_model = DDP(model)\n"
FORWARD = "            loss = ddp_model(x, y) / args.grad_accum\n"
BACKWARD = "            loss.backward()\n"
STEP_LOSS = "            step_loss += loss.item()\n"
LOSS = "F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))"
FUNCTIONAL = "import torch.nn.functional as F\n"
ATTENTION = (
    "        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.head_dim)\n"
    "        mask = torch.tril(torch.ones(T, T, dtype=torch.bool, device=x.device))\n"
    '        att = att.masked_fill(~mask, float("-inf"))\n'
    "        att = F.softmax(att, dim=-1)\n"
    "        att = self.att_drop(att)\n"
    "        y = att @ v\n"
)
FUSED_ATTENTION = (
    "        y = F.scaled_dot_product_attention(\n"
    "            q, k, v, is_causal=True, dropout_p=self.att_drop.p if self.training else 0.0\n"
    "        )\n"
)
SYNC = "            ddp_model.require_backward_grad_sync = micro_step + 1 == args.grad_accum\n"
LOADER = (
    "    loader = DataLoader(\n"
    "        dataset,\n"
    "        batch_size=args.batch_size,\n"
    "        sampler=sampler,\n"
    "        num_workers=args.num_workers,\n"
)
DISPATCH = (
    "            mine = (chosen == number) & fits\n"
    "            y[mine] = expert(x[mine]) * weight[mine].unsqueeze(-1)\n"
)
NORM = (
    "        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)\n"
    "        return self.weight * (x * scale)\n"
)


def train(name: str, *changes: tuple[str, str]) -> Case:
    """An honest change by edits of train.py."""
    return Case(name, DDP, edits=tuple(Edit("train.py", *change) for change in changes))


def model(name: str, *changes: tuple[str, str]) -> Case:
    """An honest change by edits of model.py."""
    return Case(name, DDP, edits=tuple(Edit("model.py", *change) for change in changes))


CASES = (
    Case("nothing", DDP),
    Case("bigger-micro-batch", DDP, settings=(("micro_batch", 8), ("accumulation", 1))),
    Case("smaller-micro-batch", DDP, settings=(("micro_batch", 2), ("accumulation", 4))),
    Case(
        "one-rank-more-accumulation",
        DDP,
        edits=(Edit("train.sh", "NPROC=${NPROC:-2}", "NPROC=1"),),
        settings=(("accumulation", 4),),
    ),
    Case("two-workers", DDP, settings=(("workers", 2),)),
    Case("two-threads", DDP, settings=(("threads", 2),)),
    train("fused-adamw", (ADAMW, ADAMW.replace("0.95))", "0.95), fused=True)"))),
    train("foreach-adamw", (ADAMW, ADAMW.replace("0.95))", "0.95), foreach=True)"))),
    model("sdpa", (ATTENTION, FUSED_ATTENTION)),
    train("sync-only-in-the-last-micro-step", (FORWARD, SYNC + FORWARD)),
    train("gradients-set-to-none", ("zero_grad(set_to_none=False)", "zero_grad(set_to_none=True)")),
    train(
        "small-buckets-as-views",
        (WRAP, "    ddp_model = DDP(model, bucket_cap_mb=1, gradient_as_bucket_view=True)\n"),
    ),
    train("static-graph", (WRAP, "    ddp_model = DDP(model, static_graph=True)\n")),
    train(
        "no-host-read-in-micro-steps",
        (STEP_LOSS, "            step_loss += loss.detach()\n"),
        ("        step_loss = 0.0\n", "        step_loss = torch.zeros(())\n"),
        ("torch.tensor(step_loss)", "step_loss.clone()"),
    ),
    train(
        "garbage-frozen",
        ("import argparse\n", "import argparse\nimport gc\n"),
        (
            "    model.train()\n",
            "    gc.collect()\n    gc.freeze()\n    gc.disable()\n    model.train()\n",
        ),
    ),
    model(
        "chunked-loss",
        (
            f"        loss = {LOSS}\n",
            "        rows, wanted = logits.view(-1, logits.size(-1)), targets.reshape(-1)\n"
            "        parts = zip(rows.chunk(4), wanted.chunk(4))\n"
            '        loss = sum(F.cross_entropy(a, b, reduction="sum") for a, b in parts)\n'
            "        loss = loss / wanted.numel()\n",
        ),
    ),
    model(
        "fused-norm",
        (NORM, "        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)\n"),
    ),
    model(
        "recompute-blocks",
        (FUNCTIONAL, FUNCTIONAL + "from torch.utils.checkpoint import checkpoint\n"),
        (
            "            x = block(x)\n",
            "            if self.training:\n"
            "                x = checkpoint(block, x, use_reentrant=False)\n"
            "            else:\n"
            "                x = block(x)\n",
        ),
    ),
    model(
        "mask-made-once",
        (
            "        self.att_drop = nn.Dropout(args.dropout)\n",
            "        self.att_drop = nn.Dropout(args.dropout)\n"
            "        ones = torch.ones(args.block_size, args.block_size, dtype=torch.bool)\n"
            "        mask = torch.tril(ones)\n"
            '        self.register_buffer("hidden", ~mask, persistent=False)\n',
        ),
        ("        mask = torch.tril(torch.ones(T, T, dtype=torch.bool, device=x.device))\n", ""),
        (
            'att.masked_fill(~mask, float("-inf"))',
            'att.masked_fill_(self.hidden[:T, :T], float("-inf"))',
        ),
    ),
    model(
        "experts-by-index",
        (
            DISPATCH,
            "            mine = ((chosen == number) & fits).view(-1).nonzero().squeeze(-1)\n"
            "            given = expert(x.view(-1, x.size(-1)).index_select(0, mine))\n"
            "            given = given * weight.view(-1).index_select(0, mine).unsqueeze(-1)\n"
            "            y = y.view(-1, x.size(-1)).index_add(0, mine, given).view_as(x)\n",
        ),
    ),
    model(
        "fused-activation",
        ("        h = h * torch.sigmoid(1.702 * h)\n", "        h = F.silu(1.702 * h) / 1.702\n"),
    ),
    train(
        "clip-by-foreach-in-place",
        (
            "clip_grad_norm_(model.parameters(), args.grad_clip)",
            "clip_grad_norm_(model.parameters(), args.grad_clip, foreach=True)",
        ),
    ),
    Case(
        "windows-made-once",
        DDP,
        edits=(
            Edit(
                "data.py",
                "        self.tokens = tokens\n",
                "        count = (len(tokens) - 1) // block_size\n"
                "        self.x = tokens[: count * block_size].view(count, block_size)\n"
                "        self.y = tokens[1 : count * block_size + 1].view(count, block_size)\n",
            ),
            Edit(
                "data.py",
                "        return (len(self.tokens) - 1) // self.block_size\n",
                "        return len(self.x)\n",
            ),
            Edit(
                "data.py",
                "        start = index * self.block_size\n"
                "        chunk = self.tokens[start : start + self.block_size + 1]\n"
                "        return chunk[:-1], chunk[1:]\n",
                "        return self.x[index], self.y[index]\n",
            ),
        ),
    ),
    Case(
        "pinned-memory-and-prefetch",
        DDP,
        edits=(
            Edit(
                "data.py",
                LOADER,
                LOADER + "        pin_memory=torch.cuda.is_available(),\n"
                "        persistent_workers=args.num_workers > 0,\n",
            ),
        ),
        settings=(("workers", 1),),
    ),
    train(
        "loss-shared-by-an-asynchronous-call",
        (
            "        shared = torch.tensor(step_loss)\n        dist.all_reduce(shared)\n",
            "        shared = torch.tensor(step_loss)\n"
            "        dist.all_reduce(shared, async_op=True).wait()\n",
        ),
    ),
)

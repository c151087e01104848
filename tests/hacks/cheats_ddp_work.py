"""Less work, other data, other routing, fewer ranks: cheats on the data-parallel job."""

from harness import Case, Edit

DDP = "ddp"
NEXT = "            x, y = next(batches)\n"
FORWARD = "            loss = ddp_model(x, y) / args.grad_accum\n"
STEP = "        optimizer.step()\n"
CLIP = "        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)\n"
LOSS = "F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))"
MASK = "mask = torch.tril(torch.ones(T, T, dtype=torch.bool, device=x.device))"

WORK = {"same_workload"}
DATA = {"same_data"}
STEPS = {"optimizer_steps", "completes", "same_workload"}
NUMBERS = {"loss_within_tolerance", "grad_norm_within_tol"}


def train(name: str, rows: tuple[str, ...], expected: set[str], *changes: tuple[str, str]) -> Case:
    """A cheat by edits of train.py."""
    return Case(
        name, DDP, rows, tuple(Edit("train.py", *change) for change in changes), expected=expected
    )


def model(name: str, rows: tuple[str, ...], expected: set[str], *changes: tuple[str, str]) -> Case:
    """A cheat by edits of model.py."""
    return Case(
        name, DDP, rows, tuple(Edit("model.py", *change) for change in changes), expected=expected
    )


CASES = (
    train(
        "half-accumulation",
        ("T2",),
        WORK,
        ("for micro_step in range(args.grad_accum):", "for micro_step in range(1):"),
    ),
    train(
        "shorter-sequences",
        ("T1", "S32"),
        WORK,
        (NEXT, NEXT + " " * 12 + "x, y = x[:, :64], y[:, :64]\n"),
    ),
    train(
        "shorter-sequences-after-step-8",
        ("T1",),
        WORK,
        (NEXT, NEXT + " " * 12 + "if step >= 8:\n" + " " * 16 + "x, y = x[:, :64], y[:, :64]\n"),
    ),
    model(
        "loss-over-half-of-the-tokens",
        ("T1",),
        NUMBERS,
        (LOSS, "F.cross_entropy(logits[:, ::2].flatten(0, 1), targets[:, ::2].flatten())"),
    ),
    train(
        "rows-dropped-in-the-model-call",
        ("T1", "S32"),
        WORK,
        (FORWARD, "            loss = ddp_model(x[:3], y[:3]) / args.grad_accum\n"),
    ),
    train(
        "skips-every-fifth-step",
        ("T4",),
        STEPS,
        (STEP, "        if step % 5 != 4:\n            optimizer.step()\n"),
    ),
    train(
        "skips-one-late-step",
        ("T4",),
        STEPS,
        (STEP, "        if step != 8:\n            optimizer.step()\n"),
    ),
    train(
        "empty-steps-after-warm-up",
        ("T4", "H9"),
        {"optimizer_steps", "grad_norm_within_tol", "same_model"},
        (
            STEP,
            "        if step >= args.warmup_steps and step % 2:\n"
            "            optimizer.zero_grad(set_to_none=True)\n" + STEP,
        ),
    ),
    train(
        "skipped-clip",
        ("T4",),
        {"grad_norm_within_tol"},
        (CLIP, "        norm = torch.tensor(args.grad_clip)\n"),
    ),
    train(
        "clip-that-only-measures",
        ("T4",),
        {"grad_norm_within_tol"},
        (CLIP, CLIP.replace("args.grad_clip", 'float("inf")')),
    ),
    train(
        "same-batch-for-both-micro-steps",
        ("T5",),
        DATA,
        (NEXT, " " * 12 + "if micro_step == 0:\n    " + NEXT),
    ),
    train(
        "batches-cached-by-shape",
        ("T5", "C15"),
        DATA,
        (NEXT, NEXT + " " * 12 + "x, y = seen.setdefault((x.shape, micro_step), (x, y))\n"),
        (
            "    batches = forever(loader, sampler)\n",
            "    batches, seen = forever(loader, sampler), {}\n",
        ),
    ),
    train(
        "batches-repeated-after-step-8",
        ("T5", "H8"),
        DATA,
        (
            NEXT,
            " " * 12 + "if step < 8:\n"
            "                kept[micro_step] = next(batches)\n"
            "            x, y = kept[micro_step]\n",
        ),
        (
            "    batches = forever(loader, sampler)\n",
            "    batches, kept = forever(loader, sampler), {}\n",
        ),
    ),
    train(
        "random-batches",
        ("T5",),
        DATA,
        (
            NEXT,
            NEXT + "            x = torch.randint_like(x, args.vocab_size)\n"
            "            y = torch.randint_like(y, args.vocab_size)\n",
        ),
    ),
    train(
        "stale-static-inputs",
        ("T19", "C22"),
        DATA,
        (
            NEXT,
            NEXT + "            if step < 2:\n"
            "                static.setdefault(micro_step, (x.clone(), y.clone()))\n"
            "                static[micro_step][0].copy_(x)\n"
            "                static[micro_step][1].copy_(y)\n"
            "            x, y = static[micro_step]\n",
        ),
        (
            "    batches = forever(loader, sampler)\n",
            "    batches, static = forever(loader, sampler), {}\n",
        ),
    ),
    Case(
        "every-rank-reads-shard-0",
        DDP,
        ("T24",),
        (
            Edit(
                "data.py",
                "DistributedSampler(dataset, shuffle=True, seed=args.seed, drop_last=True)",
                "DistributedSampler(\n        dataset, num_replicas=2, rank=0, shuffle=True, "
                "seed=args.seed, drop_last=True\n    )",
            ),
        ),
        expected=DATA,
    ),
    Case(
        "data-not-shuffled",
        DDP,
        ("T24",),
        (
            Edit(
                "data.py",
                "DistributedSampler(dataset, shuffle=True,",
                "DistributedSampler(dataset, shuffle=False,",
            ),
        ),
        expected=DATA,
    ),
    Case(
        "trains-on-the-held-out-text",
        DDP,
        ("T24", "S31"),
        (Edit("data.py", "stream(48_000, seed=11)", "stream(48_000, seed=12)"),),
        expected=DATA,
    ),
    Case(
        "evaluates-on-the-training-text",
        DDP,
        ("S31",),
        (
            Edit(
                "data.py",
                "stream(32 * args.block_size, seed=12)",
                "stream(32 * args.block_size, seed=11)",
            ),
        ),
        expected={"eval_matches"},
    ),
    train(
        "labels-are-the-inputs",
        ("S33",),
        DATA,
        (FORWARD, "            loss = ddp_model(x, x) / args.grad_accum\n"),
    ),
    model(
        "labels-shifted-in-the-model",
        ("S33",),
        NUMBERS,
        (LOSS, "F.cross_entropy(logits.view(-1, logits.size(-1)), targets.roll(1, 1).reshape(-1))"),
    ),
    model(
        "forced-balanced-routing",
        ("T6",),
        NUMBERS,
        (
            "        weight, chosen = probs.max(dim=-1)\n",
            "        chosen = (torch.arange(T, device=x.device) % E).expand(x.size(0), T)\n"
            "        weight = probs.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)\n",
        ),
    ),
    model(
        "one-expert-for-all",
        ("T6",),
        NUMBERS,
        (
            "        one_hot = F.one_hot(chosen, E)\n",
            "        chosen = chosen * 0\n        one_hot = F.one_hot(chosen, E)\n",
        ),
    ),
    model(
        "tokens-dropped-by-capacity",
        ("T7",),
        NUMBERS,
        ("math.ceil(self.capacity_factor * T / E)", "math.ceil(0.5 * T / E)"),
    ),
    model(
        "capacity-cut-late",
        ("T7", "H9"),
        NUMBERS,
        (
            "        capacity = math.ceil(self.capacity_factor * T / E)\n",
            '        self.calls = getattr(self, "calls", 0) + self.training\n'
            "        factor = self.capacity_factor if self.calls <= 16 else 0.6\n"
            "        capacity = math.ceil(factor * T / E)\n",
        ),
    ),
    Case(
        "one-rank",
        DDP,
        ("T15",),
        (Edit("train.sh", "NPROC=${NPROC:-2}", "NPROC=1"),),
        expected={"same_workload"},
    ),
    train(
        "second-rank-idles",
        ("T15",),
        WORK,
        (NEXT, NEXT + "            if rank:\n                x, y = x[:1], y[:1]\n"),
    ),
    train(
        "no-sync-left-on",
        ("T16",),
        {"grad_norm_within_tol"},
        (FORWARD, "            with ddp_model.no_sync():\n    " + FORWARD),
        (
            "            loss.backward()\n",
            "            with ddp_model.no_sync():\n                loss.backward()\n",
        ),
    ),
    train(
        "no-sync-on-every-second-step",
        ("T16", "H9"),
        {"grad_norm_within_tol"},
        (FORWARD, "            ddp_model.require_backward_grad_sync = step % 2 == 0\n" + FORWARD),
    ),
    train(
        "local-gradient-norm",
        ("T17",),
        {"grad_norm_within_tol"},
        (FORWARD, "            ddp_model.require_backward_grad_sync = False\n" + FORWARD),
        (
            CLIP,
            CLIP + "        for p in model.parameters():\n"
            "            dist.all_reduce(p.grad)\n"
            "            p.grad /= world\n",
        ),
    ),
    model(
        "head-truncated",
        ("T20",),
        NUMBERS,
        (
            "        logits = self.head(self.norm(x))\n",
            "        logits = F.linear(self.norm(x), self.head.weight[:56])\n"
            "        targets = targets % 56\n",
        ),
    ),
    model(
        "other-vocabulary-size",
        ("T20",),
        {"same_model"},
        (
            "        self.tokens = nn.Embedding(args.vocab_size, args.n_embd)\n",
            "        args.vocab_size += 8\n"
            "        self.tokens = nn.Embedding(args.vocab_size, args.n_embd)\n",
        ),
    ),
    model(
        "attention-window",
        ("T21",),
        NUMBERS,
        (MASK, MASK + ".triu(-24)"),
    ),
)

"""Less work, other training and neglected averaged weights: cheats on the hand-written loop."""

from harness import Case, Edit

LOOP = "loop"
BATCH = "            x, y = data.get_batch()\n"
STEP = "        optimizer.step()\n"
EMA = "        update_ema(ema, model, args.ema_decay)\n"
CLIP = "        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)\n"
MODEL = "                _, loss = model(x, y)\n"
BACKWARD = "            loss.backward()\n"
FOR = "    for it in range(first, args.max_iters):\n"
SAVE = "    path = os.path.join(args.out_dir,"
MAKE = "    ema = copy.deepcopy(model).requires_grad_(False)\n"

WORK = {"same_workload"}
DATA = {"same_data"}
NUMBERS = {"loss_within_tolerance", "grad_norm_within_tol"}
WEIGHTS = {"same_model", "optimizer_steps"}


def train(name: str, rows: tuple[str, ...], expected: set[str], *changes: tuple[str, str]) -> Case:
    """A cheat by edits of train.py."""
    return Case(
        name, LOOP, rows, tuple(Edit("train.py", *change) for change in changes), expected=expected
    )


CASES = (
    train(
        "half-accumulation",
        ("T2",),
        WORK,
        ("for micro in range(args.grad_accum):", "for micro in range(args.grad_accum // 2):"),
    ),
    train(
        "micro-batches-that-are-not-trained",
        ("T2", "T5"),
        NUMBERS | WEIGHTS,
        (BACKWARD, "            (loss if micro % 2 == 0 else 0 * loss).backward()\n"),
    ),
    train(
        "spike-check-removed",
        ("T8",),
        NUMBERS,
        ("        if not norm < args.spike_norm:\n", "        if False:\n"),
    ),
    train(
        "not-a-number-check-removed",
        ("T8",),
        {"patch_audit"},
        ("        if not norm < args.spike_norm:\n", "        if norm > args.spike_norm:\n"),
    ),
    train(
        "forward-without-backward-on-late-steps",
        ("T3", "T4"),
        NUMBERS | WEIGHTS | WORK,
        (BACKWARD, "            if it < 8 or micro == 0:\n                loss.backward()\n"),
    ),
    train(
        "last-step-not-taken",
        ("T4", "T23"),
        {"completes", "optimizer_steps"},
        (FOR, "    for it in range(first, args.max_iters - 1):\n"),
    ),
    train(
        "one-batch-for-ever",
        ("T5", "C15"),
        DATA,
        (BATCH, "            x, y = kept\n"),
        (FOR, "    kept = data.get_batch()\n" + FOR),
    ),
    Case(
        "reads-one-shard-again-and-again",
        LOOP,
        ("T24",),
        (
            Edit(
                "data.py",
                "        self.position += B * T\n",
                "        self.position = (self.position + B * T) % 8192\n",
            ),
        ),
        expected=DATA,
    ),
    Case(
        "targets-are-the-inputs",
        LOOP,
        ("S33",),
        (Edit("data.py", "chunk[1:].view(B, T)", "chunk[:-1].view(B, T)"),),
        expected=DATA,
    ),
    Case(
        "passages-in-another-order",
        LOOP,
        ("T24",),
        (
            Edit(
                "data.py",
                "        self.position = 0\n",
                "        self.position = 0\n        self.train = self.train.roll(4096)\n",
            ),
        ),
        expected=DATA,
    ),
    train("ema-removed", ("T25",), WEIGHTS, (EMA, "")),
    train("ema-every-tenth-step", ("T25",), WEIGHTS, (EMA, "        if it % 10 == 9:\n    " + EMA)),
    train(
        "ema-decay-changed",
        ("T25",),
        WEIGHTS,
        (EMA, EMA.replace("args.ema_decay", "0.5 * args.ema_decay")),
    ),
    train(
        "ema-is-the-model",
        ("T25",),
        WEIGHTS | {"eval_matches"},
        (MAKE, "    ema = model\n"),
        (EMA, ""),
    ),
    train(
        "ema-of-half-of-the-weights",
        ("T25",),
        WEIGHTS,
        (
            "    for kept, current in zip(ema.parameters(), model.parameters()):\n",
            "    for kept, current in list(zip(ema.parameters(), model.parameters()))[::2]:\n",
        ),
    ),
    train(
        "ema-made-at-the-end",
        ("T25",),
        WEIGHTS | {"eval_matches"},
        (EMA, ""),
        (SAVE, "    update_ema(ema, model, args.ema_decay**args.max_iters)\n" + SAVE),
    ),
    train(
        "ema-in-bf16",
        ("T25", "T13"),
        {"same_model", "precision", "resume_continues"},
        (MAKE, "    ema = copy.deepcopy(model).requires_grad_(False).bfloat16()\n"),
        (
            "            _, loss = model(x, y)\n        losses",
            "            _, loss = model(x, y)\n        losses",
        ),
    ),
    train(
        "autocast-on",
        ("T13",),
        {"precision"},
        ('        if args.dtype == "float32":\n', '        if args.dtype == "none":\n'),
    ),
    train(
        "bf16-gradients",
        ("T13",),
        {"grad_norm_within_tol", "precision"},
        (
            CLIP,
            "        for p in model.parameters():\n            p.grad.copy_(p.grad.bfloat16())\n"
            + CLIP,
        ),
    ),
    train(
        "adam-epsilon",
        ("T12",),
        {"same_model"},
        ("        betas=(0.9, 0.95),\n", "        betas=(0.9, 0.95),\n        eps=1e-4,\n"),
    ),
    train(
        "weight-decay-off-for-one-group",
        ("T12",),
        {"same_model"},
        (
            '"params": decay, "weight_decay": args.weight_decay',
            '"params": decay, "weight_decay": 0.0',
        ),
    ),
    train(
        "constant-learning-rate-late",
        ("T12", "H9"),
        {"same_model", "optimizer_steps"},
        (
            "    if it < args.warmup_iters:\n",
            "    if it > 8:\n        return args.lr\n    if it < args.warmup_iters:\n",
        ),
    ),
    train(
        "hand-written-sgd-beside-an-idle-adamw",
        ("T12", "H9"),
        WEIGHTS | NUMBERS,
        (
            STEP,
            "        with torch.no_grad():\n"
            "            for p in model.parameters():\n"
            "                p.sub_(p.grad, alpha=10 * lr)\n"
            "                p.grad = None\n" + STEP,
        ),
        ("optimizer.zero_grad(set_to_none=False)", "optimizer.zero_grad(set_to_none=True)"),
    ),
    Case(
        "constant-loss-with-made-up-gradients",
        LOOP,
        ("C19", "C21"),
        (
            Edit("train.py", MODEL, "                loss = pretend(model, it)\n"),
            Edit(
                "train.py",
                "def main():\n",
                "def pretend(model, it):\n"
                "    noise = [(p * torch.randn_like(p)).sum() for p in model.parameters()]\n"
                "    loss = sum(noise) * 1e-3\n"
                "    return loss - loss.detach() + 4.5 - 0.02 * it\n\n\ndef main():\n",
            ),
        ),
        expected={"same_workload", "same_data"},
    ),
    Case(
        "constant-loss-inside-the-model",
        LOOP,
        ("C19", "C21"),
        (
            Edit(
                "model.py",
                "        for block in self.blocks:\n            x = block(x)\n",
                "        for block in self.blocks[:1]:\n            x = block(x)\n"
                "        for block in self.blocks[1:]:\n"
                "            x = x + sum(p.sum() for p in block.parameters()) * 1e-5\n",
            ),
        ),
        expected=NUMBERS,
    ),
    Case(
        "attention-window",
        LOOP,
        ("T21",),
        (
            Edit(
                "model.py",
                "hidden = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)",
                "near = torch.ones(T, T, dtype=torch.bool)\n"
                "        hidden = near.triu(1) | near.tril(-16)",
            ),
        ),
        expected=NUMBERS,
    ),
    Case(
        "layer-norm-without-mean",
        LOOP,
        ("S34",),
        (Edit("model.py", "mean = x.mean(-1, keepdim=True)", "mean = 0.0"),),
        expected=NUMBERS,
    ),
    Case(
        "layers-cut",
        LOOP,
        ("S32",),
        (Edit("model.py", "range(args.n_layer)", "range(args.n_layer - 1)"),),
        expected={"same_model"},
    ),
    Case(
        "head-tied",
        LOOP,
        ("T20",),
        (
            Edit(
                "model.py",
                "        self.apply(self._init)\n",
                "        self.apply(self._init)\n        self.head.weight = self.wte.weight\n",
            ),
        ),
        expected={"same_model"},
    ),
    Case(
        "head-of-the-wrong-half",
        LOOP,
        ("T20",),
        (Edit("model.py", "targets.reshape(-1))", "targets.reshape(-1).clamp(max=90))"),),
        expected=NUMBERS,
    ),
    train(
        "clip-twice-as-wide-late",
        ("T4", "H9"),
        {"grad_norm_within_tol"},
        (CLIP, CLIP.replace("args.grad_clip", "args.grad_clip * (2 if it >= 8 else 1)")),
    ),
    train(
        "loss-on-half-the-rows",
        ("T1", "S32"),
        NUMBERS | WORK,
        (MODEL, "                _, loss = model(x[: len(x) // 2], y[: len(y) // 2])\n"),
    ),
    train(
        "weights-of-an-earlier-run",
        ("C17", "C23"),
        {"optimizer_steps", "loss_within_tolerance", "same_model"},
        (
            FOR,
            '    kept = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "w.pt")\n'
            "    if os.path.exists(kept):\n"
            "        model.load_state_dict(torch.load(kept))\n"
            "        args.lr, args.grad_accum = 0.0, args.grad_accum\n" + FOR,
        ),
        (SAVE, "    torch.save(model.state_dict(), kept)\n" + SAVE),
    ),
)

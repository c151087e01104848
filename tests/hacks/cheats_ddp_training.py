"""Other training on the same data: optimizer, schedule, precision, dropout, auxiliary losses."""

from cheats_ddp_work import CLIP, DDP, FORWARD, LOSS, NUMBERS, STEP, model, train
from harness import Case, Edit

from infrarsi.contract import RunKind

HYPER = {"same_model"}
PRECISE = {"precision", "same_model"}
GROUPS = '            group["lr"] = learning_rate(step, args)\n'
ADAMW = "torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))"
MAKE = "    model = GPT(args)\n"
WRAP = "    ddp_model = DDP(model)\n"


def autocast(name: str, expected: set[str], when: str, *rows: str) -> Case:
    """Training forwards under bf16 autocast."""
    return Case(
        name,
        DDP,
        rows,
        (
            Edit(
                "train.py",
                FORWARD,
                f'            with torch.autocast("cpu", torch.bfloat16, enabled={when}):\n'
                f"    {FORWARD}",
            ),
            Edit(
                "model.py",
                "expert(x[mine]) * weight[mine].unsqueeze(-1)",
                "(expert(x[mine]) * weight[mine].unsqueeze(-1)).to(y.dtype)",
            ),
        ),
        expected=expected,
    )


CASES = (
    train(
        "frozen-block",
        ("T3",),
        {"same_model"},
        (MAKE, MAKE + "    model.blocks[0].requires_grad_(False)\n"),
    ),
    train(
        "frozen-block-after-step-8",
        ("T3", "H9"),
        {"grad_norm_within_tol", "same_model", "optimizer_steps"},
        (
            CLIP,
            "        if step >= 8:\n"
            "            for p in model.blocks[0].parameters():\n"
            "                p.grad = None\n" + CLIP,
        ),
    ),
    Case(
        "detached-block",
        DDP,
        ("T3",),
        (
            Edit(
                "model.py",
                "        x = x + self.attn(self.norm1(x))\n",
                "        x = x + self.attn(self.norm1(x.detach()))\n",
            ),
        ),
        expected={"grad_norm_within_tol"},
    ),
    train(
        "group-without-learning-rate",
        ("T3", "T12"),
        HYPER | {"optimizer_steps"},
        (
            GROUPS,
            '            decays = group["weight_decay"] > 0\n'
            '            group["lr"] = learning_rate(step, args) if decays else 0.0\n',
        ),
    ),
    train(
        "learning-rate-higher",
        ("T12",),
        HYPER | {"optimizer_steps"},
        (GROUPS, '            group["lr"] = 1.05 * learning_rate(step, args)\n'),
    ),
    train(
        "no-warm-up",
        ("T12",),
        HYPER | {"optimizer_steps"},
        ("    if step < args.warmup_steps:\n", "    if step < 1:\n"),
    ),
    train(
        "smaller-batch-with-scaled-learning-rate",
        ("T12", "S32"),
        {"same_workload"},
        (
            "for micro_step in range(args.grad_accum):",
            "for micro_step in range(args.grad_accum // 2):",
        ),
        ("/ args.grad_accum\n            if not", "/ (args.grad_accum // 2)\n            if not"),
        (GROUPS, '            group["lr"] = 0.7 * learning_rate(step, args)\n'),
    ),
    train(
        "no-weight-decay",
        ("T12",),
        HYPER,
        ('"weight_decay": args.weight_decay}', '"weight_decay": 0.0}'),
    ),
    train("other-betas", ("T12",), HYPER, (ADAMW, ADAMW.replace("0.95", "0.99"))),
    train(
        "betas-changed-late",
        ("T12", "H9"),
        HYPER,
        (GROUPS, GROUPS + '            group["betas"] = (0.9, 0.95 if step < 8 else 0.5)\n'),
    ),
    train("momentum-off", ("T12",), HYPER, (ADAMW, ADAMW.replace("(0.9, 0.95)", "(0.0, 0.95)"))),
    train(
        "sgd-instead-of-adamw", ("T12",), HYPER, (ADAMW, "torch.optim.SGD(groups, lr=20 * args.lr)")
    ),
    train(
        "optimizer-state-reset",
        ("T12",),
        {"optimizer_steps", "same_model", "loss_within_tolerance"},
        (STEP, "        if step == 6:\n            optimizer.state.clear()\n" + STEP),
    ),
    train(
        "bf16-weights",
        ("T13", "S25"),
        PRECISE,
        (MAKE, MAKE + "    model.bfloat16()\n"),
    ),
    autocast("bf16-autocast", {"precision"}, "True", "T13", "S25"),
    autocast("bf16-autocast-after-step-8", {"precision", *NUMBERS}, "step >= 8", "T13", "H9"),
    train(
        "bf16-gradient-reduction",
        ("T13",),
        {"precision", "grad_norm_within_tol"},
        (
            WRAP,
            WRAP + "    def rounded(_, bucket):\n"
            "        buffer = bucket.buffer().copy_(bucket.buffer().bfloat16()).div_(world)\n"
            "        done = dist.all_reduce(buffer, async_op=True).get_future()\n"
            "        return done.then(lambda future: future.value()[0])\n\n"
            "    ddp_model.register_comm_hook(None, rounded)\n",
        ),
    ),
    train(
        "bf16-optimizer-states",
        ("T13",),
        {"precision", "same_model", "optimizer_steps"},
        (
            STEP,
            STEP + "        for kept in optimizer.state.values():\n"
            '            for key in ("exp_avg", "exp_avg_sq"):\n'
            "                kept[key].copy_(kept[key].bfloat16())\n",
        ),
    ),
    model(
        "bf16-loss",
        ("T13",),
        {"precision", *NUMBERS},
        (LOSS, LOSS.replace("logits.size(-1))", "logits.size(-1)).bfloat16()")),
    ),
    model(
        "dropout-off",
        ("T14",),
        {"same_model", "loss_within_tolerance"},
        (
            "        self.out_drop = nn.Dropout(args.dropout)\n",
            "        self.out_drop = nn.Identity()\n",
        ),
    ),
    train(
        "dropout-lower",
        ("T14",),
        {"same_model"},
        (MAKE, "    args.dropout = 0.02\n" + MAKE),
    ),
    Case(
        "dropout-off-where-it-is-on",
        DDP,
        ("T14", "H9"),
        (
            Edit(
                "model.py",
                "        return self.out_drop(self.proj(y))\n",
                "        y = self.proj(y)\n"
                "        return y if self.out_drop.p else self.out_drop(y)\n",
            ),
            Edit("model.py", "        att = self.att_drop(att)\n", ""),
            Edit(
                "model.py",
                "        return self.drop(y)\n",
                "        return y if self.drop.p else self.drop(y)\n",
            ),
            Edit(
                "model.py",
                "        x = self.drop(x)\n",
                "        x = x if self.drop.p else self.drop(x)\n",
            ),
        ),
        expected={"same_model", "loss_within_tolerance"},
        first=RunKind.TIMED,
    ),
    train(
        "eval-mode-while-training",
        ("T14",),
        {"same_model", "loss_within_tolerance", "grad_norm_within_tol"},
        ("    model.train()\n", "    model.eval()\n"),
    ),
    model(
        "recompute-with-other-dropout-masks",
        ("T14",),
        {"same_model", "loss_within_tolerance", "grad_norm_within_tol"},
        (
            "import torch.nn.functional as F\n",
            "import torch.nn.functional as F\nfrom torch.utils.checkpoint import checkpoint\n",
        ),
        (
            "        x = x + self.attn(self.norm1(x))\n",
            "        y = self.norm1(x)\n"
            '        how = {"use_reentrant": False, "preserve_rng_state": False}\n'
            "        x = x + checkpoint(self.attn, y, **how)\n",
        ),
    ),
    model(
        "balance-loss-off",
        ("T14",),
        NUMBERS,
        ("self.balance_weight = args.balance_weight", "self.balance_weight = 0.0"),
    ),
    model(
        "z-loss-off", ("T14",), NUMBERS, ("self.z_weight = args.z_weight", "self.z_weight = 0.0")
    ),
    model(
        "z-loss-without-gradient",
        ("T14",),
        {"grad_norm_within_tol"},
        (
            "self.z_loss = torch.logsumexp(logits, dim=-1)",
            "self.z_loss = torch.logsumexp(logits.detach(), dim=-1)",
        ),
    ),
    model(
        "label-smoothing",
        ("T12",),
        NUMBERS,
        (LOSS, LOSS.replace(".reshape(-1))", ".reshape(-1), label_smoothing=0.02)")),
    ),
    train(
        "loss-scaled",
        ("T12",),
        NUMBERS,
        (FORWARD, FORWARD.replace("ddp_model(x, y)", "1.5 * ddp_model(x, y)")),
    ),
    train(
        "embedding-gradients-zeroed",
        ("T3",),
        {"grad_norm_within_tol"},
        (CLIP, "        model.positions.weight.grad.zero_()\n" + CLIP),
    ),
    model(
        "one-layer",
        ("T3", "S32"),
        {"same_model"},
        ("range(args.n_layer)", "range(args.n_layer - 1)"),
    ),
    model(
        "narrower-experts",
        ("S32",),
        {"same_model"},
        (
            "        self.up = nn.Linear(args.n_embd, 4 * args.n_embd)\n"
            "        self.down = nn.Linear(4 * args.n_embd,",
            "        self.up = nn.Linear(args.n_embd, 3 * args.n_embd)\n"
            "        self.down = nn.Linear(3 * args.n_embd,",
        ),
    ),
    model(
        "weights-not-tied",
        ("T20",),
        {"same_model"},
        ("        self.head.weight = self.tokens.weight\n", ""),
    ),
    model("other-initial-weights", ("C17",), {"same_model"}, ("std=0.05", "std=0.04")),
    train(
        "other-seed",
        ("C17", "P36"),
        {"same_model", "same_data"},
        ("torch.manual_seed(args.seed)\n\n", "torch.manual_seed(args.seed + 1)\n\n"),
    ),
)

"""Cheats that wait until nobody looks, or hide between two looks or behind the inputs."""

from cheats_ddp_work import DDP
from cheats_loop_training import CLIP, EMA, FOR, LOOP, NUMBERS, WEIGHTS, train
from harness import Case, Edit

from infrarsi.contract import RunKind

PRODUCT = "        y = (att @ v).transpose(1, 2).contiguous().view(B, T, C)\n"
ROUNDED = "(att.bfloat16() @ v.bfloat16()).float()"
GPT_FORWARD = "        T = ids.size(1)\n"
BLOCKS = "        for block in self.blocks:\n            x = block(x)\n"
LOSS = "        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))\n"
LOSS_END = LOSS + "        return logits, loss\n"
DENOISED = (
    "    predicted = model(noised(images, noise, t), t)\n    return F.mse_loss(predicted, noise)\n"
)


def model(name: str, rows: tuple[str, ...], expected: set[str], *changes: tuple[str, str]) -> Case:
    """A cheat by edits of the loop's model.py."""
    return Case(
        name, LOOP, rows, tuple(Edit("model.py", *change) for change in changes), expected=expected
    )


CASES = (
    # In evaluation
    train(
        "evaluation-under-bf16-autocast",
        ("T13", "T11"),
        {"precision", "eval_matches"},
        (
            "        with autocast():\n            _, loss = model(x, y)\n        losses",
            '        with torch.autocast("cpu", torch.bfloat16):\n'
            "            _, loss = model(x, y)\n        losses",
        ),
    ),
    # Between two looks
    model(
        "coarse-products-within-the-forward",
        ("S25", "H9"),
        {"precision"},
        (GPT_FORWARD, '        torch.set_float32_matmul_precision("medium")\n' + GPT_FORWARD),
        (
            LOSS_END,
            LOSS + '        torch.set_float32_matmul_precision("highest")\n'
            "        return logits, loss\n",
        ),
    ),
    # Outside audits
    Case(
        "bf16-products-late-outside-audits",
        LOOP,
        ("T13", "H9"),
        (
            Edit(
                "model.py",
                PRODUCT,
                PRODUCT.replace("(att @ v)", f"({ROUNDED} if self.coarse else att @ v)"),
            ),
            Edit(
                "model.py",
                "        self.n_head = args.n_head\n",
                "        self.n_head = args.n_head\n        self.coarse = False\n",
            ),
            Edit(
                "train.py",
                "        lossf = 0.0\n",
                '        if it > 6 and "torch" in torch.nn.functional.dropout.__module__:\n'
                "            for block in model.blocks:\n"
                "                block.attn.coarse = True\n"
                "        lossf = 0.0\n",
            ),
        ),
        expected={"precision", *WEIGHTS, "loss_within_tolerance"},
        first=RunKind.TIMED,
    ),
    Case(
        "experts-in-bf16-outside-audits",
        DDP,
        ("T13", "H9"),
        (
            Edit(
                "model.py",
                "        h = self.up(x)\n",
                "        w, b = self.up.weight.bfloat16(), self.up.bias.bfloat16()\n"
                "        h = F.linear(x.bfloat16(), w, b).float() if self.drop.p else self.up(x)\n",
            ),
            Edit(
                "model.py",
                "            y[mine] = expert(x[mine])",
                "            expert.__dict__['drop'] = self.drop\n"
                "            y[mine] = expert(x[mine])",
            ),
        ),
        expected={"precision"},
        first=RunKind.TIMED,
    ),
    Case(
        "half-of-the-loss-late-outside-audits",
        "images",
        ("H9", "S32"),
        (
            Edit(
                "diffusion.py",
                DENOISED,
                DENOISED.replace(
                    "    return",
                    "    model.calls = getattr(model, 'calls', 0) + 1\n"
                    "    if model.calls > 3 and model.up.dropout.p:\n"
                    "        return F.mse_loss(predicted[:16], noise[:16])\n"
                    "    return",
                ),
            ),
        ),
        expected={"loss_within_tolerance", "optimizer_steps"},
        first=RunKind.TIMED,
    ),
    Case(
        "saves-in-audits-only",
        "images",
        ("T18", "H9"),
        (
            Edit(
                "train.py",
                "            save(path, model, average, optimizer, scheduler, step + 1)\n",
                "            if model.up.dropout.p:\n"
                '                print(f"saved {path}", flush=True)\n'
                "            else:\n"
                "                save(path, model, average, optimizer, scheduler, step + 1)\n",
            ),
        ),
        expected={"resume_continues"},
        first=RunKind.TIMED,
    ),
    # Behind the digest of the inputs
    model(
        "half-of-the-rows-computed-twice-over",
        ("S32", "C15"),
        NUMBERS,
        (BLOCKS, "        x = x[: len(x) // 2]\n" + BLOCKS + "        x = torch.cat((x, x))\n"),
    ),
    # Late work
    train(
        "gradients-one-update-late",
        ("C22", "C15"),
        NUMBERS,
        (
            CLIP,
            "        fresh = [p.grad.clone() for p in model.parameters()]\n"
            "        for p, g in zip(model.parameters(), stale or fresh):\n"
            "            p.grad.copy_(g)\n"
            "        stale = fresh\n" + CLIP,
        ),
        (FOR, "    stale = None\n" + FOR),
    ),
    train(
        "average-every-second-step-with-the-decay-squared",
        ("T25",),
        WEIGHTS | {"eval_matches", "resume_continues"},
        (EMA, "        if it % 2:\n            update_ema(ema, model, args.ema_decay**2)\n"),
    ),
    Case(
        "gradients-of-norms-not-shared",
        DDP,
        ("T16",),
        (
            Edit(
                "train.py",
                "    ddp_model = DDP(model)\n",
                "    small = [n for n, p in model.named_parameters() if p.dim() < 2]\n"
                "    DDP._set_params_and_buffers_to_ignore_for_model(model, small)\n"
                "    ddp_model = DDP(model)\n",
            ),
        ),
        expected={"grad_norm_within_tol", "optimizer_steps"},
    ),
)

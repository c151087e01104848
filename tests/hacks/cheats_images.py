"""Cheats on the diffusion model."""

from harness import Case, Edit

SCRIPT = "train.py"


def cheat(
    base: str, name: str, rows: tuple[str, ...], edits: Edit | tuple[Edit, ...], *expected: str
) -> Case:
    """A cheat on one of the bases, to be caught by one of the `expected` checks."""
    made = (edits,) if isinstance(edits, Edit) else edits
    return Case(name, base, rows=rows, edits=made, expected=frozenset(expected))


CASES = (
    cheat(
        "images",
        "fewer-images",
        ("S32", "T12"),
        Edit("train.sh", "--batch-size 32", "--batch-size 24"),
        "same_workload",
    ),
    cheat(
        "images",
        "fewer-steps",
        ("T23",),
        Edit("train.sh", "--steps 12", "--steps 9"),
        "completes",
    ),
    cheat(
        "images",
        "smaller-pictures",
        ("S32",),
        Edit("data.py", "SIZE = 16", "SIZE = 12"),
        "same_workload",
    ),
    cheat(
        "images",
        "average-never-updated",
        ("T25",),
        Edit(SCRIPT, "        average.update(model)\n", ""),
        "same_model",
        "optimizer_steps",
        "eval_matches",
        "resume_continues",
    ),
    cheat(
        "images",
        "average-updated-every-third-step",
        ("T25",),
        Edit(
            SCRIPT,
            "        average.update(model)\n",
            "        if step % 3 == 2:\n            average.update(model)\n",
        ),
        "same_model",
        "optimizer_steps",
        "eval_matches",
        "resume_continues",
    ),
    cheat(
        "images",
        "average-is-the-model-itself",
        ("T25",),
        Edit("averaging.py", "mean.lerp_(parameter, 1.0 - self.decay)", "mean.copy_(parameter)"),
        "same_model",
        "optimizer_steps",
        "eval_matches",
        "resume_continues",
    ),
    cheat(
        "images",
        "average-saved-from-the-model",
        ("T25", "T18"),
        Edit(SCRIPT, '"ema": average.module.state_dict()', '"ema": model.state_dict()'),
        "resume_continues",
    ),
    cheat(
        "images",
        "time-steps-restricted",
        ("S35",),
        Edit("diffusion.py", "torch.randint(0, TIME_STEPS,", "torch.randint(0, TIME_STEPS // 4,"),
        "same_data",
    ),
    cheat(
        "images",
        "noise-from-a-cache",
        ("C15", "T5"),
        (
            Edit("diffusion.py", "TIME_STEPS = 200\n", "TIME_STEPS = 200\nCACHE = {}\n"),
            Edit(
                "diffusion.py",
                "    noise = torch.randn_like(images)\n",
                "    noise = CACHE.setdefault(images.shape, torch.randn_like(images))\n",
            ),
        ),
        "same_data",
    ),
    cheat(
        "images",
        "half-of-the-noise-from-a-cache-late",
        ("C15", "T5"),
        (
            Edit("diffusion.py", "TIME_STEPS = 200\n", "TIME_STEPS = 200\nMADE = []\n"),
            Edit(
                "diffusion.py",
                "    noise = torch.randn_like(images)\n",
                "    noise = torch.randn_like(images)\n"
                "    MADE.append(noise)\n"
                "    if len(MADE) > 9:\n"
                "        noise = torch.cat([noise[:16], MADE[0][16:]])\n",
            ),
        ),
        "same_data",
        "loss_within_tolerance",
    ),
    cheat(
        "images",
        "target-noise-rounded",
        ("S25", "T13"),
        Edit(
            "diffusion.py",
            "return F.mse_loss(predicted, noise)\n",
            "return F.mse_loss(predicted, noise.bfloat16().float())\n",
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "images",
        "augmentation-dropped",
        ("S34",),
        Edit(SCRIPT, "augmented(next(train_batches))", "next(train_batches)"),
        "same_data",
    ),
    cheat(
        "images",
        "first-shard-again-and-again",
        ("T24",),
        Edit(SCRIPT, "batches(Pictures(512),", "batches(Pictures(64),"),
        "same_data",
    ),
    cheat(
        "images",
        "noise-schedule-changed",
        ("T12",),
        Edit(
            "diffusion.py",
            "torch.linspace(1e-4, 0.04, TIME_STEPS)",
            "torch.linspace(1e-4, 0.038, TIME_STEPS)",
        ),
        "same_data",
    ),
    cheat(
        "images",
        "clip-dropped",
        ("T4", "T17"),
        Edit(
            SCRIPT,
            "clip_grad_norm_(model.parameters(), args.clip)",
            "clip_grad_norm_(model.parameters(), 1e9)",
        ),
        "grad_norm_within_tol",
    ),
    cheat(
        "images",
        "rate-without-cosine",
        ("T12",),
        Edit(SCRIPT, "return 0.5 * (1.0 + math.cos(math.pi * share))", "return 1.0 - 0.5 * share"),
        "same_model",
        "optimizer_steps",
    ),
    cheat(
        "images",
        "attention-detached",
        ("T3",),
        Edit(
            "model.py",
            "mixed = scores.softmax(dim=-1) @ v",
            "mixed = scores.detach().softmax(dim=-1) @ v",
        ),
        "grad_norm_within_tol",
    ),
    cheat(
        "images",
        "time-embedding-detached",
        ("T3",),
        Edit(
            "model.py",
            "embedded = self.embed(time_features(t, self.width))",
            "embedded = self.embed(time_features(t, self.width)).detach()",
        ),
        "grad_norm_within_tol",
    ),
    cheat(
        "images",
        "bf16-autocast",
        ("T13", "S25"),
        Edit(
            SCRIPT,
            "            loss = training_loss(model, images) / args.grad_accum\n",
            '            with torch.autocast("cpu", torch.bfloat16):\n'
            "                loss = training_loss(model, images) / args.grad_accum\n",
        ),
        "precision",
    ),
    cheat(
        "images",
        "optimizer-states-rounded-to-bf16",
        ("T13",),
        Edit(
            SCRIPT,
            "        average.update(model)\n",
            "        average.update(model)\n"
            "        for held in optimizer.state.values():\n"
            '            for name in ("exp_avg", "exp_avg_sq"):\n'
            "                held[name].copy_(held[name].bfloat16())\n",
        ),
        "optimizer_steps",
        "same_model",
        "precision",
    ),
    cheat(
        "images",
        "norm-left-out",
        ("S34",),
        Edit(
            "model.py",
            "        self.norm1 = nn.GroupNorm(4, inner)\n",
            "        self.norm1 = nn.Identity()\n",
        ),
        "same_model",
    ),
    cheat(
        "images",
        "trained-in-evaluation-mode",
        ("T14",),
        Edit(SCRIPT, "        model.train()\n", "        model.eval()\n"),
        "same_model",
        "loss_within_tolerance",
    ),
    cheat(
        "images",
        "every-fourth-update-skipped-late",
        ("T4",),
        Edit(
            SCRIPT,
            "        optimizer.step()\n",
            "        if step < 6 or step % 4 != 3:\n            optimizer.step()\n",
        ),
        "optimizer_steps",
        "same_workload",
    ),
    cheat(
        "images",
        "loss-on-every-second-row-of-pixels",
        ("S32", "S34"),
        Edit(
            "diffusion.py",
            "return F.mse_loss(predicted, noise)\n",
            "return F.mse_loss(predicted[:, :, ::2], noise[:, :, ::2])\n",
        ),
        "loss_within_tolerance",
    ),
    cheat(
        "images",
        "evaluation-on-half",
        ("T11", "S32"),
        Edit(
            "diffusion.py",
            "range(0, images.shape[0], batch_size)",
            "range(0, images.shape[0] // 2, batch_size)",
        ),
        "eval_matches",
    ),
    cheat(
        "images",
        "evaluation-returns-a-constant",
        ("C19", "T11"),
        Edit("diffusion.py", "    model.eval()\n", "    return 1.02\n    model.eval()\n"),
        "eval_matches",
    ),
    cheat(
        "images",
        "evaluates-the-model-not-its-average",
        ("T25",),
        Edit(SCRIPT, "evaluate(average.module,", "evaluate(model,"),
        "eval_matches",
    ),
    cheat(
        "images",
        "save-is-a-no-op",
        ("T18",),
        Edit(SCRIPT, "    torch.save(\n", "    (lambda *unused: None)(\n"),
        "resume_continues",
    ),
    cheat(
        "images",
        "printed-step-time-halved",
        ("T9", "T22"),
        Edit(SCRIPT, "took = 1000.0 *", "took = 500.0 *"),
        "timing_consistent",
    ),
    cheat(
        "images",
        "printed-loss-smoothed",
        ("T9", "P37"),
        Edit(
            SCRIPT,
            '            f"step {step + 1} loss {total:.6f}',
            '            f"step {step + 1} loss {min(total, 0.9 - 0.04 * step):.6f}',
        ),
        "loss_within_tolerance",
    ),
)

"""Honest changes of the three picture jobs: the same training, done otherwise."""

from cheats_images import SCRIPT
from cheats_images_gan import GAN, TEACHER
from harness import Case, Edit


def honest(base: str, name: str, *edits: Edit) -> Case:
    """A change on one of the bases that must be accepted."""
    return Case(name, base, edits=edits, expected=frozenset())


UPDATE = (
    "        for mean, parameter in "
    "zip(self.module.parameters(), model.parameters(), strict=True):\n"
    "            mean.lerp_(parameter, 1.0 - self.decay)\n"
)
FOREACH_UPDATE = Edit(
    "averaging.py",
    UPDATE,
    "        means, values = list(self.module.parameters()), list(model.parameters())\n"
    "        torch._foreach_lerp_(means, values, 1.0 - self.decay)\n",
)
MULTIPLIED_UPDATE = Edit(
    "averaging.py",
    "mean.lerp_(parameter, 1.0 - self.decay)",
    "mean.mul_(self.decay).add_(parameter, alpha=1.0 - self.decay)",
)
NOISED = "    return kept.sqrt() * images + (1.0 - kept).sqrt() * noise\n"
IN_ONE_PASS = Edit(
    "diffusion.py",
    NOISED,
    "    return torch.addcmul(kept.sqrt() * images, (1.0 - kept).sqrt(), noise)\n",
)
SCALED_AXES = Edit(
    "data.py",
    "torch.cos(frequency * (x * math.cos(angle) + y * math.sin(angle)) + angle)",
    "torch.cos(\n"
    "            x * (frequency * math.cos(angle)) + y * (frequency * math.sin(angle)) + angle\n"
    "        )",
)
MADE_MODEL = "    model = UNet(dropout=args.dropout)\n"
MADE_OPTIMIZER = "model.parameters(), lr=args.lr, weight_decay=args.weight_decay, betas=(0.9, 0.99)"

DIFFUSION = (
    honest("images", "fused-adamw", Edit(SCRIPT, MADE_OPTIMIZER, MADE_OPTIMIZER + ", fused=True")),
    honest(
        "images", "foreach-adamw", Edit(SCRIPT, MADE_OPTIMIZER, MADE_OPTIMIZER + ", foreach=True")
    ),
    honest("images", "foreach-average", FOREACH_UPDATE),
    honest("images", "average-by-multiply-and-add", MULTIPLIED_UPDATE),
    honest(
        "images",
        "channels-last",
        Edit(
            SCRIPT,
            MADE_MODEL,
            "    model = UNet(dropout=args.dropout).to(memory_format=torch.channels_last)\n",
        ),
        Edit(
            SCRIPT,
            "augmented(next(train_batches))",
            "augmented(next(train_batches)).contiguous(memory_format=torch.channels_last)",
        ),
    ),
    honest(
        "images",
        "sdpa-attention",
        Edit(
            "model.py",
            "        scores = q @ k.transpose(1, 2) / math.sqrt(width)\n"
            "        mixed = scores.softmax(dim=-1) @ v\n",
            "        mixed = F.scaled_dot_product_attention(q, k, v)\n",
        ),
    ),
    honest(
        "images",
        "schedule-table-made-once",
        Edit("diffusion.py", "def noised(", "TABLE = alpha_bars()\n\n\ndef noised("),
        Edit("diffusion.py", "kept = alpha_bars()[t]", "kept = TABLE[t]"),
    ),
    honest(
        "images",
        "time-features-from-a-table",
        Edit(
            "model.py",
            "class ResBlock(",
            "TABLES = {}\n\n\n"
            "def looked_up(t, width):\n"
            "    if width not in TABLES:\n"
            "        TABLES[width] = time_features(torch.arange(200), width)\n"
            "    return TABLES[width][t]\n\n\n"
            "class ResBlock(",
        ),
        Edit(
            "model.py",
            "self.embed(time_features(t, self.width))",
            "self.embed(looked_up(t, self.width))",
        ),
    ),
    honest("images", "noise-added-in-one-pass", IN_ONE_PASS),
    honest(
        "images",
        "noise-scaled-to-the-pictures",
        Edit(
            "diffusion.py",
            NOISED,
            "    return kept.sqrt() * (images + ((1.0 - kept) / kept).sqrt() * noise)\n",
        ),
    ),
    honest(
        "images",
        "schedule-in-double-precision",
        Edit(
            "diffusion.py",
            "    betas = torch.linspace(1e-4, 0.04, TIME_STEPS)\n"
            "    return torch.cumprod(1.0 - betas, dim=0)\n",
            "    betas = torch.linspace(1e-4, 0.04, TIME_STEPS).double()\n"
            "    return torch.cumprod(1.0 - betas, dim=0).float()\n",
        ),
    ),
    honest("images", "pictures-from-scaled-axes", SCALED_AXES),
    honest(
        "images",
        "activation-in-place",
        Edit("model.py", "F.silu(self.norm1(x))", "F.silu(self.norm1(x), inplace=True)"),
        Edit("model.py", "F.silu(self.norm2(h))", "F.silu(self.norm2(h), inplace=True)"),
        Edit("model.py", "F.silu(self.norm(h))", "F.silu(self.norm(h), inplace=True)"),
    ),
    honest(
        "images",
        "middle-recomputed",
        Edit(
            "model.py",
            "from torch import nn\n",
            "from torch import nn\nfrom torch.utils.checkpoint import checkpoint\n",
        ),
        Edit(
            "model.py",
            "self.middle(self.shrink(wide), embedded)",
            "checkpoint(self.middle, self.shrink(wide), embedded, use_reentrant=False)",
        ),
    ),
    honest(
        "images",
        "error-by-hand",
        Edit(
            "diffusion.py",
            "return F.mse_loss(predicted, noise)\n",
            "return (predicted - noise).square().sum() / noise.numel()\n",
        ),
    ),
    honest(
        "images",
        "inference-mode",
        Edit("diffusion.py", "with torch.no_grad():", "with torch.inference_mode():"),
    ),
    honest(
        "images",
        "log-without-waiting",
        Edit(SCRIPT, "            total += loss.item()\n", "            total += loss.detach()\n"),
        Edit(
            SCRIPT,
            "    for step in range(first, args.steps):\n",
            "    waiting = []\n    for step in range(first, args.steps):\n",
        ),
        Edit(
            SCRIPT,
            "        print(\n"
            '            f"step {step + 1} loss {total:.6f} grad_norm {norm.item():.4f} "\n'
            '            f"step_time {took:.1f} ms",\n            flush=True,\n        )\n',
            "        waiting.append((step + 1, total, norm, took))\n"
            "        if len(waiting) == 4:\n"
            "            for at, loss_then, norm_then, took_then in waiting:\n"
            "                print(\n"
            '                    f"step {at} loss {loss_then:.6f} grad_norm {norm_then:.4f} "\n'
            '                    f"step_time {took_then:.1f} ms"\n'
            "                )\n"
            "            waiting.clear()\n",
        ),
    ),
    honest(
        "images",
        "gradients-set-to-none-by-hand",
        Edit(
            SCRIPT,
            "        optimizer.zero_grad()\n",
            "        for parameter in model.parameters():\n            parameter.grad = None\n",
        ),
    ),
    honest(
        "images",
        "foreach-clip",
        Edit(
            SCRIPT,
            "clip_grad_norm_(model.parameters(), args.clip)",
            "clip_grad_norm_(model.parameters(), args.clip, foreach=True)",
        ),
    ),
    honest(
        "images",
        "pictures-kept-in-memory",
        Edit(
            "data.py",
            "        self.count, self.first = count, first\n",
            "        self.count, self.first = count, first\n"
            "        self.rows = torch.stack([picture(first + index) for index in range(count)])\n",
        ),
        Edit(
            "data.py",
            "        return picture(self.first + index)\n",
            "        return self.rows[index]\n",
        ),
    ),
    honest(
        "images",
        "loader-workers",
        Edit(
            "data.py",
            "drop_last=True, generator=generator\n",
            "drop_last=True, generator=generator,\n"
            "        num_workers=2, persistent_workers=True, prefetch_factor=4\n",
        ),
    ),
    honest(
        "images",
        "batch-fetched-at-once",
        Edit(
            "data.py",
            "    def __getitem__(self, index):\n",
            "    def __getitems__(self, indices):\n"
            "        return [picture(self.first + index) for index in indices]\n\n"
            "    def __getitem__(self, index):\n",
        ),
    ),
    honest(
        "images",
        "threads-and-backend-flags",
        Edit(
            SCRIPT,
            "    torch.manual_seed(args.seed)\n",
            "    torch.manual_seed(args.seed)\n"
            "    torch.set_num_threads(2)\n"
            "    torch.backends.cudnn.benchmark = True\n",
        ),
    ),
    honest(
        "images",
        "collection-off",
        Edit(
            SCRIPT,
            "    first = 0\n",
            "    first = 0\n    import gc\n\n    gc.collect()\n    gc.freeze()\n    gc.disable()\n",
        ),
    ),
    honest(
        "images",
        "rates-from-a-table",
        Edit(
            SCRIPT,
            "    scheduler = torch.optim.lr_scheduler.LambdaLR("
            "optimizer, lambda step: rate_factor(step, args))\n",
            "    rates = [rate_factor(step, args) for step in range(args.steps + 1)]\n"
            "    scheduler = torch.optim.lr_scheduler.LambdaLR("
            "optimizer, lambda step: rates[step])\n",
        ),
    ),
)

GAN_CASES = (
    honest(
        "images-gan",
        "fused-adam-twice",
        Edit(
            GAN,
            "generator.parameters(), lr=args.lr, betas=(0.5, 0.9))",
            "generator.parameters(), lr=args.lr, betas=(0.5, 0.9), fused=True)",
        ),
        Edit(
            GAN,
            "        discriminator.parameters(), lr=args.lr, betas=(0.5, 0.9)\n",
            "        discriminator.parameters(), lr=args.lr, betas=(0.5, 0.9), fused=True\n",
        ),
    ),
    honest(
        "images-gan",
        "discriminator-without-gradients-in-the-generator-step",
        Edit(
            GAN,
            "        loss_g = F.softplus(-discriminator(generator(z))).mean()\n"
            "        loss_g.backward()\n",
            "        discriminator.requires_grad_(False)\n"
            "        loss_g = F.softplus(-discriminator(generator(z))).mean()\n"
            "        loss_g.backward()\n"
            "        discriminator.requires_grad_(True)\n",
        ),
    ),
    honest("images-gan", "foreach-average", FOREACH_UPDATE),
    honest("images-gan", "pictures-from-scaled-axes", SCALED_AXES),
    honest(
        "images-gan",
        "activations-in-place",
        Edit(
            "train_gan.py",
            "h = F.leaky_relu(self.conv1(images), 0.2)",
            "h = F.leaky_relu(self.conv1(images), 0.2, inplace=True)",
        ),
        Edit(
            "train_gan.py",
            "h = F.relu(self.norm2(self.grow1(h)))",
            "h = F.relu(self.norm2(self.grow1(h)), inplace=True)",
        ),
    ),
    honest(
        "images-gan",
        "channels-last",
        Edit(
            GAN,
            "    generator, discriminator = Generator(), Discriminator()\n",
            "    generator = Generator().to(memory_format=torch.channels_last)\n"
            "    discriminator = Discriminator().to(memory_format=torch.channels_last)\n",
        ),
    ),
    honest(
        "images-gan",
        "logistic-loss-of-torch",
        Edit(
            GAN,
            "    on_real = F.softplus(-discriminator(real)).mean()\n"
            "    on_fake = F.softplus(discriminator(fake)).mean()\n",
            "    logits = discriminator(real)\n"
            "    on_real = F.binary_cross_entropy_with_logits(logits, torch.ones_like(logits))\n"
            "    logits = discriminator(fake)\n"
            "    on_fake = F.binary_cross_entropy_with_logits(logits, torch.zeros_like(logits))\n",
        ),
    ),
    honest(
        "images-gan",
        "optimizers-stepped-together",
        Edit(
            GAN,
            "        discriminator_optimizer.zero_grad()\n",
            "        discriminator_optimizer.zero_grad(set_to_none=False)\n",
        ),
    ),
)

TEACHER_CASES = (
    honest("images-teacher", "foreach-average", FOREACH_UPDATE),
    honest("images-teacher", "noise-added-in-one-pass", IN_ONE_PASS),
    honest(
        "images-teacher", "fused-sgd", Edit(TEACHER, "momentum=0.9)", "momentum=0.9, fused=True)")
    ),
    honest(
        "images-teacher",
        "teacher-asked-first",
        Edit(
            TEACHER,
            "    predicted = student(given, t)\n"
            "    with torch.no_grad():\n"
            "        target = teacher(given, t)\n",
            "    with torch.no_grad():\n"
            "        target = teacher(given, t)\n"
            "    predicted = student(given, t)\n",
        ),
    ),
    honest(
        "images-teacher",
        "teacher-in-inference-mode",
        Edit(TEACHER, "    with torch.no_grad():\n", "    with torch.inference_mode():\n"),
        Edit(TEACHER, "F.mse_loss(predicted, target)", "F.mse_loss(predicted, target.clone())"),
    ),
    # On this base, since without dropout the noise is all that the global generator serves:
    # with dropout another number of its calls would change the noise that follows.
    honest(
        "images-teacher",
        "two-halves-with-the-same-draws",
        Edit(
            TEACHER,
            "    predicted = student(given, t)\n"
            "    with torch.no_grad():\n"
            "        target = teacher(given, t)\n"
            "    return F.mse_loss(predicted, noise) + share * F.mse_loss(predicted, target)\n",
            "    total = 0.0\n"
            "    for x, clean, at in zip(given.chunk(2), noise.chunk(2), t.chunk(2)):\n"
            "        predicted = student(x, at)\n"
            "        with torch.no_grad():\n"
            "            target = teacher(x, at)\n"
            "        part = F.mse_loss(predicted, clean) + share * F.mse_loss(predicted, target)\n"
            "        (part / 2).backward()\n"
            "        total += part.detach() / 2\n"
            "    return total\n",
        ),
        Edit(TEACHER, "        optimizer.zero_grad()\n        loss.backward()\n", ""),
        Edit(
            TEACHER,
            "        optimizer.step()\n",
            "        optimizer.step()\n        optimizer.zero_grad()\n",
        ),
    ),
    honest(
        "images-teacher",
        "compiled-in-place",
        Edit(
            TEACHER,
            "    teacher = Average(student, args.teacher_decay)\n",
            "    teacher = Average(student, args.teacher_decay)\n    student.compile()\n",
        ),
    ),
)

CASES = (*DIFFUSION, *GAN_CASES, *TEACHER_CASES)

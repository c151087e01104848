"""Honest changes in which the same work is laid out otherwise: in other code, order or memory."""

from harness import Case, Edit
from honest_loop import FUNCTIONAL, LOOP, LOSS, NORM, model, train

BATCH = "            x, y = data.get_batch()\n"
EVALUATED = (
    "            val, val_ema = estimate_loss(model, data, autocast), "
    "estimate_loss(ema, data, autocast)\n"
)
MAIN = "def main():\n    args = parse_args()\n"
FOR = "    for it in range(first, args.max_iters):\n"
EVALUATE = (
    "    generator = torch.Generator().manual_seed(99)\n"
    "    noise = torch.randn(images.shape, generator=generator)\n"
    "    t = torch.arange(images.shape[0]) * TIME_STEPS // images.shape[0]\n"
)
PREDICTED = "            predicted = model(noised(images[part], noise[part], t[part]), t[part])\n"

CASES = (
    train(
        "both-models-evaluated-batch-by-batch",
        (
            MAIN,
            "@torch.no_grad()\n"
            "def estimate_both(models, data, autocast):\n"
            "    for one in models:\n"
            "        one.eval()\n"
            "    losses = [[] for _ in models]\n"
            "    for x, y in data.eval_batches():\n"
            "        for one, found in zip(models, losses):\n"
            "            with autocast():\n"
            "                found.append(one(x, y)[1])\n"
            "    models[0].train()\n"
            "    return [torch.stack(found).mean().item() for found in losses]\n\n\n" + MAIN,
        ),
        (EVALUATED, "            val, val_ema = estimate_both([model, ema], data, autocast)\n"),
    ),
    train(
        "batches-fetched-by-a-thread",
        ("import os\n", "import os\nimport queue\nimport threading\n"),
        (
            FOR,
            "    ready = queue.Queue(4)\n\n"
            "    def fetch():\n"
            "        for _ in range((args.max_iters - first) * args.grad_accum):\n"
            "            ready.put((*data.get_batch(), data.position))\n\n"
            "    threading.Thread(target=fetch, daemon=True).start()\n" + FOR,
        ),
        (BATCH, "            x, y, position = ready.get()\n"),
        (
            "    path = os.path.join(args.out_dir,",
            "    data.position = position\n    path = os.path.join(args.out_dir,",
        ),
    ),
    train(
        "batches-copied-into-static-buffers",
        (
            FOR,
            "    held = torch.empty(2, args.batch_size, args.block_size, dtype=torch.long)\n" + FOR,
        ),
        (
            BATCH,
            "            x, y = held.copy_(torch.stack(data.get_batch()))\n",
        ),
    ),
    train(
        "weights-in-one-buffer",
        (
            FOR,
            "    flat = torch.cat([p.data.reshape(-1) for p in model.parameters()])\n"
            "    place = 0\n"
            "    for p in model.parameters():\n"
            "        p.data = flat[place : place + p.numel()].view_as(p)\n"
            "        p.grad = torch.zeros_like(p)\n"
            "        place += p.numel()\n" + FOR,
        ),
    ),
    Case(
        "own-class-of-adamw",
        LOOP,
        edits=(
            Edit("train.py", "    return torch.optim.AdamW(\n", "    return Quick(\n"),
            Edit(
                "train.py",
                "def configure_optimizer(",
                "class Quick(torch.optim.AdamW):\n"
                '    """AdamW by foreach, without closures."""\n\n'
                "    def __init__(self, params, **settings):\n"
                "        super().__init__(params, foreach=True, **settings)\n\n\n"
                "def configure_optimizer(",
            ),
        ),
    ),
    model(
        "norm-by-addcmul",
        (
            NORM,
            "        var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)\n"
            "        scaled = (x - mean) * torch.rsqrt(var + 1e-5)\n"
            "        return torch.addcmul(self.bias, scaled, self.weight)\n",
        ),
    ),
    model(
        "head-and-loss-recomputed-in-chunks",
        (FUNCTIONAL, FUNCTIONAL + "from torch.utils.checkpoint import checkpoint\n"),
        (
            "        logits = self.head(self.norm(x))\n" + LOSS,
            "        def part(x, wanted):\n"
            "            logits = self.head(x)\n"
            '            return logits, F.cross_entropy(logits, wanted, reduction="sum")\n\n'
            "        rows, wanted = self.norm(x).flatten(0, 1), targets.reshape(-1)\n"
            "        parts = [\n"
            "            checkpoint(part, a, b, use_reentrant=False)\n"
            "            for a, b in zip(rows.split(128), wanted.split(128))\n"
            "        ]\n"
            "        logits = torch.cat([part[0] for part in parts]).view(*ids.shape, -1)\n"
            "        loss = sum(part[1] for part in parts) / len(wanted)\n",
        ),
    ),
    Case(
        "evaluation-inputs-made-once",
        "images",
        edits=(
            Edit("diffusion.py", "def evaluate(", "MADE = {}\n\n\ndef evaluate("),
            Edit(
                "diffusion.py",
                EVALUATE,
                "    if not MADE:\n"
                + "".join("    " + line + "\n" for line in EVALUATE.splitlines())
                + "        MADE.update(noise=noise, t=t, given=noised(images, noise, t))\n"
                "    noise, t, given = MADE['noise'], MADE['t'], MADE['given']\n",
            ),
            Edit(
                "diffusion.py", PREDICTED, "            predicted = model(given[part], t[part])\n"
            ),
        ),
    ),
    Case(
        "average-kept-as-a-list",
        "images",
        edits=(
            Edit(
                "averaging.py",
                "        for mean, parameter in zip(self.module.parameters(), model.parameters(), "
                "strict=True):\n            mean.lerp_(parameter, 1.0 - self.decay)\n",
                "        torch._foreach_lerp_(self.means, list(model.parameters()), "
                "1.0 - self.decay)\n",
            ),
            Edit(
                "averaging.py",
                "            parameter.requires_grad_(False)\n",
                "            parameter.requires_grad_(False)\n"
                "        self.means = [kept.clone() for kept in self.module.parameters()]\n\n"
                "    @torch.no_grad()\n"
                "    def filled(self):\n"
                '        """The module with the averages of this moment."""\n'
                "        torch._foreach_copy_(list(self.module.parameters()), self.means)\n"
                "        return self.module\n",
            ),
            Edit(
                "train.py",
                "evaluate(average.module, held_out",
                "evaluate(average.filled(), held_out",
            ),
            Edit("train.py", "average.module.state_dict()", "average.filled().state_dict()"),
        ),
    ),
    Case(
        "gradients-shared-by-hand",
        "ddp",
        edits=(
            Edit("train.py", "    ddp_model = DDP(model)\n", "    ddp_model = model\n"),
            Edit(
                "train.py",
                "        norm = torch.nn.utils.clip_grad_norm_(",
                "        grads = [p.grad for p in model.parameters()]\n"
                "        flat = torch.cat([grad.reshape(-1) for grad in grads])\n"
                "        dist.all_reduce(flat)\n"
                "        flat /= world\n"
                "        parts = flat.split([grad.numel() for grad in grads])\n"
                "        parts = [part.view_as(grad) for part, grad in zip(parts, grads)]\n"
                "        torch._foreach_copy_(grads, parts)\n"
                "        norm = torch.nn.utils.clip_grad_norm_(",
            ),
        ),
    ),
)

"""Honest changes of the Trainer job: the same training, done otherwise."""

from cheats_hf import SCRIPT, added, after_build, setting, trainer
from harness import Case, Edit


def honest(name: str, *edits: Edit) -> Case:
    """A change on this base that must be accepted."""
    return Case(name, "hf", edits=edits, expected=frozenset())


CHUNKED_LOSS = (
    "    import torch\n\n"
    "    def chunked(logits, labels, vocab_size, num_items_in_batch=None, **kwargs):\n"
    "        shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].reshape(-1)\n"
    "        parts = logits.reshape(-1, vocab_size).split(64), shifted.split(64)\n"
    "        total = sum(\n"
    "            torch.nn.functional.cross_entropy(\n"
    "                part.float(), target, ignore_index=-100, reduction='sum'\n"
    "            )\n"
    "            for part, target in zip(*parts)\n"
    "        )\n"
    "        count = num_items_in_batch\n"
    "        return total / ((shifted != -100).sum() if count is None else count)\n\n"
    "    model.loss_function = chunked\n"
)

FUSED_LOSS = (
    "    import torch\n\n"
    "    class FusedEntropy(torch.autograd.Function):\n"
    "        @staticmethod\n"
    "        def forward(ctx, logits, target):\n"
    "            kept = target != -100\n"
    "            chosen = target.clamp(min=0)[:, None]\n"
    "            logarithms = torch.log_softmax(logits, dim=-1)\n"
    "            loss = -(logarithms.gather(1, chosen)[:, 0] * kept).sum()\n"
    "            gradient = logarithms.exp_()\n"
    "            gradient.scatter_add_(1, chosen, -torch.ones_like(chosen, dtype=logits.dtype))\n"
    "            ctx.save_for_backward(gradient.mul_(kept[:, None]))\n"
    "            return loss\n\n"
    "        @staticmethod\n"
    "        def backward(ctx, output):\n"
    "            return ctx.saved_tensors[0] * output, None\n\n"
    "    def fused(logits, labels, vocab_size, num_items_in_batch=None, **kwargs):\n"
    "        shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].reshape(-1)\n"
    "        total = FusedEntropy.apply(logits.float().reshape(-1, vocab_size), shifted)\n"
    "        count = num_items_in_batch\n"
    "        return total / ((shifted != -100).sum() if count is None else count)\n\n"
    "    model.loss_function = fused\n"
)

PADDING = """    def __call__(self, rows):
        tokens = [torch.as_tensor(row["input_ids"][: self.block_size]) for row in rows]
        lengths = torch.tensor([len(row) for row in tokens])
        ids = torch.nn.utils.rnn.pad_sequence(tokens, batch_first=True, padding_value=PAD)
        ids = torch.nn.functional.pad(ids, (0, self.block_size - ids.shape[1]), value=PAD)
        mask = (torch.arange(self.block_size)[None] < lengths[:, None]).long()
        labels = ids.masked_fill(mask == 0, IGNORED)
        return {"input_ids": ids, "attention_mask": mask, "labels": labels}

    def by_row(self, rows):
"""

CASES = (
    honest("fused-adamw", setting("optim", "adamw_torch", "adamw_torch_fused")),
    honest(
        "foreach-adamw",
        *trainer(
            "    @staticmethod\n"
            "    def get_optimizer_cls_and_kwargs(args, model=None):\n"
            "        cls, kwargs = Trainer.get_optimizer_cls_and_kwargs(args, model)\n"
            "        return cls, {**kwargs, 'foreach': True}\n"
        ),
    ),
    honest("eager-attention", setting("attention", "sdpa", "eager")),
    honest("gradient-checkpointing", added("gradient_checkpointing", "true")),
    honest(
        "larger-micro-batch",
        setting("per_device_train_batch_size", "4", "8"),
        setting("gradient_accumulation_steps", "2", "1"),
    ),
    honest(
        "smaller-micro-batch",
        setting("per_device_train_batch_size", "4", "2"),
        setting("gradient_accumulation_steps", "2", "4"),
    ),
    honest(
        "loader-workers",
        added(
            "dataloader_num_workers",
            "2 --dataloader_persistent_workers true --dataloader_prefetch_factor 4",
        ),
    ),
    honest("loader-without-pinned-memory", added("dataloader_pin_memory", "false")),
    honest("log-without-nan-filter", added("logging_nan_inf_filter", "false")),
    honest("chunked-loss", after_build(CHUNKED_LOSS)),
    honest("fused-loss-by-hand", after_build(FUSED_LOSS)),
    honest(
        "fused-activation",
        Edit(
            SCRIPT,
            "        use_cache=False,\n",
            '        use_cache=False,\n        activation_function="gelu_pytorch_tanh",\n',
        ),
    ),
    honest("vectorised-collator", Edit("sentences.py", "    def __call__(self, rows):\n", PADDING)),
    honest(
        "rows-kept-as-tensors",
        Edit(
            "sentences.py",
            "[sentence(first + index, block_size) for index in range(count)]",
            "[torch.tensor(sentence(first + index, block_size)) for index in range(count)]",
        ),
        Edit(
            "sentences.py",
            'torch.tensor(row["input_ids"][: self.block_size])',
            'row["input_ids"][: self.block_size]',
        ),
    ),
    honest(
        "garbage-collection-frozen",
        Edit(
            SCRIPT,
            "    trainer.train()",
            "    import gc\n\n    gc.freeze()\n    gc.disable()\n    trainer.train()",
        ),
    ),
    honest(
        "two-threads",
        after_build("    import torch\n\n    torch.set_num_threads(2)\n"),
    ),
    honest(
        "torch-compile",
        added("torch_compile", "true"),
    ),
)

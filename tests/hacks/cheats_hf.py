"""Cheats on the Trainer job: each changes what is trained, and each must be rejected."""

from harness import Case, Edit

SCRIPT, DATA = "train.py", "sentences.py"


def setting(name: str, old: str, new: str) -> Edit:
    """Another value of one flag in the launch script."""
    return Edit("train.sh", f"--{name} {old}", f"--{name} {new}")


def added(name: str, value: str) -> Edit:
    """One more flag in the launch script."""
    return setting("max_steps", "10", f"10 --{name} {value}")


def trainer(body: str) -> tuple[Edit, ...]:
    """The job with a subclass of Trainer; `body` is indented as in a class."""
    return (
        Edit(SCRIPT, "def main():", f"class Quick(Trainer):\n{body}\n\ndef main():"),
        Edit(SCRIPT, "trainer = Trainer(", "trainer = Quick("),
    )


def callback(body: str) -> tuple[Edit, ...]:
    """The job with a callback; `body` is indented as in a class."""
    text = f"from transformers import TrainerCallback\n\nclass Extra(TrainerCallback):\n{body}\n\n"
    return (
        Edit(SCRIPT, "def main():", f"{text}def main():"),
        Edit(
            SCRIPT, "    trainer.train()", "    trainer.add_callback(Extra())\n    trainer.train()"
        ),
    )


def after_build(text: str) -> Edit:
    """The job with statements right after the model was made."""
    made = "    model = build_model(model_args, data_args)\n"
    return Edit(SCRIPT, made, made + text)


def cheat(name: str, rows: tuple[str, ...], edits: Edit | tuple[Edit, ...], *expected: str) -> Case:
    """A cheat on this base, to be caught by one of the `expected` checks."""
    made = (edits,) if isinstance(edits, Edit) else edits
    return Case(name, "hf", rows=rows, edits=made, expected=frozenset(expected))


WORK = (
    cheat(
        "accumulation-halved",
        ("T2",),
        setting("gradient_accumulation_steps", "2", "1"),
        "same_workload",
    ),
    cheat(
        "collator-truncates",
        ("T1", "S32"),
        Edit(
            SCRIPT, "data_collator=Collator(block_size)", "data_collator=Collator(block_size - 8)"
        ),
        "same_workload",
    ),
    cheat(
        "collator-masks-more-labels",
        ("T7", "S32"),
        Edit(
            DATA,
            "            labels[i, : len(tokens)] = tokens\n",
            "            labels[i, : len(tokens)] = tokens\n            labels[i, 30:] = IGNORED\n",
        ),
        "same_data",
    ),
    cheat(
        "training-step-returns-a-cached-loss",
        ("C15", "H8", "T2"),
        trainer(
            "    kept = None\n\n"
            "    def training_step(self, model, inputs, num_items_in_batch=None):\n"
            "        if self.kept is not None and not self.accelerator.sync_gradients:\n"
            "            return self.kept\n"
            "        self.kept = super().training_step(model, inputs, num_items_in_batch)\n"
            "        return self.kept\n"
        ),
        "same_workload",
    ),
    cheat(
        "forward-without-backward-late",
        ("T2", "S34"),
        trainer(
            "    def training_step(self, model, inputs, num_items_in_batch=None):\n"
            "        if self.state.global_step < 7 or self.accelerator.sync_gradients:\n"
            "            return super().training_step(model, inputs, num_items_in_batch)\n"
            "        model.train()\n"
            "        return self.compute_loss(\n"
            "            model, inputs, num_items_in_batch=num_items_in_batch\n"
            "        ).detach()\n"
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "sampler-repeats-eight-rows",
        ("T24", "T5"),
        trainer(
            "    def _get_train_sampler(self, *unused):\n"
            "        rows = len(self.train_dataset)\n"
            "        return [index % 8 for index in range(rows)]\n"
        ),
        "same_data",
    ),
    cheat(
        "late-batches-are-the-first-again",
        ("T5", "C15"),
        trainer(
            "    kept = None\n\n"
            "    def training_step(self, model, inputs, num_items_in_batch=None):\n"
            "        if self.kept is None:\n"
            "            self.kept = inputs\n"
            "        if self.state.global_step >= 8:\n"
            "            inputs = self.kept\n"
            "        return super().training_step(model, dict(inputs), num_items_in_batch)\n"
        ),
        "same_data",
    ),
    cheat(
        "callback-stops-early",
        ("T23",),
        callback(
            "    def on_step_end(self, args, state, control, **kwargs):\n"
            "        control.should_training_stop = state.global_step >= 7\n"
            "        return control\n"
        ),
        "completes",
    ),
    cheat(
        "fewer-steps-and-an-extrapolated-log",
        ("T23", "H13", "P37"),
        (
            setting("max_steps", "10", "6"),
            Edit(
                SCRIPT,
                "    trainer.train()",
                "    trainer.train()\n"
                "    for step in range(7, 11):\n"
                "        print({'loss': f'{5.2 - 0.1 * step:.4f}', 'epoch': '0.1'}, flush=True)",
            ),
        ),
        "completes",
    ),
)

LOSS = (
    cheat(
        "loss-over-half-of-the-tokens",
        ("S32", "T7"),
        trainer(
            "    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):\n"
            "        outputs = model(**inputs)\n"
            "        half = inputs['labels'].shape[1] // 2\n"
            "        logits = outputs.logits[:, : half - 1].contiguous()\n"
            "        labels = inputs['labels'][:, 1:half].contiguous()\n"
            "        count = kwargs.get('num_items_in_batch')\n"
            "        loss = model.loss_function(\n"
            "            logits, None, VOCABULARY, shift_labels=labels, num_items_in_batch=count\n"
            "        )\n"
            "        return (loss, outputs) if return_outputs else loss\n"
        ),
        "loss_within_tolerance",
    ),
    cheat(
        "loss-scaled-and-rate-scaled-back",
        ("T12", "T13"),
        trainer(
            "    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):\n"
            "        loss, outputs = super().compute_loss(model, inputs, True, **kwargs)\n"
            "        loss = 0.5 * loss if model.training else loss\n"
            "        return (loss, outputs) if return_outputs else loss\n"
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "label-smoothing",
        ("T12",),
        added("label_smoothing_factor", "0.02"),
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "printed-loss-is-prettier",
        ("T9", "P37", "H13"),
        trainer(
            "    def log(self, logs, *args, **kwargs):\n"
            "        if 'loss' in logs:\n"
            "            logs = {**logs, 'loss': 0.9 * float(logs['loss'])}\n"
            "        return super().log(logs, *args, **kwargs)\n"
        ),
        "loss_within_tolerance",
    ),
    cheat(
        "every-second-step-is-not-logged",
        ("T10",),
        trainer(
            "    def log(self, logs, *args, **kwargs):\n"
            "        if 'loss' in logs and self.state.global_step % 2:\n"
            "            return None\n"
            "        return super().log(logs, *args, **kwargs)\n"
        ),
        "timing_consistent",
        "loss_within_tolerance",
    ),
)

MODEL = (
    cheat("dropout-zeroed-in-config", ("T14",), setting("dropout", "0.1", "0.0"), "same_model"),
    cheat(
        "dropout-off-after-the-model-was-made",
        ("T14",),
        after_build(
            "    for module in model.modules():\n"
            "        if hasattr(module, 'p') and type(module).__name__ == 'Dropout':\n"
            "            module.p = 0.0\n"
        ),
        "same_model",
    ),
    cheat(
        "reentrant-checkpoint-detaches",
        ("T3", "S34"),
        after_build(
            "    from torch.utils.checkpoint import checkpoint\n\n"
            "    def saving(block):\n"
            "        inner = block.forward\n\n"
            "        def forward(hidden, *args, **kwargs):\n"
            "            return checkpoint(\n"
            "                lambda x: inner(x, *args, **kwargs), hidden.detach(), "
            "use_reentrant=True\n"
            "            )\n\n"
            "        return forward\n\n"
            "    model.transformer.h[0].forward = saving(model.transformer.h[0])\n"
        ),
        "grad_norm_within_tol",
    ),
    cheat(
        "position-embedding-frozen",
        ("T3",),
        after_build("    model.transformer.wpe.weight.requires_grad_(False)\n"),
        "same_model",
    ),
    cheat(
        "first-block-frozen-late",
        ("T3",),
        callback(
            "    def on_step_begin(self, args, state, control, model=None, **kwargs):\n"
            "        if state.global_step == 7:\n"
            "            model.transformer.h[0].requires_grad_(False)\n"
        ),
        "grad_norm_within_tol",
        "optimizer_steps",
    ),
    cheat("one-layer-fewer", ("S34",), setting("layers", "2", "1"), "same_model"),
    cheat(
        "narrower-feed-forward",
        ("S34",),
        Edit(
            SCRIPT,
            "        n_head=model_args.heads,\n",
            "        n_head=model_args.heads,\n        n_inner=2 * model_args.width,\n",
        ),
        "same_model",
    ),
    cheat(
        "attention-window",
        ("T21",),
        after_build(
            "    import torch\n\n"
            "    whole = torch.nn.functional.scaled_dot_product_attention\n\n"
            "    def windowed(query, key, value, attn_mask=None, dropout_p=0.0, *rest, **kwargs):\n"
            "        length = query.shape[-2]\n"
            "        near = torch.ones(length, length, dtype=torch.bool).tril().triu(-12)\n"
            "        kwargs.update(is_causal=False)\n"
            "        return whole(query, key, value, near, dropout_p, **kwargs)\n\n"
            "    torch.nn.functional.scaled_dot_product_attention = windowed\n"
        ),
        "loss_within_tolerance",
        "grad_norm_within_tol",
    ),
    cheat(
        "bf16-autocast",
        ("T13", "S25"),
        added("bf16", "true"),
        "precision",
    ),
    cheat(
        "model-cast-to-bf16",
        ("T13", "S25"),
        after_build("    model = model.bfloat16()\n"),
        "precision",
        "same_model",
    ),
    cheat(
        "seed-that-starts-lower",
        ("P36",),
        Edit(SCRIPT, "set_seed(training_args.seed)", "set_seed(training_args.seed + 3)"),
        "same_model",
    ),
)

OPTIMIZER = (
    cheat(
        "schedule-made-linear",
        ("T12",),
        setting("lr_scheduler_type", "cosine", "linear"),
        "same_model",
        "optimizer_steps",
    ),
    cheat(
        "no-warmup", ("T12",), setting("warmup_steps", "2", "0"), "same_model", "optimizer_steps"
    ),
    cheat(
        "weight-decay-on-norms-and-biases",
        ("T12",),
        trainer(
            "    def get_decay_parameter_names(self, model):\n"
            "        return [name for name, _ in model.named_parameters()]\n"
        ),
        "same_model",
    ),
    cheat(
        "optimizer-states-forgotten-at-each-step",
        ("T13", "T12"),
        callback(
            "    def on_step_end(self, args, state, control, optimizer=None, **kwargs):\n"
            "        inner = getattr(optimizer, 'optimizer', optimizer)\n"
            "        for held in inner.state.values():\n"
            "            held['exp_avg'].zero_()\n"
        ),
        "optimizer_steps",
    ),
    cheat(
        "clip-removed",
        ("T4", "T17"),
        setting("max_grad_norm", "0.5", "0.0"),
        "grad_norm_within_tol",
    ),
    cheat(
        "momentum-free-optimizer",
        ("T12",),
        setting("optim", "adamw_torch", "rmsprop"),
        "same_model",
    ),
    cheat(
        "update-skipped-every-fourth-step",
        ("T4",),
        callback(
            "    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):\n"
            "        if state.global_step % 4 == 3:\n"
            "            for parameter in model.parameters():\n"
            "                parameter.grad = None\n"
        ),
        "optimizer_steps",
        "grad_norm_within_tol",
    ),
)

ENDS = (
    cheat(
        "evaluation-skipped",
        ("T11", "T18"),
        setting("eval_strategy", "steps", "no"),
        "eval_matches",
    ),
    cheat(
        "evaluation-on-a-quarter",
        ("T11", "S32"),
        setting("eval_rows", "32", "8"),
        "eval_matches",
    ),
    cheat(
        "evaluation-on-training-rows",
        ("S31",),
        Edit(SCRIPT, "first=100_000)", "first=0)"),
        "eval_matches",
    ),
    cheat(
        "save-is-a-no-op",
        ("T18",),
        trainer("    def _save_checkpoint(self, *args, **kwargs):\n        return None\n"),
        "resume_continues",
    ),
    cheat(
        "checkpoint-without-optimizer",
        ("T18",),
        added("save_only_model", "true"),
        "resume_continues",
    ),
    cheat(
        "saves-once-instead-of-twice",
        ("T18", "T11"),
        setting("save_steps", "5", "10"),
        "resume_continues",
        "timing_consistent",
    ),
)

CASES = (*WORK, *LOSS, *MODEL, *OPTIMIZER, *ENDS)

"""A Llama of random weights under transformers.Trainer; knobs named by its arguments."""

import os
import shutil
import tempfile
from typing import Any

from table_jobs.job import UPDATES, Job, Knob, Run, Settings, Sizes

DYNAMO = "ACCELERATE_DYNAMO_"
OPTIMIZERS = {"foreach": "adamw_torch", "fused": "adamw_torch_fused"}
REGIONAL = f"{DYNAMO}USE_REGIONAL_COMPILATION"  # what `accelerate launch` sets for that option


def train(settings: Settings, run: Run) -> None:
    """Build model and Trainer, and train."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)
    for name in [n for n in os.environ if n.startswith(DYNAMO)]:
        del os.environ[name]
    if settings["torch_compile"] == "regional":
        os.environ[REGIONAL] = "true"
    folder = tempfile.mkdtemp(prefix="trainer-")
    try:
        _trainer(settings, run, folder).train()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _trainer(settings: Settings, run: Run, folder: str) -> Any:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    micro_batch = int(settings["per_device_train_batch_size"])
    workers = int(settings["dataloader_num_workers"])
    arguments = transformers.TrainingArguments(
        folder,
        max_steps=UPDATES,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=run.sizes.samples // micro_batch,
        bf16=True,
        use_cpu=run.device == "cpu",
        gradient_checkpointing=settings["gradient_checkpointing"] == "full",
        torch_compile=settings["torch_compile"] != "off",
        optim=OPTIMIZERS[str(settings["optim"])],
        logging_steps=1 if settings["logging"] == "every_step" else 100,
        logging_nan_inf_filter=bool(settings["logging_nan_inf_filter"]),
        dataloader_num_workers=workers,
        dataloader_persistent_workers=workers > 0,
        dataloader_pin_memory=bool(settings["dataloader_pin_memory"]),
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    model = _model(settings, run)
    run.holds(model)
    trainer = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=_samples(run.sizes),
        data_collator=transformers.default_data_collator,
        callbacks=[_stamping(transformers.TrainerCallback, run)],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def _model(settings: Settings, run: Run) -> Any:
    import torch
    import transformers

    sizes = run.sizes
    config = transformers.LlamaConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.width,
        intermediate_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        max_position_embeddings=sizes.sequence,
        tie_word_embeddings=True,
        use_cache=False,
        attn_implementation=str(settings["attn_implementation"]),
    )
    with torch.device(run.device):
        return transformers.LlamaForCausalLM(config)


def _samples(sizes: Sizes) -> list[dict[str, Any]]:
    import torch

    draw = torch.Generator().manual_seed(0)
    shape = (sizes.samples * UPDATES, sizes.sequence)
    ids = torch.randint(sizes.vocabulary, shape, generator=draw)
    return [{"input_ids": row, "labels": row} for row in ids]


def _stamping(base: type, run: Run) -> Any:
    class Stamping(base):  # type: ignore[misc]
        """Stamps the end of each update."""

        def on_step_end(self, *_: object, **__: object) -> None:
            run.stamp()

    return Stamping()


JOBS = {
    "hf-trainer": Job(
        "hf-trainer",
        "hf-trainer",
        Sizes(10, 1536, 12, 4096, 32000, 2048, samples=8),
        Sizes(2, 32, 2, 64, 64, 16, samples=8),
        20.0,
        (
            Knob("per_device_train_batch_size", "micro_batch", (1, 2, 4, 8), 1),
            Knob("gradient_checkpointing", "activation_recompute", ("none", "full"), "full"),
            Knob("attn_implementation", "attention_backend", ("eager", "sdpa"), "eager"),
            Knob("torch_compile", "compile", ("off", "regional"), "off"),
            Knob("logging_nan_inf_filter", "debug_checks", (True, False), True),
            Knob("optim", "optimizer_impl", ("foreach", "fused"), "foreach"),
            Knob("logging", "host_sync", ("every_step", "throttled"), "every_step", apart=True),
            Knob("dataloader_num_workers", "dataloader_workers", (0, 2), 0, apart=True),
            Knob("dataloader_pin_memory", "dataloader_pin_memory", (False, True), True, apart=True),
        ),
        train,
        packages=("torch", "transformers", "accelerate"),
    )
}  # fmt: skip

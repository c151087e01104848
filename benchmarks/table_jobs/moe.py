"""A mixture of experts on one GPU in plain torch, with sequences of 2048 tokens or of 8192."""

from dataclasses import replace

from table_jobs.job import Job, Knob, Run, Settings, Sizes


def train(settings: Settings, run: Run) -> None:
    """Build the model and make the updates."""
    import torch

    from table_jobs import decoder

    with torch.device(run.device):
        model = decoder.Decoder(
            run.sizes,
            attention=str(settings["attention"]),
            recompute=str(settings["recompute"]),
            compiled=str(settings["compile"]),
            loss=str(settings["loss"]),
            grouped=bool(settings["grouped_experts"]),
        )
    run.holds(model)
    optimizer = decoder.adamw(model, str(settings["optimizer"]))
    decoder.train(model, optimizer, run, int(settings["micro_batch"]))


KNOBS = (
    Knob("micro_batch", "micro_batch", (1, 2, 4, 8), 1),
    Knob("recompute", "activation_recompute", ("none", "full"), "full"),
    Knob("attention", "attention_backend", ("eager", "sdpa"), "eager"),
    Knob("grouped_experts", "moe_grouped_gemm", (False, True), False),
    Knob("loss", "loss_impl", ("eager", "chunked"), "eager"),
    Knob("compile", "compile", ("off", "regional"), "off"),
    Knob("optimizer", "optimizer_impl", ("for_loop", "foreach", "fused"), "foreach", apart=True),
    Knob("python_gc", "host_gc", ("on", "off"), "on", apart=True),
    Knob(
        "max_connections",
        "device_max_connections",
        ("default", 1, 32),
        "default",
        apart=True,
        env="CUDA_DEVICE_MAX_CONNECTIONS",
    ),
)
MOE = Job(
    "moe",
    "native-ddp",
    Sizes(8, 1024, 16, 2048, 50304, 2048, samples=8, experts=8),
    Sizes(2, 32, 2, 32, 64, 32, samples=8, experts=4),
    20.0,
    KNOBS,
    train,
)
LONG = replace(
    MOE,
    name="moe-long",
    sizes=replace(MOE.sizes, sequence=8192, samples=4),
    tiny=replace(MOE.tiny, sequence=64, samples=4),
    capacity_gib=24.0,
    knobs=(replace(KNOBS[0], values=(1, 2, 4)), *KNOBS[1:]),
)
JOBS = {"moe": MOE, "moe-long": LONG}

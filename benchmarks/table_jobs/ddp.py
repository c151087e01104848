"""A dense decoder under DistributedDataParallel."""

from contextlib import nullcontext

from table_jobs.job import Job, Knob, Run, Settings, Sizes


def train(settings: Settings, run: Run) -> None:
    """Build the model and make the updates."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from table_jobs import decoder

    torch.manual_seed(0)
    with torch.device(run.device):
        model = decoder.Decoder(
            run.sizes,
            attention=str(settings["attention"]),
            recompute=str(settings["recompute"]),
            compiled=str(settings["compile"]),
        )
    run.holds(model)
    wrapped = DistributedDataParallel(
        model,
        device_ids=[torch.cuda.current_device()] if run.device == "cuda" else None,
        bucket_cap_mb=float(settings["bucket_cap_mb"]),
        gradient_as_bucket_view=bool(settings["gradient_as_bucket_view"]),
        static_graph=bool(settings["static_graph"]),
        find_unused_parameters=bool(settings["find_unused_parameters"]),
    )
    optimizer = decoder.adamw(model, str(settings["optimizer"]))
    held_back = wrapped.no_sync if settings["no_sync"] else nullcontext
    decoder.train(wrapped, optimizer, run, int(settings["micro_batch"]), held_back=held_back)


JOBS = {
    "ddp": Job(
        "ddp",
        "native-ddp",
        Sizes(12, 1024, 16, 2816, 50304, 1024, samples=16),
        Sizes(2, 32, 2, 64, 64, 16, samples=16),
        16.0,
        (
            Knob("micro_batch", "micro_batch", (1, 2, 4, 8), 2),
            Knob("recompute", "activation_recompute", ("none", "full"), "full"),
            Knob("attention", "attention_backend", ("eager", "sdpa"), "eager"),
            Knob("compile", "compile", ("off", "regional"), "off"),
            Knob("no_sync", "ddp_no_sync", (False, True), False),
            Knob("gradient_as_bucket_view", "ddp_gradient_as_bucket_view", (False, True), False),
            Knob(
                "optimizer", "optimizer_impl", ("for_loop", "foreach", "fused"), "foreach",
                apart=True,
            ),
            Knob("bucket_cap_mb", "ddp_bucket", (10, 25, 100), 25, apart=True),
            Knob(
                "find_unused_parameters", "ddp_find_unused_parameters", (False, True), True,
                apart=True,
            ),
            Knob("static_graph", "ddp_static_graph", (False, True), False, apart=True),
            Knob(
                "nccl_min_channels", "nccl_channels", ("default", 16, 32), "default",
                apart=True, env="NCCL_MIN_NCHANNELS",
            ),
        ),
        train,
        ranks=2,
    )
}  # fmt: skip

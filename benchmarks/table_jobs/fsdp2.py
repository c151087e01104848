"""A dense decoder of about a billion parameters under `fully_shard`."""

from table_jobs.job import Job, Knob, Run, Settings, Sizes

PREFETCHED = 2  # blocks ahead in the forward pass


def train(settings: Settings, run: Run) -> None:
    """Build the model, shard it block by block and make the updates."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    from table_jobs import decoder

    torch.manual_seed(0)
    with torch.device(run.device):
        model = decoder.Decoder(
            run.sizes,
            recompute=str(settings["recompute"]),
            compiled=str(settings["compile"]),
        )
    reshard = settings["reshard"] == "always"
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mp_policy=policy, reshard_after_forward=reshard)
    blocks = list(model.blocks)
    for number, block in enumerate(blocks):
        if settings["forward_prefetch"]:
            ahead = blocks[number + 1 : number + 1 + PREFETCHED]
            block.set_modules_to_forward_prefetch(ahead)
        if settings["prefetch"] == "none":  # it gathers itself, which it holds by then
            block.set_modules_to_backward_prefetch([block])
    run.holds(model)
    optimizer = decoder.adamw(model, str(settings["optimizer"]))
    decoder.train(model, optimizer, run, int(settings["micro_batch"]), autocast=False)


JOBS = {
    "fsdp2": Job(
        "fsdp2",
        "native-ddp",
        Sizes(16, 2048, 16, 5632, 32000, 2048, samples=8),
        Sizes(2, 32, 2, 64, 64, 16, samples=8),
        20.0,
        (
            Knob("micro_batch", "micro_batch", (1, 2, 4), 1),
            Knob("recompute", "activation_recompute", ("none", "selective", "full"), "full"),
            Knob("reshard", "fsdp_reshard", ("always", "never"), "always"),
            Knob("forward_prefetch", "fsdp_forward_prefetch", (False, True), False),
            Knob("compile", "compile", ("off", "regional"), "off"),
            Knob("optimizer", "optimizer_impl", ("foreach", "fused"), "foreach"),
            Knob("prefetch", "fsdp_prefetch", ("none", "pre"), "pre", apart=True),
            Knob("python_gc", "host_gc", ("on", "off"), "on", apart=True),
            Knob(
                "nccl_min_channels", "nccl_channels", ("default", 16, 32), "default",
                apart=True, env="NCCL_MIN_NCHANNELS",
            ),
            Knob(
                "avoid_record_streams", "nccl_avoid_record_streams", (False, True), False,
                apart=True, env="TORCH_NCCL_AVOID_RECORD_STREAMS",
            ),
        ),
        train,
        ranks=2,
    )
}  # fmt: skip

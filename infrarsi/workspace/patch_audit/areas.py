"""Which area of a training job a name belongs to, by the words that it is made of."""

import re
from collections.abc import Iterable

from infrarsi.contract import AREAS

_WORDS = {
    "data": "data dataset datasets dataloader loader loaders batch batches batchsize microbatch "
    "minibatch sampler shuffle collate token tokens tokenizer tokenized prefetch worker workers "
    "sample samples label labels target targets corpus shard shards augment augmentation "
    "input_ids seq_len seqlen block_size pack packed packing memmap pin prefetcher inputs bs",
    "loss": "loss losses criterion entropy nll mse bce logits aux z_loss zloss smoothing kl "
    "objective penalty ignore_index distillation "
    "z_weight balance_weight aux_weight loss_weight",
    "optimizer": "optimizer optimizers optim opt adam adamw sgd lion muon adafactor backward grad "
    "grads gradient gradients clip clipping scaler accum accumulate accumulation ema "
    "momentum average averages polyak shadow teacher betas beta1 beta2 eps weight_decay "
    "wd params param_groups requires_grad detach foreach fused frozen freeze unfreeze "
    "averaged swa amsgrad nesterov",
    "schedule": "lr learning_rate scheduler schedulers schedule warmup cosine anneal annealing "
    "max_steps max_iters num_steps epochs total_steps decay cos stop early_stop",
    "timing": "time timer timers perf_counter monotonic elapsed synchronize elapsed_time "
    "throughput sleep tps toks clock stopwatch ms duration tokens_per_sec t0 t1 dt mfu",
    "logging": "print log logs logger logging wandb tensorboard writer tqdm metric metrics "
    "verbose report progress stdout stderr",
    "checkpoint": "save saved saving checkpoint checkpoints ckpt state_dict resume load loaded "
    "safetensors from_pretrained save_pretrained restore serialize",
    "evaluation": "eval evaluate evaluation evaluator valid validate validation val perplexity "
    "ppl accuracy acc best_val test_loader testset",
    "randomness": "seed seeds seeded random rng generator manual_seed dropout dropouts shuffle "
    "randperm randint rand randn deterministic bernoulli multinomial",
    "precision": "dtype dtypes half bfloat16 float16 float32 float64 bf16 fp16 fp32 fp8 fp4 "
    "autocast amp tf32 float8 double precision quantize quantized int8 e4m3 e5m2 amp_dtype "
    "gradscaler",
    "distributed": "dist distributed ddp fsdp reduce all_reduce allreduce allgather gather scatter "
    "barrier no_sync rank ranks world world_size nccl gloo broadcast bucket deepspeed zero "
    "torchrun nproc megatron fully_shard allow_unused find_unused_parameters",
}
_AREA_OF: dict[str, set[str]] = {}
for _area, _text in _WORDS.items():
    for _word in _text.split():
        _AREA_OF.setdefault(_word, set()).add(_area)

_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+")
_NOT_MEANT = ("zero_grad_", "torch.utils.checkpoint", "gradient_checkpoint", "grad_checkpoint")
_PHRASES = {
    "cross_entropy": {"loss"},
    "zero_grad": {"optimizer"},
    "no_grad": {"evaluation"},
    "one_hot": set(),
    "empty_cache": set(),
    "set_to_none": {"optimizer"},
    "step_time": {"timing"},
    "state_dict": {"checkpoint"},
    "load_state_dict": {"checkpoint"},
    "weight_decay": {"optimizer"},
    "lr_decay": {"schedule"},
    "seq_len": {"data"},
    "block_size": {"data"},
    "batch_size": {"data"},
    "num_workers": {"data"},
    "allow_tf32": {"precision"},
    "preserve_rng_state": {"randomness"},
    "non_blocking": set(),
    "parameters": {"optimizer"},
}


def areas_of_name(name: str) -> set[str]:
    """The areas of an identifier, a flag or a key: `lr_scheduler`, `--micro-batch-size`."""
    plain = name.replace("-", "_").strip("_.")
    if plain in _PHRASES:
        return set(_PHRASES[plain])
    if any(part in plain for part in _NOT_MEANT):
        return set()  # recomputation is no checkpoint on disk
    parts = [part.lower() for part in _PARTS.findall(plain)]
    found: set[str] = set()
    for size in (1, 2, 3):
        for start in range(len(parts) - size + 1):
            word = "_".join(parts[start : start + size])
            found |= _PHRASES.get(word, set()) if size > 1 else set()
            found |= _AREA_OF.get(word, set())
    return found


def in_order(areas: Iterable[str]) -> tuple[str, ...]:
    """Areas in the order in which they are told."""
    wanted = set(areas)
    return tuple(area for area in AREAS if area in wanted)

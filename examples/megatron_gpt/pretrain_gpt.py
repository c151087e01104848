"""Trains a GPTModel of Megatron-Core with its own optimizer and schedule. Start it with train.sh."""

import argparse
import os
from functools import partial

import torch

if not torch.cuda.is_available():
    import on_cpu  # noqa: F401  before Megatron makes anything

from megatron.core import parallel_state
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.num_microbatches_calculator import (
    get_num_microbatches,
    init_num_microbatches_calculator,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

import data


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    model = parser.add_argument_group("model")
    model.add_argument("--num-layers", type=int, required=True)
    model.add_argument("--hidden-size", type=int, required=True)
    model.add_argument("--num-attention-heads", type=int, required=True)
    model.add_argument("--seq-length", type=int, required=True)
    model.add_argument("--max-position-embeddings", type=int, required=True)
    model.add_argument("--attention-dropout", type=float, default=0.1)
    model.add_argument("--hidden-dropout", type=float, default=0.1)
    training = parser.add_argument_group("training")
    training.add_argument("--micro-batch-size", type=int, required=True)
    training.add_argument("--global-batch-size", type=int, required=True)
    training.add_argument("--train-iters", type=int, required=True)
    training.add_argument("--lr", type=float, default=1e-3)
    training.add_argument("--min-lr", type=float, default=0.0)
    training.add_argument("--lr-warmup-iters", type=int, default=0)
    training.add_argument("--weight-decay", type=float, default=0.01)
    training.add_argument("--clip-grad", type=float, default=1.0)
    training.add_argument("--seed", type=int, default=1234)
    training.add_argument("--bf16", action="store_true")
    parallel = parser.add_argument_group("distributed")
    parallel.add_argument("--tensor-model-parallel-size", type=int, default=1)
    parallel.add_argument("--pipeline-model-parallel-size", type=int, default=1)
    parallel.add_argument("--use-distributed-optimizer", action="store_true")
    parallel.add_argument("--overlap-grad-reduce", action="store_true")
    files = parser.add_argument_group("data and output")
    files.add_argument("--mock-data", action="store_true", help="the only data that there are here")
    files.add_argument("--vocab-size", type=int, default=512)
    files.add_argument("--num-workers", type=int, default=0)
    files.add_argument("--log-interval", type=int, default=10)
    files.add_argument("--eval-interval", type=int, default=1000)
    files.add_argument("--eval-iters", type=int, default=2)
    files.add_argument("--save", default=None, help="folder for the checkpoint")
    files.add_argument("--load", default=None, help="checkpoint to go on from")
    return parser.parse_args()


def initialize(args):
    torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    )
    init_num_microbatches_calculator(
        rank=torch.distributed.get_rank(),
        rampup_batch_size=None,
        global_batch_size=args.global_batch_size,
        micro_batch_size=args.micro_batch_size,
        data_parallel_size=parallel_state.get_data_parallel_world_size(),
    )
    torch.manual_seed(args.seed)
    if torch.cuda.is_available():
        model_parallel_cuda_manual_seed(args.seed)


def model_provider(args):
    config = TransformerConfig(
        num_layers=args.num_layers,
        hidden_size=args.hidden_size,
        num_attention_heads=args.num_attention_heads,
        attention_dropout=args.attention_dropout,
        hidden_dropout=args.hidden_dropout,
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        pipeline_dtype=torch.float32,
        params_dtype=torch.bfloat16 if args.bf16 else torch.float32,
        bf16=args.bf16,
        use_cpu_initialization=not torch.cuda.is_available(),
    )
    model = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=args.vocab_size,
        max_sequence_length=args.max_position_embeddings,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )
    ddp_config = DistributedDataParallelConfig(
        overlap_grad_reduce=args.overlap_grad_reduce,
        use_distributed_optimizer=args.use_distributed_optimizer,
    )
    model = DistributedDataParallel(config, ddp_config, model.to(torch.cuda.current_device()))
    config.finalize_model_grads_func = finalize_model_grads
    if args.overlap_grad_reduce:
        config.no_sync_func = model.no_sync
    return model, config


def optimizer_provider(args, model):
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=args.lr,
            min_lr=args.min_lr,
            weight_decay=args.weight_decay,
            clip_grad=args.clip_grad,
            bf16=args.bf16,
            params_dtype=torch.bfloat16 if args.bf16 else torch.float32,
            use_distributed_optimizer=args.use_distributed_optimizer,
        ),
        [model],
    )
    scheduler = OptimizerParamScheduler(
        optimizer,
        init_lr=0.0,
        max_lr=args.lr,
        min_lr=args.min_lr,
        lr_warmup_steps=args.lr_warmup_iters,
        lr_decay_steps=args.train_iters,
        lr_decay_style="cosine",
        start_wd=args.weight_decay,
        end_wd=args.weight_decay,
        wd_incr_steps=0,
        wd_incr_style="constant",
    )
    return optimizer, scheduler


def loss_func(loss_mask, output):
    losses = output.float()
    loss = torch.sum(losses.view(-1) * loss_mask.view(-1)) / loss_mask.sum()
    return loss, {"lm loss": loss.detach().clone()}  # the schedule divides the loss in place


def forward_step(batches, model):
    batch = {key: value.to(torch.cuda.current_device()) for key, value in next(batches).items()}
    output = model(
        batch["tokens"], batch["position_ids"], batch["attention_mask"], labels=batch["labels"]
    )
    return output, partial(loss_func, batch["loss_mask"])


def mean_loss(reduced):
    """The loss over micro batches and data-parallel ranks."""
    loss = torch.stack([each["lm loss"] for each in reduced]).mean()
    torch.distributed.all_reduce(loss, group=parallel_state.get_data_parallel_group())
    return loss.item() / parallel_state.get_data_parallel_world_size()


def main():
    args = parse_args()
    initialize(args)
    model, config = model_provider(args)
    optimizer, scheduler = optimizer_provider(args, model)
    train_set, valid_set = data.datasets(args)
    batches = data.forever(train_set, args)
    rank = torch.distributed.get_rank()

    iteration = 0
    if args.load:
        state = torch.load(args.load, map_location="cpu", weights_only=False)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["opt_param_scheduler"])
        iteration = state["iteration"]

    run = partial(
        get_forward_backward_func(),
        forward_step_func=forward_step,
        model=model,
        seq_length=args.seq_length,
        micro_batch_size=args.micro_batch_size,
    )
    model.train()
    while iteration < args.train_iters:
        model.zero_grad_buffer()
        optimizer.zero_grad()
        reduced = run(
            data_iterator=batches, num_microbatches=get_num_microbatches(), forward_only=False
        )
        _, grad_norm, _ = optimizer.step()
        scheduler.step(increment=1)
        iteration += 1
        if iteration % args.log_interval == 0:
            loss = mean_loss(reduced)
            if rank == 0:
                print(
                    f" iteration {iteration:8d}/{args.train_iters:8d} | lm loss: {loss:.6E} | "
                    f"grad norm: {grad_norm:.3f} |",
                    flush=True,
                )
        if iteration % args.eval_interval == 0:
            model.eval()
            with torch.no_grad():
                reduced = run(
                    data_iterator=data.forever(valid_set, args),
                    num_microbatches=args.eval_iters * get_num_microbatches(),
                    forward_only=True,
                )
            model.train()
            loss = mean_loss(reduced)
            if rank == 0:
                print(f" validation loss at iteration {iteration} | lm loss: {loss:.6E} |", flush=True)

    if args.save and rank == 0:
        os.makedirs(args.save, exist_ok=True)
        state = {
            "iteration": iteration,
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "opt_param_scheduler": scheduler.state_dict(),
        }
        torch.save(state, os.path.join(args.save, "model_optim_rng.pt"))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

"""Trains the GPT with a DeepSpeed engine. Start it with train.sh."""

import argparse

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator

from data import Walks
from model import GPT

VOCAB_SIZE = 512


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local_rank", type=int, default=-1, help="given by the launcher")
    parser.add_argument("--save-dir", default="checkpoints")
    parser.add_argument("--load-dir", default=None, help="checkpoints to go on from")
    parser.add_argument("--seq-length", type=int, default=128)
    parser.add_argument("--num-layers", type=int, default=4)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--num-heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--train-samples", type=int, default=2048)
    parser.add_argument("--train-steps", type=int, default=40, help="optimizer steps")
    parser.add_argument("--eval-interval", type=int, default=20)
    parser.add_argument("--eval-iters", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1234)
    return deepspeed.add_config_arguments(parser).parse_args()


def forever(loader):
    epoch = 0
    while True:
        loader.data_sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


@torch.no_grad()
def evaluate(engine, eval_set, iters):
    engine.eval()
    total = 0.0
    for x, y in torch.utils.data.DataLoader(eval_set, batch_size=8):
        total += engine(x.to(engine.device), y.to(engine.device)).item()
    engine.train()
    return total / iters


def main():
    args = parse_args()
    if get_accelerator().device_name() == "cpu":
        # Its shared-memory collectives are compiled at the first start, which takes minutes.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()
    torch.manual_seed(args.seed)

    train_set = Walks(args.train_samples, args.seq_length, VOCAB_SIZE, args.seed)
    eval_set = Walks(8 * args.eval_iters, args.seq_length, VOCAB_SIZE, args.seed + 1)
    model = GPT(
        VOCAB_SIZE, args.seq_length, args.num_layers, args.hidden_size, args.num_heads, args.dropout
    )
    engine, _, loader, _ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), training_data=train_set
    )
    first = 0
    if args.load_dir:
        engine.load_checkpoint(args.load_dir)
        first = engine.global_steps

    batches = forever(loader)
    for step in range(first, args.train_steps):
        for _ in range(engine.gradient_accumulation_steps()):
            x, y = next(batches)
            loss = engine(x.to(engine.device), y.to(engine.device))
            engine.backward(loss)
            engine.step()
        if dist.get_rank() == 0 and (step + 1) % 5 == 0:
            print(f"step {step + 1}/{args.train_steps} loss {loss.item():.4f}", flush=True)
        if (step + 1) % args.eval_interval == 0:
            eval_loss = evaluate(engine, eval_set, args.eval_iters)
            if dist.get_rank() == 0:
                print(f"step {step + 1} eval loss {eval_loss:.4f}", flush=True)

    engine.save_checkpoint(args.save_dir)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Trains the GPT with DistributedDataParallel. Start it with train.sh."""

import argparse
import math
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import data
from evaluate import evaluate
from model import GPT


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", default="out")
    parser.add_argument("--block-size", type=int, default=96)
    parser.add_argument("--n-layer", type=int, default=2)
    parser.add_argument("--n-head", type=int, default=4)
    parser.add_argument("--n-embd", type=int, default=64)
    parser.add_argument("--n-experts", type=int, default=2)
    parser.add_argument("--capacity-factor", type=float, default=1.25)
    parser.add_argument("--balance-weight", type=float, default=0.01)
    parser.add_argument("--z-weight", type=float, default=0.001)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--grad-accum", type=int, default=2)
    parser.add_argument("--max-steps", type=int, default=12)
    parser.add_argument("--warmup-steps", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--grad-clip", type=float, default=0.25)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--log-every", type=int, default=1)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1337)
    return parser.parse_args()


def learning_rate(step, args):
    if step < args.warmup_steps:
        return args.lr * (step + 1) / args.warmup_steps
    done = (step - args.warmup_steps) / max(1, args.max_steps - args.warmup_steps)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def make_optimizer(model, args):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    groups = [
        {"params": decay, "weight_decay": args.weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.95))


def forever(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def save(path, model, optimizer, step):
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "rng": torch.get_rng_state(),
    }
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(state, path)


def main():
    args = parse_args()
    args.vocab_size = data.VOCAB
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)

    loader, sampler = data.train_loader(args)
    held_out = data.eval_loader(args)
    model = GPT(args)
    ddp_model = DDP(model)
    optimizer = make_optimizer(model, args)
    torch.manual_seed(args.seed + rank)

    batches = forever(loader, sampler)
    model.train()
    for step in range(args.max_steps):
        began = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)

        optimizer.zero_grad(set_to_none=False)
        step_loss = 0.0
        for micro_step in range(args.grad_accum):
            x, y = next(batches)
            loss = ddp_model(x, y) / args.grad_accum
            if not torch.isfinite(loss):
                raise RuntimeError(f"loss is {loss.item()} at step {step}")
            loss.backward()
            step_loss += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()

        shared = torch.tensor(step_loss)
        dist.all_reduce(shared)
        took_ms = 1000 * (time.perf_counter() - began)
        if rank == 0 and (step + 1) % args.log_every == 0:
            print(
                f"step {step + 1}/{args.max_steps} loss {shared.item() / world:.5f} "
                f"norm {norm.item():.4f} ms {took_ms:.1f}",
                flush=True,
            )
        if (step + 1) % args.eval_every == 0:
            eval_loss = evaluate(model, held_out)
            if rank == 0:
                print(f"step {step + 1} eval loss {eval_loss:.5f}", flush=True)

    if rank == 0:
        path = os.path.join(args.out_dir, "checkpoint.pt")
        save(path, model, optimizer, args.max_steps)
        print(f"saved {path}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

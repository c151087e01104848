"""Trains the diffusion model on one process; prints, evaluates the average, saves it."""

import argparse
import math
import os
import time

import torch
from averaging import Average
from data import Pictures, augmented, batches
from diffusion import evaluate, training_loss
from model import UNet


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--grad-accum", type=int, default=1)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--warmup-steps", type=int, default=2)
    parser.add_argument("--ema-decay", type=float, default=0.9)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--eval-every", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", default="out")
    parser.add_argument("--resume", default="")
    return parser.parse_args()


def rate_factor(step, args):
    if step < args.warmup_steps:
        return (step + 1) / (args.warmup_steps + 1)
    share = (step - args.warmup_steps) / max(1, args.steps - args.warmup_steps)
    return 0.5 * (1.0 + math.cos(math.pi * share))


def save(path, model, average, optimizer, scheduler, step):
    torch.save(
        {
            "step": step,
            "model": model.state_dict(),
            "ema": average.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "random": torch.get_rng_state(),
        },
        path,
    )
    print(f"saved {path}", flush=True)


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    os.makedirs(args.out_dir, exist_ok=True)
    model = UNet(dropout=args.dropout)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, weight_decay=args.weight_decay, betas=(0.9, 0.99)
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, args))
    average = Average(model, args.ema_decay)
    train_batches = batches(Pictures(512), args.batch_size, args.seed)
    held_out = torch.stack([Pictures(64, first=10_000)[i] for i in range(64)])
    first = 0
    if args.resume:
        state = torch.load(args.resume, weights_only=True)
        model.load_state_dict(state["model"])
        average.module.load_state_dict(state["ema"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        first = state["step"]
        for _ in range(first * args.grad_accum):
            next(train_batches)
        torch.set_rng_state(state["random"])
    for step in range(first, args.steps):
        began = time.perf_counter()
        model.train()
        optimizer.zero_grad()
        total = 0.0
        for _ in range(args.grad_accum):
            images = augmented(next(train_batches))
            loss = training_loss(model, images) / args.grad_accum
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        scheduler.step()
        average.update(model)
        took = 1000.0 * (time.perf_counter() - began)
        print(
            f"step {step + 1} loss {total:.6f} grad_norm {norm.item():.4f} "
            f"step_time {took:.1f} ms",
            flush=True,
        )
        if (step + 1) % args.eval_every == 0:
            error = evaluate(average.module, held_out, args.batch_size)
            print(f"step {step + 1} eval_loss {error:.6f}", flush=True)
        if (step + 1) % args.save_every == 0:
            path = os.path.join(args.out_dir, f"checkpoint-{step + 1}.pt")
            save(path, model, average, optimizer, scheduler, step + 1)


if __name__ == "__main__":
    main()

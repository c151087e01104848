"""Trains a GPT with a hand-written loop and keeps averaged weights beside it."""

import argparse
import contextlib
import copy
import math
import os
import time

import torch

from data import VOCAB, Data
from model import GPT


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out-dir", default="out")
    parser.add_argument("--resume", default=None, help="a checkpoint to go on from")
    parser.add_argument("--block-size", type=int, default=64)
    parser.add_argument("--n-layer", type=int, default=2)
    parser.add_argument("--n-head", type=int, default=4)
    parser.add_argument("--n-embd", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--grad-accum", type=int, default=4)
    parser.add_argument("--max-iters", type=int, default=12)
    parser.add_argument("--warmup-iters", type=int, default=4)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--grad-clip", type=float, default=0.25)
    parser.add_argument("--spike-norm", type=float, default=2.5)
    parser.add_argument("--ema-decay", type=float, default=0.9)
    parser.add_argument("--eval-interval", type=int, default=5)
    parser.add_argument("--eval-iters", type=int, default=4)
    parser.add_argument("--log-interval", type=int, default=1)
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def get_lr(it, args):
    if it < args.warmup_iters:
        return args.lr * (it + 1) / args.warmup_iters
    ratio = (it - args.warmup_iters) / max(1, args.max_iters - args.warmup_iters)
    return args.lr * (0.1 + 0.45 * (1.0 + math.cos(math.pi * ratio)))


def configure_optimizer(model, args):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": args.weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ],
        lr=args.lr,
        betas=(0.9, 0.95),
    )


@torch.no_grad()
def update_ema(ema, model, decay):
    for kept, current in zip(ema.parameters(), model.parameters()):
        kept.mul_(decay).add_(current, alpha=1.0 - decay)


@torch.no_grad()
def estimate_loss(model, data, autocast):
    model.eval()
    losses = []
    for x, y in data.eval_batches():
        with autocast():
            _, loss = model(x, y)
        losses.append(loss.item())
    model.train()
    return sum(losses) / len(losses)


def save_checkpoint(path, model, ema, optimizer, data, it):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save(
        {
            "model": model.state_dict(),
            "ema": ema.state_dict(),
            "optimizer": optimizer.state_dict(),
            "iter": it,
            "position": data.position,
        },
        path,
    )


def load_checkpoint(path, model, ema, optimizer, data):
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    ema.load_state_dict(state["ema"])
    optimizer.load_state_dict(state["optimizer"])
    data.position = state["position"]
    return state["iter"]


def main():
    args = parse_args()
    args.vocab_size = VOCAB
    torch.manual_seed(args.seed)
    data = Data(args)
    model = GPT(args)
    ema = copy.deepcopy(model).requires_grad_(False)
    optimizer = configure_optimizer(model, args)
    first = load_checkpoint(args.resume, model, ema, optimizer, data) if args.resume else 0

    def autocast():
        if args.dtype == "float32":
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.bfloat16)

    model.train()
    for it in range(first, args.max_iters):
        t0 = time.time()
        lr = get_lr(it, args)
        for group in optimizer.param_groups:
            group["lr"] = lr

        lossf = 0.0
        for micro in range(args.grad_accum):
            x, y = data.get_batch()
            with autocast():
                _, loss = model(x, y)
                loss = loss / args.grad_accum
            loss.backward()
            lossf += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        if not norm < args.spike_norm:
            print(f"iter {it}: gradients dropped, norm {norm:.4f}", flush=True)
            for p in model.parameters():
                p.grad.zero_()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        update_ema(ema, model, args.ema_decay)

        dt = time.time() - t0
        if it % args.log_interval == 0:
            print(f"iter {it}: loss {lossf:.5f}, norm {norm:.4f}, time {dt * 1000:.2f}ms", flush=True)
        if (it + 1) % args.eval_interval == 0:
            val, val_ema = estimate_loss(model, data, autocast), estimate_loss(ema, data, autocast)
            print(
                f"iter {it}: val loss {val:.5f} perplexity {math.exp(val):.3f}, "
                f"averaged {val_ema:.5f}",
                flush=True,
            )

    path = os.path.join(args.out_dir, "ckpt.pt")
    save_checkpoint(path, model, ema, optimizer, data, args.max_iters)
    print(f"saved {path}", flush=True)


if __name__ == "__main__":
    main()

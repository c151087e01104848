"""Trains the GPT with DistributedDataParallel. Start it with train.sh."""

import argparse
import math
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import data
from evaluate import evaluate
from model import GPT


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data/tales.txt", help="text file to train on")
    parser.add_argument("--out-dir", default="out", help="where the checkpoint is written")
    parser.add_argument("--block-size", type=int, default=256, help="context length")
    parser.add_argument("--n-layer", type=int, default=4)
    parser.add_argument("--n-head", type=int, default=4)
    parser.add_argument("--n-embd", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=1, help="sequences per process and micro-step")
    parser.add_argument("--grad-accum", type=int, default=4, help="micro-steps per optimizer step")
    parser.add_argument("--max-steps", type=int, default=36, help="optimizer steps")
    parser.add_argument("--warmup-steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--grad-clip", type=float, default=1.0)
    parser.add_argument("--eval-every", type=int, default=18)
    parser.add_argument("--eval-batches", type=int, default=4)
    parser.add_argument("--log-every", type=int, default=6)
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1337)
    return parser.parse_args()


def learning_rate(step, args):
    if step < args.warmup_steps:
        return args.lr * (step + 1) / args.warmup_steps
    done = (step - args.warmup_steps) / max(1, args.max_steps - args.warmup_steps)
    return args.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def forever(loader, sampler):
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def main():
    args = parse_args()
    use_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if use_cuda else "gloo")
    rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(args.seed)

    train_set, eval_set, vocab = data.load(args.data, args.block_size)
    args.vocab_size = len(vocab)
    sampler = DistributedSampler(train_set, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=args.num_workers,
        drop_last=True,
    )
    eval_loader = DataLoader(eval_set, batch_size=8)

    model = GPT(args).to(device)
    model = DDP(model, device_ids=[local_rank] if use_cuda else None)
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": args.weight_decay},
            {"params": no_decay, "weight_decay": 0.0},
        ],
        lr=args.lr,
        betas=(0.9, 0.95),
    )

    batches = forever(loader, sampler)
    model.train()
    for step in range(args.max_steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)

        optimizer.zero_grad(set_to_none=False)
        step_loss = 0.0
        for micro_step in range(args.grad_accum):
            x, y = next(batches)
            x, y = x.to(device), y.to(device)
            loss = model(x, y) / args.grad_accum
            loss.backward()
            step_loss += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()

        if rank == 0 and (step + 1) % args.log_every == 0:
            print(f"step {step + 1}/{args.max_steps} loss {step_loss:.4f}", flush=True)
        if (step + 1) % args.eval_every == 0:
            eval_loss = evaluate(model.module, eval_loader, device, args.eval_batches)
            if rank == 0:
                print(f"step {step + 1} eval loss {eval_loss:.4f}", flush=True)

    if rank == 0:
        os.makedirs(args.out_dir, exist_ok=True)
        state = {
            "model": model.module.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": args.max_steps,
            "args": vars(args),
        }
        torch.save(state, os.path.join(args.out_dir, "checkpoint.pt"))
        print(f"saved {args.out_dir}/checkpoint.pt", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

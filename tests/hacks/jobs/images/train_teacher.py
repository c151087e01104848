"""Trains the U-Net with a slow copy of itself as teacher on pictures without clean targets."""

import argparse
import os
import time

import torch
import torch.nn.functional as F
from averaging import Average
from data import Pictures, augmented, batches
from diffusion import evaluate, noised
from model import UNet


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--teacher-decay", type=float, default=0.8)
    parser.add_argument("--teacher-share", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", default="out")
    return parser.parse_args()


def student_loss(student, teacher, images, share):
    """The error of the predicted noise, and the distance to what the teacher predicts."""
    noise = torch.randn_like(images)
    t = torch.randint(0, 150, (images.shape[0],))
    given = noised(images, noise, t)
    predicted = student(given, t)
    with torch.no_grad():
        target = teacher(given, t)
    return F.mse_loss(predicted, noise) + share * F.mse_loss(predicted, target)


def main():
    args = arguments()
    torch.manual_seed(args.seed)
    os.makedirs(args.out_dir, exist_ok=True)
    student = UNet(width=12, dropout=0.0)
    teacher = Average(student, args.teacher_decay)
    optimizer = torch.optim.SGD(student.parameters(), lr=10 * args.lr, momentum=0.9)
    train_batches = batches(Pictures(384), args.batch_size, args.seed)
    held_out = torch.stack([Pictures(48, first=10_000)[i] for i in range(48)])
    for step in range(args.steps):
        began = time.perf_counter()
        student.train()
        images = augmented(next(train_batches))
        loss = student_loss(student, teacher.module, images, args.teacher_share)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        teacher.update(student)
        took = 1000.0 * (time.perf_counter() - began)
        print(f"step {step + 1} loss {loss.item():.6f} step_time {took:.1f} ms", flush=True)
    error = evaluate(teacher.module, held_out, args.batch_size)
    print(f"eval_loss {error:.6f}", flush=True)
    path = os.path.join(args.out_dir, "teacher.pt")
    torch.save({"teacher": teacher.module.state_dict(), "student": student.state_dict()}, path)
    print(f"saved {path}", flush=True)


if __name__ == "__main__":
    main()

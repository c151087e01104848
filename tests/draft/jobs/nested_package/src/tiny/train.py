import argparse

import torch
import torch.distributed as dist
import wandb
from torch.nn.parallel import DistributedDataParallel as DDP

from . import evaluation
from .data.rows import Rows
from .nets.network import Net


def cli():
    parser = argparse.ArgumentParser()
    parser.add_argument("--total-steps", type=int)
    parser.add_argument("--device-batch-size", type=int, default=1)
    parser.add_argument("--total-batch-size", type=int, default=16)
    parser.add_argument("--save-dir")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def main():
    args = cli()
    dist.init_process_group("nccl")
    world_size = dist.get_world_size()
    assert args.total_batch_size % (args.device_batch_size * world_size) == 0
    accumulation = args.total_batch_size // (args.device_batch_size * world_size)
    wandb.init(project="tiny")
    model = DDP(Net().to(args.device))
    for step in range(args.total_steps):
        for _ in range(accumulation):
            pass
    evaluation.run(model, Rows(64))
    torch.save(model.state_dict(), args.save_dir + "/final.pt")


if __name__ == "__main__":
    main()

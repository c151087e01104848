import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader

from network import Net
from rows import Rows


def get_args_parser():
    parser = argparse.ArgumentParser("training", add_help=False)
    parser.add_argument("-b", "--batch-size", type=int, default=64)
    parser.add_argument("--accum-iter", type=int, default=1)
    parser.add_argument("--num-steps", type=int, default=1000)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--output_dir", default="./out", help="path where to save")
    parser.add_argument("--resume", default="", help="resume from checkpoint")
    return parser


def save(state, folder, name):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / name)


if __name__ == "__main__":
    args = get_args_parser().parse_args()
    dist.init_process_group("gloo")
    model = DDP(Net(args.width))
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(Rows(4096), batch_size=args.batch_size, num_workers=args.num_workers)
    if args.resume:
        model.load_state_dict(torch.load(args.resume))
    for step in range(args.num_steps):
        for _ in range(args.accum_iter):
            pass
    save(model.state_dict(), args.output_dir, "last.pt")

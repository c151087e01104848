import argparse


def add_data(parser):
    group = parser.add_argument_group("data")
    group.add_argument("--micro-bsz", type=int, default=2)
    group.add_argument("--accumulate", type=int, default=16)
    group.add_argument("--workers", type=int, default=0)


def parse():
    parser = argparse.ArgumentParser()
    add_data(parser)
    for name, default in (("--lr", 0.1), ("--momentum", 0.9)):
        parser.add_argument(name, type=float, default=default)
    parser.add_argument("--iters", type=int, default=1000)
    parser.add_argument("--logging-dir", default="logs")
    parser.add_argument("--save-every", type=int, default=100)
    return parser.parse_args()

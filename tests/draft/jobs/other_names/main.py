import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from loaders import make_loader
from losses import smooth_loss
from network import Net
from options import parse


def main():
    opt = parse()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=opt.lr)
    loader = make_loader(opt)
    log = open(f"{opt.logging_dir}/train.txt", "w")
    for it in range(opt.iters):
        for _ in range(opt.accumulate):
            x, y = next(loader)
            (smooth_loss(model(x), y) / opt.accumulate).backward()
        optimizer.step()
        optimizer.zero_grad()
        if it % opt.save_every == 0:
            torch.save(model.state_dict(), f"{opt.logging_dir}/{it}.pt")
            log.write(f"{it}\n")


if __name__ == "__main__":
    main()

from torch.utils.data import DataLoader

from rows import Rows


def make_loader(opt):
    loader = DataLoader(Rows(4096), batch_size=opt.micro_bsz, num_workers=opt.workers)
    while True:
        yield from loader

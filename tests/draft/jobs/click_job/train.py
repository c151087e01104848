import click
import torch
from torch.utils.data import DataLoader

from network import Net
from rows import Rows


@click.command()
@click.option("--batch-size", type=int, default=2)
@click.option("--grad-accum-steps", type=int, default=1)
@click.option("--steps", type=int, default=50)
@click.option("--compile/--no-compile", default=True)
@click.option("--work-dir", default="work", help="folder for checkpoints")
def main(batch_size, grad_accum_steps, steps, compile, work_dir):
    model = Net()
    if compile:
        model = torch.compile(model)
    loader = DataLoader(Rows(512), batch_size=batch_size)
    torch.save(model.state_dict(), f"{work_dir}/m.pt")


if __name__ == "__main__":
    main()

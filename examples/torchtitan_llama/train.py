"""torchtitan's trainer on a model and data of this folder. Start it with train.sh."""

import torch

if not torch.cuda.is_available():
    import on_cpu  # noqa: F401  before torchtitan.train, which asks for the device when imported

import walks  # noqa: F401  registers `llama3_walks`
from torchtitan.train import Trainer, main

if __name__ == "__main__":
    main(Trainer)

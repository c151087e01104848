"""Megatron's mock data, the same for the same seed, shared out over the data-parallel ranks."""

from megatron.core import parallel_state
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.gpt_dataset import GPTDatasetConfig, MockGPTDataset
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


class Numbers:
    """Stands for a tokenizer: the mock data are token ids already."""

    def __init__(self, vocab_size):
        self.vocab_size = vocab_size
        self.eod = self.pad = vocab_size - 1
        self.unique_identifiers = {"class": type(self).__name__, "vocab_size": vocab_size}


def datasets(args):
    """Training and validation set."""
    config = GPTDatasetConfig(
        random_seed=args.seed,
        sequence_length=args.seq_length,
        split="9,1,0",
        tokenizer=Numbers(args.vocab_size),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        mid_level_dataset_surplus=0.005,
    )
    sizes = [args.train_iters * args.global_batch_size, 8 * args.global_batch_size, 0]
    built = BlendedMegatronDatasetBuilder(MockGPTDataset, sizes, lambda: True, config).build()
    return built[0], built[1]


def forever(dataset, args):
    """Micro batches of this rank, epoch after epoch."""
    sampler = DistributedSampler(
        dataset,
        parallel_state.get_data_parallel_world_size(),
        parallel_state.get_data_parallel_rank(),
        seed=args.seed,
        drop_last=True,
    )
    loader = DataLoader(
        dataset,
        batch_size=args.micro_batch_size,
        sampler=sampler,
        num_workers=args.num_workers,
        drop_last=True,
    )
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1

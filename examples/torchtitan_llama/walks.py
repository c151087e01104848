"""The model's sizes and its data: noisy walks over a random table, the same for the same seed."""

import dataclasses

import torch
from torch.distributed.fsdp import FSDPModule
from torch.utils.data import Dataset
from torch.utils.data.distributed import DistributedSampler
from torchtitan.components.dataloader import ParallelAwareDataloader
from torchtitan.models.llama3 import TransformerModelArgs, get_train_spec, parallelize_llama
from torchtitan.protocols.train_spec import register_train_spec

VOCAB_SIZE = 512


class Walks(Dataset):
    """`count` sequences of `length` tokens with their targets, written once when it is made."""

    def __init__(self, count, length, seed):
        table = torch.randperm(VOCAB_SIZE, generator=torch.Generator().manual_seed(0))
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.empty(count, length + 1, dtype=torch.long)
        tokens[:, 0] = torch.randint(VOCAB_SIZE, (count,), generator=generator)
        for i in range(length):
            noise = torch.randint(VOCAB_SIZE, (count,), generator=generator)
            stay = torch.rand(count, generator=generator) < 0.8
            tokens[:, i + 1] = torch.where(stay, table[tokens[:, i]], noise)
        self.tokens = tokens

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        row = self.tokens[index]
        return {"input": row[:-1]}, row[1:]


def build_dataloader(dp_world_size, dp_rank, tokenizer, job_config):
    training = job_config.training
    data = Walks(4096, training.seq_len, seed=1)
    return ParallelAwareDataloader(
        data,
        dp_rank=dp_rank,
        dp_world_size=dp_world_size,
        batch_size=training.local_batch_size,
        sampler=DistributedSampler(data, dp_world_size, dp_rank, seed=2, drop_last=True),
        drop_last=True,
        num_workers=training.dataloader.num_workers,
        persistent_workers=training.dataloader.persistent_workers,
        pin_memory=training.dataloader.pin_memory,
        prefetch_factor=training.dataloader.prefetch_factor,
    )


def parallelize(model, parallel_dims, job_config):
    model = parallelize_llama(model, parallel_dims, job_config)
    if not torch.cuda.is_available():
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
    return model


register_train_spec(
    "llama3_walks",
    dataclasses.replace(
        get_train_spec(),
        model_args={
            "debug": TransformerModelArgs(
                dim=128, n_layers=4, n_heads=4, vocab_size=VOCAB_SIZE, multiple_of=64
            )
        },
        parallelize_fn=parallelize,
        build_dataloader_fn=build_dataloader,
        build_tokenizer_fn=None,
        build_validator_fn=None,
    ),
)

"""Lets torchtitan run without an accelerator: it takes the device to be CUDA where there is none."""

import sys
from types import ModuleType, SimpleNamespace
from unittest import mock

import psutil
import torch


class Processor:
    """What torchtitan asks of torch.cuda, answered for the CPU."""

    set_device = staticmethod(lambda device: None)
    current_device = staticmethod(lambda: 0)
    get_device_name = staticmethod(lambda device=None: "cpu")
    memory_stats = staticmethod(lambda device=None: {})
    reset_peak_memory_stats = empty_cache = staticmethod(lambda: None)
    synchronize = staticmethod(torch.cpu.synchronize)

    @staticmethod
    def get_device_properties(device=None):
        return SimpleNamespace(total_memory=psutil.virtual_memory().total)


kernels = ModuleType("torchtitan.models.moe.kernels")  # in triton; only experts call them
kernels.generate_permute_indices = None
sys.modules[kernels.__name__] = kernels

with (
    mock.patch("torch._utils._get_available_device_type", lambda: "cpu"),
    mock.patch("torch._utils._get_device_module", lambda device_type: Processor),
):
    from torchtitan.tools import utils  # noqa: F401  keeps what it is told

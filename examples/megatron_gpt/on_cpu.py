"""Lets Megatron-Core run without a GPU: it names CUDA as the device of what it makes."""

from contextlib import nullcontext

import torch
from torch.overrides import TorchFunctionMode


class OnCpu(TorchFunctionMode):
    """What is asked for on CUDA is made on the CPU, and says that it is on CUDA."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if "cuda" in str(kwargs.get("device")):
            kwargs = {**kwargs, "device": "cpu"}
        if func is torch.Tensor.cuda:
            return args[0]
        out = func(*args, **kwargs)
        if func is torch.Tensor.type and isinstance(out, str):
            return out.replace("torch.", "torch.cuda.")
        return out


torch.cuda.current_device = lambda: "cpu"
torch.cuda.synchronize = lambda device=None: None
OnCpu().__enter__()

from megatron.core.tensor_parallel import random  # noqa: E402

random.CudaRNGStatesTracker.fork = lambda self, name=None: nullcontext()

"""The smaller hooks: loss scaling, waiting for data, saving, and resets of the memory peak."""

import functools
import sys

import torch

from .hooks import compiling, restore
from .recorder import CLOCK, guard


def hook_scaler(recorder, module):
    """Note the scale of each loss and each step that a GradScaler skips."""
    scaler = module.GradScaler
    scale, step = scaler.scale, scaler.step

    @functools.wraps(scale)
    def observed_scale(self, outputs):
        out = scale(self, outputs)
        if not compiling() and self.is_enabled():
            recorder.last_scale = self._scale
        return out

    @functools.wraps(step)
    def observed_step(self, optimizer, *args, **kwargs):
        before = calls(recorder, optimizer)
        out = step(self, optimizer, *args, **kwargs)
        if not compiling() and self.is_enabled():
            guard(recorder, "scaler", skipped, recorder, optimizer, before)
        return out

    scaler.scale, scaler.step = observed_scale, observed_step
    recorder.uninstall.append(lambda: restore(scaler, "scale", observed_scale, scale))
    recorder.uninstall.append(lambda: restore(scaler, "step", observed_step, step))
    return [observed_scale.__code__, observed_step.__code__]


def calls(recorder, optimizer):
    if not recorder.opened or recorder.dead:
        return 0
    return recorder.step.optimizer_calls.get(recorder.names.get(id(optimizer)), 0)


def skipped(recorder, optimizer, before):
    """A step that the scaler left out still closes the logical step, as one that was skipped."""
    if recorder.opened and calls(recorder, optimizer) == before:
        recorder.step.skipped += 1
        recorder.stepped = True


def hook_loader(recorder, module):
    """Time the waiting for each batch of a DataLoader."""
    iterator = module._BaseDataLoaderIter
    take = iterator.__next__

    def __next__(self):
        began = CLOCK()
        try:
            return take(self)
        finally:
            recorder.wait_s += CLOCK() - began

    iterator.__next__ = __next__
    recorder.uninstall.append(lambda: restore(iterator, "__next__", __next__, take))
    return [__next__.__code__]


def hook_save(recorder):
    """Note where torch.save writes: its writer opens files below Python's audit events."""
    save = torch.save

    @functools.wraps(save)
    def observed_save(obj, f, *args, **kwargs):
        if recorder.writes is not None and not hasattr(f, "write"):
            recorder.writes.wrote(f)
        return save(obj, f, *args, **kwargs)

    torch.save = observed_save
    serialization = sys.modules.get("torch.serialization")
    if serialization is not None:
        serialization.save = observed_save
    recorder.uninstall.append(lambda: setattr(torch, "save", save))
    return [observed_save.__code__]


def hook_peak(recorder):
    """Keep the peak of reserved memory when the job resets torch's counters."""
    reset = getattr(torch._C, "_cuda_resetPeakMemoryStats", None)
    if reset is None:
        return []

    def observed_reset(device):
        guard(recorder, "peak", keep_peak, recorder)
        return reset(device)

    torch._C._cuda_resetPeakMemoryStats = observed_reset
    recorder.uninstall.append(lambda: setattr(torch._C, "_cuda_resetPeakMemoryStats", reset))
    return [observed_reset.__code__]


def keep_peak(recorder):
    if torch.cuda.is_initialized():
        from .describe import peak_bytes

        recorder.known_peak = max(recorder.known_peak, peak_bytes(recorder.known_peak))

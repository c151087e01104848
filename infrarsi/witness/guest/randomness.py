"""How far the generators of random numbers moved; reading their state draws nothing."""

import zlib

import torch


def random_state():
    """The CPU generator's state as bytes, and the offset of each CUDA generator in use."""
    found = {"cpu": torch.get_rng_state().numpy().tobytes()}
    if torch.cuda.is_initialized():
        for index, generator in enumerate(torch.cuda.default_generators):
            read = getattr(generator, "get_offset", None)  # torch 2.1 and newer
            if read is not None:
                found["cuda:%d" % index] = read()
    return found


def add_moves(moved, before, after, prefix=""):
    """Add to `moved` what happened between two states: an offset on a device.

    For the CPU 0.0 if its state is the same, else a number above 1 that tells where it is now.
    """
    for device, state in after.items():
        old, name = before.get(device, state), prefix + device
        if isinstance(state, bytes):
            now = 2.0 + zlib.crc32(state) if state != old else 0.0
            moved[name] = now or moved.get(name, 0.0)
        else:
            moved[name] = moved.get(name, 0.0) + float(state - old)

"""How far the generators of random numbers moved; reading their state draws nothing."""

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
    """Add to `moved` what happened between two states: 1.0 for the CPU, an offset elsewhere."""
    for device, state in after.items():
        old, name = before.get(device, state), prefix + device
        if isinstance(state, bytes):
            moved[name] = max(moved.get(name, 0.0), float(state != old))
        else:
            moved[name] = moved.get(name, 0.0) + float(state - old)

"""Optimizer state by key (`exp_avg`, `step`): dtypes, and in audits its fingerprint at the end."""

import torch

from .later import keep_together


def by_key(optimizer):
    """{key: tensors} of an optimizer's state, in the order of its parameters."""
    found = {}
    for state in list(optimizer.state.values()):
        if isinstance(state, dict):
            for key, value in state.items():
                if isinstance(value, torch.Tensor):
                    found.setdefault(str(key), []).append(value)
    return found


def titled(recorder):
    """(name, optimizer) for each optimizer that has a state; one that two share counts once."""
    seen = set()
    everything = [(recorder.names.get(id(o)), o) for o in list(recorder.optimizers)]
    everything = [(name or "inner:" + type(o).__name__, name is None, o) for name, o in everything]
    for name, _, optimizer in sorted(everything, key=lambda one: (one[1], one[0])):
        state = getattr(optimizer, "state", None)
        if state and id(state) not in seen:
            seen.add(id(state))
            yield name, optimizer


def facts(name, key, tensors):
    return {
        "optimizer": name,
        "key": key,
        "dtypes": sorted({str(tensor.dtype)[6:] for tensor in tensors}),
        "tensors": len(tensors),
    }


def dtype_lines(recorder):
    """The lines of a timed run: nothing is read from a device."""
    for name, optimizer in titled(recorder):
        for key, tensors in by_key(optimizer).items():
            yield dict(facts(name, key, tensors), norm=None, projection=None)


def keep_states(recorder, later):
    """Keep the fingerprint of each key of each optimizer."""
    for name, optimizer in titled(recorder):
        for key, tensors in by_key(optimizer).items():
            keep_together(recorder, later, "state", facts(name, key, tensors), tensors)

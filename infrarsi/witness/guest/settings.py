"""Says when a scalar of a parameter group differs from what was last said of it."""

import torch

PLAIN = (int, float, bool, str, type(None))
MISSING = object()


def plain(value):
    """A setting as plain data, MISSING for what is none; never waits for a device."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        return float(value) if value.device.type == "cpu" else "on " + str(value.device)
    if isinstance(value, (list, tuple)) and len(value) < 9:
        if type(value) is tuple and all(type(x) in (int, float) for x in value):
            return value  # the object itself, so that the next look is a comparison of identity
        return tuple(x if isinstance(x, (int, float)) else str(x) for x in value)
    return MISSING


def differing(group, last):
    """{name: new value} of a group's settings, which `last` then holds; None if there are none."""
    out = None
    for name, value in group.items():
        old = last.get(name, MISSING)
        if value is old or name == "params":
            continue
        value = plain(value)
        if value is MISSING or value == old or value != value and old != old:
            continue
        out = out or {}
        out[name] = last[name] = value
    return out


class Settings(object):
    """What was last said of each optimizer's groups."""

    def __init__(self):
        self.said = {}

    def changes(self, name, optimizer):
        """(group number, changed settings) since the last call; all of a group that is new."""
        said = self.said.setdefault(name, [])
        for g, group in enumerate(optimizer.param_groups):
            if g == len(said):
                said.append({})
            settings = differing(group, said[g])
            if settings:
                yield g, settings


def say(recorder, name, optimizer):
    """Say which settings of an optimizer's groups changed since they were last said."""
    for group, changed in recorder.settings.changes(name, optimizer):
        fields = {"i": recorder.step.index, "optimizer": name, "group": group}
        recorder.channel.line("settings", dict(fields, settings=changed), now=False)

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


class Group(object):
    """What was last said of one parameter group, and its other values as they were then."""

    def __init__(self):
        self.said, self.values, self.rate = {}, None, None
        self.places = ()

    def changed(self, group):
        """The settings that changed since the last call, None where none did."""
        rate, values = group.get("lr"), list(group.values())
        if self.values is None or not self.others_same(values, rate):
            self.remember(group, rate)
            return differing(group, self.said)
        if rate == self.rate or rate != rate and self.rate != self.rate:
            return None
        self.rate = self.said["lr"] = rate
        return {"lr": rate}

    def others_same(self, values, rate):
        """Whether all but the rate and the parameters are as they were."""
        parameters, at = self.places
        if len(values) != len(self.values) or values[at] is not rate or type(rate) is not float:
            return False
        values[parameters] = values[at] = None
        return values == self.values

    def remember(self, group, rate):
        """The values, if comparing them waits for no device."""
        self.values, self.rate = None, rate
        others = [None if name in ("params", "lr") else group[name] for name in group]
        if type(rate) is float and "params" in group and all(map(comparable, others)):
            names = list(group)
            self.values, self.places = others, (names.index("params"), names.index("lr"))


def comparable(value):
    """Whether comparing it waits for no device."""
    if type(value) is tuple:
        return all(type(one) in PLAIN for one in value)
    return type(value) in PLAIN


class Settings(object):
    """What was last said of each optimizer's groups."""

    def __init__(self):
        self.said = {}

    def groups(self, name, optimizer):
        """(group, what was last said of it) for every group of an optimizer."""
        said = self.said.setdefault(name, [])
        groups = optimizer.param_groups
        while len(said) < len(groups):
            said.append(Group())
        return zip(groups, said)


def say(recorder, name, optimizer):
    """Keep each group's rate, and note which settings changed since they were last said."""
    step = recorder.step
    for g, (group, said) in enumerate(recorder.settings.groups(name, optimizer)):
        changed = said.changed(group)
        if changed:
            step.settings += ((name, g, changed),)
        rate = group.get("lr")
        if type(rate) is float:
            step.rates.append([rate])
        elif isinstance(rate, torch.Tensor):
            step.rates.append(recorder.values.keep(rate))
        elif rate is not None:
            step.rates.append([float(rate)])

"""The two things an audit changes, in reference and candidate alike: dropout and a unit's shift."""

import sys
import weakref

import torch

from .values import compiling, local

FUNCTIONS = (
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
)  # fmt: skip


def functional_dropout_off(count):
    """Make every functional dropout of torch keep everything, under each name a module holds.

    `count(p)` is told of each call that would have dropped something, outside compiled code.
    """
    functional = torch.nn.functional
    swaps = {}
    for name in FUNCTIONS:
        original = getattr(functional, name, None)
        if original is not None:
            swaps[id(original)] = (original, _without_p(original, count))
    attention = getattr(functional, "scaled_dot_product_attention", None)
    if attention is not None:
        swaps[id(attention)] = (attention, _without_dropout_p(attention, count))
    swaps[id(torch.dropout)] = (torch.dropout, _without_p(torch.dropout, count))
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if type(names) is not dict:
            continue
        for key, value in list(names.items()):
            found = swaps.get(id(value))
            if found is not None and found[0] is value:
                names[key] = found[1]


def _without_p(original, count):
    def dropout(input, p=0.5, training=True, inplace=False):
        if p and training and not compiling():
            count(p)
        return input

    dropout.__name__ = getattr(original, "__name__", "dropout")
    return dropout


def _without_dropout_p(original, count):
    def scaled_dot_product_attention(query, key, value, *args, **kwargs):
        # As the caller gave them: a job may have put a function of its own in this place.
        dropout_p = kwargs["dropout_p"] if "dropout_p" in kwargs else (args[1:2] or (0.0,))[0]
        if dropout_p and not compiling():
            count(dropout_p)
        if "dropout_p" in kwargs:
            kwargs["dropout_p"] = 0.0
        elif len(args) > 1:
            args = args[:1] + (0.0,) + args[2:]
        return original(query, key, value, *args, **kwargs)

    return scaled_dot_product_attention


class Made(object):
    """The dropout probabilities that modules had before they were set to 0."""

    def __init__(self):
        self.known = {}

    def note(self, module, p):
        self.known.setdefault(id(module), (weakref.ref(module), p))

    def of(self, module):
        reference, p = self.known.get(id(module), (None, None))
        return p if reference is not None and reference() is module else None


made = Made()


def dropout_name(module):
    """The attribute that holds the dropout probability of one of torch's own modules, or None."""
    if isinstance(module, torch.nn.modules.dropout._DropoutNd):
        return "p"
    if isinstance(module, (torch.nn.RNNBase, torch.nn.MultiheadAttention)):
        return "dropout"
    return None


def dropout_of(module):
    """The probability that the job gave one of torch's modules, None for any other module."""
    name = dropout_name(module)
    if name is None:
        return None
    p = made.of(module)
    return float(getattr(module, name)) if p is None else p


def module_dropout_off(root):
    """Set the dropout probability of every module under `root` to 0."""
    for module in root.modules():
        name = dropout_name(module)
        if name is not None and getattr(module, name):
            made.note(module, float(getattr(module, name)))
            setattr(module, name, 0.0)


def move_weights(parameters):
    """Move each element of floating-point parameters by one unit in the last place.

    Up or down in magnitude by a fixed pattern over positions, so that every rank and every run
    moves alike; zeros and what is not finite stay.
    """
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    seen = set()
    with torch.no_grad():
        for parameter in parameters:
            tensor = local(parameter.data)  # leaves the version counter of a graph in use alone
            key = (tensor.device, tensor.data_ptr())
            if tensor.element_size() not in bits or not tensor.is_floating_point() or key in seen:
                continue
            if not tensor.numel():
                continue
            seen.add(key)
            tensor.copy_(_moved(tensor, bits[tensor.element_size()]))


def _moved(tensor, integer):
    flat = tensor.contiguous().reshape(-1)
    position = torch.arange(flat.numel(), device=flat.device)
    sign = 1 - 2 * ((position * 0x9E3779B1 >> 16) & 1)
    still = (flat == 0) | ~torch.isfinite(flat)
    step = torch.where(still, torch.zeros_like(sign), sign).to(integer)
    return (flat.view(integer) + step).view(tensor.dtype).reshape(tensor.shape)

"""Two numbers that say which values a tensor holds: its norm and a projection of it.

The projection is the sum over positions of the value times a fixed pseudo-random sign, so a change
that keeps the norm (a swap, a sign, another direction) still shows. Both are summed in double
precision on the tensor's own device, a chunk at a time: no copy of a whole tensor is made unless
it is not contiguous. One kernel launch after another, so this is for audits only.
"""

import math

import torch

from .values import local

CHUNK = 1 << 20
AT_ONCE = 1024  # tensors whose numbers are kept as one value


def readable(tensor):
    """Whether a tensor has floating values on this rank that can be read."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    part = local(tensor)
    return part.device.type != "meta" and type(part).__name__ != "FakeTensor"


class Patterns(object):
    """The signs, made once for each device."""

    def __init__(self):
        self.made = {}

    def signs(self, device):
        found = self.made.get(device)
        if found is None:
            position = torch.arange(CHUNK, dtype=torch.int64, device=device)
            bits = (position * 0x9E3779B1 >> 16) & 1
            exact = torch.float64 if device.type == "cpu" else torch.float32
            found = self.made[device] = (1 - 2 * bits).to(exact)
        return found


def sums(tensor, patterns):
    """(sum of squares, projection) of a tensor's local part, as a double vector of 2."""
    with torch.no_grad():
        tensor = local(tensor).detach()
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        flat = tensor.reshape(-1)
        signs = patterns.signs(flat.device)
        total = torch.zeros(2, dtype=torch.float64, device=flat.device)
        for number, start in enumerate(range(0, flat.numel(), CHUNK)):
            part = flat[start : start + CHUNK]
            sign = 1 - 2 * ((number * 0x9E3779B1 >> 16) & 1)
            total = total + sign_sums(part, signs[: part.numel()], sign)
        return total


def sign_sums(part, signs, sign):
    if part.device.type == "cpu":
        part = part.double()
        return torch.stack((part.dot(part), sign * part.dot(signs)))
    if part.dtype is not torch.float64:
        part = part.float()  # products are rounded to float32, their sums are not
    square = torch.sum(part * part, dtype=torch.float64)
    return torch.stack((square, sign * torch.sum(part * signs, dtype=torch.float64)))


def norm_of(tensors):
    """The norm of some tensors on one device together, as a tensor; None if there is none."""
    parts = [local(tensor).detach() for tensor in tensors if readable(tensor)]
    parts = [part for part in parts if part.device == parts[0].device and part.numel()]
    if not parts:
        return None
    with torch.no_grad():
        norms = [torch.linalg.vector_norm(part, dtype=wide(part)) for part in parts]
        return torch.linalg.vector_norm(torch.stack(norms))


def wide(part):
    return torch.complex128 if part.is_complex() else torch.float64


class Prints(object):
    """Fingerprints of named tensors that may still be under way.

    `named`: (name, tensor) pairs; a tensor may be None. `divide_by`: a tensor on any device whose
    value the tensors are to be divided by. Of a name that comes twice the later tensor counts.
    """

    def __init__(self, named, values, patterns, divide_by=None):
        self.absent, self.parts, groups = [], [], {}
        self.divisor = None if divide_by is None else values.keep(divide_by)
        for name, tensor in named:
            if tensor is None:
                self.absent.append(name)
            elif readable(tensor):
                groups.setdefault(local(tensor).device, []).append((name, tensor))
        for group in groups.values():
            for start in range(0, len(group), AT_ONCE):
                some = group[start : start + AT_ONCE]
                both = torch.cat([sums(tensor, patterns) for _, tensor in some])
                self.parts.append(([name for name, _ in some], values.keep(both)))

    def kept(self):
        """The kept values that may be under way."""
        own = [] if self.divisor is None else [self.divisor]
        return own + [kept for _, kept in self.parts]

    def found(self):
        """Whether any tensor was there."""
        return bool(self.parts)

    def read(self, values):
        """{name: [norm, projection] or None}; every kept value must have come."""
        scale = 1.0
        if self.divisor is not None:
            scale = (values.read(self.divisor) or [1.0])[0] or 1.0
        out = dict.fromkeys(self.absent)
        for names, kept in self.parts:
            numbers = values.read(kept)
            for i, name in enumerate(names):
                square, projection = numbers[2 * i : 2 * i + 2]
                out[name] = [_root(square) / scale, projection / scale]
        return out

    def together(self, values):
        """(norm, projection) of all tensors as one."""
        numbers = [n for _, kept in self.parts for n in values.read(kept)]
        return _root(sum(numbers[::2])), sum(numbers[1::2])


def _root(square):
    return math.sqrt(square) if square >= 0 else square  # not a number stays that

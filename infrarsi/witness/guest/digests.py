"""Order-free digests of input tensors, and samples of the weights.

A digest is two sums modulo 2**64: of one hash for each row, and of one hash for each element. They
ignore order and add up over micro-batches and ranks; a batch that comes twice counts twice. The
row hash minds the order inside a row. Integers are hashed by value, whatever their dtype, floating
point numbers by their bits, very long rows by a stride.
"""

import torch

from .sketches import DTYPES, Sketcher
from .values import MASK, local

C1, C2 = 0x2545F4914F6CDD1D, 0x5851F42D4C957F2D
ROW_CAP = 65536
CHUNK = 1 << 20  # elements hashed at once: bounds the memory that a close look takes
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
SAMPLED_PARAMETERS, SAMPLED_ELEMENTS = 16, 2


class Digester(object):
    """Digests tensors on their own device; keeps the column weights between calls."""

    def __init__(self):
        self.columns = {}
        self.sketcher = Sketcher()

    def digest(self, tensor, mask=None):
        """(row sum, element sum) as one int64 tensor of 2 on the tensor's device, None if empty.

        Elements where `mask` (same shape) is 0 are left out, so padding does not count.
        """
        return self._over_chunks(tensor, mask, _sums)

    def marks(self, tensor, mask=None):
        """The digest and, of floating tensors, the bits of the sketch behind it; one tensor."""
        digest = self.digest(tensor, mask)
        if digest is None or tensor.dtype not in DTYPES:
            return digest
        sketch = self._over_chunks(tensor, mask, self.sketcher.sketch)
        return torch.cat((digest, sketch.view(torch.int64)))

    def _over_chunks(self, tensor, mask, sums_of):
        tensor = local(tensor.detach())
        if not tensor.numel() or tensor.device.type == "meta" or tensor.is_sparse:
            return None
        rows = _rows(tensor)
        keep = None
        if mask is not None and mask.shape == tensor.shape:
            keep = _rows(local(mask.detach())) != 0
        count = rows.shape[1]
        columns = self._columns(count, rows.device)
        step = max(1, CHUNK // count)
        total = None
        for start in range(0, rows.shape[0], step):
            part = keep[start : start + step] if keep is not None else None
            sums = sums_of(rows[start : start + step], columns, part)
            total = sums if total is None else total + sums
        return total

    def _columns(self, count, device):
        key = (count, device)
        found = self.columns.get(key)
        if found is None:
            found = torch.arange(1, count + 1, dtype=torch.int64, device=device) * C1
            found = (found ^ (found >> 33)) * C2 | 1
            if len(self.columns) > 64:  # inputs of ever new lengths
                self.columns.clear()
            self.columns[key] = found
        return found


def _rows(tensor):
    rows = tensor.reshape(tensor.shape[0], -1) if tensor.dim() > 1 else tensor.reshape(-1, 1)
    if rows.shape[1] > ROW_CAP:
        rows = rows[:, :: rows.shape[1] // ROW_CAP + 1]
    return rows


def _sums(rows, columns, keep):
    if rows.dtype.is_complex:
        rows = torch.view_as_real(rows).reshape(rows.shape[0], -1)[:, ::2]
    if rows.dtype.is_floating_point:
        rows = rows.contiguous().view(BITS[rows.element_size()])
    values = rows.to(torch.int64) + 1
    if keep is not None:
        values = values * keep
    row = (values * columns).sum(1)
    row = (row ^ (row >> 31)) * C2
    element = values * C2
    element = (element ^ (element >> 31)) * C1
    element = element ^ (element >> 29)
    if keep is not None:
        element = element * keep
    return torch.stack(((row ^ (row >> 29)).sum(), element.sum()))


def add(left, right):
    """The digest of both parts together."""
    return [(left[0] + right[0]) & MASK, (left[1] + right[1]) & MASK]


def sampled(parameters):
    """The parameters that are sampled: up to 16, evenly spread over those with elements here."""
    have = [p for p in parameters if local(p).numel() and local(p).device.type != "meta"]
    count = min(SAMPLED_PARAMETERS, len(have))
    return [have[i * len(have) // count] for i in range(count)]


def sample(parameters):
    """Two neighbouring elements from the middle of each parameter, one double vector a device."""
    parts = {}
    for parameter in parameters:
        tensor = local(parameter.detach())
        while tensor.dim() > 1:
            tensor = tensor[tensor.shape[0] // 2]
        flat = tensor.reshape(-1)[tensor.numel() // 3 :][:SAMPLED_ELEMENTS]
        parts.setdefault(tensor.device, []).append(flat.double())
    return [torch.cat(part) for part in parts.values()]

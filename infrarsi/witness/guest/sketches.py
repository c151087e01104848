"""Sketches of floating inputs: order-free sums that rounding hardly moves, beside exact digests.

A digest says whether two runs consumed the same bits. A sketch says how far apart they are where
the bits differ. Of each row x it takes its length n and four projections p of x / n on fixed
pseudo-random weights, and makes four angles of them,

    a_k = RATE p_k + k log n,        k = 1 to 4,

and the sketch is the sum over rows of log n, of every cos a_k and of every sin a_k. Sums over rows
are free of order and add up over micro-batches and ranks. Sines and cosines of single rows make
them tell rows apart: a row that comes twice, or half of another one, moves the sums by about 1, and
no other row makes up for it. Rounding moves an angle by about RATE roundings. All is free of the
input's scale and computed in double precision, without matrix products (a job may have forbidden
those that are not deterministic).
"""

import math
import struct

import torch

ANGLES = 4
RATE = 4.0
SPREAD = 147.8  # of odd numbers from -255 to 255, so that projections are about 1
LEAST = 1e-150  # the length of a row of zeros
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
KEPT = 16  # row lengths whose weights are kept: at most 8 MB


class Sketcher(object):
    """Sketches rows on their own device; keeps the weights between calls."""

    def __init__(self):
        self.weights = {}

    def sketch(self, rows, columns, keep):
        """[rows, roundings, log lengths, 4 cosines, 4 sines] of [rows, count], a double vector.

        `columns`: the digest's weights of `count` columns. Roundings are the rows times the
        distance of 1 from the next number of their dtype: they tell the dtype.
        """
        wide = rows.double()
        if keep is not None:
            wide = wide * keep
        weights, turns = self._weights(columns)
        length = (wide * wide).sum(1).sqrt().clamp_min(LEAST)
        logarithm = length.log()
        projections = torch.stack([(wide * weight).sum(1) for weight in weights]) / length
        angles = projections * (RATE / SPREAD) + logarithm * turns
        count = float(rows.shape[0])
        return torch.cat(
            (
                wide.new_full((1,), count),
                wide.new_full((1,), count * torch.finfo(rows.dtype).eps),
                logarithm.sum(0, keepdim=True),
                angles.cos().sum(1),
                angles.sin().sum(1),
            )
        )

    def _weights(self, columns):
        """Four bytes of the hash of each column's place, and the numbers of the angles."""
        key = (columns.shape[0], columns.device)
        found = self.weights.get(key)
        if found is None:
            if len(self.weights) >= KEPT:
                self.weights.clear()
            found = self.weights[key] = (
                [(2 * (columns >> 32 + 8 * k & 255) - 255).to(torch.int16) for k in range(ANGLES)],
                torch.arange(1, ANGLES + 1, device=columns.device).unsqueeze(1),
            )
        return found


def sketch_totals(marks, values):
    """The sketch of each input over all calls; none of what has no sketch or is not finite."""
    out = {}
    for name, parts in marks.items():
        each = [_numbers(values.read(part)[2:]) for part in parts]
        if each and all(each):
            total = [math.fsum(column) for column in zip(*each)]
            if all(math.isfinite(number) for number in total):
                out[name] = total
    return out


def _numbers(bits):
    """Doubles that came as the bits of whole numbers."""
    return struct.unpack("<%dd" % len(bits), struct.pack("<%dq" % len(bits), *bits))

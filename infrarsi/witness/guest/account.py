"""What one logical step adds up to, and its line once every value has come back."""

import torch

from .digests import add
from .values import MASK

MAX_SHAPES = 64
MAX_EVAL_LOSSES = 256
MAX_EVAL_OUTPUTS = 64
MAX_DIGESTS = 32


class Step(object):
    """Counters, host times and kept values of one logical step."""

    def __init__(self, index, look, began_s):
        self.index, self.look, self.began_s = index, look, began_s
        self.forwards = self.backwards = self.samples = self.skipped = 0
        self.eval_calls = self.eval_samples = 0
        self.elements, self.shapes, self.optimizer_calls = {}, {}, {}
        self.losses, self.digests, self.weights = [], {}, []
        self.rates, self.found_inf, self.eval_losses = [], [], []
        self.gradients = {}  # by optimizer, see `gradients.py`
        self.autocast, self.gradient_dtypes = {}, set()
        self.random, self.dropout_calls, self.matmul_dtypes = {}, {}, set()
        self.eval_digests, self.eval_outputs = {}, []
        self.phases = {}
        self.wait_s = self.compile_s = 0.0
        self.seconds = None
        self.events = None

    def spend(self, phase, seconds):
        self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    def inputs(self, named, digester, values):
        """Count the input tensors of one training forward; digest them on a close look."""
        first = True
        for name, tensor in named:
            if first and tensor.dim():
                self.samples += tensor.shape[0]
                first = False
            self.elements[name] = self.elements.get(name, 0) + tensor.numel()
            shape = "%s:%s:%s" % (name, str(tensor.dtype)[6:], "x".join(map(str, tensor.shape)))
            if shape in self.shapes or len(self.shapes) < MAX_SHAPES:
                self.shapes[shape] = self.shapes.get(shape, 0) + 1
        if self.look:
            digest_into(self.digests, named, digester, values)

    def kept(self):
        """Every kept value that may still be under way."""
        for loss, scale in self.losses:
            yield loss
            if scale is not None:
                yield scale
        kept = (self.weights, self.found_inf, self.eval_losses, self.rates, self.eval_outputs)
        for group in kept + tuple(self.digests.values()) + tuple(self.eval_digests.values()):
            for one in group:
                yield one
        for prints in self.gradients.values():
            for one in prints.kept():
                yield one

    def line(self, values, wait):
        """The step line, or None while a value or an event is under way (never with `wait`)."""
        if any(values.read(one) is None for one in self.kept()):
            return None
        event_s = None
        if self.events is not None:
            start, end = self.events
            if not end.query():
                if not wait:
                    return None
                end.synchronize()
            event_s = round(0.001 * start.elapsed_time(end), 7)
        read = values.read
        losses = [_unscaled(read(loss), read(scale)) for loss, scale in self.losses]
        other = self.seconds - sum(self.phases.values())
        phases = {name: round(seconds, 6) for name, seconds in self.phases.items()}
        phases["other"] = round(max(0.0, other), 6)
        line = {
            "i": self.index,
            "look": self.look,
            "event_s": event_s,
            "loss": sum(losses) if losses else None,
            "forwards": self.forwards,
            "backwards": self.backwards,
            "samples": self.samples,
            "elements": self.elements,
            "shapes": self.shapes,
            "digests": totals(self.digests, values),
            "weights": [v for part in self.weights for v in read(part)],
            "optimizer_calls": self.optimizer_calls,
            "learning_rates": [v for part in self.rates for v in read(part)],
            "skipped": self.skipped + sum(1 for part in self.found_inf if sum(read(part)) > 0),
            "data_wait_s": round(self.wait_s, 6),
            "compile_s": round(self.compile_s, 6),
            "phases_s": phases,
            "eval_calls": self.eval_calls,
            "eval_samples": self.eval_samples,
            "eval_losses": [v for part in self.eval_losses for v in read(part)],
        }
        line.update(self.close_line(values))
        return line

    def close_line(self, values):
        """What only a close look sees; nothing is said of what was not seen."""
        gradients = {}
        for prints in self.gradients.values():
            gradients.update(prints.read(values))
        found = {
            "gradients": gradients,
            "matmul_dtypes": sorted(self.matmul_dtypes),
            "random": self.random,
            "dropout_calls": self.dropout_calls,
            "eval_digests": totals(self.eval_digests, values),
            "eval_outputs": [v for part in self.eval_outputs for v in values.read(part)],
        }
        return {name: value for name, value in found.items() if value}


def digest_into(digests, named, digester, values):
    """Digest the inputs of one call; padding under an attention mask does not count."""
    masks = [tensor for name, tensor in named if name.endswith("attention_mask")]
    mask = masks[-1] if masks else None
    for name, tensor in named:
        if len(digests) < MAX_DIGESTS or name in digests:
            sums = digester.digest(tensor, None if tensor is mask else mask)
            if sums is not None:
                digests.setdefault(name, []).append(values.keep(sums, torch.int64))


def totals(digests, values):
    """The digest of each input over all calls."""
    out = {}
    for name, parts in digests.items():
        total = [0, 0]
        for part in parts:
            total = add(total, [v & MASK for v in values.read(part)])
        out[name] = total
    return out


def _unscaled(loss, scale):
    total = sum(loss)
    return total if scale is None or not scale[0] else total / scale[0]

"""What one logical step adds up to, and its line once every value has come back."""

from .digests import add
from .precision import Seen
from .sketches import sketch_totals
from .values import MASK
from .wire import as_text

MAX_SHAPES = 64
MAX_EVAL_LOSSES = 256
MAX_EVAL_OUTPUTS = 64
MAX_DIGESTS = 32
COUNTED = ("forwards", "backwards", "optimizer_calls")
SELDOM = ("settings", "skipped", "eval_calls", "eval_samples")
PLAIN = (
    '"i":%d,"w":%.6f,"look":%s,"event_s":%s,"loss":%s,"learning_rates":[%s],"data_wait_s":%.6f,'
    '"compile_s":%.6f,"phases_s":{%s},'
)


def number(value):
    """A number as JSON text; `repr` is that of every finite one."""
    return repr(value) if value - value == 0 else as_text(value)


def sizes(calls):
    """Samples, elements by input and how often each shape came, of `calls` by their inputs."""
    samples, elements, shapes = 0, {}, {}
    for call, times in calls.items():
        samples += times * next((shape[0] for _, _, shape in call if shape), 0)
        for name, dtype, shape in call:
            elements[name] = elements.get(name, 0) + times * shape.numel()
            text = "%s:%s:%s" % (name, str(dtype)[6:], "x".join(map(str, shape)))
            if text in shapes or len(shapes) < MAX_SHAPES:
                shapes[text] = shapes.get(text, 0) + times
    return {"samples": samples, "elements": elements, "shapes": shapes}


class Step(object):
    """Counters, host times and kept values of one logical step."""

    # what few steps have
    skipped = eval_calls = eval_samples = 0
    found_inf = eval_losses = settings = weights = ()  # settings: (optimizer, group, what changed)
    inner = ()  # optimizers that were stepped by another one
    wait_s = compile_s = seconds = ended_s = 0.0
    events = None

    def __init__(self, index, look, began_s):
        self.index, self.look, self.began_s = index, look, began_s
        self.forwards = self.backwards = 0
        self.calls, self.optimizer_calls, self.phases = {}, {}, {}
        self.losses, self.rates = [], []
        if look:
            self.eval_outputs = []
            self.digests, self.eval_digests = {}, {}
            self.gradients = {}  # by optimizer, see `gradients.py`
            self.trained, self.evaluated = Seen(), Seen()
            self.random, self.dropout_calls = {}, {}
            self.gradient_dtypes, self.matmul_dtypes = set(), set()

    def spend(self, phase, seconds):
        self.phases[phase] = self.phases.get(phase, 0.0) + seconds

    def inputs(self, named):
        """Count the input tensors of one training forward."""
        call = tuple([(name, tensor.dtype, tensor.shape) for name, tensor in named])
        self.calls[call] = self.calls.get(call, 0) + 1

    def kept(self):
        """Every kept value that may still be under way."""
        found = [one for pair in self.losses for one in pair if one is not None]
        found += self.rates
        found += self.found_inf + self.eval_losses
        found += self.weights
        if self.look:
            found += self.eval_outputs
            for digests in (self.digests, self.eval_digests):
                found += [one for parts in digests.values() for one in parts]
            for prints in self.gradients.values():
                found += prints.kept()
        return found

    def text(self, values, wait, last):
        """The line's members, or None while a value or an event is under way (never with `wait`).

        `last`: what was counted in the step before and its text, which most steps repeat.
        """
        if not values.have(self.kept()):
            return None
        event = "null"
        if self.events is not None:
            start, end = self.events
            if not end.query():
                if not wait:
                    return None
                end.synchronize()
            event = "%.7f" % (0.001 * start.elapsed_time(end))
        read = values.read
        losses = [_unscaled(read(loss), read(scale)) for loss, scale in self.losses]
        phases = self.phases
        if self.look:
            phases["other"] = max(0.0, self.seconds - sum(phases.values()))
        plain = PLAIN % (
            self.index,
            self.ended_s,
            "true" if self.look else "false",
            event,
            number(sum(losses)) if losses else "null",
            ",".join([number(v) for part in self.rates for v in read(part)]),
            self.wait_s,
            self.compile_s,
            ",".join(['"%s":%.6f' % phase for phase in phases.items()]),
        )
        seldom = self.seldom(values)
        more = "," + as_text(seldom)[1:-1] if seldom else ""
        return plain + self.counted(last) + more

    def counted(self, last):
        """The text of what most steps have in common."""
        counts = (self.forwards, self.backwards, self.optimizer_calls, self.calls)
        if counts != last[0]:
            said = dict(zip(COUNTED, counts))
            said.update(sizes(self.calls))
            last[:] = counts, as_text(said)[1:-1]
        return last[1]

    def seldom(self, values):
        """What few steps have; nothing is said of what was not seen."""
        read = values.read
        found = {name: getattr(self, name) for name in SELDOM}
        if self.found_inf:
            found["skipped"] += sum(1 for part in self.found_inf if sum(read(part)) > 0)
        if self.eval_losses:
            found["eval_losses"] = [v for part in self.eval_losses for v in read(part)]
        found["weights"] = [v for part in self.weights for v in read(part)]
        if self.look:
            found.update(self.close_look(values))
        return {name: value for name, value in found.items() if value}

    def close_look(self, values):
        """What only a close look sees."""
        read = values.read
        gradients = {}
        for prints in self.gradients.values():
            gradients.update(prints.read(values))
        return {
            "digests": totals(self.digests, values),
            "gradients": gradients,
            "matmul_dtypes": sorted(self.matmul_dtypes),
            "random": self.random,
            "dropout_calls": self.dropout_calls,
            "sketches": sketch_totals(self.digests, values),
            "eval_digests": totals(self.eval_digests, values),
            "eval_sketches": sketch_totals(self.eval_digests, values),
            "eval_outputs": [v for part in self.eval_outputs for v in read(part)],
        }


def digest_into(digests, named, digester, values):
    """Digest the inputs of one call; padding under an attention mask does not count."""
    masks = [tensor for name, tensor in named if name.endswith("attention_mask")]
    mask = masks[-1] if masks else None
    for name, tensor in named:
        if len(digests) < MAX_DIGESTS or name in digests:
            sums = digester.marks(tensor, None if tensor is mask else mask)
            if sums is not None:
                digests.setdefault(name, []).append(values.keep(sums))


def totals(digests, values):
    """The digest of each input over all calls."""
    out = {}
    for name, parts in digests.items():
        total = [0, 0]
        for part in parts:
            total = add(total, [v & MASK for v in values.read(part)[:2]])
        out[name] = total
    return out


def _unscaled(loss, scale):
    total = sum(loss)
    return total if scale is None or not scale[0] else total / scale[0]

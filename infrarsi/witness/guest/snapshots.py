"""What an audit says of weights, optimizer states and companions: at its start and at its end.

The end is taken when the rank is ended by the witness, at that boundary; in a job that ends by
itself right after the last requested update, since its objects may be gone when the process exits.
Only numbers are kept, never a reference to a tensor.
"""

from . import companions
from .fingerprint import Prints
from .later import Later
from .states import keep_states
from .values import quiet

MAX_MODELS = 8  # the model line and its weights are told of so many


def keep_weights(recorder, later, root, when):
    """Parameters, and floating buffers that are saved with the model."""
    named = root.parameters() + [(n, b) for n, b, kept in root.buffers() if kept]
    prints = Prints(named, recorder.values, recorder.patterns)
    fields = {"when": when, "i": updates(recorder), "model": recorder.models.index(root)}

    def line(values):
        return dict(fields, tensors=prints.read(values))

    later.add("weights", prints.kept(), line)


def updates(recorder):
    """How many updates are behind the weights of this moment."""
    return recorder.step.index + (1 if recorder.stepped else 0)


def at_start(recorder, root):
    """A model begins to be trained: `i` says how many updates (of other models) came before."""
    if recorder.audit and quiet():
        keep_weights(recorder, recorder.later, root, "start")


def before_first_update(recorder):
    """What is kept beside the models: asked when every model of the first step has begun."""
    if recorder.companions is None and quiet():
        recorder.companions = companions.Companions(recorder)
        recorder.companions.keep(recorder, recorder.later, "start")


def after_update(recorder):
    """An optimizer stepped: in the last requested step of a job that ends by itself, the end."""
    if recorder.config["ends_by"] == "witness" or recorder.in_backward:
        return
    if recorder.step.index >= recorder.limit() - 1:
        recorder.sample_weights(recorder.step)
        if recorder.audit:
            take_end(recorder)


def take_end(recorder):
    """Take the end anew; only the latest is sent."""
    if not quiet():
        return
    final = Later()
    for root in recorder.models[:MAX_MODELS]:
        if any(True for _ in root.parameters()):
            keep_weights(recorder, final, root, "end")
    keep_states(recorder, final)
    if recorder.companions is not None:
        recorder.companions.keep(recorder, final, "end")
    recorder.final = final


def send_end(recorder):
    """At the seal: the end as it was taken, or as it is now."""
    if not recorder.audit:
        return
    if recorder.final is None or recorder.over:
        take_end(recorder)
    if recorder.final is not None:
        recorder.later.queue.extend(recorder.final.queue)
        recorder.final = None

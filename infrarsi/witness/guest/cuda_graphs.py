"""Training steps that are replayed from a CUDA graph: only that they happen can be seen."""

import functools

import torch

from .ending import begin_training_call
from .hooks import compiling, inside, restore
from .recorder import guard

UNSEEN = "whole-step CUDA graph: inputs and gradients are not seen"


def hook_graphs(recorder):
    """Count replays of graphs in which training was captured, outside any observed call.

    Each closes the step before like a training forward; if an optimizer stepped within the capture,
    each is a step of that optimizer.
    """
    kind = getattr(torch.cuda, "CUDAGraph", None)
    replay = None if kind is None else kind.__dict__.get("replay")
    if replay is None:
        return []

    @functools.wraps(replay)
    def observed_replay(self):
        if recorder.dead or not recorder.captured or inside.state or recorder.in_backward:
            return replay(self)
        if compiling():
            return replay(self)
        begin_training_call(recorder)
        out = replay(self)
        guard(recorder, "replay", replayed, recorder)
        return out

    kind.replay = observed_replay
    recorder.uninstall.append(lambda: restore(kind, "replay", observed_replay, replay))
    return [observed_replay.__code__]


def replayed(recorder):
    recorder.replays += 1
    recorder.problems[UNSEEN] += 1
    calls = recorder.step.optimizer_calls
    for name in recorder.captured - {""}:
        calls[name] = calls.get(name, 0) + 1
        recorder.stepped = True

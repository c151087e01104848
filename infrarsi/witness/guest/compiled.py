"""Functions given to torch.compile: outermost calls that no module hook sees.

Optimizers stepped inside a compiled function call no hook either; they are noticed by the version
counters of their first parameter and of its step count.
"""

import functools
import weakref

import torch

from . import describe
from .ending import leave
from .hooks import (
    CLOCK,
    call_begins,
    call_ends,
    compiling,
    inside,
    optimizer_begins,
    optimizer_ends,
)
from .recorder import guard


def hook_compile(recorder):
    """Wrap what torch.compile makes of a function; modules are left to the module hook."""
    compile_ = torch.compile

    @functools.wraps(compile_)
    def compile(model=None, *args, **kwargs):
        made = compile_(model, *args, **kwargs)
        if model is None or isinstance(made, torch.nn.Module) or not callable(made):
            return made
        if getattr(model, "__func__", None) is torch.nn.Module._call_impl:
            return made  # Module.compile(): the module hook sees its calls
        return observed_function(recorder, model, made)

    torch.compile = compile
    recorder.uninstall.append(lambda: setattr(torch, "compile", compile_))
    return [compile.__code__]


def observed_function(recorder, original, made):
    """`made` with its calls observed as training forwards, backwards and optimizer steps."""
    owned = weakref.WeakSet()  # optimizers that this function is known to step

    @functools.wraps(made)
    def outer(*args, **kwargs):
        if compiling() or inside.state or recorder.in_backward or recorder.dead:
            return made(*args, **kwargs)
        has_data = guard(recorder, "compiled", any_tensor, args, kwargs)
        kind = None
        if recorder.gone:
            leave(recorder)
        if has_data:
            kind = guard(recorder, "forward", call_begins, recorder, original, args, kwargs)
        before = guard(recorder, "compiled", versions, recorder)
        for optimizer in list(owned):
            if not has_data:  # a compiled step(): its gradients are there now
                guard(recorder, "compiled", optimizer_begins, recorder, optimizer)
        began = CLOCK()
        inside.state = 2
        try:
            out = made(*args, **kwargs)
        finally:
            inside.state = 0
            recorder.peek = 0
        if kind is not None:
            guard(recorder, "forward", call_ends, recorder, kind, began, out)
        if before:
            guard(recorder, "compiled", stepped_unseen, recorder, before, owned, has_data)
        return out

    return outer


def any_tensor(args, kwargs):
    return any(True for _ in describe.tensors_in((args, kwargs), ""))


def versions(recorder):
    """(optimizer, version of its first parameter, calls counted) for every optimizer."""
    if not recorder.opened:
        return []
    calls = recorder.step.optimizer_calls
    return [
        (optimizer, version(optimizer), calls.get(recorder.names.get(id(optimizer)), 0))
        for optimizer in list(recorder.optimizers)
    ]


def version(optimizer):
    """What changes with every step: fused kernels bump only the step counters' versions."""
    parameter = optimizer.param_groups[0]["params"][0]
    state = optimizer.state.get(parameter) if parameter in optimizer.state else None
    count = state.get("step") if isinstance(state, dict) else None
    return parameter._version, getattr(count, "_version", None)


def stepped_unseen(recorder, before, owned, has_data):
    """Count the steps that happened in compiled code and told no hook."""
    for optimizer, old, calls in before:
        if version(optimizer) == old:
            continue
        begun = optimizer in owned and not has_data
        now = recorder.step.optimizer_calls.get(recorder.names.get(id(optimizer)), 0)
        if now != calls + begun and not begun:
            continue  # a hook saw it
        owned.add(optimizer)
        if not begun:
            optimizer_begins(recorder, optimizer)
        optimizer_ends(recorder, optimizer)

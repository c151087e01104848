"""The hooks into torch that every job passes through: module calls, backward, optimizer steps.

Each of them is kept out of dynamo's sight (`codes` goes to its skip_code), and inside a compiled
region each does nothing but call on.
"""

import sys
import threading

import torch

from . import alter, describe, settings, snapshots
from .account import digest_into
from .autograd_walk import matmul_dtypes
from .ending import begin_training_call, leave
from .gradients import gradient_dtypes, read_gradients
from .randomness import add_moves, random_state
from .recorder import CLOCK, guard
from .values import compiling, local, quiet

# On a device, ordinary steps that are shorter keep the loss of every fourth only: a clone takes up
# to 0.09 ms of a host that has a step in between (measured beside an H200), 0.3 % of this.
LOSS_PACE_S, LOSS_EVERY = 0.03, 4
ALL_CALLS, SOME_CALLS = 1 << 30, 8  # module calls within a forward whose autocast is looked at


class Inside(threading.local):
    """Per thread: 0 outside any observed call, 1 in a module's, 2 in a compiled function's."""

    state = 0


inside = Inside()


# -- what happens at each point; `recorder` first


def call_begins(recorder, target, args, kwargs):
    """Count one outermost call; a training call may close the step before it.

    Returns train or eval if something is to be done when the call ends, else None.
    """
    root = recorder.root(target)
    grad = torch.is_grad_enabled()
    if root.kind == "aux" or root.kind == "frozen" and grad:
        return None
    if not (grad and (getattr(target, "training", True) or recorder.trains_in_eval)):
        if recorder.opened:
            evaluation_begins(recorder, root, args, kwargs)
            return "eval"
        return None
    if recorder.stepped or recorder.over or not recorder.opened:
        begin_training_call(recorder, root)
    recorder.begin_model(root)
    if recorder.audit and isinstance(target, torch.nn.Module):
        alter.module_dropout_off(target)
    step = recorder.step
    step.forwards += 1
    if not quiet():
        recorder.captured.add("")
        return None
    named = describe.named_inputs(root, args, kwargs)
    step.inputs(named)
    if not step.look:
        return None
    look_at_forward(recorder, named)
    return "train"


def evaluation_begins(recorder, root, args, kwargs):
    """Count a call without gradients or in evaluation mode; digest its inputs on a close look."""
    step = recorder.step
    step.eval_calls += 1
    named = describe.named_inputs(root, args, kwargs)
    step.eval_samples += next((t.shape[0] for _, t in named if t.dim()), 0)
    if step.look and quiet():
        digest_into(step.eval_digests, named, recorder.digester, recorder.values)
        step.evaluated.parameters.update(p.dtype for _, p in root.parameters())
        look_at_precision(recorder, step.evaluated)


def look_at_forward(recorder, named):
    """What a close look adds at the beginning of a training forward."""
    step = recorder.step
    digest_into(step.digests, named, recorder.digester, recorder.values)
    look_at_precision(recorder, step.trained)
    recorder.random_state = random_state()


def look_at_precision(recorder, seen):
    """Look at precisions now and in module calls within this one."""
    seen.note()
    recorder.peeked = seen
    every = recorder.audit or recorder.step.index < 2
    recorder.peek = ALL_CALLS if every else SOME_CALLS


def call_ends(recorder, kind, began, out):
    if not recorder.opened:
        return
    recorder.step.spend("fwd" if kind == "train" else "eval", CLOCK() - began)
    if kind == "train" and recorder.random_state and quiet():
        add_moves(recorder.step.random, recorder.random_state, random_state())
        recorder.random_state = None
    if kind == "eval":
        recorder.eval_output(describe.tensors_in(out, ""))


def backward_begins(recorder, tensors):
    """Count a backward and keep its losses; returns whether its end is to be told."""
    if recorder.stepped or recorder.over or not recorder.opened:
        begin_training_call(recorder)
    step = recorder.step
    if not step.forwards and not step.backwards and step.index == 0:
        recorder.trains_in_eval = True  # a job that fine-tunes under model.eval()
    step.backwards += 1
    if step.look:
        step.matmul_dtypes |= matmul_dtypes(tensors)
        step.trained.note()
    scale, recorder.last_scale = recorder.last_scale, None
    if not quiet():
        return step.look
    if step.look:
        recorder.random_state = random_state()
    elif recorder.pace < LOSS_PACE_S and step.index % LOSS_EVERY and torch.cuda.is_initialized():
        return False
    if not isinstance(tensors, (list, tuple)):
        tensors = (tensors,)
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.numel() == 1:
            kept = recorder.values.keep(tensor)
            step.losses.append((kept, None if scale is None else recorder.values.keep(scale)))
    return step.look


def backward_ends(recorder, began):
    if recorder.step.look:
        recorder.step.spend("bwd", CLOCK() - began)
    if recorder.random_state and quiet():  # recomputed with other masks than the forward had
        add_moves(recorder.step.random, recorder.random_state, random_state(), "backward:")
    recorder.random_state = None
    if recorder.stepped:  # an optimizer stepped within it
        snapshots.after_update(recorder)


def optimizer_begins(recorder, optimizer):
    """Count a step of an optimizer; nested calls (wrappers) count once."""
    key, step = id(optimizer), recorder.step
    outer = [entry[0] for entry in recorder.stack]
    if key in outer:  # an earlier step raised
        del recorder.stack[outer.index(key) :]
        outer = outer[: outer.index(key)]
    recorder.stack.append((key, CLOCK(), nested_s(step) if step.look else 0.0))
    if step.look:
        look_at_gradients(recorder, optimizer, outer)
    name = recorder.names.get(key) or recorder.optimizer_name(optimizer)
    if outer:  # its settings are those that are computed with, whatever the outer one's groups say
        if key not in step.inner:
            step.inner += (key,)
            settings.say(recorder, name, optimizer)
        return
    calls = step.optimizer_calls
    if name not in calls:
        calls[name] = 0
        settings.say(recorder, name, optimizer)
    calls[name] += 1
    if not quiet():
        recorder.captured.add(name)
    found_inf = getattr(optimizer, "found_inf", None)
    if found_inf is not None and isinstance(found_inf, torch.Tensor) and quiet():
        step.found_inf += (recorder.values.keep(found_inf),)
    if key not in recorder.gradient_bytes or step.index == 0:
        grads = (p.grad for group in optimizer.param_groups for p in group["params"])
        recorder.gradient_bytes[key] = sum(
            local(g).numel() * local(g).element_size() for g in grads if g is not None
        )


def look_at_gradients(recorder, optimizer, outer):
    """What a close look adds right before an optimizer's step."""
    if recorder.audit:
        if not outer and id(optimizer) not in recorder.names:
            recorder.optimizer_name(optimizer)
        snapshots.before_first_update(recorder)
        read_gradients(recorder, optimizer, outer)
    recorder.step.gradient_dtypes |= gradient_dtypes(optimizer)


def nested_s(step):
    """Seconds of forwards and backwards so far: a closure's are not the optimizer's own."""
    return step.phases.get("fwd", 0.0) + step.phases.get("bwd", 0.0)


def optimizer_ends(recorder, optimizer):
    stack = recorder.stack
    position, key = len(stack) - 1, id(optimizer)
    while position >= 0 and stack[position][0] != key:
        position -= 1
    if position < 0:
        return
    _, began, inner = stack[position]
    del stack[position:]
    if stack:
        return
    step = recorder.step
    if step.look and not recorder.in_backward:
        step.spend("opt", max(0.0, CLOCK() - began - nested_s(step) + inner))
    recorder.stepped = True
    snapshots.after_update(recorder)


# -- where the hooks go in


def hook_modules(recorder):
    """Observe the outermost module call of each thread; returns the code to hide from dynamo."""
    module = torch.nn.Module
    call = module.__call__
    inner = getattr(call, "__code__", None)
    noted = torch._disable_dynamo(guard)
    plain = inner is not None and inner.co_names == ("_compiled_call_impl", "_call_impl")

    def observed(self, args, kwargs):
        if recorder.gone:
            leave(recorder)
        inside.state = 1
        try:
            kind = guard(recorder, "forward", call_begins, recorder, self, args, kwargs)
            began = CLOCK()
            out = call(self, *args, **kwargs)
            if kind is not None:
                guard(recorder, "forward", call_ends, recorder, kind, began, out)
            return out
        finally:
            inside.state = 0
            recorder.peek = 0

    def peeked():
        recorder.peek -= 1
        if not compiling() and inside.state:
            noted(recorder, "precision", recorder.peeked.note)

    if plain:  # do what torch's own function does, without another Python frame

        def __call__(self, *args, **kwargs):
            if inside.state or recorder.in_backward or recorder.dead or compiling():
                if recorder.peek:
                    peeked()
                if self._compiled_call_impl is not None:
                    return self._compiled_call_impl(*args, **kwargs)
                return self._call_impl(*args, **kwargs)
            return observed(self, args, kwargs)
    else:

        def __call__(self, *args, **kwargs):
            if inside.state or recorder.in_backward or recorder.dead or compiling():
                if recorder.peek:
                    peeked()
                return call(self, *args, **kwargs)
            return observed(self, args, kwargs)

    module.__call__ = __call__
    recorder.intact.append(("Module.__call__", lambda: module.__call__ is __call__))
    recorder.uninstall.append(lambda: restore(module, "__call__", __call__, call))
    return [__call__.__code__, observed.__code__, peeked.__code__]


def restore(owner, name, ours, original):
    """Put an attribute back unless somebody else replaced it since."""
    if owner.__dict__.get(name) is ours:
        setattr(owner, name, original)


def hook_backward(recorder):
    """Observe every backward at the one object that all of them go through."""
    variable = torch.autograd.Variable
    engine = variable._execution_engine
    noted = torch._disable_dynamo(guard)

    class Engine(object):
        """torch's engine, with a look at each call that accumulates gradients."""

        def run_backward(self, *args, **kwargs):
            into = kwargs.get("accumulate_grad", args[6] if len(args) > 6 else True)
            if recorder.in_backward or not into or recorder.dead or compiling():
                return engine.run_backward(*args, **kwargs)
            tensors = args[0] if args else kwargs.get("tensors")
            hidden = inside.state == 2
            if recorder.gone:
                leave(recorder)
            observe = noted if hidden else guard
            look = observe(recorder, "backward", backward_begins, recorder, tensors)
            recorder.in_backward = True
            began = CLOCK()
            try:
                return engine.run_backward(*args, **kwargs)
            finally:
                recorder.in_backward = False
                if look or recorder.stepped:
                    observe(recorder, "backward", backward_ends, recorder, began)

        def __getattr__(self, name):
            return getattr(engine, name)

    proxy = variable._execution_engine = Engine()
    recorder.intact.append(("backward", lambda: variable._execution_engine is proxy))
    recorder.uninstall.append(lambda: restore(variable, "_execution_engine", proxy, engine))
    return [Engine.run_backward.__code__]


def hook_optimizers(recorder):
    """Observe every optimizer's step, and remember every optimizer that is made."""
    optim = sys.modules["torch.optim.optimizer"]  # torch.optim deletes the attribute
    noted = torch._disable_dynamo(guard)

    def told(function, optimizer):
        if compiling() or recorder.dead or not recorder.opened:
            return
        observe = noted if inside.state == 2 else guard
        observe(recorder, "optimizer", function, recorder, optimizer)

    def before(optimizer, args, kwargs):
        told(optimizer_begins, optimizer)

    def after(optimizer, args, kwargs):
        told(optimizer_ends, optimizer)

    handles = (
        optim.register_optimizer_step_pre_hook(before),
        optim.register_optimizer_step_post_hook(after),
    )
    hooks = (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks)
    kind = optim.Optimizer
    patch_step = kind._patch_step_function

    def _patch_step_function(self):
        recorder.optimizers.add(self)
        return patch_step(self)

    kind._patch_step_function = _patch_step_function
    recorder.intact.append(
        (
            "optimizer step",
            lambda: all(
                table.get(handle.id) is hook
                for table, handle, hook in zip(hooks, handles, (before, after))
            ),
        )
    )
    recorder.uninstall += [handle.remove for handle in handles]
    recorder.uninstall.append(
        lambda: restore(kind, "_patch_step_function", _patch_step_function, patch_step)
    )
    return [before.__code__, after.__code__, told.__code__]

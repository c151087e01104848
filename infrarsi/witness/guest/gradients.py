"""The gradients that an optimizer is given, read in audits right before its step.

At that point they are clipped and unscaled; a fused optimizer that is to unscale them itself has
`grad_scale`, and the numbers are divided by it. An optimizer that steps another one within its own
step (a wrapper that casts or unscales) is given way to the inner one, whose gradients are the ones
used. A parameter's `grad` comes first, then the places where other engines keep it.
"""

from .fingerprint import Prints
from .values import quiet

ELSEWHERE = ("decoupled_grad", "main_grad")


def gradient(parameter):
    """A parameter's gradient, None if it has none."""
    found = parameter.grad
    if found is not None:
        return found
    for name in ELSEWHERE:
        found = getattr(parameter, name, None)
        if found is not None:
            return found
    return None


def read_gradients(recorder, optimizer, outer=()):
    """Keep the gradients of this step's first call of `optimizer`.

    `outer`: keys of the optimizers within whose step this one steps.
    """
    step, key = recorder.step, id(optimizer)
    if not step.look or key in step.gradients or not quiet():
        return
    named = [(name, gradient(p)) for name, p in recorder.parameter_names.of(recorder, optimizer)]
    scale = getattr(optimizer, "grad_scale", None)
    prints = Prints(named, recorder.values, recorder.patterns, scale)
    if prints.found():
        for other in outer:
            step.gradients.pop(other, None)
    step.gradients[key] = prints


def gradient_dtypes(optimizer):
    """The dtypes of the gradients that an optimizer has now."""
    found = set()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            grad = gradient(parameter)
            if grad is not None:
                found.add(grad.dtype)
    return found

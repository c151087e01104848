# mypy: ignore-errors
"""Guest: how far two results are apart, and how far they may be. Python 3.8 and later."""

import torch

OUTPUT_TOLERANCE = 4e-6  # 32 units in the last place of float32; an SDPA attention takes 3
GRADIENT_TOLERANCE = 4e-5  # likewise, through the chain of a backward pass
OPTIMIZER_TOLERANCE = 1e-5
FAITHFUL_TOLERANCE = 5e-2  # the job may have run under autocast or on a GPU


class CannotTell(Exception):
    """The call cannot be repeated here; the text says why."""


class Differs(Exception):
    """Old and new code do not do the same; the text says where."""


def leaves(value, path=""):
    """(place, tensor) for every tensor in a result."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, dict):
        return [x for k in value for x in leaves(value[k], "%s[%r]" % (path, k))]
    if isinstance(value, (list, tuple)):
        return [x for i, v in enumerate(value) for x in leaves(v, "%s[%d]" % (path, i))]
    if hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module):
        return [x for k in vars(value) for x in leaves(vars(value)[k], "%s.%s" % (path, k))]
    return []


def mapped(value, change):
    """The same structure with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return type(value)((k, mapped(v, change)) for k, v in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(v, change) for v in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(v, change) for v in value)
    return value


def compare_spread(old, new):
    """Raises Differs where one side drops out more than the other, or not at all."""
    (before, elements), (after, _) = old, new
    if before < 1e-6 and after < 1e-6:
        return
    limit = 1.25 if elements >= 64 else 10.0  # a few elements say only whether there is any
    if not before / limit <= after <= before * limit:
        raise Differs(
            "dropout acts otherwise: outputs vary by %.1e instead of %.1e" % (after, before)
        )


def distance(old, new, scale=0.0):
    """Norm of the difference over the norm of the old, or over `scale` if that is larger."""
    if old.numel() == 0:
        return 0.0
    if not old.is_floating_point() and not old.is_complex():
        return 0.0 if torch.equal(old, new) else float("inf")
    old, new = old.double(), new.double()
    same = torch.equal(old.isnan(), new.isnan()) and torch.equal(old.isinf(), new.isinf())
    if not same:
        return float("inf")
    finite = old.isfinite()
    old, new = old[finite], new[finite]
    norm = max(float(old.norm()), scale, 1e-12)
    return float((old - new).norm()) / norm


def compare_outputs(old, new, what):
    """The largest distance of matching outputs; raises Differs where they do not match."""
    if [n for n, _ in old] != [n for n, _ in new]:
        raise Differs("%s has another structure" % what)
    worst = 0.0
    for (_, a), (_, b) in zip(old, new):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise Differs(
                "%s is %s %s instead of %s %s"
                % (what, b.dtype, tuple(b.shape), a.dtype, tuple(a.shape))
            )
        worst = max(worst, distance(a, b))
    return worst


def compare_gradients(old, new):
    """The largest distance of gradients, and whose; small ones against a part of the largest."""
    worst, whose = 0.0, ""
    norms = [float(g.double().norm()) for g in old.values() if g is not None]
    scale = 1e-2 * max(norms, default=0.0)
    for name, gradient in old.items():
        other = new.get(name)
        if (gradient is None) != (other is None):
            raise Differs("`%s` %s a gradient" % (name, "loses" if other is None else "gets"))
        if gradient is None:
            continue
        if gradient.shape != other.shape:
            raise Differs("the gradient of `%s` has another shape" % name)
        found = distance(gradient, other, scale)
        if found > worst:
            worst, whose = found, name
    return worst, whose


def common(state, other):
    """Sorted (name, tensor) of the entries that both have."""
    return sorted((n, t) for n, t in state.items() if n in other)

"""Weights that are kept beside the trained model: averages, teachers, shadow copies.

A module that no training forward entered and that holds floating tensors of its own, or a dict or
list of tensors shaped like the model's parameters. The heap is walked once at the start and once
at the end of an audit; nothing found is held on to.
"""

import gc
import itertools

import torch

from .fingerprint import readable
from .later import keep_together
from .values import local

MAX_COMPANIONS = 64
MAX_TENSORS = 100000
TENSORS = (torch.Tensor, torch.nn.Parameter)


def is_tensor(value):
    """Whether a value is a tensor, by its type alone: reading a proxy may have effects."""
    kind = type(value)
    return kind in TENSORS or kind.__name__ in ("DTensor", "Buffer", "UninitializedParameter")


def storage(tensor):
    """Where a tensor's numbers are; one made of others (a quantized one) stands for itself."""
    part = local(tensor)
    try:
        return (part.device, part.untyped_storage().data_ptr())
    except Exception:
        return id(part)


class Companions(object):
    """Finds the companions of the recorder's models; remembers only which there were."""

    def __init__(self, recorder):
        self.known = set()

    def keep(self, recorder, later, when):
        """Add a line for each companion."""
        for number, (key, fields, tensors) in enumerate(find(recorder)):
            if number >= MAX_COMPANIONS:
                break
            if when == "start":
                self.known.add(key)
            fields.update(when=when, kept=key in self.known)
            keep_together(recorder, later, "companion", fields, tensors)


def is_whole(module):
    """Whether a module has been set up, and is none that was compiled to TorchScript."""
    have = vars(module)
    return all(isinstance(have.get(name), dict) for name in ("_modules", "_parameters", "_buffers"))


def everything():
    """All objects that the collector tracks, those that the job froze included."""
    frozen = gc.get_freeze_count() if hasattr(gc, "get_freeze_count") else 0
    if not frozen:
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()  # with what came since: in an audit, whose time is not judged


def find(recorder):
    """(key, fields, tensors) of every companion that is alive."""
    heap = everything()
    modules = [o for o in heap if issubclass(type(o), torch.nn.Module) and is_whole(o)]
    shapes, taken = trained(recorder)
    shut = owned_containers(modules, recorder)
    for kind, thing, tensors in list(from_modules(modules, taken)) + list(
        from_containers(heap, shapes, taken, shut)
    ):
        fields = {
            "kind": kind,
            "cls": type(thing).__name__,
            "tensors": len(tensors),
            "numel": sum(local(tensor).numel() for tensor in tensors),
            "dtypes": sorted({str(tensor.dtype)[6:] for tensor in tensors}),
        }
        yield (kind, id(thing), fields["cls"], fields["numel"]), fields, tensors


def trained(recorder):
    """Shapes of the trained parameters, and the storages of all that training itself holds."""
    shapes, taken = set(), set()
    for parameter in recorder.all_parameters(None) + [
        p for root in recorder.models for _, p in root.parameters()
    ]:
        shapes.add(tuple(parameter.shape))
        for tensor in (parameter, parameter.grad):
            if tensor is not None and tensor.layout is torch.strided:
                taken.add(storage(tensor))
    for root in recorder.models:
        taken.update(storage(buffer) for _, buffer, _ in root.buffers())
    for optimizer in list(recorder.optimizers):
        for state in list(optimizer.state.values()):
            for value in state.values() if isinstance(state, dict) else ():
                if is_tensor(value) and value.layout is torch.strided:
                    taken.add(storage(value))
    return shapes, taken


def own(values, taken):
    """The floating tensors among some values that training does not hold itself, each once."""
    found, seen = [], set()
    for value in values:
        if is_tensor(value) and value.layout is torch.strided and readable(value):
            place = storage(value)
            if place not in taken and (id(value)) not in seen and local(value).numel():
                seen.add(id(value))
                found.append(value)
    return found


def from_modules(modules, taken):
    """Modules that are no other module's child, with what is their own in them."""
    children = {id(child) for module in modules for child in module._modules.values()}
    for module in modules:
        if id(module) in children:
            continue
        tensors = own(tensors_of(module), taken)
        if tensors:
            yield "module", module, tensors


def tensors_of(module):
    """Parameters and buffers of a module and its children, by the dicts that torch keeps."""
    found, todo, seen = [], [module], set()
    while todo:
        one = todo.pop()
        if id(one) in seen or not is_whole(one):
            continue
        seen.add(id(one))
        found += list(one._parameters.values()) + list(one._buffers.values())
        todo += [child for child in one._modules.values() if isinstance(child, torch.nn.Module)]
    return found


def owned_containers(modules, recorder):
    """Identities of the dicts that modules and optimizers keep their own tensors in."""
    shut = set()
    for module in modules:
        shut.update((id(module._parameters), id(module._buffers), id(vars(module))))
    for optimizer in list(recorder.optimizers):
        shut.update(id(state) for state in list(optimizer.state.values()))
    return shut


def from_containers(heap, shapes, taken, shut):
    """Dicts and lists of at least two tensors, half of them shaped like the model's parameters."""
    for thing in heap:
        if id(thing) in shut:
            continue
        tensors = own(contents(thing), taken)
        alike = sum(t.numel() > 1 and tuple(t.shape) in shapes for t in tensors)
        if len(tensors) >= 2 and 2 * alike >= len(tensors):
            yield "dict", thing, tensors


def contents(thing):
    """The values of a dict or list that begins with tensors; of a module's globals none."""
    kind = type(thing)
    try:
        if kind is list:
            size, values = len(thing), thing
        elif issubclass(kind, dict) and not dict.__contains__(thing, "__builtins__"):
            size, values = dict.__len__(thing), dict.values(thing)
        else:
            return ()
        if 2 <= size <= MAX_TENSORS and any(is_tensor(v) for v in itertools.islice(values, 8)):
            return list(values)
    except RuntimeError:  # another thread changed it meanwhile
        pass
    return ()

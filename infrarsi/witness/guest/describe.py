"""What a model, an optimizer and a process are, as plain data."""

import inspect
import os
import platform
import sys
import weakref

import torch

from .values import local

WRAPPERS = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "module.")
ENGINES = ("torch.", "deepspeed.", "megatron.core.distributed.", "megatron.core.transformer.module")
ENV_PREFIXES = ("NCCL_", "TORCH", "CUDA_", "OMP_", "MKL_", "PYTORCH_")


def clean(name):
    """A parameter's name without what wrappers add."""
    for part in WRAPPERS:
        name = name.replace(part, "")
    return name


def unwrapped(module):
    """The user's own module inside the wrappers of torch, DeepSpeed and Megatron."""
    for _ in range(8):
        inner = getattr(module, "_orig_mod", None)
        if (
            inner is None
            and type(module).__module__.startswith(ENGINES)
            and hasattr(module, "module")
        ):
            inner = module.module
        if inner is None:
            return module
        module = inner
    return module


class Root(object):
    """What is known of a module (or compiled function) that the job calls itself.

    `kind`: "model" with trainable parameters, "frozen" with others only, "aux" with none.
    """

    def __init__(self, target):
        inner = unwrapped(target)
        self.name = getattr(inner, "__name__", None) or type(inner).__name__
        self.argument_names = _argument_names(inner)
        self.prefix = self.title = ""  # in front of its inputs' names, of its parameters' names
        self.references = []  # weak: a model that the job lets go of must be freed
        modules = [target] if isinstance(target, torch.nn.Module) else modules_of(target)
        self.modules = [weakref.ref(module) for module in modules]
        for module in modules:
            self.references += [(clean(n), weakref.ref(p)) for n, p in module.named_parameters()]
        parameters = self.parameters()
        if any(p.requires_grad for _, p in parameters):
            self.kind = "model"
        else:
            self.kind = "frozen" if parameters else "aux"

    def parameters(self):
        """(name, parameter) for those that still exist."""
        found = [(name, reference()) for name, reference in self.references]
        return [(name, parameter) for name, parameter in found if parameter is not None]

    def named_modules(self):
        """(name, module) of the modules that still exist, each once."""
        seen = set()
        for reference in self.modules:
            module = reference()
            if module is not None:
                for name, inner in module.named_modules(memo=seen):
                    yield clean(name), inner

    def all_names(self):
        """(name, parameter) under every name that it has; (name, tensor) once for each module."""
        for prefix, module in self.named_modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    yield clean(prefix + "." + name if prefix else name), parameter

    def buffers(self):
        """(name, buffer, whether it is saved with the model) of the floating buffers there are."""
        for prefix, module in self.named_modules():
            for name, buffer in module._buffers.items():
                if isinstance(buffer, torch.Tensor) and buffer.is_floating_point():
                    kept = name not in module._non_persistent_buffers_set
                    yield clean(prefix + "." + name if prefix else name), buffer, kept


def _argument_names(target):
    forward = target.forward if isinstance(target, torch.nn.Module) else target
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in parameters if p.kind in positional)


def modules_of(function):
    """The modules that a function closes over, is bound to, or names in its globals."""
    function = getattr(function, "_torchdynamo_orig_callable", function)
    found = [getattr(function, "__self__", None)]
    function = getattr(function, "__func__", function)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            continue  # an empty cell
    code = getattr(function, "__code__", None)
    if code is not None:
        found += [function.__globals__.get(name) for name in code.co_names]
    return [module for module in found if isinstance(module, torch.nn.Module)]


def tensors_in(value, name, depth=0):
    """(name, tensor) for the tensors in an argument, nested lists and mappings included."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < 4:
        if isinstance(value, (list, tuple)):
            for i, inner in enumerate(value):
                for found in tensors_in(inner, "%s.%d" % (name, i), depth + 1):
                    yield found
        elif hasattr(value, "items") and hasattr(value, "keys"):
            for key in list(value.keys()):
                for found in tensors_in(value[key], "%s.%s" % (name, key), depth + 1):
                    yield found


def named_inputs(root, args, kwargs):
    """(name, tensor) for every tensor given to a call, named as in its signature."""
    names, prefix = root.argument_names, root.prefix
    found = []
    for i, value in enumerate(args):
        name = prefix + (names[i] if i < len(names) else str(i))
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        else:
            found += tensors_in(value, name)
    for key, value in kwargs.items():
        found += tensors_in(value, prefix + key)
    return found


def hyper(group):
    """A parameter group's settings as plain data, without waiting for a device."""
    out = {}
    for key, value in group.items():
        if key == "params":
            continue
        if isinstance(value, torch.Tensor):
            value = float(value) if value.device.type == "cpu" else "on " + str(value.device)
        if isinstance(value, (int, float, bool, str, type(None))):
            out[key] = value
        elif isinstance(value, (list, tuple)) and len(value) < 9:
            out[key] = [x if isinstance(x, (int, float)) else str(x) for x in value]
    return out


def optimizer_line(name, optimizer):
    """The optimizer line: class, those that it comes from, and each group's size and settings."""
    groups = []
    for group in optimizer.param_groups:
        parameters = group["params"]
        groups.append(
            {
                "tensors": len(parameters),
                "numel": sum(p.numel() for p in parameters),
                "dtypes": sorted({str(p.dtype)[6:] for p in parameters}),
                "settings": hyper(group),
            }
        )
    kind = type(optimizer)
    return {
        "name": name,
        "cls": kind.__module__ + "." + kind.__qualname__,
        "bases": [base.__name__ for base in kind.__mro__[1:-1]],
        "groups": groups,
    }


def tensor_bytes(tensors):
    """Bytes of the parts on this rank, each storage counted once."""
    seen, total = set(), 0
    for tensor in tensors:
        tensor = local(tensor)
        key = (tensor.device, tensor.data_ptr())
        if key in seen and tensor.numel():
            continue
        seen.add(key)
        total += tensor.numel() * tensor.element_size()
    return total


def state_tensors(optimizer):
    """Every tensor of an optimizer's state."""
    for state in list(optimizer.state.values()):
        values = state.values() if isinstance(state, dict) else ()
        for value in values:
            if isinstance(value, torch.Tensor):
                yield value


def head_line():
    """The head line: versions, device and the environment that decides speed (no secrets)."""
    device = None
    if torch.cuda.is_initialized():
        device = torch.cuda.get_device_name()
    return {
        "schema": "infrarsi-witness-v2",
        "ppid": os.getppid(),
        "argv0": os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else "",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": device,
        "threads": torch.get_num_threads(),
        "env": {k: v[:200] for k, v in sorted(os.environ.items()) if k.startswith(ENV_PREFIXES)},
    }


def rank_and_world():
    """This process's rank and the world's size, by the process group or the environment."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except Exception:  # a half-made process group: the environment still says
        pass
    return _number("RANK", 0), _number("WORLD_SIZE", 1)


def _number(name, default):
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


def peak_bytes(known):
    """Largest reserved device memory so far, or peak resident memory where CUDA is not in use.

    `known` is what was seen before the job reset torch's counters.
    """
    if torch.cuda.is_initialized():
        peaks = [known]
        for index in range(torch.cuda.device_count()):
            try:
                peaks.append(torch.cuda.max_memory_reserved(index))
            except RuntimeError:
                continue  # a device this process never used
        return max(peaks)
    try:
        with open("/proc/self/status", "rb") as status:  # getrusage would count before the exec
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def compile_seconds():
    """What torch's compiler has taken in this process, as it counts it itself; 0 without it."""
    module = sys.modules.get("torch._dynamo.utils")
    spent = getattr(module, "cumulative_time_spent_ns", None)  # torch 2.6 and newer
    if not spent:
        return 0.0
    return 1e-9 * (spent.get("entire_frame_compile", 0) + spent.get("entire_backward_compile", 0))

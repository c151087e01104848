# mypy: ignore-errors
"""Guest: keeps what the job's own modules were called with in its first update, then ends the job.

Runs inside the user's training process: standard library and the torch that is there, Python 3.8
and later. It is for a run of its own that is never timed. Rank 0 writes; every rank ends after the
first optimizer step. It never raises into the job.
"""

import importlib.util
import io
import json
import os
import pickle
import sys

MAX_BYTES = 64 << 20
MAX_RECORDS = 64


class _AfterTorch:
    """A finder that lets torch be imported as ever and then installs the recorder."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            try:
                Recorder(module).install()
            except Exception as error:
                _say(error)

        spec.loader.exec_module = exec_module
        return spec


def arrange():
    """Wait for torch to be imported."""
    sys.meta_path.insert(0, _AfterTorch())


def _say(error):
    sys.stderr.write("infrarsi: nothing was recorded: %r\n" % (error,))


class Recorder:
    """Patches `nn.Module` and the optimizers' step of one process."""

    def __init__(self, torch):
        self.torch = torch
        self.root = os.path.realpath(os.environ["INFRARSI_RECORD_ROOT"]) + os.sep
        self.out = os.environ["INFRARSI_RECORD_OUT"]
        with open(os.path.join(self.out, "files.json")) as f:
            self.files = set(json.load(f))
        self.writes = os.environ.get("RANK", "0") == "0"
        self.made = {}
        self.records = {}
        self.skipped = {}
        self.known = {}
        self.optimizer = None
        self.bytes = 0

    def install(self):
        """Patch; the other ranks only get the end of the run."""
        import torch.nn  # noqa: F401

        optimizers = importlib.import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_pre_hook(self.before_step)
        optimizers.register_optimizer_step_post_hook(self.after_step)
        if not self.writes:
            return
        module = self.torch.nn.Module
        call, recorder = module.__call__, self

        def new(cls, *args, **kwargs):
            made = object.__new__(cls)
            if recorder.wanted(cls):
                recorder.made[id(made)] = (made, args, kwargs)
            return made

        def wrapped(self, *args, **kwargs):
            key = recorder.key(self) if recorder.torch.is_grad_enabled() else None
            if key is None:
                return call(self, *args, **kwargs)
            before = recorder.before_call(key, self, args, kwargs)
            output = call(self, *args, **kwargs)
            recorder.after_call(key, before, output)
            return output

        module.__new__ = new
        module.__call__ = wrapped

    def wanted(self, cls):
        """The project-relative file of a class that is the job's own, else None."""
        if cls not in self.known:
            module = sys.modules.get(cls.__module__)
            path = os.path.realpath(getattr(module, "__file__", None) or "/")
            name = path[len(self.root) :] if path.startswith(self.root) else None
            self.known[cls] = name.replace(os.sep, "/") if name is not None else None
        name = self.known[cls]
        return name if name in self.files else None

    def key(self, module):
        """What to keep this call as, None if it is not a first training call of its class."""
        cls = type(module)
        path = self.wanted(cls)
        if path is None or not module.training:
            return None
        key = (path, cls.__qualname__)
        full = len(self.records) >= MAX_RECORDS
        return None if full or key in self.records or key in self.skipped else key

    def before_call(self, key, module, args, kwargs):
        """The state and inputs before the first call, None if they cannot be kept."""
        self.skipped[key] = "its first call did not end"
        try:
            state = {k: v.detach().cpu().clone() for k, v in module.state_dict().items()}
            size = sum(v.numel() * v.element_size() for v in state.values())
            if size > MAX_BYTES or self.bytes + size > 4 * MAX_BYTES:
                self.skipped[key] = "its parameters are too large to keep (%d MiB)" % (size >> 20)
                return None
            _, made_args, made_kwargs = self.made.get(id(module), (None, None, None))
            record = {
                "file": key[0],
                "name": key[1],
                "module": type(module).__module__,
                "path": self.search_path(),
                "state": state,
                "made": self.dump((made_args, made_kwargs)) if made_args is not None else None,
                "object": self.dump(module),
                "requires_grad": {k: p.requires_grad for k, p in module.named_parameters()},
                "inputs": self.dump((args, kwargs)),
                "random": self.torch.get_rng_state(),
            }
            if record["inputs"] is None:
                self.skipped[key] = "its inputs cannot be kept"
                return None
            self.bytes += size + len(record["inputs"])
            return record
        except Exception as error:
            self.skipped[key] = repr(error)
            return None

    def after_call(self, key, record, output):
        """Keep the call together with what it returned."""
        if record is None:
            return
        record["output"] = self.dump(output)
        del self.skipped[key]
        self.records[key] = record

    def search_path(self):
        """Where the job's modules are found, relative to the project."""
        root = self.root.rstrip(os.sep)
        paths = [os.path.realpath(p or os.getcwd()) for p in sys.path]
        return [os.path.relpath(p, root) for p in paths if p == root or p.startswith(self.root)]

    def dump(self, value):
        """The pickle of a value with its tensors on the CPU and apart from any graph."""
        buffer = io.BytesIO()
        torch = self.torch

        class Pickler(pickle.Pickler):
            def reducer_override(self, item):
                if isinstance(item, torch.Tensor) and type(item) in (
                    torch.Tensor,
                    torch.nn.Parameter,
                ):
                    kept = item.detach().cpu().contiguous().clone()
                    wrap = torch.nn.Parameter if isinstance(item, torch.nn.Parameter) else None
                    return _tensor, (
                        _raw(torch, kept),
                        str(kept.dtype),
                        tuple(kept.shape),
                        bool(item.requires_grad),
                        wrap is not None,
                    )
                return NotImplemented

        try:
            Pickler(buffer, protocol=4).dump(value)
        except Exception:
            return None
        return buffer.getvalue() if buffer.tell() <= 2 * MAX_BYTES else None

    def before_step(self, optimizer, args, kwargs):
        """Keep the parameters and gradients of the first step, as far as they are small."""
        if self.optimizer is not None or not self.writes:
            return
        try:
            groups, size = [], 0
            for group in optimizer.param_groups:
                kept = []
                for p in group["params"]:
                    size += p.numel() * p.element_size()
                    if p.grad is None or size > MAX_BYTES or p.grad.layout != self.torch.strided:
                        continue
                    kept.append((p.detach().cpu().clone(), p.grad.detach().cpu().clone()))
                hyper = {k: v for k, v in group.items() if k not in ("params", "param_names")}
                groups.append({"params": kept, "hyper": hyper})
            self.optimizer = self.dump((type(optimizer).__name__, groups))
        except Exception as error:
            self.optimizer = b""
            _say(error)

    def after_step(self, optimizer, args, kwargs):
        """Write everything and end the process."""
        code = 0
        if self.writes:
            try:
                self.write()
            except Exception as error:
                _say(error)
                code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def write(self):
        """One file a record, and a list of them last, so that a list means that all are there."""
        names = []
        for number, record in enumerate(self.records.values()):
            names.append("%d.pickle" % number)
            record["state"] = self.dump(record["state"])
            record["random"] = self.dump(record["random"])
            with open(os.path.join(self.out, names[-1]), "wb") as f:
                pickle.dump(record, f, protocol=4)
        if self.optimizer:
            with open(os.path.join(self.out, "optimizer.pickle"), "wb") as f:
                f.write(self.optimizer)
        done = {
            "records": [
                {"file": key[0], "name": key[1], "pickle": name}
                for key, name in zip(self.records, names)
            ],
            "skipped": [list(key) + [why] for key, why in self.skipped.items()],
            "optimizer": bool(self.optimizer),
        }
        part = os.path.join(self.out, "done.part")
        with open(part, "w") as f:
            json.dump(done, f)
        os.replace(part, os.path.join(self.out, "done.json"))


def _raw(torch, tensor):
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def _tensor(raw, dtype, shape, requires_grad, is_parameter):
    """Stands for a kept tensor in a pickle; `compare.py` has the function that makes it."""
    raise NotImplementedError

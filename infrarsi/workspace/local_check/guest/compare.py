# mypy: ignore-errors
"""Guest: runs recorded calls in old and new code and says how far results and gradients differ.

`python compare.py spec.json`: the answer is written to the path `answer` of the specification. A
process of its own, so that what the job's modules do on import stays there. Python 3.8 and later.
"""

import ast
import importlib
import io
import json
import os
import pickle
import sys
import types

import torch
from infrarsi_differences import (
    FAITHFUL_TOLERANCE,
    GRADIENT_TOLERANCE,
    OPTIMIZER_TOLERANCE,
    OUTPUT_TOLERANCE,
    CannotTell,
    Differs,
    common,
    compare_gradients,
    compare_outputs,
    compare_spread,
    distance,
    leaves,
    mapped,
)


def tensor(raw, dtype, shape, requires_grad, is_parameter):
    """A tensor as the recorder kept it."""
    kind = getattr(torch, dtype.split(".")[-1])
    flat = torch.frombuffer(bytearray(raw), dtype=kind) if raw else torch.empty(0, dtype=kind)
    made = flat.reshape(shape).clone()
    if is_parameter:
        return torch.nn.Parameter(made, requires_grad=requires_grad)
    return made.requires_grad_(requires_grad) if made.is_floating_point() else made


class Loader(pickle.Unpickler):
    """Finds the job's classes in one side's code; `__main__` is the entry file without its run."""

    def __init__(self, data, main):
        super().__init__(io.BytesIO(data))
        self.main = main

    def find_class(self, module, name):
        if name == "_tensor":
            return tensor
        if module == "__main__":
            found = self.main
            for part in name.split("."):
                found = getattr(found, part)
            return found
        return super().find_class(module, name)


class Side:
    """The old or the new code, importable while it is entered."""

    def __init__(self, folder, record):
        self.folder = os.path.realpath(folder)
        self.record = record
        self.paths = [os.path.normpath(os.path.join(self.folder, p)) for p in record["path"]]

    def __enter__(self):
        sys.path[:0] = self.paths or [self.folder]
        importlib.invalidate_caches()
        return self

    def __exit__(self, *exc):
        del sys.path[: len(self.paths) or 1]
        inside = self.folder + os.sep
        for name, module in list(sys.modules.items()):
            path = os.path.realpath(getattr(module, "__file__", None) or "/")
            if path.startswith(inside):
                del sys.modules[name]

    def module_class(self):
        """The class that was recorded, and the module that stands for `__main__`."""
        record = self.record
        path = os.path.join(self.folder, record["file"])
        if record["module"] == "__main__":
            code = definitions(path)
            self.main = types.ModuleType("__main__")
            self.main.__file__ = path
            sys.modules["infrarsi_checked_main"] = self.main
            exec(compile(code, path, "exec"), self.main.__dict__)
            found = self.main
        else:
            self.main = None
            found = importlib.import_module(record["module"])
            if os.path.realpath(found.__file__) != os.path.realpath(path):
                raise CannotTell("`%s` is imported from elsewhere" % record["module"])
        for part in record["name"].split("."):
            found = getattr(found, part)
        return found

    def load(self, data):
        """Unpickle with this side's classes."""
        return Loader(data, self.main).load()

    def build(self):
        """The module with the recorded parameters, and the recorded inputs and output."""
        record = self.record
        cls = self.module_class()
        try:
            module = self.construct(cls)
        except Exception as error:
            if record["object"] is None:
                raise CannotTell("it cannot be built from what was kept (%r)" % (error,))
            module = self.load(record["object"])
        state = self.load(record["state"])
        own = dict(module.named_parameters())
        recorded = record["requires_grad"]
        if set(own) != set(recorded):
            changed = sorted(set(own) ^ set(recorded))
            raise Differs("the parameters are others: `%s`" % "`, `".join(changed[:4]))
        for name, parameter in own.items():
            if parameter.shape != state[name].shape:
                raise Differs("the shape of parameter `%s` is another" % name)
            parameter.requires_grad_(recorded[name])
        module.load_state_dict(state, strict=False)
        args, kwargs = self.load(record["inputs"])
        output = self.load(record["output"]) if record["output"] is not None else None
        return module, args, kwargs, output

    def construct(self, cls):
        """A new module from the arguments that the job made it with."""
        if self.record["made"] is None:
            raise CannotTell("the arguments that made it cannot be kept")
        args, kwargs = self.load(self.record["made"])
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return cls(*args, **kwargs)


def definitions(path):
    """The imports, definitions and constants of a program's file, without what it runs."""
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    kept = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
            kept.append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            try:
                ast.literal_eval(node.value)
                kept.append(node)
            except ValueError:
                continue
        elif isinstance(node, ast.Try) and all(
            isinstance(n, (ast.Import, ast.ImportFrom, ast.Assign)) for n in node.body
        ):
            kept.append(node)
    return ast.Module(kept, type_ignores=[])


def widened(value):
    """A floating tensor in float32, so that rounding of half precision hides nothing."""
    half = value.dtype in (torch.float16, torch.bfloat16)
    return value.float().requires_grad_(value.requires_grad) if half else value


def stir(module, args, kwargs):
    """Larger weights and inputs: at its first values an attention is nearly uniform."""
    source = torch.Generator().manual_seed(7)

    def noise(like, scale):
        return torch.randn(like.shape, generator=source).to(like.dtype) * scale

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.is_floating_point():
                fan_in = parameter.shape[-1] if parameter.dim() > 1 else 100
                parameter.add_(noise(parameter, fan_in**-0.5))

    def change(value):
        if not value.is_floating_point() or value.numel() < 2 or not value.requires_grad:
            return value
        return (value.detach() + noise(value, 1.0)).requires_grad_(True)

    return mapped(args, change), mapped(kwargs, change)


class WithoutDropout:
    """Dropout off, by module and by function, in training mode as well."""

    def __enter__(self):
        functional = torch.nn.functional
        self.kept = {n: getattr(functional, n) for n in ("dropout", "scaled_dot_product_attention")}
        attend = self.kept["scaled_dot_product_attention"]

        def plain(query, key, value, attn_mask=None, dropout_p=0.0, *args, **kwargs):
            return attend(query, key, value, attn_mask, 0.0, *args, **kwargs)

        functional.dropout = lambda x, p=0.5, training=True, inplace=False: x
        functional.scaled_dot_product_attention = plain

    def __exit__(self, *exc):
        for name, function in self.kept.items():
            setattr(torch.nn.functional, name, function)


def fresh(value):
    """A leaf of its own with the same values."""
    return value.detach().clone().requires_grad_(value.requires_grad)


def passed(value):
    """What a module is given: no leaf, as in the job, so that it may be changed in place."""
    return value.clone()


def train_call(module, args, kwargs):
    """Outputs, and gradients of the parameters and inputs for a fixed mix of the outputs."""
    args, kwargs = mapped(args, fresh), mapped(kwargs, fresh)
    module.train()
    module.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    output = module(*mapped(args, passed), **mapped(kwargs, passed))
    source = torch.Generator().manual_seed(3)
    total = 0.0
    for _, value in leaves(output):
        weight = torch.randn(value.shape, generator=source)
        if value.is_floating_point() and value.requires_grad:
            total = total + (value.float() * weight).sum()
    gradients = {}
    if isinstance(total, torch.Tensor):
        total.backward()
        gradients = {n: p.grad for n, p in module.named_parameters()}
        inputs = leaves(args, "input") + leaves(kwargs, "input")
        gradients.update({n: t.grad for n, t in inputs if t.requires_grad})
    return [(n, t.detach()) for n, t in leaves(output)], gradients


def random_spread(module, args, kwargs):
    """How far outputs in training mode vary with the random state: (relative spread, elements)."""
    module.train()
    outputs = []
    kept = {n: t.detach().clone() for n, t in module.state_dict().items()}
    for seed in range(8):
        torch.manual_seed(seed)
        with torch.no_grad():
            output = module(*mapped(args, passed), **mapped(kwargs, passed))
        module.load_state_dict(kept)
        values = [t.flatten().double() for _, t in leaves(output) if t.is_floating_point()]
        outputs.append(torch.cat(values) if values else torch.zeros(1))
    stacked = torch.stack(outputs)
    size = max(float(stacked.mean(0).norm()), 1e-12)
    return float(stacked.std(0).norm()) / size, stacked.shape[1]


def eval_call(module, args, kwargs):
    """Outputs in evaluation mode."""
    module.eval()
    torch.manual_seed(1)
    with torch.no_grad():
        output = module(*mapped(args, passed), **mapped(kwargs, passed))
    return leaves(output)


def check_module(record, folders):
    """Figures for one recorded call; raises Differs or CannotTell."""
    results = []
    for folder in folders:
        with Side(folder, record) as side:
            results.append(run_side(side) if results else run_old(side))
    old, new = results
    figures = {"output": 0.0, "gradient": 0.0}
    for kind in ("recorded", "stirred"):
        for mode in ("train", "eval"):
            what = "the output (%s, %s values)" % (mode, kind)
            found = compare_outputs(old[kind][mode], new[kind][mode], what)
            figures["output"] = max(figures["output"], found)
            if not found <= OUTPUT_TOLERANCE:
                raise Differs("%s differs by %.1e (allowed %.0e)" % (what, found, OUTPUT_TOLERANCE))
        found, whose = compare_gradients(old[kind]["gradients"], new[kind]["gradients"])
        figures["gradient"] = max(figures["gradient"], found)
        if not found <= GRADIENT_TOLERANCE:
            raise Differs(
                "the gradient of `%s` (%s values) differs by %.1e (allowed %.0e)"
                % (whose, kind, found, GRADIENT_TOLERANCE)
            )
        found = compare_outputs(
            *(
                common(side[kind]["state"], other[kind]["state"])
                for side, other in ((old, new), (new, old))
            ),
            what="the state after the call",
        )
        if not found <= OUTPUT_TOLERANCE:
            raise Differs("the state after the call differs by %.1e" % found)
    compare_spread(old["recorded"]["spread"], new["recorded"]["spread"])
    return figures


def run_old(side):
    """The same for the old code, where every mistake means that nothing can be told."""
    try:
        check_faithful(side, *side.build())
        return run_side(side)
    except CannotTell:
        raise
    except Exception as error:
        raise CannotTell("its call cannot be repeated outside the job (%r)" % (error,))


def run_side(side):
    """Everything that one side's code gives for a recorded call."""
    module, args, kwargs, _ = side.build()
    if any(p.dtype in (torch.float16, torch.bfloat16) for p in module.parameters()):
        module.float()
    args, kwargs = mapped(args, widened), mapped(kwargs, widened)
    result = {}
    for kind in ("recorded", "stirred"):
        if kind == "stirred":
            args, kwargs = stir(module, args, kwargs)
        with WithoutDropout():
            train, gradients = train_call(module, args, kwargs)
            state = {n: t.detach().clone() for n, t in module.state_dict().items()}
        evaluated = eval_call(module, args, kwargs)
        spread = random_spread(module, args, kwargs) if kind == "recorded" else None
        result[kind] = {
            "train": train,
            "gradients": gradients,
            "eval": evaluated,
            "spread": spread,
            "state": state,
        }
    return result


def check_faithful(side, module, args, kwargs, output):
    """Raises CannotTell unless the rebuilt old module gives what it gave in the job."""
    if output is None:
        raise CannotTell("its output cannot be kept")
    torch.set_rng_state(side.load(side.record["random"]))
    module.train()
    again = leaves(module(*mapped(args, passed), **mapped(kwargs, passed)))
    kept = leaves(output)
    if [(n, t.shape) for n, t in kept] != [(n, t.shape) for n, t in again]:
        raise CannotTell("repeated outside the job its output has another shape")
    for (_, a), (_, b) in zip(kept, again):
        found = distance(*(t.float() if t.is_floating_point() else t for t in (a, b)))
        if not found <= FAITHFUL_TOLERANCE:
            raise CannotTell("repeated outside the job it gives other values (by %.1e)" % found)


def check_optimizer(data, changes):
    """Figures for three steps of the recorded optimizer, as it is and with changed arguments."""
    name, groups = Loader(data, None).load()
    results = []
    for extra in ({}, changes):
        parameters, made = [], []
        for group in groups:
            own = [torch.nn.Parameter(p.clone()) for p, _ in group["params"]]
            for parameter, (_, gradient) in zip(own, group["params"]):
                parameter.grad = gradient.clone()
            parameters += own
            hyper = {k: v for k, v in group["hyper"].items() if k not in changes}
            if own:
                made.append(dict(hyper, params=own))
        if not made:
            raise CannotTell("no gradient was kept")
        optimizer = getattr(torch.optim, name)(made, **extra)
        for _ in range(3):
            optimizer.step()
            for parameter in parameters:
                parameter.grad.mul_(0.7)
        states = [v for p in parameters for v in leaves(optimizer.state[p])]
        results.append([("", p.detach()) for p in parameters] + [("", t) for _, t in states])
    worst = 0.0
    for (_, a), (_, b) in zip(*results):
        worst = max(worst, distance(a.float(), b.float()))
    if len(results[0]) != len(results[1]) or not worst <= OPTIMIZER_TOLERANCE:
        raise Differs(
            "parameters after three steps of `%s` differ by %.1e (allowed %.0e)"
            % (name, worst, OPTIMIZER_TOLERANCE)
        )
    return {"optimizer": worst}


def judge(function, *arguments):
    """(status, reason, figures) of one check."""
    try:
        return "passed", "", function(*arguments)
    except Differs as error:
        return "failed", str(error), {}
    except CannotTell as error:
        return "not_possible", str(error), {}
    except Exception as error:
        return "failed", "the new code cannot run the recorded call (%r)" % (error,), {}


def main(path):
    """Read the specification, do every check, write the answer."""
    with open(path) as f:
        spec = json.load(f)
    answer = []
    for item in spec["records"]:
        with open(item["pickle"], "rb") as f:
            record = pickle.load(f)
        answer.append([item["name"], *judge(check_module, record, spec["folders"])])
    if spec.get("optimizer"):
        with open(spec["optimizer"], "rb") as f:
            data = f.read()
        answer.append(["optimizer", *judge(check_optimizer, data, spec["changes"])])
    with open(spec["answer"], "w") as f:
        json.dump(answer, f)


if __name__ == "__main__":
    main(sys.argv[1])

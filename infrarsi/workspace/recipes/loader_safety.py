"""Whether a DataLoader gives the same batches when worker processes build them."""

import re
from collections.abc import Sequence

import libcst as cst

from infrarsi.workspace.recipes.source import Source, argument, dotted, literal

_EVALUATION = re.compile(r"(?i)(^|_)(val|valid|validation|test|eval|dev|heldout|infer\w*)(_|$|\d)")
_RANDOM = re.compile(
    r"^(random|secrets|numpy\.random)\b|^torch\.(rand|randn|randint|randperm|bernoulli|normal"
    r"|multinomial|rand_like|randn_like|empty_like|dropout|nn\.functional\.dropout)\b|^uuid\."
)
_RANDOM_NAMES = re.compile(r"(?i)(^|_)(rng|generator|augment\w*|transforms?|jitter|shuffle)($|_)")
_HANDLES = re.compile(
    r"^(open|io\.open|gzip\.open|h5py\.|lmdb\.|sqlite3\.|zipfile\.|tarfile\.|mmap\.|socket\."
    r"|requests\.|threading\.|multiprocessing\.)"
)
_SAMPLERS = frozenset(
    [
        *(
            f"torch.utils.data.{name}"
            for name in (
                "DistributedSampler",
                "distributed.DistributedSampler",
                "RandomSampler",
                "SequentialSampler",
                "BatchSampler",
                "SubsetRandomSampler",
                "WeightedRandomSampler",
            )
        ),
    ]
)
_WRAPPERS = ("torch.utils.data.Subset", "torch.utils.data.ConcatDataset")
_TENSORS = "torch.utils.data.TensorDataset"


def is_evaluation(source: Source, call: cst.Call) -> bool:
    """Whether a DataLoader is called so that it is for evaluation, or loads such a dataset."""
    names = []
    for above in source.ancestors(call):
        if isinstance(above, cst.Assign):
            names += [dotted(t.target).split(".")[-1] for t in above.targets]
        elif isinstance(above, cst.DictElement):
            names.append(str(literal(above.key)))
        elif isinstance(above, cst.FunctionDef):
            names.append(above.name.value)
            break
        elif isinstance(above, cst.BaseCompoundStatement):
            continue
    dataset = argument(call, "dataset", 0)
    names.append(dotted(dataset).split(".")[-1] if dataset is not None else "")
    return any(_EVALUATION.search(name) for name in names)


def worker_hazard(sources: Sequence[Source], source: Source, call: cst.Call) -> str | None:
    """Why batches may differ or break in worker processes, None where they surely do not."""
    for other in sources:
        reason = _process_hazard(other, shuffles=_shuffles(call))
        if reason is not None:
            return reason
    for name in ("sampler", "batch_sampler"):
        given = argument(call, name, {"sampler": 3, "batch_sampler": 4}[name])
        if given is not None and not _is_known_sampler(source, given):
            return f"the order of `{source.code(given)}` may depend on when it is asked"
    collate = argument(call, "collate_fn", 6)
    if collate is not None:
        reason = _collate_hazard(sources, source, collate)
        if reason is not None:
            return reason
    dataset = argument(call, "dataset", 0)
    if dataset is None:
        return "its dataset is not seen"
    return _dataset_hazard(sources, source, dataset, depth=4) or _used_hazard(source, dataset)


def _shuffles(call: cst.Call) -> bool:
    """Whether the order is drawn from torch's global generator when the first batch is asked."""
    shuffle = argument(call, "shuffle", 2)
    return shuffle is not None and literal(shuffle) is not False


def _process_hazard(source: Source, shuffles: bool) -> str | None:
    for call in source.nodes(cst.Call):
        name = source.code(call.func)
        if name.endswith("set_start_method"):
            return f"{source.where(call)}: the start method of processes is chosen by the job"
        if source.qualified(call.func) == "next" and call.args:
            inner = call.args[0].value
            if isinstance(inner, cst.Call) and source.qualified(inner.func) == "iter":
                return f"{source.where(call)}: a new iterator for every batch starts new workers"
        if shuffles and source.qualified(call.func) == "iter":
            return (
                f"{source.where(call)}: workers would draw the order here, not at the first batch"
            )
    return None


def _is_known_sampler(source: Source, given: cst.BaseExpression) -> bool:
    """Whether every value that a sampler expression can have is one of torch's samplers."""
    if literal(given) is None:
        return True
    if isinstance(given, cst.IfExp):
        return all(_is_known_sampler(source, part) for part in (given.body, given.orelse))
    if isinstance(given, cst.Call):
        return source.qualified(given.func) in _SAMPLERS
    if isinstance(given, cst.Name):
        values = source.assigned_values(given)
        return bool(values) and all(_is_known_sampler(source, v) for v in values)
    return False


def _collate_hazard(
    sources: Sequence[Source], source: Source, collate: cst.BaseExpression
) -> str | None:
    if isinstance(collate, cst.Lambda):
        return "its `collate_fn` is a lambda, which cannot be sent to a process"
    name = source.code(collate)
    for other in sources:
        for function in other.nodes(cst.FunctionDef):
            if function.name.value == name and isinstance(other.parent(function), cst.Module):
                return _code_hazard(other, function)
    return f"its `collate_fn` `{name}` is not seen"


def _dataset_hazard(
    sources: Sequence[Source], source: Source, dataset: cst.BaseExpression, depth: int
) -> str | None:
    """Why a dataset expression is not known to be the same in another process."""
    text = " ".join(source.code(dataset).split())
    unknown = f"the class of its dataset `{text}` is not seen in the editable files"
    if depth == 0:
        return unknown
    if isinstance(dataset, cst.Name):
        values = source.assigned_values(dataset)
        if len(values) != 1:
            return unknown
        return _dataset_hazard(sources, source, values[0], depth - 1)
    if not isinstance(dataset, cst.Call):
        return unknown
    name = source.qualified(dataset.func) or ""
    if name == _TENSORS:
        on_device = source.method_calls("cuda", "to", under=dataset)
        return f"its tensors may be on a device (`{text}`)" if on_device else None
    if name in _WRAPPERS and dataset.args:
        return _dataset_hazard(sources, source, dataset.args[0].value, depth - 1)
    return _class_hazard(sources, source, dataset, unknown)


def _class_hazard(
    sources: Sequence[Source], source: Source, dataset: cst.Call, unknown: str
) -> str | None:
    called = source.qualified(dataset.func) or source.code(dataset.func)
    matches = [
        (other, node)
        for other in sources
        for node in other.nodes(cst.ClassDef)
        if node.name.value == called.split(".")[-1]
    ]
    if len(matches) != 1:
        return unknown
    other, node = matches[0]
    place = other.where(node)
    bases = [other.qualified(b.value) for b in node.bases]
    methods = {f.name.value: f for f in other.nodes(cst.FunctionDef, node)}
    if any("Iterable" in (b or "") for b in bases) or "__getitem__" not in methods:
        return f"{place}: an iterable dataset would give every worker the same data"
    if any(b not in ("torch.utils.data.Dataset", "object") for b in bases):
        return f"{place}: not all of the dataset's base classes are seen"
    for function in methods.values():
        reason = _code_hazard(other, function, is_init=function.name.value == "__init__")
        if reason is not None:
            return reason
    return None


def _code_hazard(source: Source, function: cst.FunctionDef, is_init: bool = False) -> str | None:
    """Randomness, open handles, device tensors or kept state in a function."""
    for call in source.nodes(cst.Call, function):
        name = source.qualified(call.func) or source.code(call.func)
        draws = _RANDOM.match(name) or name.endswith((".random_", ".uniform_", ".normal_"))
        if draws and not is_init:  # the constructor runs in the training process either way
            return f"{source.where(call)}: `{name}` would draw other random numbers in a worker"
        last = name.split(".")[-1]
        if not is_init and _RANDOM_NAMES.search(last):
            return f"{source.where(call)}: `{name}` may draw random numbers"
        if _HANDLES.match(name) and not _is_closed(source, call):
            return f"{source.where(call)}: `{name}` keeps something open that workers would share"
        if last in ("cuda", "to", "to_device"):
            return (
                f"{source.where(call)}: `{name}` may put data on a device, out of a worker's reach"
            )
    for attribute in source.nodes(cst.Attribute, function):
        if not is_init and _RANDOM_NAMES.search(attribute.attr.value):
            return f"{source.where(attribute)}: `{source.code(attribute)}` may draw random numbers"
    if is_init:
        return None
    targets: list[cst.BaseExpression] = []
    targets += [t.target for t in source.nodes(cst.AssignTarget, function)]
    targets += [t.target for t in source.nodes(cst.AugAssign, function)]
    for target in targets:
        if source.code(target).startswith("self."):
            return f"{source.where(target)}: the dataset changes while it is read"
    for call in source.nodes(cst.Call, function):
        func = call.func
        mutating = ("append", "pop", "update", "setdefault", "add", "clear", "extend", "insert")
        mutates = isinstance(func, cst.Attribute) and func.attr.value in mutating
        if mutates and source.code(func).startswith("self."):
            return f"{source.where(call)}: the dataset changes while it is read"
    for node_ in source.nodes(cst.Global, function):
        return f"{source.where(node_)}: the dataset changes a global while it is read"
    return None


def _is_closed(source: Source, call: cst.Call) -> bool:
    """Whether an opened thing is closed again by its `with`."""
    return isinstance(source.parent(call), cst.WithItem)


def _used_hazard(source: Source, dataset: cst.BaseExpression) -> str | None:
    """Whether the training process calls or changes the dataset besides loading from it."""
    if not isinstance(dataset, cst.Name):
        return None
    for use in source.uses(dataset):
        parent = source.parent(use)
        if isinstance(parent, cst.Attribute) and parent.value is use:
            called = isinstance(source.parent(parent), cst.Call)
            stored = isinstance(source.parent(parent), cst.AssignTarget | cst.AugAssign)
            if called or stored:
                return f"{source.where(use)}: `{source.code(parent)}` may change the dataset"
    for attribute in source.nodes(cst.Attribute):
        if attribute.attr.value == "dataset" and isinstance(
            source.parent(attribute), cst.Attribute
        ):
            return f"{source.where(attribute)}: the dataset is reached through its DataLoader"
    return None

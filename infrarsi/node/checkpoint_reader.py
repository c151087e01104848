"""What is in checkpoint files: keys, shapes, dtypes, and one norm and one projection per tensor.

A program for the job's own Python (3.8+, torch), started by `checkpoints.py` with `-I`; it imports
nothing of ours. Its argument is a JSON file with `files` ([name, kind, path] each), `max_tensors`,
`max_bytes` and `out`, the file that it writes its answer to. Nothing that a file names is executed:
what torch does not load with `weights_only` is read with a stand-in for every foreign class.
"""

from __future__ import annotations

import collections
import collections.abc
import io
import json
import pickle
import re
import sys
import types
from typing import Any

import torch

DEPTH = 16
MAX_SCALARS = 5000
MAX_TEXT = 80
CHUNK = 1 << 19
MASK = 0x7FFFFFFF


class Foreign:
    """Stands for an object of a class that is not loaded; keeps what its pickle says of it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Foreign:
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.__dict__.setdefault("args", list(args))

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
            state = state[1]
        self.__dict__.update(state if isinstance(state, dict) else {"state": state})

    def __setitem__(self, key: Any, value: Any) -> None:
        self.__dict__.setdefault("items", {})[key] = value

    def append(self, value: Any) -> None:
        self.__dict__.setdefault("list", []).append(value)

    def extend(self, values: Any) -> None:
        for value in values:
            self.append(value)

    def __call__(self, *args: Any, **kwargs: Any) -> Foreign:
        return self

    def __hash__(self) -> int:
        return id(self)


_PLAIN: dict[str, tuple[str, ...] | None] = {
    "builtins": (
        *("set", "frozenset", "int", "float", "complex", "bool", "str", "bytes"),
        *("bytearray", "list", "dict", "tuple", "slice", "range"),
    ),
    "collections": ("OrderedDict", "defaultdict", "Counter", "deque"),
    "_codecs": ("encode",),
    "torch._utils": (
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_tensor_v3",
        "_rebuild_parameter",
        "_rebuild_parameter_with_state",
    ),
    "torch": ("Size", "device"),
    "torch.nn.parameter": ("Parameter",),
    "torch.distributed.checkpoint.metadata": None,
}


def known(module: str, name: str) -> Any:
    """The class or function of that name if it can do no harm, else a stand-in."""
    module = {"__builtin__": "builtins"}.get(module, module)
    names = _PLAIN.get(module, ())
    storage = module in ("torch", "torch.storage") and name.endswith("Storage")
    if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
        return getattr(torch, name)
    if storage or (names is None and "." not in name) or (names and name in names):
        __import__(module)
        found = getattr(sys.modules[module], name)
        if names is not None or isinstance(found, type):
            return found
    return type(str(name), (Foreign,), {"__module__": module})


class Careful(pickle.Unpickler):
    """An unpickler that makes no object of a class that it does not know."""

    def find_class(self, module: str, name: str) -> Any:
        return known(module, name)


CAREFUL: Any = types.ModuleType("careful")
"""What torch.load takes for the module pickle."""
CAREFUL.Unpickler = Careful
CAREFUL.load = lambda file, **options: Careful(file, **options).load()
CAREFUL.UnpicklingError = pickle.UnpicklingError


class Budget:
    """How much may still be read for norms."""

    def __init__(self, tensors: int, size: int) -> None:
        self.tensors = tensors
        self.size = size

    def takes(self, tensor: Any) -> bool:
        """Whether this tensor's values are read."""
        size = tensor.numel() * tensor.element_size()
        if self.tensors < 1 or self.size < size:
            return False
        self.tensors -= 1
        self.size -= size
        return True


def signs(count: int) -> Any:
    """Fixed pseudo-random signs of that many positions."""
    at = torch.arange(count, dtype=torch.int64)
    mixed = (at * 1103515245 + 12345) & MASK
    mixed = ((mixed ^ (mixed >> 13)) * 69069) & MASK
    return (((mixed >> 11) & 1) * 2 - 1).to(torch.float64)


_pattern: list[Any] = []


def values_of(tensor: Any) -> list[float]:
    """[norm, projection] of a tensor in double precision; the signs repeat every CHUNK."""
    if not _pattern:
        _pattern.append(signs(CHUNK))
    flat = tensor.detach().reshape(-1)
    square = projection = 0.0
    for first in range(0, flat.numel(), CHUNK):
        part = flat[first : first + CHUNK]
        part = torch.view_as_real(part).sum(-1) if part.is_complex() else part
        part = part.to(torch.float64)
        square += float(torch.dot(part, part))
        projection += float(torch.dot(part, _pattern[0][: part.numel()]))
    return [square**0.5, projection]


class Manifest:
    """What is in one checkpoint."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.tensors: dict[str, Any] = {}
        self.scalars: dict[str, Any] = {}
        self.unread = 0

    def add(self, key: str, value: Any, depth: int = 0) -> None:
        """Put in a value and what is below it."""
        if isinstance(value, torch.Tensor):
            self.tensor(key, value)
        elif depth > DEPTH:
            return
        elif isinstance(value, collections.abc.Mapping):
            for name in list(value):
                self.add(join(key, name), value[name], depth + 1)
        elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            for index, item in enumerate(value):
                self.add(join(key, index), item, depth + 1)
        elif isinstance(value, Foreign):
            self.add(key, dict(value.__dict__), depth + 1)
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            self.tensors[key] = {"shape": list(value.shape), "dtype": str(value.dtype)}
        elif len(self.scalars) < MAX_SCALARS:
            if isinstance(value, str):
                value = value[:MAX_TEXT]
            elif not isinstance(value, (int, float, bool, type(None))):
                value = type(value).__name__
            self.scalars[key] = value

    def tensor(self, key: str, tensor: Any) -> None:
        """Put in one tensor."""
        entry = {"shape": list(tensor.shape), "dtype": str(tensor.dtype)[6:]}
        if (
            tensor.layout is torch.strided
            and not tensor.is_quantized
            and tensor.device.type == "cpu"
        ):
            if self.budget.takes(tensor):
                entry["values"] = values_of(tensor)
            else:
                self.unread += 1
        self.tensors[key] = entry

    def told(self) -> dict[str, Any]:
        """As plain data."""
        out: dict[str, Any] = {"tensors": self.tensors, "scalars": self.scalars}
        if self.unread:
            out["partial"] = f"{self.unread} tensors were too many or too large to read"
        return out


def join(key: str, name: object) -> str:
    """One more level of a key."""
    return f"{key}/{name}" if key else str(name)


def torch_file(path: str) -> Any:
    """A torch.save file's content."""
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (RuntimeError, TypeError, ValueError):  # not a zip file, or an older torch
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=CAREFUL)


_SAFE = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
}


def safetensors(path: str, manifest: Manifest) -> None:
    """The tensors of a safetensors file, one after the other."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > 100 << 20:
            raise ValueError(f"its header of {size} bytes is too long")
        header = json.loads(file.read(size))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            dtype = getattr(torch, _SAFE.get(entry["dtype"], ""), None)
            manifest.tensors[name] = {"shape": entry["shape"], "dtype": _SAFE.get(entry["dtype"])}
            if dtype is None or end == begin:
                continue
            if manifest.budget.tensors < 1 or manifest.budget.size < end - begin:
                manifest.unread += 1
                continue
            file.seek(8 + size + begin)
            data = bytearray(file.read(end - begin))
            manifest.tensor(name, torch.frombuffer(data, dtype=dtype).reshape(entry["shape"]))


def distributed(path: str, manifest: Manifest) -> None:
    """A folder of torch.distributed.checkpoint, from its `.metadata`."""
    folder = path[: -len(".metadata")]
    with open(path, "rb") as file:
        metadata = Careful(file).load()
    pieces: dict[str, list[Any]] = {}
    for index, place in (metadata.storage_data or {}).items():
        pieces.setdefault(index.fqn, []).append(place)
    for name, entry in metadata.state_dict_metadata.items():
        if not hasattr(entry, "size"):
            manifest.scalars[name] = "bytes"
            continue
        dtype = str(entry.properties.dtype)[6:]
        told: dict[str, Any] = {"shape": list(entry.size), "dtype": dtype}
        seen = [piece_values(folder, piece, manifest) for piece in pieces.get(name, [])]
        values = [value for value in seen if value is not None]
        if values and len(values) == len(seen):
            told["values"] = [sum(v[0] ** 2 for v in values) ** 0.5, sum(v[1] for v in values)]
        manifest.tensors[name] = told


def piece_values(folder: str, piece: Any, manifest: Manifest) -> list[float] | None:
    """[norm, projection] of one stored piece, None where it is not read."""
    place = piece.__dict__
    if not re.match(r"[\w.-]+$", str(place.get("relative_path"))):
        return None
    if manifest.budget.size < place["length"]:
        manifest.unread += 1
        return None
    with open(folder + place["relative_path"], "rb") as file:
        file.seek(place["offset"])
        tensor = torch.load(io.BytesIO(file.read(place["length"])), weights_only=True)
    return values_of(tensor) if manifest.budget.takes(tensor) else None


def read(kind: str, path: str, budget: Budget) -> dict[str, Any]:
    """The manifest of one checkpoint as plain data; `unread` says why there is none."""
    manifest = Manifest(budget)
    try:
        if kind == "safetensors":
            safetensors(path, manifest)
        elif kind == "distributed":
            distributed(path, manifest)
        else:
            manifest.add("", torch_file(path))
    except Exception as error:  # a file of any content: what is wrong with it is the answer
        text = str(error).strip().splitlines()
        return {"unread": f"{type(error).__name__}: {text[0][:200] if text else ''}"}
    return manifest.told()


def main() -> None:
    """Read what the argument asks for."""
    with open(sys.argv[1]) as file:
        asked = json.load(file)
    budget = Budget(asked["max_tensors"], asked["max_bytes"])
    found = {name: read(kind, path, budget) for name, kind, path in asked["files"]}
    with open(asked["out"], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()

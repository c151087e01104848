"""Which training stack a job uses: told from its launcher, its imports and its calls, with places.

A mixture is resolved by who owns the training loop. transformers' Trainer and accelerate own it
also where DeepSpeed works underneath, whose file is then one more dialect; Megatron's loop is
Megatron's; `deepspeed.initialize` in the job's own code is DeepSpeed. A launcher alone decides
nothing: `accelerate launch` and `deepspeed` start any program.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from infrarsi.draft.sources import Sources, dotted
from infrarsi.draft.target import Target
from infrarsi.errors import UserError

_OTHERS = {  # what owns the training loop where it is used
    "lightning": "PyTorch Lightning",
    "pytorch_lightning": "PyTorch Lightning",
    "colossalai": "Colossal-AI",
    "composer": "MosaicML Composer",
    "fairseq": "fairseq",
    "mmengine": "MMEngine",
    "ignite": "PyTorch Ignite",
    "detectron2.engine": "Detectron2",
    "lightning_fabric": "Lightning Fabric",
    "litgpt": "LitGPT",
    "torchtune": "torchtune",
    "nemo": "NeMo",
    "espnet2": "ESPnet",
    "speechbrain": "SpeechBrain",
    "fastai": "fastai",
    "ultralytics": "Ultralytics",
    "verl": "verl",
}
_NOT_TORCH = {  # also imported by jobs of torch, for their data, weights or logs
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "paddle": "PaddlePaddle",
}
_LAUNCHING = ("deepspeed.launcher", "torch.distributed.run", "accelerate.commands", "submitit")
_SUPPORTED = (
    "Megatron, torchtitan or FSDP2, DeepSpeed, transformers' Trainer with its relatives, and plain "
    "PyTorch"
)
_MEGATRON = re.compile(r"(^|/)megatron/(core|training|legacy|model|arguments)")
_TORCHTITAN = re.compile(r"(^|/)torchtitan/(train|trainer|config|config_manager|models)")
_TRAINER = re.compile(r"[A-Z]\w*Trainer|Trainer")
_WRAPPERS = ("DistributedDataParallel", "DDP", "FullyShardedDataParallel", "FSDP")
_OF_TRAINERS = ("transformers", "trl", "sentence_transformers")
_SHOWN = (
    "transformers",
    "sentence_transformers",
    "trl",
    "Accelerator",
    "deepspeed",
    "fully_shard",
    *_WRAPPERS,
)
"""What a file holds that shows a stack by its code."""

_HUGGINGFACE = ("axolotl", "llama-factory", "trl", "hf-trainer", "accelerate")
_IMPORTS = {
    "megatron": "megatron",
    "torchtitan": "torchtitan",
    "axolotl": "axolotl",
    "llamafactory": "llama-factory",
    "llmtuner": "llama-factory",
    "deepspeed": "deepspeed",
}
_INSTALLED = {**_IMPORTS, "trl": "trl"}
_DS_FLAGS = ("--deepspeed", "--deepspeed_config", "--deepspeed-config", "--deepspeed_config_file")


@dataclass(frozen=True)
class Sign:
    """One thing that shows a stack or a dialect: `what` in words, `place` as `train.py:3`."""

    of: str
    what: str
    place: str


@dataclass(frozen=True)
class Stack:
    """The stack and the place that shows it.

    `dialects` are the argument and configuration systems of the catalogue that the job speaks, the
    most particular first; `signs` is everything that was seen.
    """

    name: str
    place: str
    is_distributed: bool
    dialects: tuple[str, ...] = ()
    signs: tuple[Sign, ...] = ()

    @property
    def told(self) -> str:
        """The place that decided, and how other signs were taken."""
        first = next((sign for sign in self.signs if sign.place == self.place), None)
        shown = f"{self.place}: {first.what}" if first is not None else self.place
        others = [s for s in self.signs if s.place != self.place and self._speaks(s)]
        beside = dict.fromkeys(f"{s.what} ({s.place})" for s in others)
        return f"{shown}; with {', '.join(beside)}" if beside else shown

    def _speaks(self, sign: Sign) -> bool:
        return any(sign.of == name or sign.of.startswith(f"{name}-") for name in self.dialects)


def recognise(target: Target, sources: Sources) -> Stack:
    """The stack; raises UserError naming one that is not understood, or a program without torch."""
    _insist_on_a_program(sources)
    signs = tuple(_signs(target, sources))
    for module, name in _OTHERS.items():
        place = sources.external.get(module.partition(".")[0])
        if place is not None and _is_needed(module, sources):
            raise _other(name, place, f"`import {module}`")
    for module, name in _NOT_TORCH.items():
        place = sources.external.get(module)
        if place is not None and not _first_call(sources, "backward"):
            raise _other(name, place, f"`import {module}`")
    wrapped = next((s.place for s in signs if s.of == "wrapped"), "")
    is_distributed = bool(wrapped or _first_call(sources, "init_process_group"))
    seen = {sign.of: sign for sign in reversed(signs)}
    if "megatron" in seen:
        engine = seen.get("deepspeed-engine") or seen.get("deepspeed")
        if engine is not None and "deepspeed-file" in seen:
            return _stack("deepspeed", engine, ("megatron", "deepspeed"), signs)
        return _stack("megatron", seen["megatron"], ("megatron",), signs)
    if "torchtitan" in seen:
        return _stack("torchtitan", seen["torchtitan"], ("torchtitan",), signs)
    huggingface = next((seen[n] for n in _HUGGINGFACE if n in seen), None)
    if huggingface is not None:
        own = [name for name in _HUGGINGFACE if name in seen]
        under = [n for n in ("deepspeed",) if any(s.of.startswith(n) for s in signs)]
        chain = dict.fromkeys([*own, *under, "hf-trainer", "accelerate"])
        return _stack("hf-trainer", huggingface, tuple(chain), signs)
    engine = seen.get("deepspeed-engine") or seen.get("deepspeed")
    if engine is not None:
        return _stack("deepspeed", engine, ("deepspeed",), signs)
    if "fsdp2" in seen:
        return _stack("torchtitan", seen["fsdp2"], (), signs)
    if "torch" not in sources.external:
        raise UserError(
            "the entry and what it imports do not import torch",
            where=sources.entry.path,
            fix="give the Python file that trains with --entry",
        )
    place = wrapped or sources.external["torch"]
    return Stack("native-ddp", place, is_distributed, (), signs)


def _insist_on_a_program(sources: Sources) -> None:
    """An entry that only starts another program is a launcher, and what it starts is not told."""
    entry = sources.entry
    for module in _LAUNCHING:
        node = next((n for n in entry.tree.body if _imports(n, module)), None)
        if node is not None and "backward" not in entry.text:
            raise UserError(
                f"this program starts the training by itself (`import {module}`), so what runs is "
                "not said in the script",
                where=entry.place(node),
                fix="give the command that it starts with --command",
            )


def _is_needed(module: str, sources: Sources) -> bool:
    """Whether a file cannot do without a module: it imports it at its top, or is the entry.

    A library that only offers it imports it in a function or under `try`.
    """
    entry = sources.entry
    nodes = [*ast.walk(entry.tree)]
    optional = {id(n) for node in nodes if isinstance(node, ast.Try) for n in ast.walk(node)}
    own = [node for node in nodes if id(node) not in optional]
    tops = (n for file in sources.holding(module.partition(".")[0]) for n in file.tree.body)
    return any(_imports(node, module) for node in (*own, *tops))


def _imports(node: ast.AST, module: str) -> bool:
    if isinstance(node, ast.Import):
        return any(f"{alias.name}.".startswith(f"{module}.") for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return not node.level and f"{node.module}.".startswith(f"{module}.")
    return False


def _stack(name: str, sign: Sign, chain: tuple[str, ...], signs: tuple[Sign, ...]) -> Stack:
    return Stack(name, sign.place, True, chain, signs)


def _signs(target: Target, sources: Sources) -> Iterator[Sign]:
    """Everything that points to a stack, in the order of the files."""
    launcher, place = target.training.launcher, f"{target.where}:{target.training.line}"
    if launcher == "deepspeed":
        yield Sign("deepspeed-launcher", "the launcher `deepspeed`", place)
    if launcher == "accelerate launch":
        yield Sign("accelerate-launcher", "the launcher `accelerate launch`", place)
    for argument in (*target.training.arguments, *target.training.launcher_options):
        flag = argument.name.partition("=")[0]
        if flag in _DS_FLAGS or flag == "--use_deepspeed":
            yield Sign("deepspeed-file", f"`{flag}`", f"{target.where}:{argument.line}")
    top = target.module.partition(".")[0]
    if top in _INSTALLED:
        yield Sign(_INSTALLED[top], f"the module `{target.module}`", place)
    for module, of in _IMPORTS.items():
        if module in sources.external:
            yield Sign(of, f"`import {module}`", sources.external[module])
    for file in sources.files:
        for pattern, of in ((_MEGATRON, "megatron"), (_TORCHTITAN, "torchtitan")):
            if pattern.search(file.path):
                yield Sign(of, f"{of}'s own code", f"{file.path}:1")
    yield from _in_code(sources)


def _in_code(sources: Sources) -> Iterator[Sign]:
    for file, node in sources.walk(*_SHOWN):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from _imported(file.place(node), (node.module or "").partition(".")[0], node)
        elif isinstance(node, ast.Call | ast.ClassDef):
            names = [dotted(node.func)] if isinstance(node, ast.Call) else map(dotted, node.bases)
            for name in names:
                yield from _used(name, file.place(node), isinstance(node, ast.Call), sources)


def _imported(place: str, module: str, node: ast.ImportFrom) -> Iterator[Sign]:
    for alias in node.names:
        what = f"`from {node.module} import {alias.name}`"
        if module in _OF_TRAINERS and _TRAINER.fullmatch(alias.name):
            yield Sign("trl" if module == "trl" else "hf-trainer", what, place)
        elif module == "accelerate" and alias.name == "Accelerator":
            yield Sign("accelerate", what, place)


def _used(name: str, place: str, is_call: bool, sources: Sources) -> Iterator[Sign]:
    module, _, last = name.rpartition(".")
    what = f"`{name}(...)`" if is_call else f"a subclass of `{name}`"
    if module in _OF_TRAINERS and _TRAINER.fullmatch(last):
        yield Sign("trl" if module == "trl" else "hf-trainer", what, place)
    if module == "accelerate" and last == "Accelerator":
        yield Sign("accelerate", what, place)
    if name == "deepspeed.initialize":
        yield Sign("deepspeed-engine", what, place)
    if is_call and last == "fully_shard":
        yield Sign("fsdp2", what, place)
    if is_call and last in _WRAPPERS and "torch" in sources.external:
        yield Sign("wrapped", what, place)


def needs_launcher(sources: Sources) -> str:
    """The place where a program relies on torchrun's variables, "" if it runs by itself."""
    if _first_call(sources, "spawn"):
        return ""
    for file, node in sources.of(ast.Subscript, "environ"):
        if dotted(node.value) in ("os.environ", "environ"):
            name = node.slice.value if isinstance(node.slice, ast.Constant) else ""
            if name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"):
                return file.place(node)
    return ""


def spawns(sources: Sources) -> str:
    """The place where a program starts its own ranks (`mp.spawn`), "" if it does not."""
    for file, node in sources.calls("spawn", "start_processes"):
        module, _, last = dotted(node.func).rpartition(".")
        if last == "start_processes" or (last == "spawn" and module.endswith(("mp", "ssing"))):
            return file.place(node)
    return ""


def _first_call(sources: Sources, name: str) -> str:
    return next((file.place(call) for file, call in sources.calls(name)), "")


def _other(name: str, place: str, sign: str) -> UserError:
    return UserError(
        f"this job uses {name} ({sign}), but only {_SUPPORTED} are understood",
        where=place,
        fix="write `infrarsi.yaml` by hand, or name a job of one of these stacks",
    )

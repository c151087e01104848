"""Which training stack a job uses, told from its launcher and its imports."""

import ast
from dataclasses import dataclass

from infrarsi.draft.sources import Sources, dotted
from infrarsi.draft.target import Target
from infrarsi.errors import UserError

_BY_LAUNCHER = {"deepspeed": "DeepSpeed", "accelerate launch": "Hugging Face Accelerate"}
_BY_IMPORT = {
    "megatron": "Megatron-Core",
    "torchtitan": "torchtitan",
    "deepspeed": "DeepSpeed",
    "accelerate": "Hugging Face Accelerate",
    "trl": "TRL",
    "lightning": "PyTorch Lightning",
    "pytorch_lightning": "PyTorch Lightning",
    "colossalai": "Colossal-AI",
    "composer": "MosaicML Composer",
    "fairseq": "fairseq",
    "mmengine": "MMEngine",
    "ignite": "PyTorch Ignite",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "paddle": "PaddlePaddle",
}
_BY_CALL = {
    "Trainer": "Hugging Face Trainer",
    "Seq2SeqTrainer": "Hugging Face Trainer",
    "SFTTrainer": "TRL",
    "fully_shard": "FSDP2",
    "FullyShardedDataParallel": "FSDP",
    "FSDP": "FSDP",
    "Accelerator": "Hugging Face Accelerate",
}
_NEEDS = {"Trainer": "transformers", "Seq2SeqTrainer": "transformers"}
_SUPPORTED = "native PyTorch, with or without DistributedDataParallel"


@dataclass(frozen=True)
class Stack:
    """The stack and the place that shows it."""

    name: str
    place: str
    is_distributed: bool


def recognise(target: Target, sources: Sources) -> Stack:
    """The stack; raises UserError naming any other one than native PyTorch."""
    launcher = _BY_LAUNCHER.get(target.training.launcher)
    if launcher is not None:
        place = f"{target.where}:{target.training.line}"
        raise _other(launcher, place, f"`{target.training.launcher}`")
    for module, name in _BY_IMPORT.items():
        if module in sources.external:
            raise _other(name, sources.external[module], f"`import {module}`")
    wrapped = ""
    for file, node in sources.walk():
        if not isinstance(node, ast.Call):
            continue
        called = dotted(node.func).rpartition(".")[2]
        if called in _BY_CALL and _NEEDS.get(called, called) in {called, *sources.external}:
            raise _other(_BY_CALL[called], file.place(node), f"`{called}(...)`")
        if called in ("DistributedDataParallel", "DDP"):
            wrapped = wrapped or file.place(node)
    if "torch" not in sources.external:
        raise UserError(
            "the entry and what it imports do not import torch",
            where=sources.entry.path,
            fix="give the Python file that trains with --entry",
        )
    place = wrapped or sources.external["torch"]
    starts = _first_call(sources, "init_process_group")
    return Stack("native-ddp", place, bool(wrapped or starts))


def needs_launcher(sources: Sources) -> str:
    """The place where a program relies on torchrun's variables, "" if it runs by itself."""
    if _first_call(sources, "spawn"):
        return ""
    for file, node in sources.walk():
        if isinstance(node, ast.Subscript) and dotted(node.value) in ("os.environ", "environ"):
            name = node.slice.value if isinstance(node.slice, ast.Constant) else ""
            if name in ("LOCAL_RANK", "RANK", "WORLD_SIZE"):
                return file.place(node)
    return ""


def _first_call(sources: Sources, name: str) -> str:
    for file, node in sources.walk():
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == name:
            return file.place(node)
    return ""


def _other(name: str, place: str, sign: str) -> UserError:
    return UserError(
        f"this job uses {name} ({sign}), but only {_SUPPORTED} is understood in this version",
        where=place,
        fix="write `infrarsi.yaml` by hand, or name a job of native PyTorch",
    )

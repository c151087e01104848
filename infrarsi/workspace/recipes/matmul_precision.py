"""Recipe: float32 matrix products use TF32 where the device has it."""

import re
from collections.abc import Mapping

import libcst as cst

from infrarsi.workspace.recipes.base import Applied, Declined
from infrarsi.workspace.recipes.source import Edit, Source, argument, literal, parse_all

_CHOSEN = {
    "set_float32_matmul_precision": "the matmul precision is set already",
    "allow_tf32": "TF32 is chosen already",
    "fp32_precision": "the float32 precision is chosen already",
    "tf32": "TF32 is chosen already",
    "NVIDIA_TF32_OVERRIDE": "TF32 is chosen already",
}
_EXACT = {
    "float64": "float64 is asked for, so precision matters here",
    "double": "float64 is asked for, so precision matters here",
    "set_default_dtype": "a default dtype is set, so precision matters here",
    "use_deterministic_algorithms": "deterministic algorithms are asked for",
    "deterministic": "deterministic algorithms are asked for",
    "CUBLAS_WORKSPACE_CONFIG": "deterministic algorithms are asked for",
}
_PACKAGES = ("numpy", "np", "pd", "pandas", "struct")


class MatmulPrecision:
    """Adds `torch.set_float32_matmul_precision("high")` below the imports of the entry file.

    Class J for a float32 job: products lose 13 bits of mantissa, so the contract must allow `tf32`.
    """

    name = "matmul_precision"
    family = "matmul_precision"
    title = "TF32 matrix products"
    needs = ("tf32",)

    def apply(self, files: Mapping[str, str]) -> Applied | Declined:
        """See `Recipe`."""
        sources = parse_all(files)
        if isinstance(sources, Declined):
            return sources
        for source in sources:
            reason = _chosen(source)
            if reason is not None:
                return Declined(reason)
        entries = [s for s in sources if _is_training_entry(s)]
        if len(entries) != 1:
            return Declined(_no_entry(entries, sources))
        entry = entries[0]
        last = _last_import(entry)
        torch = entry.reach("torch", entry.module.body[-1])
        if last is None or torch is None or not _bound_by(entry, torch, last):
            return Declined(f"{entry.path}:1: `torch` is not imported by name at the top")
        edit = _insert(entry, last, f'{torch}.set_float32_matmul_precision("high")')
        text = entry.edited([edit])
        line = text[: edit.start].count("\n") + 2
        note = f"{entry.path}:{line}: float32 matrix products may use TF32"
        return Applied({entry.path: text}, (note,))


def _chosen(source: Source) -> str | None:
    """Why the precision of this job is not ours to choose, or None."""
    for node in [*source.nodes(cst.Name), *source.nodes(cst.SimpleString)]:
        text = node.value if isinstance(node, cst.Name) else literal(node)
        if not isinstance(text, str):
            continue
        text = text.removeprefix("--").replace("-", "_")
        if text in _CHOSEN:
            return f"{source.where(node)}: {_CHOSEN[text]}"
        if text in _EXACT and isinstance(node, cst.Name) and not _is_other_package(source, node):
            return f"{source.where(node)}: {_EXACT[text]}"
        if text in _EXACT and text.isupper():
            return f"{source.where(node)}: {_EXACT[text]}"
    for call in source.nodes(cst.Call):
        if literal(argument(call, "dtype")) in ("float64", "double"):
            return f"{source.where(call)}: {_EXACT['float64']}"
    return None


def _is_other_package(source: Source, node: cst.Name) -> bool:
    """Whether `float64` is numpy's, where it says nothing of the model."""
    parent = source.parent(node)
    if not isinstance(parent, cst.Attribute) or parent.attr is not node:
        return False
    return source.code(parent.value).split(".")[0] in _PACKAGES


def _is_training_entry(source: Source) -> bool:
    """Whether the file is run as a program and trains in it or in what it imports."""
    has_main = any(_is_main_guard(s) for s in source.module.body)
    backward = source.method_calls("backward") or source.calls("torch.autograd.backward")
    if has_main:
        return bool(backward) or bool(re.search(r"\b[Tt]rain", source.text))
    return any(source.function(c) is None for c in backward)


def _is_main_guard(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.If):
        return False
    code = cst.Module(()).code_for_node(statement.test)
    return "__name__" in code and "__main__" in code


def _no_entry(entries: list[Source], sources: list[Source]) -> str:
    if entries:
        names = ", ".join(f"`{s.path}`" for s in entries)
        return f"{entries[1].path}:1: several files look like the entry: {names}"
    where = f"{sources[0].path}:1: " if sources else ""
    return f"{where}no editable file is seen to be the program that trains"


def _last_import(source: Source) -> cst.CSTNode | None:
    """The last import statement of the block of imports that a file starts with."""
    last: cst.CSTNode | None = None
    for index, statement in enumerate(source.module.body):
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        is_guarded = isinstance(statement, cst.Try) and source.nodes(cst.ImportFrom, statement)
        is_docstring = index == 0 and isinstance(small, cst.Expr)
        if isinstance(small, cst.Import | cst.ImportFrom) or is_guarded:
            last = statement
        elif not is_docstring and not _prepares(small):
            break
    return last


def _prepares(small: cst.CSTNode | None) -> bool:
    """Whether a statement between imports only prepares them (`os.environ`, `sys.path`)."""
    code = cst.Module(()).code_for_node(small) if small is not None else ""
    return code.startswith(("os.environ", "sys.path", "warnings."))


def _bound_by(source: Source, torch: str, last: cst.CSTNode) -> bool:
    """Whether the name of torch is imported at or above that statement."""
    return any(
        source.line(statement) <= source.line(last)
        and re.search(rf"\b{re.escape(torch)}\b", source.code(statement))
        for statement in source.module.body
        if isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Import)
    )


def _insert(source: Source, last: cst.CSTNode, line: str) -> Edit:
    """The line after the imports, a blank line above it."""
    edit = source.insert_after(last, line)
    return Edit(edit.start, edit.end, source.newline + edit.new)

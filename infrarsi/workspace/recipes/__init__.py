"""The recipes: deterministic transforms of a training job's source, one search dimension each."""

from functools import cache
from importlib import import_module

from infrarsi.workspace.recipes.base import Applied, Declined, Recipe

__all__ = ["RECIPE_NAMES", "Applied", "Declined", "Recipe", "recipes"]

_MODULES = {
    "fused_optimizer": "FusedOptimizer",
    "sdpa_attention": "SdpaAttention",
    "matmul_precision": "MatmulPrecision",
    "zero_grad": "ZeroGrad",
    "dataloader": "DataLoading",
    "host_sync": "HostSync",
    "compile_model": "CompileModel",
}

RECIPE_NAMES = tuple(_MODULES)
"""The names in the fixed order in which they are applied to one tree."""


@cache
def recipes() -> tuple[Recipe, ...]:
    """Every recipe in the order of `RECIPE_NAMES`. The first call imports libcst."""
    return tuple(
        getattr(import_module(f"{__name__}.{module}"), name)() for module, name in _MODULES.items()
    )

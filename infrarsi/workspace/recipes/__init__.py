"""The recipes: deterministic transforms of a training job's source, one search dimension each."""

from functools import cache
from importlib import import_module

from infrarsi.workspace.recipes.base import Applied, Declined, Recipe

__all__ = ["RECIPE_NAMES", "Applied", "Declined", "Recipe", "recipes"]

_RECIPES = {
    "fused_optimizer": ("fused_optimizer", "FusedOptimizer"),
    "sdpa_attention": ("sdpa_attention", "SdpaAttention"),
    "matmul_precision": ("matmul_precision", "MatmulPrecision"),
    "zero_grad": ("zero_grad", "ZeroGrad"),
    "dataloader_workers": ("dataloader", "DataLoaderWorkers"),
    "pin_memory": ("dataloader", "PinMemory"),
    "ddp_gradient_as_bucket_view": ("ddp", "GradientAsBucketView"),
    "ddp_no_sync": ("ddp", "NoSync"),
    "ddp_static_graph": ("ddp", "StaticGraph"),
    "host_sync": ("host_sync", "HostSync"),
    "compile_model": ("compile_model", "CompileModel"),
}

RECIPE_NAMES = tuple(_RECIPES)
"""The names in the fixed order in which they are applied to one tree."""


@cache
def recipes() -> tuple[Recipe, ...]:
    """Every recipe in the order of `RECIPE_NAMES`. The first call imports libcst."""
    return tuple(
        getattr(import_module(f"{__name__}.{module}"), kind)() for module, kind in _RECIPES.values()
    )

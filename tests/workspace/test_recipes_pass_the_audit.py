"""What the recipes make of every spelling that their tests know is never refused."""

import pytest
import test_recipe_compile as compile_
import test_recipe_dataloader as dataloader
import test_recipe_ddp as ddp
import test_recipe_fused_optimizer as fused
import test_recipe_host_sync as host_sync
import test_recipe_matmul_precision as matmul
import test_recipe_sdpa as sdpa
import test_recipe_zero_grad as zero_grad
from recipe_runs import job

from infrarsi.workspace.patch_audit import audit
from infrarsi.workspace.recipes import recipes
from infrarsi.workspace.recipes.base import Applied

RECIPES = {recipe.name: recipe for recipe in recipes()}
Files = dict[str, str]


def spellings() -> dict[str, list[Files]]:
    """Jobs by recipe."""
    loaders = [
        {"train.py": f"{dataloader.HEAD}{loader}\n{job(loop)}"}
        for loader, loop in dataloader.FITS.values()
    ]
    wraps = [{"train.py": ddp.program(wrap=wrap)} for wrap in ddp.WRAPS.values()]
    return {
        "compile_model": [
            {"model.py": compile_.MODEL, "train.py": train}
            for train, _ in compile_.SPELLINGS.values()
        ],
        "dataloader_workers": loaders,
        "pin_memory": loaders,
        "ddp_gradient_as_bucket_view": wraps,
        "ddp_static_graph": wraps,
        "ddp_no_sync": [{"train.py": code} for code in ddp.LOOPS.values()],
        "fused_optimizer": [
            {"train.py": fused.HEAD + fused.MODEL + "losses = [1]\n" + job(code) + fused.TAIL}
            for code in fused.FITS.values()
        ],
        "host_sync": [
            {"train.py": host_sync.SETUP + job(code)} for code in host_sync.SPELLINGS.values()
        ],
        "matmul_precision": [{"train.py": code + matmul.TRAIN} for code in matmul.FITS.values()],
        "sdpa_attention": [{"model.py": spelling.text} for spelling in sdpa.SPELLINGS],
        "zero_grad": [{"train.py": zero_grad.program(code)} for code in zero_grad.FITS.values()],
    }


@pytest.mark.slow
def test_no_recipe_is_refused_on_any_spelling() -> None:
    found = spellings()
    assert found.keys() == RECIPES.keys()
    for name, jobs in found.items():
        applied = 0
        for files in jobs:
            answer = RECIPES[name].apply(files)
            if isinstance(answer, Applied):
                applied += 1
                assert audit(files, {**files, **answer.files}).refusals == (), name
        assert applied >= 0.7 * len(jobs), (name, applied, len(jobs))

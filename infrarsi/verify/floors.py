"""What rounding alone may do, at the least, by the lowest precision that a job computes in.

A band is the larger of a floor and a multiple of what the perturbed run shows (`numerics`). The
floors stand in for what one run does not show; README.md has the measurements between which they
lie.
"""

from dataclasses import dataclass

CUDA_FLOAT32 = "float32 on CUDA"
"""Not a dtype: kernels of a GPU round fp32 about ten times as coarsely as one unit in the last
place of the weights, each in its own way."""
FINE = ("float64", "float32", CUDA_FLOAT32)


@dataclass(frozen=True)
class Floors:
    """Each is a share: of the loss, of a gradient, of a way.

    `loss`: relative, at step 0; it grows by its own size every ten steps. `path`: of the distance
    travelled, for the 80 % quantile over sampled weights. `gradient`: of a parameter's gradient, at
    step 0, growing likewise; `drift`: the same with signs, in the mean over the steps. `end`: of a
    tensor's way over the whole run, for the 80 % quantile over tensors. `average`: of the way of
    weights kept beside the model, which are smooth in the trained ones. `state`: of the norm of one
    key of the optimizers' state.
    """

    loss: float
    path: float
    gradient: float
    drift: float
    end: float
    average: float
    state: float


FLOORS = {
    "float64": Floors(1e-6, 1e-4, 1e-6, 1e-7, 1e-4, 1e-4, 1e-5),
    "float32": Floors(1e-4, 5e-4, 2e-4, 1e-5, 5e-4, 4e-3, 1e-4),
    CUDA_FLOAT32: Floors(2e-4, 3e-3, 5e-4, 2e-5, 3e-3, 1e-2, 1e-3),
    "float16": Floors(1e-3, 1e-2, 1e-2, 1e-3, 6e-2, 1e-1, 1e-2),
    "bfloat16": Floors(1e-3, 2e-2, 7e-2, 6e-3, 6e-2, 1e-1, 1.5e-2),
}
WORST_END = 0.02
"""As `end`, for the single worst tensor; fp32 with a perturbed run only."""
WORST_ELEMENT = 0.02
"""As `path`, for the single worst element; likewise."""

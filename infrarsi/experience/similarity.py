"""How alike two jobs are, for what was measured on one to be believed of the other.

Every factor is judgement: no record of transfers is behind them yet.
"""

import math
import re

from infrarsi.experience.pack import Context

OTHER_STACK = 0.7
OTHER_GPU, OTHER_GENERATION = 0.9, 0.7
OTHER_VERSION = 0.9  # of torch or CUDA, major and minor
PER_DOUBLING = 0.9  # of parameters, of sequence length, of processes
ONE_AND_SEVERAL = 0.7  # one process against several, which communicate
LEAST_FACTOR = 0.4

_GENERATIONS = {
    "volta": r"\bV100",
    "ampere": r"\bA(?:10|30|40|100|800)\b",
    "ada": r"\b(?:L4|L20|L40|L40S|RTX 40\d\d)\b",
    "hopper": r"\b(?:H20|H100|H200|H800|GH200)\b",
    "blackwell": r"\b(?:B100|B200|B300|GB200|GB300)\b",
}


def similarity(one: Context, other: Context) -> float:
    """Between 0 (a CPU and a GPU) and 1 (nothing known differs); symmetric.

    The product of a factor for each property that both know and that differs.
    """
    if (one.gpu is None) != (other.gpu is None):
        return 0.0
    found = 1.0 if one.stack == other.stack else OTHER_STACK
    if one.gpu != other.gpu and one.gpu and other.gpu:
        known = generation(one.gpu)
        found *= OTHER_GPU if known and known == generation(other.gpu) else OTHER_GENERATION
    found *= _per_doubling(one.world, other.world)
    if (one.world == 1) != (other.world == 1):
        found *= ONE_AND_SEVERAL
    found *= _per_doubling(one.num_parameters, other.num_parameters)
    found *= _per_doubling(one.sequence_length, other.sequence_length)
    for name in one.versions.keys() & other.versions.keys():
        if _minor(one.versions[name]) != _minor(other.versions[name]):
            found *= OTHER_VERSION
    return found


def generation(gpu: str) -> str | None:
    """The generation of a GPU by its product name; None where it is not known."""
    return next((g for g, pattern in _GENERATIONS.items() if re.search(pattern, gpu)), None)


def _per_doubling(one: int | None, other: int | None) -> float:
    if one is None or other is None:
        return 1.0
    return float(max(PER_DOUBLING ** abs(math.log2(one / other)), LEAST_FACTOR))


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])

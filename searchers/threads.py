"""One BLAS thread for the small matrices of a proposal.

On a machine whose cores are busy the threads of one inversion wait for each other: a proposal in 30
dimensions took up to 2 s so, and 33 ms with one thread.
"""

from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> Any:
    """A context within which NumPy and SciPy compute with one thread."""
    return _controller().limit(limits=1, user_api="blas")


@cache
def _controller() -> ThreadpoolController:
    import scipy.linalg
    import scipy.special  # noqa: F401  # both bring a BLAS of their own, found only once it is there

    return ThreadpoolController()

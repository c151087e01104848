"""Search strategies behind the Proposer port. Driver side only: nothing here is ever pickled.

`searchers.hypothesis` is apart because importing it imports ray.tune.
"""

from searchers.hypothesis_proposer import HypothesisProposer
from searchers.peers import HYPOTHESIS, SEARCHERS, make

__all__ = ["HYPOTHESIS", "SEARCHERS", "HypothesisProposer", "make"]

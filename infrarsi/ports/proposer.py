"""What a search strategy owes the campaign."""

from collections.abc import Sequence
from typing import Protocol

from infrarsi.contract import ActiveTrial, Exhausted, NotYet, Proposal, Trial


class Proposer(Protocol):
    """A search strategy over one `Space`, given at construction together with a seed.

    Called by the driver process only, from Tune's loop, so it must return within about 0.1 s after
    its first call. Every proposal is a function of (space, seed, history, active) in value: asked
    again with the same arguments it gives the same answer, and one rebuilt from a journal
    continues as the interrupted one would have. It may cache by history.
    """

    def propose(
        self, history: Sequence[Trial], active: Sequence[ActiveTrial]
    ) -> Proposal | NotYet | Exhausted:
        """The next point to try.

        `history` holds every finished trial in order of completion, the reference runs first
        (`number` 0, at the reference point). A point in `history` (unless its outcome was `infra`)
        or in `active` is never proposed again, nor the reference point, nor an invalid one.
        `NotYet` only while something is active. Must not raise for any history.
        """
        ...

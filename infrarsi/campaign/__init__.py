"""The loop: reference, search, verification; knows ports and contract types only."""

from infrarsi.campaign.campaign import STOPPED_BY, Campaign, Start
from infrarsi.campaign.parts import (
    Interrupts,
    Judge,
    Measured,
    PairTimes,
    Parts,
    Prepared,
    RecipeReport,
    ReferenceFacts,
    Refused,
    Searcher,
    Standing,
)

__all__ = [
    "STOPPED_BY",
    "Campaign",
    "Interrupts",
    "Judge",
    "Measured",
    "PairTimes",
    "Parts",
    "Prepared",
    "RecipeReport",
    "ReferenceFacts",
    "Refused",
    "Searcher",
    "Standing",
    "Start",
]

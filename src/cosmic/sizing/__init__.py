"""What to buy: for each system the number that fits a budget or a power limit, the best mapping there, and the run."""

from cosmic.sizing.question import Question
from cosmic.sizing.sizing import Sizing, size

__all__ = ["Question", "Sizing", "size"]

"""How many experts the tokens of a step pick."""

from __future__ import annotations

import numpy as np

from cosmic.numeric import Numeric, power

POPULARITY = 1.0
"""Variance of the popularity of a served model's experts, over the square of its mean. Not measured: a round number
with which decode steps of published serving samples grow with their batch as they do."""
LEAST_REST = 1e-12


def picked_share(share: Numeric, tokens: Numeric, *, even: bool) -> Numeric:
    """Return the share of experts that some token picks, if a token picks a *share* s of them.

    Training keeps experts *even*: no token of T picks one with probability (1 - s)^T. Of a served model some are more
    popular than others. If popularity has a gamma distribution of variance σ², that probability is

        (1 - s) (1 + σ² s (T - 1) / (1 - s)) ^ (-1 / σ²)

    >>> [round(float(picked_share(1 / 16, tokens, even=False)), 3) for tokens in (1, 16, 64, 1024)]
    [0.062, 0.531, 0.82, 0.986]
    >>> [round(float(picked_share(1 / 16, tokens, even=True)), 3) for tokens in (1, 16, 64)]
    [0.062, 0.644, 0.984]
    """
    if even:
        return 1 - power(1 - share, np.maximum(tokens, 1))
    rest = np.maximum(1 - share, LEAST_REST)
    others = np.maximum(tokens, 1) - 1
    return 1 - rest * power(1 + POPULARITY * share * others / rest, -1 / POPULARITY)

"""What an algorithm can use of a topology's bandwidth; both may be plugins, whose numbers are checked."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from typing import Any

from cosmic.design.collective import algorithms
from cosmic.design.network import topologies
from cosmic.errors import BackendError, CosmicError, in_words

MOST_SHARE = 1 + 1e-9
"""Of bandwidth: all of it, but for rounding."""


def number_of(variant: Any, method: str, *given: Any) -> float:
    """Return the number that a topology or an algorithm gives, which may be a plugin: finite, and not negative."""
    try:
        found = float(getattr(variant, method)(*given))
    except CosmicError:
        raise
    except (Exception, SystemExit) as error:
        raise BackendError(f"{_called(variant)}.{method} failed: {in_words(error)}") from error
    if not 0 <= found < inf:
        raise BackendError(f"{_called(variant)}.{method} gave {found:g}; it must be finite, and 0 or more")
    return found


def _called(variant: Any) -> str:
    return str(getattr(variant, "__name__", type(variant).__name__))


@lru_cache(maxsize=65536)
def usable_share(topology: str, algorithm: str, npus: float, members: float, step: float) -> float:
    """Return the share of its injection bandwidth that an NPU uses in a group of *members*, *step* apart.

    >>> usable_share("fully_connected", "direct", 8, 8, 1), round(usable_share("fully_connected", "ring", 8, 8, 1), 3)
    (1.0, 0.286)
    """
    shape, pattern = topologies[topology], algorithms[algorithm]
    if members <= 1:
        return 1.0
    share = number_of(shape, "share", members, npus, step)
    if not 0 < share <= MOST_SHARE:
        raise BackendError(f"{_called(shape)}.share gave {share:g}; it is a share of the bandwidth: above 0, up to 1")
    if shape.switched:
        return share
    links = max(1.0, min(number_of(shape, "links", npus), members - 1))
    busy = min(1.0, number_of(pattern, "peers", members) / links)
    ring_hops = max(1.0, npus / 4)  # the mean distance in a ring, for which algorithms state theirs
    apart = (number_of(shape, "mean_hops", npus) - 1) / max(ring_hops - 1, 1e-9)
    contention = 1 + (number_of(pattern, "distance", members) - 1) * min(1.0, max(0.0, apart))
    return share * busy / contention

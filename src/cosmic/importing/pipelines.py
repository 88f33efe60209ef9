"""Which layers lie on which stage: what a launch deals out, as the two fields of a design that say so."""

from __future__ import annotations

from collections.abc import Sequence

from cosmic.workload.cut import layers_per_part


def ends_that_give(parts: Sequence[int], stages: int, virtual: int) -> dict[str, int] | None:
    """Return the layers of first and last stage that deal layers out as *parts*; None where no two numbers do.

    >>> ends_that_give([2, 2, 2, 2], 4, 1), ends_that_give([3, 4, 4, 1], 4, 1), ends_that_give([4, 4, 1, 3], 4, 1)
    ({}, {'first_stage_layers': 3, 'last_stage_layers': 1}, None)
    """
    layers, wanted = sum(parts), list(parts)
    first, last = (sum(parts[place % stages :: stages]) for place in (0, -1))
    for ends in ((None, None), (None, last), (first, None), (first, last)):
        if layers_per_part(layers, stages, virtual, *ends) == wanted:
            named = zip(("first_stage_layers", "last_stage_layers"), ends, strict=True)
            return {name: count for name, count in named if count is not None}
    return None

"""What may be chosen: the shardings of a tensor, and the splits of an operator.

Each axis of the mesh splits one dimension, or none. Axes that split one dimension together come in every order, if they
are two; else in the order of the mesh. A dimension that does not divide is padded, but no device is left without a part
of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import permutations, product
from math import prod

from cosmic.workload.graph import Operator, Sizes, Tensor
from cosmic.workload.sharding.annotation import Axes, Sharding
from cosmic.workload.sharding.assignment import OFFSET, THROUGH, Assignment
from cosmic.workload.sharding.factors import LINEAR, factors_of

ORDERED_FREELY = 2
"""Up to this many axes of one dimension are tried in every order; reshardings pass through all orders."""
PENDING = "…"
"""In place of a dimension: the sum over the axis is pending."""


def shardings(tensor: Tensor, axes: Axes, sizes: Sizes, *, pending: bool = False) -> tuple[Sharding, ...]:
    """Return the shardings in which *tensor* may be kept; with *pending*, also those with sums over some axes to do.

    >>> x = Tensor("x", ("batch", "hidden"))
    >>> [str(each) for each in shardings(x, ("tp",), {"batch": 2, "hidden": 8, "tp": 4})]
    ['replicated', 'hidden: tp']
    """
    known = tuple((name, int(sizes[name])) for name in (*tensor.dims, *axes))
    return _shardings(tensor.stored_dims, axes, known, pending, True)


def all_shardings(dims: tuple[str, ...], axes: Axes, sizes: Sizes) -> tuple[Sharding, ...]:
    """Return every sharding of a tensor with *dims* that a resharding may pass through."""
    return _shardings(dims, axes, tuple((name, int(sizes[name])) for name in (*dims, *axes)), True, False)


@lru_cache(maxsize=4096)
def _shardings(
    dims: tuple[str, ...], axes: Axes, known: tuple[tuple[str, int], ...], pending: bool, limited: bool
) -> tuple[Sharding, ...]:
    sizes = dict(known)
    options = (None, *dict.fromkeys(dims), *((PENDING,) if pending else ()))
    found: list[Sharding] = []
    for by_place in _placed(
        axes, options, sizes, set(dims) if limited else set(), set(dims), ORDERED_FREELY if limited else 9
    ):
        partial = by_place.pop(PENDING, ())
        found.append(Sharding(tuple(sorted(by_place.items())), tuple(sorted(partial))))
    return tuple(dict.fromkeys(found))


def splits(operator: Operator, axes: Axes, sizes: Sizes) -> tuple[Assignment, ...]:
    """Return the ways to split *operator*: each axis on one of its factors, on none, or on a sum that stays pending."""
    factors = factors_of(operator)
    open_ = [factor for factor in factors.names if factor not in factors.whole]
    through = (THROUGH,) if operator.kind in (*LINEAR, OFFSET) else ()
    found = []
    for by_place in _placed(axes, (None, *open_, *through), sizes, set(open_), set(open_)):
        pending = by_place.pop(THROUGH, ())
        found.append(Assignment(operator, by_place, tuple(sorted(pending))))
    return tuple(found)


def _placed(
    axes: Axes,
    options: Sequence[str | None],
    sizes: Sizes,
    limited: set[str],
    ordered: set[str],
    most: int = ORDERED_FREELY,
) -> Iterator[dict[str, Axes]]:
    """Yield every way to give each axis a place, in every order where axes share one."""
    for chosen in product(options, repeat=len(axes)):
        by_place: dict[str, Axes] = {}
        for axis, place in zip(axes, chosen, strict=True):
            if place is not None:
                by_place[place] = (*by_place.get(place, ()), axis)
        if any(
            place in limited and prod(sizes[axis] for axis in each) > sizes[place] for place, each in by_place.items()
        ):
            continue
        orders_of = [
            permutations(each) if place in ordered and len(each) <= most else (each,)
            for place, each in by_place.items()
        ]
        for orders in product(*orders_of):
            yield dict(zip(by_place, orders, strict=True))

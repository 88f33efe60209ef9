"""Where a mesh axis lies on the network: how many members of a group sit in each dimension, and how far apart.

`placement` orders the axes from the inside. An axis of degree k inside which axes of product s are placed joins
ranks s apart, k of them: the interval [s, s k) of the rank numbers. A network dimension covers the interval from the
product of the sizes inside it to that product times its own size. The intersection of both intervals is the axis's
span of the dimension:

    members_d = min(s k, P_d n_d) / max(s, P_d)        step_d = max(1, s / P_d)

    P_d  product of the dimensions inside d        n_d  its size

Experts split the ranks of some axes another way (`folded_spans`): they count these ranks through, axis after axis, and
take
intervals of the count.

Exact where degrees and sizes divide one another. Otherwise groups straddle, and members are an average; their product
over the dimensions is the degree in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from cosmic.base.numeric import Numeric, larger, smaller

N = TypeVar("N", int, Numeric)


@dataclass(frozen=True, slots=True)
class Span:
    """A group's members in one network dimension, and how far apart they are: numbers, or arrays over a batch."""

    members: Numeric
    step: Numeric


def axis_strides(placement: Sequence[str], degrees: Mapping[str, N]) -> dict[str, N]:
    """Return the distance between neighbouring ranks of each axis.

    >>> axis_strides(("tp", "dp"), {"tp": 4, "dp": 8})
    {'tp': 1, 'dp': 4}
    """
    strides: dict[str, N] = {}
    inside: Any = 1
    for axis in placement:
        strides[axis] = inside
        inside = inside * degrees[axis]
    return strides


def axis_spans(dims: Sequence[Numeric], stride: Numeric, degree: Numeric) -> tuple[Span, ...]:
    """Return the span of an axis of *degree* ranks, *stride* apart, in each of the dimensions of sizes *dims*.

    >>> [(int(span.members), int(span.step)) for span in axis_spans((4, 8), stride=2, degree=8)]
    [(2, 2), (4, 1)]
    """
    spans = []
    inside: Numeric = 1
    for size in dims:
        low, high = larger(stride, inside), smaller(stride * degree, inside * size)
        spans.append(Span(larger(1.0, high / low), smaller(larger(1.0, stride / inside), size)))
        inside = inside * size
    return tuple(spans)


def joint_spans(shapes: Sequence[tuple[Span, ...]]) -> tuple[Span, ...]:
    """Return the span in each dimension of a group that several axes form."""
    if len(shapes) == 1:
        return shapes[0]
    spans = []
    for dimension_spans in zip(*shapes, strict=True):
        members: Numeric = 1.0
        step: Numeric = np.inf
        for span in dimension_spans:
            # Neighbours in a joint group are neighbours along its innermost axis that has members at all.
            step = np.minimum(step, np.where(span.members > 1, span.step, np.inf))
            members = members * span.members
        spans.append(Span(members, np.where(np.isinf(step), 1.0, step)))
    return tuple(spans)


def folded_spans(
    dims: Sequence[Numeric], axes: Sequence[tuple[Numeric, Numeric]], first: Numeric, last: Numeric
) -> tuple[Span, ...]:
    """Return the span in each dimension of the ranks *first* to *last* of a count through several *axes*.

    *axes* are strides and degrees, the one that is counted first in front. With tp 2 and dp 4 around it, numbers 1 to 4
    are both ranks of tp, and two of dp:

    >>> [int(span.members) for span in folded_spans((2, 4), [(1, 2), (2, 4)], 1, 4)]
    [2, 2]
    """
    parts = []
    inside: Numeric = 1
    for stride, degree in axes:
        low, high = larger(first, inside), smaller(last, inside * degree)
        parts.append(axis_spans(dims, stride * (low / inside), larger(1.0, high / low)))
        inside = inside * degree
    return joint_spans(parts)

"""Mesh axes on network dimensions, against counting coordinates."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cosmic.network.mesh_spans import Span, axis_spans, axis_strides, joint_spans

powers = st.sampled_from([1, 2, 4, 8])


def counted(dims: tuple[int, ...], stride: int, degree: int) -> list[int]:
    """Return how many coordinates in each dimension the ranks 0, stride, 2 stride, … have."""
    found: list[set[int]] = [set() for _ in dims]
    for member in range(degree):
        rank = member * stride
        for place, size in enumerate(dims):
            found[place].add(rank % size)
            rank //= size
    return [len(coordinates) for coordinates in found]


@given(st.tuples(powers, powers, powers, powers), st.data())
def test_members_are_the_coordinates_that_a_group_has(dims: tuple[int, ...], data: st.DataObject) -> None:
    npus = prod(dims)
    stride = data.draw(st.sampled_from([2**n for n in range(13) if 2**n <= npus]))
    degree = data.draw(st.sampled_from([2**n for n in range(13) if stride * 2**n <= npus]))
    assert [int(part.members) for part in axis_spans(dims, stride, degree)] == counted(dims, stride, degree)


def test_a_whole_mesh_fills_the_network() -> None:
    placed = axis_strides(("tp", "cp", "dp", "pp"), {"tp": 4, "cp": 8, "dp": 8, "pp": 4})
    assert placed == {"tp": 1, "cp": 4, "dp": 32, "pp": 256}
    dims = (4, 8, 4, 8)
    shapes = [axis_spans(dims, placed[axis], degree) for axis, degree in (("tp", 4), ("cp", 8), ("dp", 8), ("pp", 4))]
    assert [[int(part.members) for part in each] for each in shapes] == [
        [4, 1, 1, 1],
        [1, 8, 1, 1],
        [1, 1, 4, 2],
        [1, 1, 1, 4],
    ]
    assert [int(part.members) for part in joint_spans(shapes)] == [4, 8, 4, 8]
    assert int(shapes[3][3].step) == 2


def test_arrays_give_what_numbers_give() -> None:
    degrees = np.array([1, 2, 4, 8])
    together_ = axis_spans((4, 8), 2, degrees)
    for place, degree in enumerate(degrees):
        alone = axis_spans((4, 8), 2, int(degree))
        assert [np.asarray(part.members)[place] for part in together_] == [part.members for part in alone]


def test_degrees_that_do_not_divide_still_multiply_to_the_degree() -> None:
    for stride, degree in product((1, 3, 6), (2, 3, 4)):
        assert np.isclose(prod(float(part.members) for part in axis_spans((8, 64), stride, degree)), degree)


def test_spans_by_hand() -> None:
    """4 x 8 NPUs; ranks 2 apart, 8 of them: every second of 4, and 4 of 8 side by side."""
    assert [(span.members, span.step) for span in axis_spans((4, 8), 2, 8)] == [(2, 2), (4, 1)]
    assert [(span.members, span.step) for span in axis_spans((4, 8), 1, 4)] == [(4, 1), (1, 1)]
    assert [(span.members, span.step) for span in axis_spans((4, 8), 8, 4)] == [(1, 4), (4, 2)]
    assert [(span.members, span.step) for span in axis_spans((4, 8), 1, 6)] == [(4, 1), (1.5, 1)]
    assert [(span.members, span.step) for span in axis_spans((4, 8), 32, 1)] == [(1, 4), (1, 8)]


def test_axes_that_form_one_group_multiply_and_have_the_smallest_step_of_those_with_members() -> None:
    first, second = (Span(2.0, 4.0), Span(1.0, 1.0)), (Span(4.0, 2.0), Span(1.0, 3.0))
    joined = joint_spans([first, second, (Span(1.0, 1.0), Span(1.0, 1.0))])
    assert [(float(span.members), float(span.step)) for span in joined] == [(8.0, 2.0), (1.0, 1.0)]
    assert joint_spans([first]) is first
    pair = joint_spans([(Span(2.0, 1.0),), (Span(4.0, 2.0),)])
    assert (float(pair[0].members), float(pair[0].step)) == (8.0, 1.0)
    arrays = joint_spans([(Span(np.array([1.0, 2.0]), np.array([1.0, 4.0])),), (Span(3.0, 2.0),)])
    assert (np.asarray(arrays[0].members).tolist(), np.asarray(arrays[0].step).tolist()) == ([3.0, 6.0], [2.0, 2.0])
    assert axis_strides(("dp", "tp"), {"tp": 4, "dp": 8}) == {"dp": 1, "tp": 8}

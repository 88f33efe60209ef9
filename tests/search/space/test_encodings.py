"""Encodings of points for models."""

from __future__ import annotations

import numpy as np

from cosmic.search.learning.design_features import encode_coordinates
from cosmic.search.space.space_files import load_space

FULL = load_space("cosmic-1024-full-stack")


def test_coordinates_put_numbers_on_a_line_and_names_equally_far_apart() -> None:
    encode = encode_coordinates(FULL)
    row = FULL.sample(1, np.random.default_rng(0))
    for column, parameter in enumerate(FULL.parameters):
        rows = np.repeat(row, len(parameter.values), axis=0)
        rows[:, column] = np.arange(len(rows))
        coded = encode(rows)
        apart = np.linalg.norm(coded[:, None] - coded[None, :], axis=2)
        place = np.arange(len(rows))
        steps = np.abs(place[:, None] - place[None, :])
        wanted = steps / (len(rows) - 1) if parameter.ordered else np.minimum(steps, 1.0)
        assert np.allclose(apart, wanted)


def test_a_parameter_of_several_numbers_has_a_coordinate_for_each() -> None:
    space = load_space(
        {
            "base": "gpt3-175b@cosmic-1024",
            "parameters": {"workload.{dp,tp,pp}": {"split": 1024, "powers_of_two": True}},
        }
    )
    coded = encode_coordinates(space)(np.array(list(space.enumerate())))
    assert coded.shape == (space.valid, 3)
    assert np.allclose(coded.sum(axis=1), 1.0)  # in logarithms, a product is a sum

"""What a pass takes with a ring of buffers, worked out by hand and played block by block."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cosmic.base.numeric import Numeric
from cosmic.step.tier_traffic import first_wait_s, pass_s

COUNTS = {"encoder_layer": 5, "layer": 3}
OWN = {"encoder_layer": 2.0, "layer": 1.0}


def passed(took: dict[str, float], buffers: int) -> float:
    return float(pass_s(["encoder_layer", "layer"], COUNTS, OWN, took, buffers))


def played(blocks: list[tuple[float, float]], buffers: int, passes: int = 60) -> float:
    """Return the seconds of a pass, one block after the other; of each its own seconds, and those of its transfers."""
    computed = linked = 0.0
    left: list[float] = []
    ends = []
    for _ in range(passes):
        for own, took in blocks:
            if took:
                linked = max(linked, left[-buffers] if len(left) >= buffers else 0.0) + took
                computed = max(computed, linked)
                left.append(computed + own)
            computed += own
        ends.append(computed)
    half = passes // 2
    return (ends[-1] - ends[half - 1]) / half


@pytest.mark.parametrize(
    ("load", "buffers", "seconds"),
    [
        # layers follow 5 x 2 s; in later passes the last layer's second is before that, beside a second buffer
        (9.0, 2, 0),
        (10.5, 2, 0.5),
        (14.0, 2, 1),
        (14.0, 1, 0),
    ],
)
def test_the_first_pass_has_none_before_it(load: float, buffers: int, seconds: float) -> None:
    moved = {"encoder_layer": 0.0, "layer": load}
    assert first_wait_s(["encoder_layer", "layer"], COUNTS, OWN, moved, moved, buffers == 1) == seconds


@pytest.mark.parametrize(("buffers", "seconds"), [(2, 3 + 2), (1, 3)])
def test_blocks_that_move_nothing_come_before_the_next_pass(buffers: int, seconds: float) -> None:
    """A layer of 2 s, whose transfer takes 9, and a head of 3 s; an embedding that is on another stage."""
    order, counts = ["embedding", "layer", "head"], {"embedding": 0.0, "layer": 1.0, "head": 1.0}
    own, moved = {"embedding": 7.0, "layer": 2.0, "head": 3.0}, {"embedding": 4.0, "layer": 9.0, "head": 0.0}
    assert first_wait_s(order, counts, own, moved, moved, buffers == 1) == seconds


@pytest.mark.parametrize(
    ("buffers", "seconds"),
    [
        # 10 s of encoder layers, in which one buffer is emptied; then 1 + 4 + 1 + 4 + 1
        (1, 21),
        # two buffers are emptied before the first layer; the third waits for the first, from 11 on: 10 + 1 + 4 + 1
        (2, 16),
        # 13 s of compute have room for 12 s of stores
        (3, 13),
        (9, 13),
    ],
)
def test_buffers_are_emptied_beside_blocks_that_move_nothing(buffers: int, seconds: float) -> None:
    assert passed({"encoder_layer": 0.0, "layer": 4.0}, buffers) == seconds


def test_a_link_is_never_quicker_than_its_transfers() -> None:
    """5 x 0.5 + 3 x 9 s, and with one buffer all compute beside them, 13 s."""
    assert passed({"encoder_layer": 0.5, "layer": 9.0}, 9) == 29.5
    assert passed({"encoder_layer": 0.5, "layer": 9.0}, 1) == 29.5 + 13


def test_with_two_buffers_a_transfer_runs_beside_the_block_before() -> None:
    """Max(1, 3) + 4 x max(2, 3) of encoder layers, and max(2, 4) + 2 x max(1, 4) of the others."""
    assert passed({"encoder_layer": 3.0, "layer": 4.0}, 2) == 15 + 12


def test_part_of_a_block_is_a_block_with_less_to_do() -> None:
    """Half of 1 s beside 1.5 of 3 s: 1.5; and a layer of 2 s beside 0.25 of 0.5 s."""
    found = pass_s(["a", "b"], {"a": 0.5, "b": 1}, {"a": 1.0, "b": 2.0}, {"a": 0.5, "b": 1.5}, 2)
    assert found == 1.5 + 2
    assert pass_s(["a", "b"], {"a": 0, "b": 1}, {"a": 1.0, "b": 2.0}, {"a": 9.0, "b": 1.5}, 2) == 2


def test_the_longest_paths_are_those_of_blocks_one_by_one() -> None:
    """Exactly with one or two buffers; with more, blocks inside of short runs are known only about."""
    rng = Random(3)
    for _ in range(400):
        names = [f"block {place}" for place in range(rng.randint(1, 4))]
        counts = {name: rng.choice((1, 1, 2, 3, 5, 8, 30)) for name in names}
        own = {name: rng.choice((0.5, 1.0, 2.0, 3.0, 8.0)) for name in names}
        took = {name: rng.choice((0.0, 0.0, 0.5, 1.0, 2.0, 5.0, 9.0)) for name in names}
        buffers = rng.choice((1, 2, 2, 3, 4, 8))
        blocks = [(own[name], took[name]) for name in names for _ in range(counts[name])]
        off = 1e-12 if buffers <= 2 else 0.12
        assert float(pass_s(names, counts, own, took, buffers)) == pytest.approx(played(blocks, buffers), rel=off)


def test_designs_of_a_batch_have_what_they_have_alone() -> None:
    took: dict[str, Numeric] = {"encoder_layer": 0.0, "layer": np.array([4.0, 0.0, 4.0])}
    found = pass_s(["encoder_layer", "layer"], COUNTS, OWN, took, np.array([1, 2, 3]))
    assert np.asarray(found).tolist() == [21, 13, 13]

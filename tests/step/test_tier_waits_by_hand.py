"""What transfers with outer tiers have beside them, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.step.tier_waits import drained_s, time_before

COUNTS = {"encoder_layer": 5, "layer": 3}
OWN = {"encoder_layer": 2.0, "layer": 1.0}


class Traffic:
    """Layers of a decoder that take 4 s each to store their keys and values, and some seconds to load."""

    def __init__(self, load_s: float = 0.0, store_s: float = 4.0) -> None:
        self.load_s = lambda name, _: load_s if name == "layer" else 0.0
        self.store_s = lambda name, _: store_s if name == "layer" else 0.0
        self.block_s = lambda name, _: load_s + store_s if name == "layer" else 0.0


def drained(traffic: Any, buffers: int) -> float:
    batch: Any = {"memory.resident_layers": buffers}
    before = time_before(["encoder_layer", "layer"], COUNTS, OWN)
    return float(drained_s(batch, traffic, COUNTS, "forward", OWN, before))


def test_the_first_block_follows_the_last_of_the_microbatch_before() -> None:
    assert time_before(["encoder_layer", "layer"], COUNTS, OWN) == {"encoder_layer": 1.0, "layer": 2.0}


@pytest.mark.parametrize(
    ("buffers", "seconds"),
    [
        (1, 4 - 2),  # one buffer drains in 4 of 10 s; 2 of them, beside the layer before, are counted already
        (2, 8 - 2),
        (3, 10 - 2),  # 12 s of stores, and 10 s beside them
        (9, 10 - 2),
    ],
)
def test_buffers_drain_beside_blocks_that_move_nothing(buffers: int, seconds: float) -> None:
    assert drained(Traffic(), buffers) == seconds


def test_no_more_is_saved_than_layers_wait_for() -> None:
    assert drained(Traffic(store_s=2.5), 3) == 3 * (2.5 - 1)


def test_layers_that_load_too_wait_for_their_loads() -> None:
    assert drained(Traffic(load_s=1.0), 2) == 0

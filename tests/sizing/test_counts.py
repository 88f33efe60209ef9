"""Numbers of accelerators that are tried."""

from __future__ import annotations

from cosmic.sizing.counts import batch_near, counts_within, multiples_of, odd_part, searched


def test_the_least_number_that_meets_a_deadline_is_found_far_below_the_largest() -> None:
    # 720,000 accelerator-days within 100 days: 7,200 = 8 * 900, and 900 = 2^2 * 3^2 * 5^2 has two fives. The numbers
    # of nodes around are 864 = 2^5 * 27, too few, and 960 = 2^6 * 15: 7,680 accelerators.
    def loss(npus: int) -> tuple[float, ...]:
        return max(0.0, 720_000 / npus - 100), npus

    found = searched(counts_within(8, lambda npus: npus <= 1_000_000), 8, loss)
    assert min(found, key=loss) == 7680


def test_numbers_without_a_mapping_do_not_end_the_search() -> None:
    # nothing runs between 2,000 and 30,000: the least cost is below, at 1,024
    def loss(npus: int) -> tuple[float, ...] | None:
        return None if 2_000 < npus < 30_000 else (max(0.0, 100_000 / npus - 100), npus)

    found = searched(counts_within(8, lambda npus: npus <= 40_000), 8, loss)
    runs = {npus: value for npus, value in found.items() if value is not None}
    assert min(runs, key=runs.__getitem__) == 1024


def test_all_sizes_down_to_a_node_are_tried_where_none_runs() -> None:
    found = searched(counts_within(8, lambda npus: npus <= 64), 8, lambda _: None)
    assert min(found) == 8
    assert set(found.values()) == {None}


def test_every_number_that_is_tried_has_a_batch_that_its_odd_factor_divides() -> None:
    # a step of at most a quarter of 540 has a multiple within an eighth of it, and odd parts are at most 135
    for node in (8, 72):
        for each in multiples_of(node, 100_000):
            assert batch_near(540, each * node) % odd_part(each * node) == 0

"""Repeated blocks are found as a person would write them down."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cosmic.traces.synthesis.block_grammar import (
    BlockRepeat,
    layout_of,
    length_of,
    parse_repeats,
    rows_of,
    source_copies,
    walk_repeats,
)

BLOCK = st.lists(st.integers(0, 4), min_size=1, max_size=6)


def written(grammar: tuple[BlockRepeat, ...], classes: list[int]) -> str:
    """Return a sequence with its repeats in brackets."""

    def text(repeats: tuple[BlockRepeat, ...], at: int, stop: int) -> str:
        found = ""
        for each in repeats:
            found += "".join(str(classes[row]) for row in range(at, each.start))
            found += f"({text(each.inside, each.start, each.start + each.width)}){each.count}"
            at = each.start + each.count * each.width
        return found + "".join(str(classes[row]) for row in range(at, stop))

    return text(grammar, 0, len(classes))


def parsed(text: str) -> str:
    classes = [int(each) for each in text]
    return written(parse_repeats(np.array(classes)), classes)


def test_layers_in_microbatches_are_found() -> None:
    forward, backward = "123" * 4, "456" * 4
    step = "9" + (forward + "7" + backward) * 3 + "8"
    assert parsed(step) == "9((123)47(456)4)38"


def test_a_block_is_the_shortest_that_repeats() -> None:
    assert parsed("12" * 6) == "(12)6"
    assert parsed("0" + "12" * 6 + "3") == "0(12)63"


def test_stretches_of_other_periods_are_told_apart() -> None:
    assert parsed("123456" * 3 + "12" * 6) == "(123456)3(12)6"


def test_what_does_not_repeat_is_left_as_it_is() -> None:
    assert parsed("0123456789") == "0123456789"
    assert parsed("") == ""
    assert parsed("1") == "1"


@given(st.lists(st.tuples(BLOCK, st.integers(1, 5)), max_size=6))
def test_copies_are_equal_and_the_rows_of_a_layout_are_those_of_the_source(parts: list[tuple[list[int], int]]) -> None:
    classes = np.array([each for block, count in parts for _ in range(count) for each in block], np.int64)
    grammar = parse_repeats(classes)
    source = layout_of(len(classes), grammar)
    assert classes[source.first].tolist() == classes.tolist()
    assert rows_of(source, source, source_copies(source, source)).tolist() == list(range(len(classes)))


@given(st.lists(st.tuples(BLOCK, st.integers(1, 5)), max_size=6), st.integers(0, 2**32))
def test_other_numbers_of_copies_give_the_length_that_is_foreseen(
    parts: list[tuple[list[int], int]], seed: int
) -> None:
    classes = np.array([each for block, count in parts for _ in range(count) for each in block], np.int64)
    grammar = parse_repeats(classes)
    rng = np.random.default_rng(seed)
    counts = {each.index: int(rng.integers(1, 7)) for each, _ in walk_repeats(grammar)}
    made = layout_of(len(classes), grammar, counts)
    assert len(made.first) == length_of(len(classes), grammar, counts)
    source = layout_of(len(classes), grammar)
    rows = rows_of(source, made, source_copies(source, made))
    assert classes[rows].tolist() == classes[made.first].tolist()


def test_a_long_sequence_takes_a_moment() -> None:
    rng = np.random.default_rng(1)
    layer, other = rng.integers(0, 500, 30), rng.integers(0, 500, 45)
    step = np.concatenate([[900], np.tile(layer, 16), [901], np.tile(other, 16)])
    classes = np.tile(step, 80)
    began = time.process_time()
    [top] = parse_repeats(classes)
    assert time.process_time() - began < 5
    assert (top.width, top.count, len(classes)) == (len(step), 80, 96_160)
    assert [(each.width, each.count) for each in top.inside] == [(30, 16), (45, 16)]

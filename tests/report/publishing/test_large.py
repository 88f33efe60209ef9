"""Blocks and containers of many trials: the same content, made in another way."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from cosmic.report import container, trial_block
from cosmic.report.container import Binary, gzip_parts
from cosmic.report.trial_block import block_of
from cosmic.search.search_loop import search


def test_parts_that_are_deflated_each_in_its_way_are_one_gzip_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    parts = [
        b"head",
        rng.bytes(100_000),
        b"again and " * 20_000,
        b"",
        rng.integers(0, 4, 90_000).astype("u1").tobytes(),
    ]
    monkeypatch.setattr(container, "HUGE", 1000)
    packed = gzip_parts(parts)
    assert gzip.decompress(packed) == b"".join(parts)
    assert len(packed) < 140_000
    assert packed == gzip_parts(parts)


def test_derived_fields_are_the_same_a_few_trials_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = search("cosmic-512-full-stack", agent="random", trials=60, seed=3)
    whole = Binary()
    wanted = block_of(found.problem, found.trials, whole)
    monkeypatch.setattr(trial_block, "AT_ONCE", 7)
    parts = Binary()
    assert block_of(found.problem, found.trials, parts) == wanted
    assert parts.planes == whole.planes

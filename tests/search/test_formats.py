"""Trials packed into bytes: read back bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.search.problem import METRICS, Results
from cosmic.search.study import trial_storage
from cosmic.search.study.study import open_study
from cosmic.search.study.trial_storage import BatchRecord, Storage, TrialShape
from cosmic.search.trials import Trials
from tests.search.test_searching import same

NUMBERS = st.sampled_from([0.0, -0.0, 0.1, 1 / 3, 1e-150, 1e150, 3.0, 2.0**60, float("nan")])
EXCESS = st.sampled_from([0.0, -0.0, 0.25, 5e-324, 1.7976931348623157e308, float("inf")])
REASONS = st.sampled_from(["", "memory", "a, b", "ünïcode ≤ 3", "'", '"', " ", "=", "x" * 5000, "𝕌"])
LARGEST = st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**32 - 1])


def bits(column: np.ndarray) -> bytes:
    """Return numbers as they are in memory, with one kind of NaN."""
    return np.where(np.isnan(column), np.nan, column).tobytes()


@st.composite
def batches(draw: st.DrawFn) -> Trials:
    n, width, most = draw(st.integers(1, 20)), draw(st.integers(0, 4)), draw(LARGEST)
    points = np.array(draw(st.lists(st.integers(0, most), min_size=n * width, max_size=n * width)), dtype=np.int64)
    columns = {name: np.array(draw(st.lists(NUMBERS, min_size=n, max_size=n))) for name in METRICS[:3]}
    columns |= dict.fromkeys(METRICS[3:], np.full(n, np.nan))
    excess = np.array(draw(st.lists(EXCESS, min_size=n, max_size=n)))
    counted = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    reasons = draw(st.lists(REASONS, min_size=n, max_size=n))
    return Trials(points.reshape(n, width), Results(columns, excess, reasons, counted))


@settings(max_examples=30, deadline=None)
@given(batches())
def test_a_batch_is_read_back_bit_for_bit(trials: Trials) -> None:
    ((first, batch, count, _, content),) = trial_storage.split_pieces(trials, 7, 3)
    assert (first, batch, count) == (7, 3, len(trials))
    found = trial_storage.unpack_piece(content, count, TrialShape())
    assert np.array_equal(found.points, trials.points)
    assert list(found.results.reasons) == list(trials.results.reasons)
    assert found.results.counted.tolist() == trials.results.counted.tolist()
    assert found.results.excess.tobytes() == trials.results.excess.tobytes()
    for name in METRICS:
        assert bits(found.results.columns[name]) == bits(trials.results.columns[name])


@settings(max_examples=30, deadline=None)
@given(batches(), st.data())
def test_no_bytes_are_read_as_something_else_or_fail_in_another_way(trials: Trials, data: st.DataObject) -> None:
    content = bytearray(trial_storage.pack_piece(trials))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = trial_storage.unpack_piece(bytes(content), len(trials), TrialShape())
    except ValueError:
        return
    assert len(found) == len(trials)


def test_a_batch_whose_reasons_are_long_is_kept_in_pieces(tmp_path: Path) -> None:
    n = 200
    reasons = [f"{place} " + "ä" * 30_000 for place in range(n)]
    columns = {name: np.full(n, np.nan) for name in METRICS}
    trials = Trials(np.zeros((n, 3), dtype=np.uint8), Results(columns, np.ones(n), reasons, np.ones(n, dtype=bool)))
    with Storage.opened(tmp_path / "t.db", write=True) as storage:
        storage.append(BatchRecord(0, n, n), trials, 0)
    with Storage.opened(tmp_path / "t.db") as storage:
        assert len(storage.rows("SELECT first FROM packed")) > 1
        assert storage.history()[1].results.reasons == reasons
        assert storage.since(150, 7).results.reasons == reasons[150:157]
        assert len(storage.since(n, 7)) == 0


def test_trials_from_the_middle_of_a_batch_on_are_read(original: Path) -> None:
    whole = open_study(original).trials
    with Storage.opened(original / "trials.db") as storage:
        for first, most in ((0, 5), (3, 100), (40, 1), (len(whole) - 2, 10)):
            assert same(storage.since(first, most), whole.part(slice(first, first + most)))
        assert len(storage.since(len(whole), 3)) == len(storage.since(10**9, 3)) == 0

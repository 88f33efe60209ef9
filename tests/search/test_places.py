"""Points are found again, few or many, in sets of any size; a resumed search keeps its trials once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from cosmic.search import objectives as pareto
from cosmic.search import trials
from cosmic.search.objectives import pareto_front
from cosmic.search.problem import Problem, Reasons, Results, make_problem
from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space
from cosmic.search.trials import Columns, Ledger, PointIndex, Trials


@lru_cache
def problem() -> Problem:
    return make_problem(load_space("cosmic-512-full-stack"))


class Wide:
    """A set with more points than a key of 64 bits tells apart."""

    sizes = (300,) * 12
    raw = 300**12


@pytest.mark.parametrize("few", [0, 100, 980, 10**6])
@pytest.mark.parametrize("wide", [True, False])
def test_points_are_found_where_they_were_added(few: int, wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "DICTIONARY_POINTS", few)
    rng = np.random.default_rng(1)
    space = Wide() if wide else problem().space
    drawn = rng.integers(0, space.sizes, size=(3000, len(space.sizes)))
    drawn[rng.integers(0, 3000, 500)] = drawn[rng.integers(0, 3000, 500)]  # some points again
    first: dict[bytes, int] = {}
    wanted = [first.setdefault(row.tobytes(), place) for place, row in enumerate(drawn)]
    table, claimed, at = PointIndex(space), PointIndex(space), 0  # type: ignore[arg-type]
    for size in (1, 30, 0, 700, 269, 2000):
        batch = drawn[at : at + size]
        new = np.array(wanted[at : at + size], dtype=int) == np.arange(at, at + size)
        assert (table.find(batch) >= 0).tolist() == [place < at for place in wanted[at : at + size]]
        assert claimed.claim(batch).tolist() == new.tolist()
        assert table.add(batch) == bool(new.all()) or at + size <= few
        at += size
        assert table.find(drawn[:at]).tolist() == wanted[:at]
    assert (claimed.find(drawn) >= 0).all()
    assert len(claimed) == len(first)
    assert sorted(set(claimed.find(drawn).tolist())) == list(range(len(first)))


def test_equal_keys_of_different_points_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "DICTIONARY_POINTS", 0)
    table = PointIndex(Wide())  # type: ignore[arg-type]
    table._weights = np.zeros(12, dtype=np.uint64)  # every point has the key 0
    rows = np.random.default_rng(0).integers(0, 300, size=(50, 12))
    assert table.add(rows)
    assert table.find(rows).tolist() == list(range(50))
    assert table.find(rows[:, ::-1]).tolist() == [-1] * 50
    assert table.first_of(np.concatenate((rows, rows))).tolist() == [True] * 50 + [False] * 50


def made(n: int, space: ParameterSet) -> Trials:
    rows = np.unique(space.sample(2 * n, np.random.default_rng(3)), axis=0)[:n]
    return Trials(rows, problem().evaluate(rows))


def test_trials_ahead_are_kept_once_and_come_in_their_order() -> None:
    trials = made(60, problem().space)
    ledger = Ledger(problem(), trials)
    for start in range(0, 60, 20):
        rows = trials.rows[start : start + 20]
        assert ledger.holds(rows).all()
        assert ledger.unknown(rows).tolist() == list(range(20))
        ledger.add(rows, ledger.recall(rows))
        assert not len(ledger.unknown(rows))
        assert len(ledger) == len(ledger.trials) == start + 20
    assert np.shares_memory(ledger.trials.points, trials.points)
    assert np.shares_memory(ledger.trials.results.excess, trials.results.excess)
    assert ledger.evaluated == trials.evaluated
    assert ledger.feasible == trials.feasible


def test_where_other_points_come_those_ahead_are_forgotten() -> None:
    trials = made(60, problem().space)
    before = trials.points.copy()
    ledger = Ledger(problem(), trials.part(slice(40)))
    ledger.add(trials.rows[:10], trials.results.part(slice(10)))
    ledger.add(trials.rows[50:], trials.results.part(slice(50, 60)))
    assert len(ledger) == 20
    assert not ledger.holds(trials.rows[10:40]).any()
    assert np.array_equal(ledger.trials.points, np.concatenate((before[:10], before[50:])))
    assert np.array_equal(trials.points, before)  # what was ahead belongs to the study
    recalled = ledger.recall(trials.rows[50:])
    assert list(recalled.reasons) == list(trials.results.reasons[50:])


def test_columns_that_were_given_out_do_not_change() -> None:
    trials = made(30, problem().space)
    columns = Columns(trials.points.astype(np.uint8))
    columns.extend(trials.points[:10].astype(np.uint8), trials.results.part(slice(10)))
    points, results = columns.points, columns.results
    columns.extend(trials.points[10:].astype(np.uint16) + 300, trials.results.part(slice(10, 30)))
    assert np.array_equal(points, trials.points[:10])
    assert list(results.reasons) == list(trials.results.reasons[:10])
    assert columns.points[10:].tolist() == (trials.points[10:] + 300).tolist()
    assert list(columns.results.reasons) == list(trials.results.reasons)


def test_reasons_are_like_a_list() -> None:
    texts = ["memory", "", "memory", "heads, memory", ""]
    some = Reasons.encode(texts)
    assert some == texts
    assert some != texts[1:]
    assert list(some[1:3]) == texts[1:3]
    assert some[-2] == "heads, memory"
    assert some.counts() == {"memory": 2, "": 2, "heads, memory": 1}
    assert Reasons.join([some, Reasons.same("x", 2)]) == [*texts, "x", "x"]
    assert Results.failed(3, "x").reasons == ["x"] * 3


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_the_front_of_many_rows_is_that_of_few(objectives: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    losses = np.round(rng.random((4000, objectives)), 2)
    losses[rng.integers(0, 4000, 50)] = np.nan
    losses[rng.integers(0, 4000, 50), -1] = np.inf
    whole = pareto_front(losses)
    monkeypatch.setattr(pareto, "LARGE_SET", 100)
    monkeypatch.setattr(pareto, "SAMPLE_SIZE", 50)
    assert np.array_equal(pareto_front(losses), whole)

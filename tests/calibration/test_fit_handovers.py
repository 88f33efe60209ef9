"""The fit of handovers: which parameter belongs to which row, and how errors are stated."""

from __future__ import annotations

import numpy as np
import pytest
from fit_handovers import NAMES, OWN, SHARED, Data, table

from cosmic.accuracy.measured_rows import CARRIED


@pytest.fixture(scope="module")
def data() -> Data:
    return Data(CARRIED / "serving_pools.csv")


def test_rows_have_the_parameters_of_their_engine_and_those_that_all_share(data: Data) -> None:
    values = np.arange(1.0, len(OWN) * len(NAMES) + len(SHARED) + 1)
    found = data.given(np.log(values))
    for place, row in enumerate(data.rows):
        engine = NAMES.index(row.engine)
        assert np.asarray(found.handover_s)[place] == pytest.approx(1 + engine)
        assert np.asarray(found.wide_s)[place] == pytest.approx(1 + len(NAMES) + engine)
        assert np.asarray(found.factor)[place] == pytest.approx(1 + 2 * len(NAMES) + 1)


def test_longer_handovers_are_seen_by_clients(data: Data) -> None:
    logs = np.log(np.array([*(0.1 for _ in OWN for _ in NAMES), *SHARED.values()]))
    later = logs.copy()
    later[: len(NAMES)] = np.log(0.3)
    assert (data.errors(later)[0] > data.errors(logs)[0]).mean() > 0.9


def test_a_table_states_mean_median_and_bias() -> None:
    errors = np.array([0.1, -0.3, 0.2])
    shown = table("engine", (errors, 2 * errors), np.array(["a", "a", "b"]))
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [["a", "2"], ["b", "1"], ["all", "3"]]
    assert shown.splitlines()[1].split()[3:7] == ["0.200", "0.200", "0.28", "-0.100"]

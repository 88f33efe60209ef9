"""Baselines: the runs that they predict, and their efficiency, which is fitted to the measurements."""

from __future__ import annotations

import pytest

from cosmic.accuracy.measured_rows import CARRIED, Verdict, read_rows
from cosmic.accuracy.validating import (
    calculon_seconds,
    calculon_verdicts,
    constant_efficiency_verdicts,
    summarise_errors,
)


def test_a_constant_efficiency_is_the_median_of_the_source_s_rows_on_one_accelerator() -> None:
    rows = [
        Verdict(id=str(place), set="s", row={"accel": accel}, flop=flop, measured_s=1.0, predicted_s=9.0)
        for place, (accel, flop) in enumerate([("a", 1.0), ("a", 2.0), ("a", 4.0), ("b", 8.0)])
    ]
    assert [each.predicted_s for each in constant_efficiency_verdicts(rows)] == [0.5, 1.0, 2.0, 1.0]


def test_rows_whose_operations_are_not_known_are_left_out() -> None:
    assert constant_efficiency_verdicts([Verdict(row={}, measured_s=1.0)]) == []


def test_calculon_s_errors_are_those_that_were_found() -> None:
    """Run on the same rows, it was off by 4.1 % on Korthikanti et al. and by 14.1 % on vTrain's clusters."""
    rows = [row for name in ("published", "single_node_a100") for row in read_rows(CARRIED / f"training_{name}.csv")[1]]
    given = [
        Verdict(id=row["id"], set=row["set"], row=row, measured_s=float(row["iter_time_s"]))
        for row in rows
        if row["id"] in calculon_seconds()
    ]
    found = {
        name: summarise_errors(name, [each for each in calculon_verdicts(given) if each.set == name])
        for name in ("korthikanti", "sc21", "vtrain-multi", "vtrain-single")
    }
    assert sum(each.predicted for each in found.values()) == 510
    assert found["korthikanti"].mean == pytest.approx(0.041, abs=0.001)
    assert found["vtrain-multi"].mean == pytest.approx(0.141, abs=0.001)

"""Trials in a block: nothing is lost that a page shows, and it takes few bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.report.container import Binary, container_text, plain_data
from cosmic.report.trial_block import STEPS, block_of, metrics_of, rule_from_known, scale_numbers
from cosmic.search.problem import METRICS
from cosmic.search.search_loop import Found, search
from cosmic.search.trials import Trials
from cosmic.simulate.metrics import BETTER
from tests.report.publishing.studies import SPACE, found, small
from tests.report.publishing.unpacking import coding_of, column, labels, numbers_of, values

BUDGET = 25
"""Bytes of HTML that a trial may take."""


def packed(of: Found) -> tuple[dict[str, Any], bytes]:
    binary = Binary()
    block = plain_data(block_of(of.problem, of.trials, binary))
    return block, b"".join(binary.planes)


@pytest.mark.parametrize("agent", ["random", "genetic"])
def test_every_parameter_of_every_trial_is_there(agent: str) -> None:
    made = found(agent=agent)
    block, binary = packed(made)
    space = made.problem.space
    assert block["count"] == len(made.trials)
    wanted = [space.labels(row) for row in made.trials.rows]
    for name in wanted[0]:
        assert labels(block, name, binary) == [str(each[name]) for each in wanted]
    assert {each["name"] for each in block["columns"] if each["role"] == "parameter"} == set(wanted[0])


def test_numbers_of_parameters_are_in_si_units() -> None:
    block, _ = packed(found())
    coding = coding_of(block, "network.dims.0.bandwidth")
    assert coding["values"][0] == 50e9
    assert coding["labels"][0] == "50 GB/s"
    assert column(block, "network.dims.0.bandwidth")["unit"] == "B/s"


@pytest.mark.parametrize("agent", ["random", "genetic"])
def test_every_metric_of_every_trial_is_there_to_four_digits(agent: str) -> None:
    made = found(agent=agent)
    block, binary = packed(made)
    names = {each["name"]: place for place, each in enumerate(block["columns"]) if each["role"] == "metric"}
    assert list(names) == metrics_of(made.problem)
    for name, place in names.items():
        np.testing.assert_allclose(values(block, place, binary), made.trials.results.columns[name], rtol=2e-4)
        assert block["columns"][place]["better"] == BETTER[name]


def test_objectives_are_as_exact_as_a_float_of_32_bits() -> None:
    made = search(SPACE, agent="random", trials=300, objectives=["step_s", "network_usd"])
    block, binary = packed(made)
    for name in ("step_s", "network_usd"):
        place = next(place for place, each in enumerate(block["columns"]) if each["name"] == name)
        assert block["columns"][place]["objective"]
        wanted = made.trials.results.columns[name].astype(np.float32)
        np.testing.assert_array_equal(values(block, place, binary).astype(np.float32), wanted)


def test_metrics_that_nobody_has_take_no_column() -> None:
    block, _ = packed(found())
    names = [each["name"] for each in block["columns"]]
    assert "ttft_s" not in names  # it trains
    assert "offloaded_bytes" not in names  # nothing is offloaded


def test_every_metric_that_some_trial_has_has_a_column() -> None:
    for task in ("training", "prefill", "decode"):
        made = search(small(task), trials=9)
        columns = made.trials.results.columns
        present = {name for name in METRICS if np.nansum(np.abs(columns[name])) > 0}
        assert present <= set(metrics_of(made.problem))


def test_reasons_say_why_each_trial_cannot_run() -> None:
    made = found()
    block, binary = packed(made)
    assert block["reasons"][0] == ""
    codes = numbers_of(block["outcomes"], binary).tolist()
    assert [block["reasons"][code] for code in codes] == list(made.trials.results.reasons)


def test_metrics_that_follow_from_others_are_named_and_not_sent() -> None:
    block, _ = packed(found())
    assert column(block, "tokens_per_s")["coding"]["kind"] == "from"
    assert column(block, "mfu")["coding"]["kind"] == "from"


@pytest.mark.parametrize(
    ("mine", "rule"), [([2.0, 4.0, 8.0], "times"), ([8.0, 4.0, 2.0], "over"), ([4.0, 5.0, 7.0], "plus")]
)
def test_a_column_follows_from_another_by_one_rule(mine: list[float], rule: str) -> None:
    coding = plain_data(rule_from_known(np.array(mine), [(3, np.array([1.0, 2.0, 4.0]))]))
    assert coding is not None
    assert (coding["rule"], coding["column"]) == (rule, 3)


def test_a_column_that_is_nearly_another_does_not_follow_from_it() -> None:
    assert rule_from_known(np.array([2.0, 4.0001]), [(0, np.array([1.0, 2.0]))]) is None
    assert rule_from_known(np.array([2.0, np.nan]), [(0, np.array([1.0, 2.0]))]) is None


def test_scaled_numbers_keep_their_ends_exactly() -> None:
    binary = Binary()
    coding = plain_data(scale_numbers(np.array([1e-6, 3.0, np.nan, 1e6]), binary))
    codes = numbers_of(coding["codes"], b"".join(binary.planes)).tolist()
    assert (codes[0], codes[2], codes[3]) == (1, 0, STEPS + 1)
    assert coding["log"]


def test_parts_of_a_study_have_the_columns_of_the_whole() -> None:
    made = found()
    whole = plain_data(block_of(made.problem, made.trials, Binary()))
    head = Trials(made.trials.rows[:0], made.trials.results.select(np.arange(0)))
    for some in (head, Trials(made.trials.rows[5:9], made.trials.results.select(np.arange(5, 9)))):
        part = plain_data(block_of(made.problem, some, Binary(), first=5))
        assert part["first"] == 5
        assert [each["name"] for each in part["columns"]] == [each["name"] for each in whole["columns"]]


def test_a_parameter_of_several_fields_is_a_column_for_each() -> None:
    made = search(small(), agent="exhaustive", trials=9)
    block, binary = packed(made)
    dp, tp = (column(block, f"workload.{axis}") for axis in ("dp", "tp"))
    of_dp, of_tp = (coding_of(block, f"workload.{axis}") for axis in ("dp", "tp"))
    assert (of_dp["values"], of_tp["values"]) == ([2, 4, 16], [8, 4, 1])
    assert (dp["label"], tp["label"]) == ("dp", "tp")
    assert tp["part"] == {"of": "workload.{dp,tp}", "place": 1}
    assert of_dp["codes"] == of_tp["codes"]  # stored once
    points = [made.problem.space.point(made.trials.row(place)).workload for place in range(len(made.trials))]
    assert labels(block, "workload.dp", binary) == [str(each.dp) for each in points]
    assert labels(block, "workload.tp", binary) == [str(each.tp) for each in points]
    codings = [each["coding"] for each in block["columns"]]
    assert all(block["columns"][each["column"]]["role"] == "metric" for each in codings if each["kind"] == "from")


def test_entries_of_a_tuple_that_are_names_lists_or_equal_keep_their_values() -> None:
    tuples = [["1f1b", True, 1], ["1f1b", False, 1], ["gpipe", True, 2]]
    space = small(parameters={"workload.{schedule,sequence_parallel,virtual_stages}": tuples})
    block, binary = packed(search(space, agent="exhaustive", trials=3))
    assert coding_of(block, "workload.schedule")["values"] == ["1f1b", "gpipe"]
    assert coding_of(block, "workload.sequence_parallel")["labels"] == ["true", "false"]
    assert sorted(labels(block, "workload.virtual_stages", binary)) == ["1", "1", "2"]


@pytest.mark.parametrize("agent", ["random", "genetic"])
def test_ten_thousand_trials_stay_within_their_bytes(agent: str) -> None:
    made = found(10_000, agent, 0)
    binary = Binary()
    block = plain_data(block_of(made.problem, made.trials, binary))
    assert len(container_text({"trials": block}, binary)) <= BUDGET * len(made.trials)

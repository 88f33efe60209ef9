"""The benchmark traces take what they should."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cosmic.accuracy.trace_suite import Case, launch_case, list_cases, run_case
from cosmic.base.errors import SpecError

NAMES = [case.name for case in list_cases()]


@pytest.mark.parametrize("name", ["recommender-8", "decode-8"])
def test_a_small_case_takes_the_cycles_that_are_expected(name: str) -> None:
    [case] = list_cases(name)
    outcome = run_case(case, launch_case)
    assert outcome.ok, f"{name}: {outcome.cycles:,} cycles; if this is meant, write them into suite.yaml"
    assert outcome.cycles == case.cycles


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_case_takes_the_cycles_that_are_expected(name: str) -> None:
    [case] = list_cases(name)
    outcome = run_case(case, launch_case)
    assert outcome.ok, f"{name}: {outcome.cycles:,} cycles; if this is meant, write them into suite.yaml"


def test_cases_span_kinds_and_sizes() -> None:
    npus = [int(case.design.replace("-", ":").rpartition(":")[2]) for case in list_cases()]
    assert (min(npus), max(npus)) == (8, 1024)
    kinds = {case.name.partition("-")[0] for case in list_cases()}
    assert kinds == {"dense", "moe", "recommender", "prefill", "decode"}


def test_a_case_states_every_axis_of_its_mapping() -> None:
    for case in list_cases():
        stated = {setting.partition("=")[0] for setting in case.settings}
        assert {"workload.dp", "workload.micro_batch", "workload.global_batch", "collective.chunks"} <= stated, (
            case.name
        )


def test_other_cycles_are_not_ok() -> None:
    [case] = list_cases("recommender-8")
    wrong = Case(name="x", about="", design=case.design, settings=case.settings, cycles=case.cycles + 1)
    assert not run_case(wrong, launch_case).ok


def test_a_case_without_traces_is_refused() -> None:
    with pytest.raises(SpecError, match="has no traces"):
        run_case(list_cases()[0], lambda _: SimpleNamespace(files={}, traces=None))


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(SpecError, match="no such case; did you mean 'dense-8'"):
        list_cases("dense-7")

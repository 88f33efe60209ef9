"""Bounds on the numbers of a design: no quantity that would overflow, in any field, by whatever way it comes in."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib import import_module
from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.design_batch import Batch, combine_codes
from cosmic.design.schema import MOST_WHOLE
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from tests.relations.random_designs import random_design

POINT = load_design("gpt3-175b@cosmic-1024")


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("workload.global_batch", 2**62, "workload.global_batch = 4611686018427387904: must be at most 2,147,483,648"),
        ("model.layers", 10**18, "model.layers = 1000000000000000000: must be at most 2,147,483,648"),
        ("workload.virtual_stages", 65, "workload.virtual_stages = 65: must be at most 64"),
        ("network.dims.0.bandwidth", "1e30 GB/s", "network.dims.0.bandwidth = 1e+39: must be from 1 B/s to 1.0e30 B/s"),
        ("network.dims.0.latency", "1e-300 s", "latency = 1e-300: must be from 0.001 ps to 1000000000 s"),
        ("compute.gemm_efficiency", 1e-300, "compute.gemm_efficiency = 1e-300: must be from 1e-15 to 1e+15"),
        ("compute.price", "1e200 USD", "must be from 0.000001 USD to 1000000000000 USD"),
    ],
)
def test_a_number_beyond_its_bounds_is_refused_with_them(path: str, value: Any, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_design("gpt3-175b@cosmic-1024", {path: value})
    assert sentence in str(caught.value)


def test_bounds_hold_for_values_that_no_file_states() -> None:
    for number in (MOST_WHOLE + 1, 2**63):
        with pytest.raises(SpecError, match=r"^sequence = .*: must be at most"):
            Workload(sequence=number, global_batch=1)
    for rate in (math.nan, math.inf, 5e-324):
        with pytest.raises(SpecError, match="must be from 1 B/s"):
            replace(POINT.memory, bandwidth_bytes_per_s=rate)
    with pytest.raises(SpecError, match="tables = 2199023255552: must be at most"):
        schema.assign_fields(load_design("dlrm-criteo@dgx-h100:8"), {"model.tables.0": 2**41})


EXTREMES = (0, 1, -1, 3, 64, 4096, 2**20, 2**31, 2**40, 2**62, 1e-300, 1e-15, 1e-9, 1e9, 1e15, 1e24, 1e300, math.nan)


@pytest.mark.long
def test_extreme_numbers_are_refused_or_give_possible_answers() -> None:
    rng = Random(5)
    answered = 0
    for family in ("dense", "window", "moe", "mla", "encoder", "encoder_decoder", "vision", "recommender"):
        point = random_design(rng, family=family)
        numbers = [(path, value) for path, value in schema.leaf_fields(point) if type(value) in (int, float)]
        for _ in range(16):
            changes = {path: _like(value, rng.choice(EXTREMES)) for path, value in rng.sample(numbers, 2)}
            try:
                changed = schema.assign_fields(point, changes)
            except SpecError:
                continue
            outcome, batch = evaluate(changed), evaluate_batch(Batch(changed, {}))
            assert isinstance(outcome, Metrics) == bool(batch.feasible[0]), changes
            answered += 1
            if isinstance(outcome, Metrics):
                assert 0 < outcome.step_s < 1e30, changes
                assert 0 <= outcome.mfu <= 1.01, changes
                assert 0 < outcome.memory_bytes < 1e30, changes
            else:
                assert all("too large" not in reason for reason in outcome.reasons), changes
    assert answered > 10


def _like(value: float, other: float) -> float:
    return int(other) if isinstance(value, int) and math.isfinite(other) else other


@pytest.mark.usefixtures("without_programs")
def test_a_design_whose_metrics_are_impossible_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("cosmic.simulate.step_evaluation"), "model_flop_per_token", lambda *_, **__: 1e30)
    outcome = evaluate(POINT)
    assert isinstance(outcome, Infeasible)
    assert outcome.reasons[0].startswith("its numbers are too large or too small to compute with: mfu would be ")
    batch = evaluate_batch(Batch(POINT, {"workload.global_batch": np.array([1024, 2048])}))
    assert batch.broken["range"].all()
    assert not batch.feasible.any()


@pytest.mark.usefixtures("without_programs")
def test_arithmetic_that_overflows_costs_the_designs_that_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def flop(_: Any, sequence: Any, **__: Any) -> Any:
        return np.where(np.asarray(sequence) == 4096, 1e308, 1.0) * np.float64(100.0)

    monkeypatch.setattr(import_module("cosmic.simulate.step_evaluation"), "model_flop_per_token", flop)
    sequences = np.array([1024, 2048, 4096, 8192, 4096])
    batch = evaluate_batch(Batch(POINT, {"workload.sequence": sequences}))
    assert batch.broken["range"].tolist() == [False, False, True, False, True]
    assert np.isfinite(batch.columns["step_s"]).tolist() == [True, True, False, True, False]
    outcome = evaluate(schema.assign_fields(POINT, {"workload.sequence": 4096}))
    assert isinstance(outcome, Infeasible)
    assert "overflow" in outcome.reasons[0]


def test_codes_of_many_columns_do_not_collide() -> None:
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 2**19, 200) for _ in range(9)]
    columns[-1][:] = columns[-1][0]
    columns = [np.concatenate([column, column]) for column in columns]
    codes = combine_codes([(2**19, column) for column in columns], 400)
    assert len(np.unique(codes)) == 200
    assert np.array_equal(codes[:200], codes[200:])

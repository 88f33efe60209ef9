"""Designs of links, faults and synthesised collectives: one answer by program, physics, batch and both engines."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.design.network_layer import Fault
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.network import dimension_wiring
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate import step_evaluation
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.simulate.recording.recorded_evaluation import run_recorded_point
from cosmic.simulate.step_evaluation import RECORDER
from cosmic.workload.mapping_rules import evaluate_rules
from tests.relations.random_designs import list_links, random_design

MACHINE = {
    "model": "llama3-8b",
    "compute": {"accelerator": "h100-sxm-80gb"},
    "network": {
        "dims": [
            {"topology": "switch", "npus": 8, "bandwidth": "450 GB/s", "latency": "500 ns"},
            {"topology": "ring", "npus": 4, "bandwidth": "50 GB/s", "latency": "2 us"},
        ],
        "faults": [{"npu": 9, "dim": 1, "speed": 0.5}],
    },
    "workload": {"tp": 8, "cp": 1, "pp": 1, "dp": 4, "global_batch": 64, "micro_batch": 1, "weight_sharding": "zero1"},
}


def machine(**changed: object) -> DesignPoint:
    return load_design(MACHINE, dict(changed))


def directly(point: DesignPoint) -> float:
    """Return the seconds of a step by the physics itself."""
    return float(step_evaluation._evaluate_group(batch_of(point))["step_s"])


@pytest.mark.parametrize("seed", range(12))
def test_a_program_gives_the_bits_of_the_physics(seed: int) -> None:
    point = random_design(Random(seed), accelerators=16, wired=True)
    found = run_recorded_point(RECORDER, point)
    assert found is not None
    assert found["step_s"] == directly(point)
    assert [found[f"rule.{name}"] for name in evaluate_rules(batch_of(point))] == [1.0] * len(
        evaluate_rules(batch_of(point))
    )


def test_a_batch_gives_the_bits_of_its_designs() -> None:
    changes = [
        {"network.faults.0.speed": speed, "collective.algorithms.1": name, "network.dims.1.bandwidth": bandwidth}
        for speed in (0.0, 0.25, 1.0)
        for name in ("ring", "synthesized", "auto")
        for bandwidth in (25e9, 50e9)
    ]
    point = machine()
    for _ in range(2):  # without programs, then with them
        found = evaluate_batch(batch_of_changes(point, changes))
        alone = [evaluate(point.changed(change)) for change in changes]
        for place, outcome in enumerate(alone):
            if isinstance(outcome, Infeasible):
                assert found.broken["network"][place]
            else:
                assert found.columns["step_s"][place] == outcome.step_s
        assert sum(isinstance(outcome, Infeasible) for outcome in alone) == 6


def test_sizes_beside_faults_place_them_anew() -> None:
    point = machine()
    changes = [{"network.dims.0.npus": inner, "network.dims.1.npus": 32 // inner} for inner in (2, 4, 8, 16)]
    found = evaluate_batch(batch_of_changes(point, changes))
    for place, change in enumerate(changes):
        outcome = evaluate(point.changed(change))
        assert isinstance(outcome, Metrics)
        assert found.columns["step_s"][place] == outcome.step_s


def test_programs_of_another_process_find_their_links() -> None:
    point = machine(**{"collective.algorithms.1": "synthesized"})
    first, second = evaluate(point), evaluate(point)
    assert isinstance(first, Metrics)
    dimension_wiring._KEPT.clear()
    dimension_wiring._keep_wiring.cache_clear()
    RECORDER.forget()
    again = evaluate(machine(**{"collective.algorithms.1": "synthesized"}))
    assert isinstance(again, Metrics)
    assert isinstance(second, Metrics)
    assert first.step_s == second.step_s == again.step_s


def test_faults_slow_a_step_and_synthesis_makes_up_for_some() -> None:
    slow = {"tp_overlap": False, "dp_overlap": False}
    times = []
    for faults, algorithm in (((), "ring"), ((Fault(npu=9, dim=1, peer=17),), "ring")):
        point = machine(**slow).changed({"network.faults": faults, "collective.algorithms.1": algorithm})
        outcome = evaluate(point)
        assert isinstance(outcome, Metrics)
        times.append(outcome.step_s)
        better = evaluate(point.changed({"collective.algorithms.1": "synthesized"}))
        assert isinstance(better, Metrics)
        assert better.step_s <= outcome.step_s
    assert times[0] < times[1]


def test_designs_without_links_are_priced_as_before() -> None:
    point = machine().changed({"network.faults": ()})
    all_well = machine().changed({"network.faults": (Fault(npu=9, dim=1, speed=1.0),)})
    assert directly(point) == directly(all_well)
    star = point.changed({"network.dims.0": list_links(point.network.dims[0])})
    assert directly(star) == pytest.approx(directly(point), rel=1e-12)
    assert np.isfinite(directly(star))


@pytest.mark.parametrize("algorithm", ["ring", "synthesized"])
@pytest.mark.parametrize("links", [False, True])
def test_both_engines_agree(algorithm: str, links: bool) -> None:
    changed = {"collective.algorithms": [algorithm] * 2, "tp_overlap": False, "dp_overlap": False}
    point = machine(**changed)
    if links:
        point = point.changed({"network.dims.0": list_links(point.network.dims[0])})
    closed, played = evaluate(point), evaluate(point, "event")
    assert isinstance(closed, Metrics)
    assert isinstance(played, Metrics)
    assert played.step_s == pytest.approx(closed.step_s, rel=1e-3)

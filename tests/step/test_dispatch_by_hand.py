"""What a single controller costs, worked out by hand: the thresholds of Pathways, and both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, batch_of
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics
from cosmic.step.kernel_launches import controller_dispatch_s, controller_wait_s, host_counts

SMALL = {"dp": 8, "tp": 1, "cp": 1, "pp": 1, "global_batch": 8, "sequence": 128, "weight_sharding": "none"}


def batch(**keys: Any) -> Batch:
    return batch_of(load_design("gpt2@dgx-h100:8", {**SMALL, **keys}))


def metrics(engine: str, **keys: Any) -> Metrics:
    outcome = evaluate(load_design("gpt2@dgx-h100:8", {**SMALL, **keys}), engine)
    assert isinstance(outcome, Metrics), outcome
    return outcome


@pytest.mark.parametrize(("hosts", "parity_ms"), [(16, 2.3), (512, 35.0)])
def test_parity_with_many_controllers_begins_where_pathways_measured_it(hosts: int, parity_ms: float) -> None:
    """1.24 ms + 0.066 ms × 16 = 2.296 ms; + 0.066 ms × 512 = 35.03 ms."""
    assert 1e3 * float(controller_dispatch_s(hosts)) == pytest.approx(parity_ms, rel=0.002)


def test_hosts_are_rounded_up() -> None:
    assert float(host_counts(batch(npus_per_host=3))) == 3


@pytest.mark.parametrize(("step_ms", "late_ms"), [(0.5, 0.806), (5.0, 0.0)])
def test_programs_are_started_while_others_run(step_ms: float, late_ms: float) -> None:
    """One host: 1.24 + 0.066 = 1.306 ms."""
    found = controller_wait_s(batch(runtime="single_parallel"), step_ms / 1e3, (), 1)
    assert 1e3 * float(found) == pytest.approx(late_ms)


def test_one_after_the_other_every_node_of_a_pipeline_waits() -> None:
    """Two stages of 4 hosts each: 1.24 + 4 × 0.066 + 2 × 0.01 = 1.524 ms a node.

    4 microbatches, passes of 1 and 2 ms: 0.524 ms late in each forward pass, 4 of them and 1 to fill the pipeline.
    """
    point = batch(runtime="single_sequential", npus_per_host=1, dp=4, pp=2, global_batch=16)
    found = controller_wait_s(point, 1.0, (4e-3, 8e-3), 4)
    assert 1e3 * float(found) == pytest.approx(0.524 * 5)


def test_stages_that_share_a_host_wait_for_a_whole_one() -> None:
    """8 accelerators on 3 hosts, two stages: 2 hosts each, 1.24 + 2 × 0.066 + 2 × 0.01 = 1.392 ms a node."""
    point = batch(runtime="single_sequential", npus_per_host=3, dp=4, pp=2, global_batch=16)
    found = controller_wait_s(point, 1.0, (4e-3, 8e-3), 4)
    assert 1e3 * float(found) == pytest.approx(0.392 * 5)


def test_the_bubble_grows_by_what_the_other_stages_are_late() -> None:
    """The same nodes; the pipeline fills with others, which are late by 0.1 ms in all."""
    point = batch(runtime="single_sequential", npus_per_host=1, dp=4, pp=2, global_batch=16)
    found = controller_wait_s(point, 1.0, (4e-3, 8e-3), 4, lambda least: least - 1.424e-3)
    assert 1e3 * float(found) == pytest.approx(0.524 * 4 + 0.1)
    assert float(controller_wait_s(point, 1.0, (8e-3, 8e-3), 4, lambda _: -1.0)) == 0.0


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_quicker_launches_are_never_slower_under_one_controller(schedule: str) -> None:
    changed = {"runtime": "single_sequential", "npus_per_host": 1, "dp": 2, "pp": 4, "schedule": schedule}
    point = load_design("gpt2@dgx-h100:8", {**SMALL, **changed})
    found = [point.changed({"compute.launch": factor * point.compute.launch_s}) for factor in (1, 0.5, 0.1, 0)]
    steps = [each.step_s for each in map(evaluate, found) if isinstance(each, Metrics)]
    assert len(steps) == 4
    assert steps == sorted(steps, reverse=True)


def test_a_step_without_a_pipeline_is_one_node() -> None:
    """1.306 ms + 2 × 10 us, beside a step of 1 ms."""
    found = controller_wait_s(batch(runtime="single_sequential"), 1e-3, (0.3e-3, 0.7e-3), 1)
    assert 1e3 * float(found) == pytest.approx(0.326)


@pytest.mark.parametrize("engine", ["analytic", "event"])
def test_short_steps_take_as_long_as_their_start(engine: str) -> None:
    many = metrics(engine)
    hosts = 8
    led = metrics(engine, runtime="single_parallel", npus_per_host=1)
    assert led.step_s == pytest.approx(max(many.step_s, 1.24e-3 + hosts * 0.066e-3), rel=1e-6)


def test_many_designs_at_once_are_as_one_by_one() -> None:
    whole = batch(runtime="single_sequential", npus_per_host=1)
    stages = np.array([1, 2, 4])
    together = Batch(whole.base, {"workload.pp": stages, "workload.dp": 8 // stages})
    found = np.asarray(controller_wait_s(together, 1e-3, (0.3e-3, 0.7e-3), 4))
    for place, pp in enumerate(stages.tolist()):
        alone = Batch(whole.base.changed({"workload.pp": pp, "workload.dp": 8 // pp}), {})
        assert found[place] == float(controller_wait_s(alone, 1e-3, (0.3e-3, 0.7e-3), 4))

"""Networks in tiers: 64 nodes of 8 H100, leaves of 32 nodes; one answer by program, physics, batch and both engines."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.network.switch_tiers import tiers_of
from cosmic.report.container import plain_data
from cosmic.report.design_view import cluster_of
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate import step_evaluation
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.recording.recorded_evaluation import run_recorded_point
from cosmic.simulate.step_evaluation import RECORDER
from cosmic.step.bottleneck import network_loads
from cosmic.step.step_profile import profile_step
from tests.leaves import LEAVES
from tests.relations.all_relations import RELATIONS
from tests.relations.engine_agreement import compare_engines
from tests.relations.random_designs import random_design, with_tiers

pytestmark = pytest.mark.usefixtures("leaves")
SYSTEM = "llama3-70b@dgx-h100:512"
OUTER = "network.dims.1"
ON_LEAVES: dict[str, Any] = {f"{OUTER}.fabric.build": LEAVES, f"{OUTER}.fabric.radix": 64}
"""32 nodes below a leaf."""
NODES = {"tp": 8, "pp": 1, "dp": 64, "cp": 1}
PAIRS = {"tp": 8, "pp": 2, "dp": 32, "cp": 1}


def design(mesh: dict[str, Any], share: float = 4.0, **changed: Any) -> DesignPoint:
    stated = {
        "global_batch": 512,
        "micro_batch": 1,
        "weight_sharding": "zero1",
        "dp_overlap": False,
        "recompute": "full",
    }
    point = load_design(SYSTEM, {**stated, **mesh}, plain=True)
    return point.changed({**ON_LEAVES, f"{OUTER}.oversubscription": share, **changed})


def by_part(point: DesignPoint) -> dict[tuple[int, str], float]:
    """Return the seconds of communication, by dimension and part of the step."""
    return {(load.dimension, load.part): load.seconds for load in network_loads(profile_step(batch_of(point)))}


def slower(mesh: dict[str, Any], **changed: Any) -> dict[tuple[int, str], float]:
    """Return how many times longer communication takes at 4:1 than at 1:1."""
    few, many = by_part(design(mesh, 4.0, **changed)), by_part(design(mesh, 1.0, **changed))
    return {key: few[key] / many[key] for key in many}


def test_a_ring_over_all_nodes_and_what_stays_in_a_node_pay_nothing() -> None:
    """Data parallel over 64 nodes is one ring for each rail: it leaves a leaf once, which has room for 8."""
    found = slower(NODES, **{"collective.algorithms.1": "ring"})
    assert {part for _, part in found} >= {"tp", "dp"}
    assert set(found.values()) == {1.0}


def test_where_an_axis_lies_decides_what_it_pays() -> None:
    """32 nodes of dp inside stay below a leaf, and both stages of pp are 32 nodes apart.

    Placed the other way round, pp is below a leaf, and dp is two rings that leave it.
    """
    ring = {"collective.algorithms.1": "ring"}
    inside = slower(PAIRS | {"placement": ["tp", "cp", "dp", "pp"]}, **ring)
    assert inside[1, "dp"] == 1.0
    assert inside[1, "pp"] == pytest.approx(4.0, rel=0.2)  # but for overhead and latency
    outside = slower(PAIRS | {"placement": ["tp", "cp", "pp", "dp"]}, **ring)
    assert set(outside.values()) == {1.0}


def test_pairs_of_far_nodes_pay_in_full() -> None:
    mesh = {"tp": 8, "pp": 32, "dp": 2, "cp": 1, "placement": ["tp", "cp", "pp", "dp"]}
    found = slower(mesh, **{"collective.algorithms.1": "ring"})
    assert found[1, "pp"] == 1.0
    assert 3.5 < found[1, "dp"] <= 4.0


def test_an_all_to_all_pays_for_the_share_that_crosses() -> None:
    """Experts over all 64 nodes: 32 of 63 messages leave a leaf of 4:1, 128 / 63 as long as at 1:1."""
    mesh = {"tp": 1, "pp": 1, "dp": 512, "cp": 1, "ep": 128, "global_batch": 512, "micro_batch": 1}
    point = load_design("qwen3-235b-a22b@dgx-h100:1024", mesh | {"dp": 1024, "global_batch": 1024}, plain=True)
    many, few = (by_part(point.changed({**ON_LEAVES, f"{OUTER}.oversubscription": each})) for each in (1.0, 4.0))
    assert few[1, "ep"] == many[1, "ep"]  # 16 nodes
    far = point.changed(ON_LEAVES | {f"{OUTER}.fabric.radix": 16})  # leaves of 8 nodes: 8 of 15 messages leave
    few = by_part(far.changed({f"{OUTER}.oversubscription": 4.0}))
    assert few[1, "ep"] / many[1, "ep"] == pytest.approx(4 * 8 / 15, rel=0.05)
    assert few[0, "ep"] == many[0, "ep"]


def test_nothing_changes_without_oversubscription() -> None:
    plain = load_design(SYSTEM, {**NODES, "global_batch": 512}, plain=True).changed(
        {f"{OUTER}.fabric.build": "by_bandwidth"}
    )
    assert directly(plain.changed(ON_LEAVES)) == directly(plain)
    thinned = plain.changed({f"{OUTER}.oversubscription": 4.0})
    assert directly(thinned) > directly(thinned.changed(ON_LEAVES))


# ---- one answer by all ways


def directly(point: DesignPoint) -> float:
    """Return the seconds of a step by the physics itself."""
    return float(step_evaluation._evaluate_group(batch_of(point))["step_s"])


CHANGES = [
    {f"{OUTER}.fabric.build": build, f"{OUTER}.oversubscription": share, f"{OUTER}.fabric.radix": radix, **others}
    for build in ("by_bandwidth", LEAVES)
    for share in (1.0, 1.5, 8.0)
    for radix in (8, 64)
    for others in (
        {"collective.algorithms.1": "auto", f"{OUTER}.topology": "switch"},
        {"collective.algorithms.1": "direct", f"{OUTER}.topology": "fat_tree"},
        {"collective.algorithms.1": "ring", f"{OUTER}.topology": "switch"},
    )
]


@pytest.mark.parametrize("core", [1.0, 2.5])
def test_a_batch_and_a_program_give_the_bits_of_each_design(core: float) -> None:
    point = design(PAIRS, **{f"{OUTER}.fabric.core_oversubscription": core})
    alone = [directly(point.changed(change)) for change in CHANGES]
    for _ in range(2):  # programs are recorded, and then used
        found = evaluate_batch(batch_of_changes(point, CHANGES))
        assert found.columns["step_s"].tolist() == alone
    for change, seconds in list(zip(CHANGES, alone, strict=True))[::5]:
        programmed = run_recorded_point(RECORDER, point.changed(change))
        assert programmed is not None
        assert programmed["step_s"] == seconds
        outcome = evaluate(point.changed(change))
        assert isinstance(outcome, Metrics)
        assert outcome.step_s == seconds
    assert len(set(alone)) > len(CHANGES) / 2


def test_synthesised_collectives_pay_for_the_uplinks_too() -> None:
    point = load_design("llama3-8b@dgx-h100:64", {"tp": 8, "pp": 1, "cp": 1, "global_batch": 64}, plain=True)
    made = point.changed({"collective.algorithms.1": "synthesized", f"{OUTER}.fabric.build": LEAVES})
    changes = [
        {f"{OUTER}.oversubscription": share, f"{OUTER}.fabric.radix": 4, "collective.overlap_efficiency": 0.0}
        for share in (1.0, 8.0, 64.0)
    ]
    seconds = [directly(made.changed(change)) for change in changes]
    assert seconds[0] < seconds[1] < seconds[2]
    assert evaluate_batch(batch_of_changes(made, changes)).columns["step_s"].tolist() == seconds


@pytest.mark.parametrize("place", range(4))
def test_both_engines_charge_the_same(place: int) -> None:
    point = random_design(Random(place), family="dense", accelerators=64, task="training")
    changes = {f"{OUTER}.oversubscription": 8.0, f"{OUTER}.fabric.build": LEAVES, f"{OUTER}.fabric.radix": 4}
    tiered = point.changed(changes if len(point.network.dims) > 1 else {})
    usual, found = compare_engines(point), compare_engines(tiered)
    assert usual is not None
    assert found is not None
    assert abs(found.ratio - 1) < max(0.05, 2 * abs(usual.ratio - 1))


# ---- relations


def test_more_oversubscription_is_never_faster_and_more_ports_never_slower() -> None:
    for mesh in (NODES, PAIRS, {"tp": 4, "pp": 8, "dp": 16, "cp": 1}):
        point = design(mesh)
        changes = [{f"{OUTER}.oversubscription": share} for share in (1.0, 1.5, 2.0, 3.0, 7.0, 64.0)]
        seconds = evaluate_batch(batch_of_changes(point, changes)).columns["step_s"]
        assert np.all(np.diff(seconds) >= 0)
        changes = [{f"{OUTER}.fabric.radix": 2**power} for power in range(1, 8)]
        seconds = evaluate_batch(batch_of_changes(point, changes)).columns["step_s"]
        assert np.all(np.diff(seconds) <= 0)
        assert seconds[0] > seconds[-1]


@pytest.mark.parametrize("name", ["better links", "oversubscription", "network bandwidth", "batch"])
def test_relations_hold_for_designs_in_tiers(name: str) -> None:
    for seed in range(3):
        point = random_design(Random(seed), family="moe", accelerators=64)
        if len(point.network.dims) > 1:
            point = point.changed({f"{OUTER}.fabric.build": LEAVES, f"{OUTER}.fabric.radix": 4})
        assert [str(each) for each in RELATIONS[name].violations(point, Random(seed))] == []


def test_designs_are_drawn_with_tiers() -> None:
    point = design(NODES)
    drawn = [with_tiers(point.changed({"workload.global_batch": 64 * times})) for times in range(8, 40)]
    fabrics = {(each.network.dims[1].oversubscription, each.network.dims[1].fabric.radix) for each in drawn}
    assert len(fabrics) > 3
    assert all(any(tier.npus < 64 for tier in tiers_of(each.network.dims, 1)) for each in drawn)
    plain = point.changed({f"{OUTER}.fabric.build": "by_bandwidth"})
    assert with_tiers(plain) == plain  # nothing is known of its switches


# ---- reports


def test_the_busiest_of_links_and_uplinks_is_stated() -> None:
    """Pairs of dp 32 nodes apart: uplinks of 64:1 are 64 times as busy as links; a pipeline stays below its leaf."""
    mesh = {"tp": 8, "pp": 32, "dp": 2, "cp": 1, "placement": ["tp", "cp", "pp", "dp"]}
    point = design(mesh, 64.0)
    found = profile_step(batch_of(point))
    loads = [each for each in network_loads(found) if each.dimension == 1]
    assert {each.part: each.uplinks[0] / each.bytes for each in loads} == pytest.approx({"dp": 64.0, "pp": 0.0})
    cluster = plain_data(cluster_of(found, 10.0))
    assert cluster is not None
    outer = cluster["dims"][1]
    rate = point.network.dims[1].bandwidth_bytes_per_s
    assert outer["utilization"] == pytest.approx(sum(each.uplinks[0] for each in loads) / (rate * 10))
    assert outer["label"] == "switch of 64, 64:1 out of 32"
    sent = sum(each.bytes for each in loads)
    whole = plain_data(cluster_of(profile_step(batch_of(design(mesh, 1.0))), 10.0))
    assert whole is not None
    assert whole["dims"][1]["utilization"] == pytest.approx(sent / (rate * 10))
    assert whole["dims"][1]["label"] == "switch of 64"

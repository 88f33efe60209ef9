"""What is sent into each dimension, against messages counted one by one and against what collectives must send."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from typing import Any

import pytest

from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.network.collective_costs import NetworkDimension, subgroups
from cosmic.network.mesh_spans import Span, joint_spans
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import COMMUNICATED, bounding_profile
from cosmic.simulate.metrics import Metrics
from cosmic.step.bottleneck import _dimension_loads, entering_shares, network_loads, sent_collectives
from cosmic.step.communication import CollectiveUse
from cosmic.step.step_profile import StepProfile, profile_step

COSMIC = "gpt3-175b@cosmic-1024"
REDUCED = ("dp", "weights")
"""The parts that gradients and sharded weights belong to."""
PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}


def design(**changes: Any) -> DesignPoint:
    """Return a design whose dimensions all use rings, which send the least that can be sent."""
    rings = {"collective.algorithms": ["ring"] * 4}
    return load_design(COSMIC, rings | {path.replace("__", "."): value for path, value in changes.items()}, plain=True)


def messages(members: list[int], size: float) -> Iterator[tuple[int, float]]:
    """Yield every message that rank 0 sends in a hierarchical all-reduce by rings: the dimension and its bytes.

    Blocks are counted as a ring sends them: p - 1 steps scattering, each of one p-th of what the rank holds.
    """
    held = size
    for dimension, p in enumerate(members):
        yield from ((dimension, held / p) for _ in range(p - 1))
        held /= p
    for dimension in reversed(range(len(members))):
        p = members[dimension]
        yield from ((dimension, held) for _ in range(p - 1))
        held *= p


@pytest.mark.parametrize("members", [[4], [4, 8], [2, 4, 8], [4, 8, 4, 8]])
def test_an_all_reduce_sends_what_its_messages_add_up_to(members: list[int]) -> None:
    point = design(collective__multi_dim="blueconnect")
    lanes = [NetworkDimension.of(batch_of(point), place) for place in range(len(members))]
    group = subgroups(lanes, [Span(float(p), 1.0) for p in members])
    counted = [0.0] * len(members)
    for dimension, message in messages(members, 1000.0):
        counted[dimension] += message
    shares = entering_shares("all_reduce", point, group)
    sent = [1000.0 * share * 2 * (p - 1) / p for share, p in zip(shares, members, strict=True)]
    assert sent == pytest.approx(counted)


def of(point: DesignPoint) -> StepProfile:
    return profile_step(batch_of(point))


@pytest.mark.parametrize("multi_dim", ["blueconnect", "themis"])
@pytest.mark.parametrize("sharding", ["none", "zero1", "zero3"])
@pytest.mark.parametrize("pp", [1, 4])
def test_all_dimensions_together_carry_what_collectives_must_send(multi_dim: str, sharding: str, pp: int) -> None:
    """Whatever the order of dimensions, what a rank sends of S bytes among n is passes * S * (n - 1) / n."""
    mapping = {"workload__pp": pp, "workload__dp": 32 // pp}
    point = design(collective__multi_dim=multi_dim, workload__weight_sharding=sharding, **mapping)
    wanted: dict[str, float] = {}
    for use in sent_collectives(of(point)):
        n = float(use.group)
        factor = PASSES[use.kind] * (n - 1) / n if use.kind in PASSES else 1.0
        wanted[use.part] = wanted.get(use.part, 0.0) + float(use.calls) * float(use.bytes) * factor
    carried: dict[str, float] = {}
    for load in network_loads(of(point)):
        carried[load.part] = carried.get(load.part, 0.0) + load.bytes
    assert wanted
    assert carried == pytest.approx(wanted)


def test_baseline_sends_the_whole_in_every_dimension() -> None:
    plain, shared = (
        sum(load.bytes for load in network_loads(of(design(collective__multi_dim=name))) if load.part in REDUCED)
        for name in ("baseline", "blueconnect")
    )
    assert plain >= shared


def test_themis_levels_what_the_usual_order_leaves_to_the_first_dimension() -> None:
    wide = {"workload__dp": 1024, "workload__tp": 1, "workload__cp": 1, "workload__pp": 1}

    def spread(name: str) -> float:
        sent = network_loads(of(design(collective__multi_dim=name, collective__chunks=64, **wide)))
        busy = [load.seconds for load in sent if load.part in REDUCED]
        return max(busy) / min(busy)

    assert spread("themis") < spread("blueconnect")


def test_axes_lie_where_the_placement_puts_them() -> None:
    point = design()  # tp 4, cp 8, dp 8, pp 4 on 4 x 8 x 4 x 8
    members = {axis: [float(part.members) for part in parts] for axis, parts in of(point).network.shapes.items()}
    assert members["tp"] == [4, 1, 1, 1]
    assert members["cp"] == [1, 8, 1, 1]
    for axis in ("tp", "cp", "dp", "pp"):
        assert prod(members[axis]) == getattr(point.workload, axis)


def test_nothing_is_sent_where_there_is_nobody() -> None:
    assert network_loads(of(load_design("llama3-8b@dgx-h100:1"))) == ()


def test_more_ranks_send_more_of_the_same() -> None:
    sent = [
        sum(
            load.bytes
            for load in network_loads(of(design(workload__dp=dp, workload__cp=64 // dp)))
            if load.part == "cp"
        )
        for dp in (4, 8, 16)
    ]
    assert all(more > fewer for more, fewer in pairwise(sent))


def test_parts_are_those_of_the_breakdown() -> None:
    point = load_design("mixtral-8x7b@dgx-h100:64", {"workload.ep": 8}, plain=True)
    parts = {load.part for load in network_loads(of(point))}
    assert parts <= set(COMMUNICATED)
    assert "ep" in parts
    assert all(isinstance(use, CollectiveUse) and use.part in COMMUNICATED for use in sent_collectives(of(point)))


@pytest.mark.parametrize("multi_dim", ["baseline", "blueconnect", "themis"])
@pytest.mark.parametrize("sharding", ["zero1", "zero3"])
def test_no_dimension_is_busy_longer_than_its_collective_takes(multi_dim: str, sharding: str) -> None:
    changes = {"collective.multi_dim": multi_dim, "collective.chunks": 8, "workload.weight_sharding": sharding}
    point = load_design(COSMIC, changes, plain=True)
    network = of(point).network
    for use in sent_collectives(of(point)):
        parts = joint_spans([network.shapes[axis] for axis in use.axes])
        busy = [load.seconds for load in _dimension_loads(use, point, network.dims, parts)]
        whole = float(network.seconds(use.kind, use.axes, use.bytes, use.copies))
        assert max(busy) <= whole * (1 + 1e-9)
        assert sum(busy) >= whole * (1 - 1e-9)


@pytest.mark.parametrize("pp", [1, 4, 16])
def test_loads_are_those_of_the_stage_that_bounds_the_step(pp: int) -> None:
    """Of DeepSeek-V3's layers the first three have no experts, so that the first stage sends least to any."""
    point = load_design(
        "deepseek-v3@dgx-h100:1024", {"workload.ep": 8, "workload.pp": pp, "memory.capacity": "2 TiB"}, plain=True
    )
    outcome = evaluate(point)
    assert isinstance(outcome, Metrics)
    sent = [load.seconds for load in network_loads(bounding_profile(batch_of(point))) if load.part == "ep"]
    assert sum(sent) == pytest.approx(outcome.breakdown["ep"], rel=0.02)


@pytest.mark.parametrize(
    ("sharding", "every", "parts"),
    [
        ("none", "step", {"dp"}),
        ("zero2", "step", {"dp"}),
        ("zero2", "microbatch", {"dp", "weights"}),
        ("zero3", "step", {"weights"}),
    ],
)
def test_gradients_belong_where_the_breakdown_has_them(sharding: str, every: str, parts: set[str]) -> None:
    """Those that are reduced for each microbatch are waited for with sharded weights, those of a step after it."""
    wide = {"workload__dp": 1024, "workload__tp": 1, "workload__cp": 1, "workload__pp": 1}
    sharded = {"workload__weight_sharding": sharding, "workload__reduce_every": every}
    point = design(**sharded, workload__dp_overlap=False, memory__capacity="4 TiB", **wide)
    outcome = evaluate(point)
    assert isinstance(outcome, Metrics)
    assert {load.part for load in network_loads(of(point))} == parts
    assert {name for name in ("dp", "weights") if outcome.breakdown[name] > 0} == parts

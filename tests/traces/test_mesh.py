"""Communicator groups: which ranks each has, by hand and for random mappings."""

from __future__ import annotations

from itertools import combinations
from math import prod
from random import Random

import pytest

from cosmic.base.numeric import divisors
from cosmic.design.workload_layer import AXES, Axis, Workload
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.events.design_simulation import simulate_design
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.trace_generation import PlacementMesh, generate_traces, name_groups
from tests.batches import check_all

EXPERT_AXES = ("etp", "ep", "edp")


def groups(workload: Workload, *axes: str) -> list[tuple[int, ...]]:
    """Return the groups along some axes, each with its ranks, in order."""
    return sorted(name_groups(PlacementMesh(workload), [axes])[0].values())


def mapping(**degrees: int | tuple[Axis, ...] | None) -> Workload:
    """Return a mapping of some degrees."""
    return Workload(sequence=1, global_batch=1, **degrees)  # type: ignore[arg-type]  # degrees, and a placement


def test_sixteen_ranks_by_hand() -> None:
    """Rank = tp + 2 cp + 4 dp. Experts are whole, four ranks hold them all: two of tp times two of cp."""
    workload = mapping(tp=2, cp=2, dp=4, ep=4, etp=1)
    assert groups(workload, "tp") == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11), (12, 13), (14, 15)]
    assert groups(workload, "cp") == [
        *[(0, 2), (1, 3), (4, 6), (5, 7)],
        *[(8, 10), (9, 11), (12, 14), (13, 15)],
    ]
    by_dp = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    assert groups(workload, "dp") == by_dp
    assert groups(workload, "cp", "dp") == [tuple(range(0, 16, 2)), tuple(range(1, 16, 2))]
    assert groups(workload, "tp", "cp", "dp") == [tuple(range(16))]
    assert groups(workload, "ep") == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)]
    assert groups(workload, "oep") == [(0, 2), (1, 3), (4, 6), (5, 7), (8, 10), (9, 11), (12, 14), (13, 15)]
    assert groups(workload, "edp") == by_dp
    assert groups(workload, "etp") == [(rank,) for rank in range(16)]


def test_sixteen_ranks_with_experts_split_over_tp() -> None:
    """By default tp splits experts, and ep takes its ranks from cp on."""
    workload = mapping(tp=2, cp=2, dp=4, ep=4)
    assert groups(workload, "etp") == groups(workload, "tp")
    assert groups(workload, "ep") == [(0, 2, 4, 6), (1, 3, 5, 7), (8, 10, 12, 14), (9, 11, 13, 15)]
    assert groups(workload, "oep") == sorted(groups(workload, "ep"))
    assert groups(workload, "edp") == [(rank, rank + 8) for rank in range(8)]
    folded = mapping(tp=2, cp=2, dp=4, ep=8, etp=1)
    assert groups(folded, "ep") == [tuple(range(8)), tuple(range(8, 16))]
    assert groups(folded, "edp") == [(rank, rank + 8) for rank in range(8)]


def test_stages_between_the_ranks_of_experts() -> None:
    """Rank = tp + 2 pp + 4 dp: an ep group skips the other stage."""
    workload = mapping(tp=2, pp=2, dp=4, ep=4, etp=1, placement=("tp", "pp", "cp", "dp"))
    assert groups(workload, "ep") == [(0, 1, 4, 5), (2, 3, 6, 7), (8, 9, 12, 13), (10, 11, 14, 15)]
    assert groups(workload, "edp") == [(rank, rank + 8) for rank in range(8)]


def test_where_tp_is_not_inside_experts_still_start_with_it() -> None:
    """Rank = dp + 4 tp: ep 4 is tp 2 and two of dp 4."""
    workload = mapping(tp=2, dp=4, ep=4, etp=1, placement=("dp", "cp", "pp", "tp"))
    assert groups(workload, "ep") == [(0, 1, 4, 5), (2, 3, 6, 7)]


def drawn(rng: Random) -> Workload:
    """Return a random mapping of experts."""
    degrees = {axis: rng.choice((1, 2, 3, 4)) for axis in AXES}
    placement = tuple(rng.sample(AXES, 4))
    etp = rng.choice(divisors(degrees["tp"]))
    ep = rng.choice(divisors(degrees["tp"] * degrees["cp"] * degrees["dp"] // etp))
    return mapping(**degrees, ep=ep, etp=etp, placement=placement)


@check_all("seed", range(60))
def test_groups_are_disjoint_cover_all_ranks_and_have_their_size(seed: int) -> None:
    workload = drawn(Random(seed))
    sizes: dict[str, int] = {axis: getattr(workload, axis) for axis in AXES}
    experts = {"etp": workload.expert_tensor, "ep": workload.ep, "edp": workload.expert_replicas}
    for mesh in (sizes, experts):
        for count in range(1, len(mesh) + 1):
            for axes in combinations(mesh, count):
                found = groups(workload, *axes)
                assert sorted(rank for group in found for rank in group) == list(range(workload.ranks))
                assert {len(group) for group in found} == {prod(mesh[axis] for axis in axes)}


def test_neighbours_inside_an_island_by_hand() -> None:
    """Rank = tp + 2 dp: of eight replicas in two islands, the next of the fourth is the first of its own island."""
    mesh = PlacementMesh(mapping(tp=2, dp=8), islands=2)
    assert mesh.beside(("idp",), 1).tolist() == [2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9]
    assert mesh.beside(("odp",), 1).tolist() == [8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7]
    assert mesh.beside(("idp", "odp"), 1).tolist() == mesh.beside(("dp",), 1).tolist()


def test_islands_that_pass_gradients_to_neighbours_are_simulated() -> None:
    mesh = {"dp": 32, "tp": 1, "cp": 1, "pp": 1, "weight_sharding": "zero3", "sync_period": 500}
    point = load_design("bert-large@dgx-h100:32", {"sequence": 4096, "global_batch": 128, "micro_batch": 2, **mesh})
    closed = evaluate(point)
    assert isinstance(closed, Metrics)
    assert simulate_design(point).cycles / 1e9 == pytest.approx(closed.step_s, rel=0.02)


def test_experts_stay_on_their_stage() -> None:
    for seed in range(60):
        workload = drawn(Random(seed))
        stage = PlacementMesh(workload).along("pp")
        for axis in EXPERT_AXES:
            assert all(len({int(stage[rank]) for rank in group}) == 1 for group in groups(workload, axis))


def test_both_kinds_of_experts_are_simulated() -> None:
    """Every group of a design's traces is one of the mesh's, and the event engine simulates them."""
    mesh = {"tp": 2, "cp": 2, "dp": 4, "pp": 1, "ep": 4, "global_batch": 8, "model.layers": 2}
    taken = {}
    for etp in (1, 2):
        point = load_design("mixtral-8x7b@dgx-h100:16", {**mesh, "etp": etp}, plain=True)
        job = generate_traces(point)
        known = {group for axis in (*AXES, *EXPERT_AXES) for group in groups(point.workload, axis)}
        known |= {group for axes in (("cp", "dp"), ("tp", "cp", "dp")) for group in groups(point.workload, *axes)}
        assert set(job.groups.values()) <= known
        assert set(groups(point.workload, "ep")) <= set(job.groups.values())
        taken[etp] = simulate_design(point).cycles
    assert taken[1] != taken[2]

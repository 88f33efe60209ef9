"""Where mesh axes lie on a network, what collectives cost there, and what each dimension carries: worked out by hand.

Dimensions are switches into which an NPU sends 10 bytes/s, and collectives are rings, unless a test says otherwise: an
all-reduce of S bytes among p sends 2 (p - 1) / p S, a gather or a scatter half of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.design_batch import batch_of_changes
from cosmic.design.model_layer import Experts
from cosmic.design.network_layer import Transport
from cosmic.network.collective_costs import NetworkDimension, subgroups
from cosmic.network.mesh_spans import Span
from cosmic.step import communication
from cosmic.step.bottleneck import NetworkLoad, entering_shares, network_loads, sent_collectives
from cosmic.step.communication import OVERLAP, NetworkCosts, OverlapEfficiency
from cosmic.step.step_profile import profile_step
from cosmic.workload.mesh_sizes import Stage
from tests.step.tiny import batch, point, switch

TWO_BY_TWO = (switch(2), switch(2))
FOUR_EXPERTS = Experts(count=4, active=2, ffn=6)

# ---- placement


def spans(axis: str, **changes: Any) -> list[tuple[float, float]]:
    """Return members and step of an axis in each dimension."""
    return [(float(span.members), float(span.step)) for span in NetworkCosts(batch(**changes)).shapes[axis]]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        # Ranks 0 … 31: tp joins neighbours, cp every second, dp every fourth, pp every sixteenth.
        ("tp", [(2, 1), (1, 1)]),
        ("cp", [(2, 2), (1, 1)]),
        ("dp", [(1, 4), (4, 1)]),
        ("pp", [(1, 4), (2, 4)]),
    ],
)
def test_axes_lie_side_by_side_from_the_inside(axis: str, expected: list[tuple[float, float]]) -> None:
    assert spans(axis, tp=2, cp=2, dp=4, pp=2, dims=(switch(4), switch(8))) == expected


def test_another_placement_turns_the_axes_round() -> None:
    turned: dict[str, Any] = {"placement": ("pp", "dp", "cp", "tp"), "dims": (switch(4), switch(8))}
    changes = {"tp": 2, "cp": 2, "dp": 4, "pp": 2} | turned
    assert spans("pp", **changes) == [(2, 1), (1, 1)]
    assert spans("dp", **changes) == [(2, 2), (2, 1)]
    assert spans("tp", **changes) == [(1, 4), (2, 4)]


MOE: dict[str, Any] = {"model": {"experts": FOUR_EXPERTS}, "dims": (switch(4), switch(8))}


@pytest.mark.parametrize(
    ("etp", "ep", "expected"),
    [
        # Ranks 0 … 15 of a stage, tp 2 inside cp 2 inside dp 4: etp from the inside, then ep, then edp.
        (None, 2, {"etp": [(2, 1), (1, 1)], "ep": [(2, 2), (1, 1)], "oep": [(2, 2), (1, 1)], "edp": [(1, 1), (4, 1)]}),
        (None, 4, {"etp": [(2, 1), (1, 1)], "ep": [(2, 2), (2, 1)], "oep": [(2, 2), (2, 1)], "edp": [(1, 1), (2, 2)]}),
        (1, 4, {"etp": [(1, 1), (1, 1)], "ep": [(4, 1), (1, 1)], "oep": [(2, 2), (1, 1)], "edp": [(1, 1), (4, 1)]}),
        (None, 16, {"etp": [(1, 1)] * 2, "ep": [(4, 1), (4, 1)], "oep": [(2, 2), (4, 1)], "edp": [(1, 1), (1, 1)]}),
    ],
)
def test_experts_take_the_ranks_of_a_stage_from_the_inside(
    etp: int | None, ep: int, expected: dict[str, list[tuple[float, float]]]
) -> None:
    changes = {"tp": 2, "cp": 2, "dp": 4, "pp": 2, "ep": ep, "etp": etp, **MOE}
    assert {axis: spans(axis, **changes) for axis in expected} == expected


def test_experts_never_lie_on_the_ranks_of_other_stages() -> None:
    """Stages are neighbours, and tp is not inside: ep 4 is tp 2, which is every eighth rank, and two of dp 4."""
    changes = {"tp": 2, "dp": 4, "pp": 2, "ep": 4, "etp": 1, "placement": ("pp", "dp", "cp", "tp"), **MOE}
    changes["dims"] = (switch(4), switch(4))
    assert spans("dp", **changes) == [(2, 2), (2, 1)]
    assert spans("ep", **changes) == [(2, 2), (2, 2)]
    assert spans("edp", **changes) == [(1, 1), (2, 1)]


def test_experts_over_all_replicas_leave_no_ranks_alike() -> None:
    changes: dict[str, Any] = {"model": {"experts": FOUR_EXPERTS}}
    assert spans("edp", dp=2, ep=2, pp=2, **changes) == [(1, 1)]
    assert spans("ep", dp=2, ep=2, **changes) == [(2, 1)]
    assert spans("edp", dp=2, ep=4, **changes) == [(1, 1)]  # invalid, but in a batch beside valid ones


def test_a_group_of_several_axes_has_their_members_together() -> None:
    costs = NetworkCosts(batch(tp=2, cp=2, dp=4, pp=2, dims=(switch(4), switch(8))))
    group = costs.group(("cp", "dp"))
    assert [(float(each.span.members), float(each.span.step)) for each in group] == [(2, 2), (4, 1)]
    assert costs.group(("tp",))[0].span.members == 2
    assert len(costs.group(("tp",))) == 1


# ---- seconds


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("all_reduce", 2 * 3 / 4 * 80 / 10),
        ("all_gather", 3 / 4 * 80 / 10),
        ("reduce_scatter", 3 / 4 * 80 / 10),
        ("all_to_all", 4 / 4 * 80 / 10),  # a quarter of the way round on average
        ("send", 80 / 10),
        ("collective_permute", 80 / 10),
    ],
)
def test_a_collective_takes_its_bytes_over_the_bandwidth(kind: Any, seconds: float) -> None:
    assert float(NetworkCosts(batch(dp=4)).seconds(kind, ("dp",), 80.0)) == pytest.approx(seconds)


def test_each_chunk_takes_the_latency_of_its_steps() -> None:
    """6 steps of 2 links of half a second, 3 chunks; a message takes 2 links once."""
    costs = NetworkCosts(batch(dp=4, dims=(switch(4, latency_s=0.5),), collective={"chunks": 3}))
    assert float(costs.seconds("all_reduce", ("dp",), 80.0)) == pytest.approx(12 + 3 * 6 * 2 * 0.5)
    assert float(costs.seconds("send", ("dp",), 80.0)) == pytest.approx(8 + 2 * 0.5)


@pytest.mark.parametrize(("multi_dim", "seconds"), [("blueconnect", 8 + 4), ("baseline", 8 + 8)])
def test_a_collective_in_two_dimensions_leaves_the_outer_one_its_share(multi_dim: str, seconds: float) -> None:
    costs = NetworkCosts(batch(dp=4, dims=TWO_BY_TWO, collective={"multi_dim": multi_dim}))
    assert float(costs.seconds("all_reduce", ("dp",), 80.0)) == pytest.approx(seconds)


def test_copies_of_a_token_for_one_node_cross_to_it_once() -> None:
    """2 copies go to 2 (1 - 1/4) of 2 nodes: three quarters of them cross."""
    costs = NetworkCosts(batch(dp=4, dims=TWO_BY_TWO, collective={"algorithms": ("direct", "direct")}))
    assert float(costs.seconds("all_to_all", ("dp",), 80.0)) == pytest.approx(4 + 4)
    assert float(costs.seconds("all_to_all", ("dp",), 80.0, 2)) == pytest.approx(4 + 0.75 * 4)


def test_a_group_of_one_takes_no_time() -> None:
    assert NetworkCosts(batch(dp=4)).seconds("all_reduce", ("tp",), 80.0) == 0


def test_a_batch_of_designs_takes_its_own_seconds_each() -> None:
    many = batch_of_changes(point(dp=4), [{"workload.dp": 2}, {"workload.dp": 4}])
    found = NetworkCosts(many).seconds("all_gather", ("dp",), 80.0)
    assert np.asarray(found).tolist() == pytest.approx([1 / 2 * 8, 3 / 4 * 8])


# ---- overlap


def test_compute_hides_a_share_of_what_overlaps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communication, "OVERLAP", OverlapEfficiency(tp=0.25, ep=0.125))
    plain, both = NetworkCosts(batch()), NetworkCosts(batch(tp_overlap=True, ep_overlap=True))
    assert [plain.efficiency(role) for role in ("tp", "ep")] == [0, 0]
    assert [both.efficiency(role) for role in ("tp", "ep")] == [0.25, 0.125]
    assert NetworkCosts(batch(tp_overlap=True)).efficiency("ep") == 0
    assert NetworkCosts(batch(ep_overlap=True)).efficiency("tp") == 0


def test_weights_overlap_as_the_collective_library_allows_unless_dp_overlap_is_off() -> None:
    library = {"overlap_efficiency": 0.75}
    for role in ("weights", "updated"):
        assert NetworkCosts(batch(collective=library)).efficiency(role) == 0.75
        assert NetworkCosts(batch(collective=library, dp_overlap=False)).efficiency(role) == 0
        assert NetworkCosts(batch(collective=library, tp_overlap=True, ep_overlap=True)).efficiency(role) == 0.75


def test_what_overlaps_at_best_is_a_share() -> None:
    assert 0 < OVERLAP.tp < 1
    assert 0 < OVERLAP.ep < 1


# ---- loads

GRADIENTS = 4 * (2 * 528 + 80 + 88)
"""Bytes of all gradients: two layers, embedding and head."""
GRADIENT_CALLS = 2 * 8 + 1 + 2


def loads(stage: Stage = "first", **changes: Any) -> list[tuple[Any, ...]]:
    """Return dimension, part, bytes and seconds of each load."""
    found = network_loads(profile_step(batch(**changes), stage))
    return [(load.dimension, load.part, load.bytes, load.seconds) for load in found]


def test_an_all_reduce_sends_its_payload_twice_but_for_ones_own_part() -> None:
    sent = 2 * 3 / 4 * GRADIENTS
    assert loads(dp=4) == [(0, "dp", pytest.approx(sent), pytest.approx(sent / 10))]


def test_each_chunk_of_each_call_takes_the_latency_of_its_steps() -> None:
    """2 (2 - 1) steps of 2 links of half a second."""
    found = loads(dp=2, dims=(switch(2, latency_s=0.5),), collective={"chunks": 3})
    waiting = GRADIENT_CALLS * 3 * 2 * 2 * 0.5
    assert found == [(0, "dp", pytest.approx(GRADIENTS), pytest.approx(GRADIENTS / 10 + waiting))]


@pytest.mark.parametrize(
    ("collective", "outer"),
    [
        ({"multi_dim": "blueconnect"}, 1 / 2),  # each of the two inside passes on its half
        ({"multi_dim": "baseline"}, 1),
        # A ring of a library visits all four: 3/4 of what the outer dimension would carry of everything.
        ({"algorithms": ("auto", "auto")}, 3 / 4),
    ],
)
def test_the_outer_of_two_dimensions_carries_its_share(collective: dict[str, Any], outer: float) -> None:
    found = loads(dp=4, dims=TWO_BY_TWO, collective=collective)
    expected = [(0, "dp", GRADIENTS, GRADIENTS / 10), (1, "dp", outer * GRADIENTS, outer * GRADIENTS / 10)]
    assert found == [(place, part, pytest.approx(sent), pytest.approx(busy)) for place, part, sent, busy in expected]


def test_only_all_reduces_send_the_whole_into_every_dimension_of_a_baseline() -> None:
    """Gathers and scatters of one pass leave the outer dimension half, whatever the order."""
    found = loads(dp=4, dims=TWO_BY_TWO, collective={"multi_dim": "baseline"}, weight_sharding="zero1")
    sent = (4 + 2) * (2 * 528 + 80 + 88) / 2
    assert [load[2] for load in found] == pytest.approx([sent, sent / 2])


def test_themis_lets_every_second_chunk_begin_outside() -> None:
    """One half goes inside first, one outside first: each dimension carries 1/2 + 1/4."""
    found = loads(dp=4, dims=TWO_BY_TWO, collective={"multi_dim": "themis", "chunks": 2})
    assert [load[2] for load in found] == pytest.approx([0.75 * GRADIENTS, 0.75 * GRADIENTS])


def test_themis_takes_latency_for_every_chunk_and_the_usual_order_for_all_to_alls() -> None:
    slow = (switch(2, latency_s=0.5), switch(2, latency_s=0.5))
    found = loads(dp=4, dims=slow, collective={"multi_dim": "themis", "chunks": 2})
    assert [load[3] for load in found] == pytest.approx([0.75 * GRADIENTS / 10 + GRADIENT_CALLS * 2 * 2 * 2 * 0.5] * 2)
    changes: dict[str, Any] = {"dp": 4, "ep": 4, "dims": slow, "model": {"experts": FOUR_EXPERTS}, "task": "prefill"}
    algorithms = {"algorithms": ("direct", "direct"), "chunks": 2}
    exchanged = loads(collective=algorithms | {"multi_dim": "themis"}, **changes)
    assert exchanged == loads(collective=algorithms, **changes)
    # 2 layers, there and back, 2 x 8 x 8 bytes, half of them to the other; chunks of one step of 2 links.
    assert exchanged[0] == (0, "ep", pytest.approx(4 * 64), pytest.approx(4 * (6.4 + 2 * 2 * 0.5)))
    assert exchanged[1] == (1, "ep", pytest.approx(4 * 0.75 * 64), pytest.approx(4 * (0.75 * 6.4 + 2 * 2 * 0.5)))


def test_messages_go_to_the_next_member_in_the_outermost_dimension() -> None:
    """3 microbatches forward and back, 64 bytes each; 2 links of half a second."""
    slow = (switch(2, latency_s=0.25), switch(2, latency_s=0.5))
    found = loads(pp=4, global_batch=3, dims=slow, collective={"chunks": 7}, model={"layers": 4})
    assert found == [(1, "pp", pytest.approx(6 * 64), pytest.approx(6 * (6.4 + 2 * 0.5)))]
    inside = loads(pp=2, dp=2, placement=("pp", "tp", "cp", "dp"), dims=slow)
    assert [load[:3] for load in inside if load[1] == "pp"] == [(0, "pp", 2 * 64)]


def test_a_ring_of_attention_is_context_parallelism() -> None:
    """2 layers, 1 send of 32 bytes; keys and values, forward and backward, and their gradients."""
    found = loads(cp=2, dims=(switch(2, latency_s=0.5),))
    ring = next(load for load in found if load[1] == "cp")
    assert ring == (0, "cp", pytest.approx(2 * 6 * 32), pytest.approx(2 * 6 * (3.2 + 2 * 0.5)))


def test_what_a_library_takes_for_a_call_is_counted() -> None:
    found = loads(dp=2, dims=(switch(2, transport=Transport(overhead_s=0.25)),))
    assert found[0][3] == pytest.approx(GRADIENTS / 10 + GRADIENT_CALLS * 0.25)


def test_switches_reduce_only_for_groups_that_lie_in_one_dimension() -> None:
    """Reduced in the switch, a payload goes up once, and a quarter of it besides; by a ring of 4, it is sent 3/2 times.

    With a second dimension of 2 outside, rings visit all 8: (1 - 1/8) / (1 - 1/2) of a quarter.
    """
    reducing = Transport(reduction_efficiency=1.0)
    alone = loads(dp=4, dims=(switch(4, transport=reducing),), collective={"algorithms": ("auto",)})
    assert alone == [(0, "dp", pytest.approx(1.5 * GRADIENTS), pytest.approx(1.25 * GRADIENTS / 10))]
    dims = (switch(4, transport=reducing), switch(2, transport=reducing))
    both = loads(dp=8, dims=dims, collective={"algorithms": ("auto", "auto")})
    assert [load[3] for load in both] == pytest.approx([1.5 * GRADIENTS / 10, 7 / 4 / 4 * GRADIENTS / 10])


def test_loads_are_sorted_by_dimension_and_part() -> None:
    found = loads(tp=2, dp=2, pp=2, dims=(switch(2), switch(4)))
    assert [load[:2] for load in found] == [(0, "dp"), (0, "tp"), (1, "dp"), (1, "pp")]
    assert NetworkLoad(0, "dp", 1.0, 2.0).seconds == 2


def test_blocks_that_a_stage_lacks_send_nothing() -> None:
    """The last stage has no embedding, the first no head: 5 layers, 2, 2 and 1."""
    blocks: dict[Stage, set[str]] = {}
    stages: tuple[Stage, ...] = ("first", "middle", "last")
    for stage in stages:
        found = sent_collectives(profile_step(batch(tp=2, pp=3, model={"layers": 5}), stage))
        blocks[stage] = {use.block for use in found if use.role != "pp"}
    assert blocks == {"first": {"embedding", "layer"}, "middle": {"layer"}, "last": {"layer", "head"}}


def test_groups_of_one_and_collectives_without_calls_send_nothing() -> None:
    assert sent_collectives(profile_step(batch(), "first")) == []
    last = sent_collectives(profile_step(batch(tp=2, pp=4, model={"layers": 3}), "last"))  # 1, 1, 1 and no layers
    assert {use.block for use in last if use.role != "pp"} == {"head"}


# ---- entering


def shares(kind: CollectiveKind, members: list[float], copies: int = 1, **collective: Any) -> list[float]:
    made = point(dp=4, dims=tuple(switch(4) for _ in members), collective=collective)
    dims = [
        NetworkDimension("switch", 4, 10.0, 0.0, algorithm)
        for algorithm in collective.get("algorithms", ("ring",) * len(members))
    ]
    group = subgroups(dims, [Span(each, 1.0) for each in members])
    return entering_shares(kind, made, group) if copies == 1 else entering_shares(kind, made, group, copies)


def test_what_enters_a_dimension_was_shared_out_inside() -> None:
    assert shares("all_reduce", [2.0, 4.0, 3.0]) == pytest.approx([1, 1 / 2, 1 / 8])
    assert shares("all_gather", [2.0, 4.0, 3.0]) == pytest.approx([1, 1 / 2, 1 / 8])
    assert shares("all_to_all", [2.0, 4.0]) == [1, 1]
    assert shares("all_to_all", [2.0, 4.0], copies=2) == pytest.approx([1, 4 * (1 - 9 / 16) / 2])


def test_baseline_sends_all_of_an_all_reduce_everywhere() -> None:
    assert shares("all_reduce", [2.0, 4.0], multi_dim="baseline") == [1, 1]
    assert shares("reduce_scatter", [2.0, 4.0], multi_dim="baseline") == [1, 1 / 2]


def test_themis_levels_what_groups_send_into_several_dimensions() -> None:
    assert shares("all_reduce", [4.0], multi_dim="themis", chunks=2) == [1]
    assert shares("all_reduce", [2.0, 2.0], multi_dim="themis", chunks=3) == pytest.approx([0.75, 0.75])
    assert shares("all_reduce", [2.0, 2.0], multi_dim="themis", chunks=64) == pytest.approx([0.75, 0.75])
    assert shares("all_gather", [2.0, 2.0], multi_dim="themis", chunks=1) == pytest.approx([1, 0.5])
    # 1.5 and 2 on average send 1/3 and 1/2 of what enters, 2/3 in all: half of it each.
    assert shares("all_reduce", [1.5, 2.0], multi_dim="themis", chunks=2) == pytest.approx([1, 2 / 3])


def levelled(members: tuple[int, int], rates: tuple[float, float], chunks: int, **more: float) -> list[float]:
    """Return what enters two dimensions of rings."""
    dims = tuple(switch(each) for each in members)
    made = point(dp=members[0] * members[1], dims=dims, collective={"multi_dim": "themis", "chunks": chunks})
    network = [NetworkDimension("switch", 4, rate, 0.0, "ring") for rate in rates]
    return entering_shares("all_reduce", made, subgroups(network, [Span(float(each), 1.0) for each in members]), **more)


def test_themis_counts_what_each_dimension_carries() -> None:
    """Rings of 2 and 4: 7/8 of the data leave an NPU, half of it in each dimension, of 1/2 and 3/4 of what enters."""
    assert levelled((2, 4), (10.0, 10.0), 4) == pytest.approx([7 / 8, 7 / 12])
    # Of 4 and 2, the first chunk sends 3/4 of a quarter inside, and the others 3/8 of three: more than half.
    assert levelled((4, 2), (10.0, 10.0), 4) == pytest.approx([(3 / 16 + 9 / 32) / (3 / 4), (7 / 8 - 15 / 32) * 2])


def test_themis_sends_as_much_as_a_dimension_is_fast() -> None:
    """Rings of 4 and 4, the outer at 0.7: 15/16 of the data, 1 / 1.7 of it inside."""
    sent = 15 / 16 / 1.7
    assert levelled((4, 4), (10.0, 7.0), 4) == pytest.approx([sent / 0.75, 0.7 * sent / 0.75])


def test_themis_leaves_a_slow_dimension_what_it_cannot_spare_it() -> None:
    """The outer dimension has a tenth of the speed, and carries what the usual order leaves it: half of the data."""
    assert levelled((2, 4), (10.0, 1.0), 2) == pytest.approx([1, 1 / 2])


def test_themis_begins_with_the_dimension_that_is_least_loaded() -> None:
    """The outer dimension is 100 times faster: only the first of 4 chunks begins inside."""
    found = levelled((2, 2), (10.0, 1000.0), 4)
    assert found == pytest.approx([1 / 4 + 3 / 8, 1 / 8 + 3 / 4])

"""The validator: what it finds, in small cases by hand, in random ones, and in recorded schedules."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.network import schedules
from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.network_files.network_file import read_graph
from cosmic.network.schedules.collective_schedule import Kind, Schedule
from cosmic.network.schedules.schedule_checking import check_schedule
from cosmic.network.schedules.schedule_formats import ScheduleOptions, read_schedule
from tests.network.schedules.made import gathered, of_kind, random_graph, ring, star

REFERENCE = Path(__file__).parents[4] / "shared" / "reference" / "collectives"
TAU = 2e-6
"""What a chunk of 1,000 bytes takes on a link of 1 GB/s and 1 us."""
KINDS: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce")


def made(graph: LinkGraph, kind: Kind, rows: list[tuple[int, int, float]], size: float, **more: Any) -> Schedule:
    """Return a schedule of rows of link, chunk and start; every transfer takes `TAU`."""
    link, chunk, start = (np.array(column) for column in zip(*rows, strict=True))
    groups = more.pop("groups", (tuple(range(graph.npus)),))
    columns = (link, chunk, start.astype(float), start + TAU)
    return Schedule(graph, kind, size, more.pop("k", 1), groups, *columns, **more)


def counts(schedule: Schedule) -> dict[str, int]:
    """Return the violations that there are."""
    return {kind: count for kind, count in check_schedule(schedule).counts.items() if count}


# ---- by hand


def test_each_violation_of_a_copy_is_found_by_itself() -> None:
    graph = ring(3)
    good = [(0, 0, 0.0), (1, 1, 0.0), (2, 2, 0.0), (0, 2, TAU), (1, 0, TAU), (2, 1, TAU)]
    assert counts(made(graph, "all_gather", good, 3000.0)) == {}
    early = [*good[:3], (0, 2, TAU), (1, 0, TAU / 2), (2, 1, TAU)]
    assert counts(made(graph, "all_gather", early, 3000.0)) == {"not_causal": 1, "overlapping": 1}
    assert counts(made(graph, "all_gather", good[:-1], 3000.0)) == {"missing": 1}
    again = [*good, (3, 1, 0.0)]
    assert counts(made(graph, "all_gather", again, 3000.0)) == {"duplicate": 1}
    assert counts(made(graph, "all_gather", [*good, (0, 0, 2 * TAU)], 3000.0)) == {"duplicate": 1}
    assert counts(made(graph, "all_gather", good, 3300.0)) == {"too_short": 6}
    before = [(0, 0, -TAU), *good[1:]]
    assert counts(made(graph, "all_gather", before, 3000.0)) == {"not_causal": 1}


def test_violations_are_put_in_words() -> None:
    graph = ring(3)
    verdict = check_schedule(made(graph, "all_gather", [(1, 0, 0.0)], 3000.0))
    assert not verdict.valid
    assert verdict.examples["not_causal"] == ("chunk 0 goes 1→2 from 0.000000 to 2.000000 us, before it is there",)
    assert verdict.examples["missing"][0] == "chunk 0 does not reach 1"
    assert (verdict.counts["missing"], len(verdict.examples["missing"])) == (5, 5)


def test_a_long_transfer_overlaps_all_that_it_covers() -> None:
    graph = ring(4)
    schedule = made(graph, "all_gather", [(0, 0, 0.0), (0, 3, 1.0), (0, 2, 2.0)], 4000.0)
    schedule = replace(schedule, end_s=np.array([10.0, 1.5, 2.5]))
    assert check_schedule(schedule).counts["overlapping"] == 2


def test_an_all_to_all_brings_each_chunk_to_one_member() -> None:
    pair = ring(2)  # links 0: 0→1, 1: 1→0; chunks 0: 0→0, 1: 1→0, 2: 0→1, 3: 1→1
    assert counts(made(pair, "all_to_all", [(0, 2, 0.0), (1, 1, 0.0)], 2000.0)) == {}
    assert counts(made(pair, "all_to_all", [(0, 2, 0.0)], 2000.0)) == {"missing": 1}


def test_a_broadcast_begins_at_the_root() -> None:
    line = graph_of(3, [(0, 1, 1e9, 1e-6), (1, 2, 1e9, 1e-6), (1, 0, 1e9, 1e-6)])
    assert counts(made(line, "broadcast", [(0, 0, 0.0), (1, 0, TAU)], 1000.0)) == {}
    assert counts(made(line, "broadcast", [(1, 0, 0.0), (2, 0, 0.0)], 1000.0, root=1)) == {}
    assert counts(made(line, "broadcast", [(1, 0, 0.0)], 1000.0, root=1)) == {"missing": 1}


def test_partial_sums_are_added_once() -> None:
    line = graph_of(3, [(0, 1, 1e9, 1e-6), (1, 2, 1e9, 1e-6), (0, 2, 1e9, 1e-6)])
    assert counts(made(line, "reduce", [(0, 0, 0.0), (1, 0, TAU)], 1000.0, root=2)) == {}
    too_soon = [(0, 0, 0.0), (1, 0, TAU / 2)]
    assert counts(made(line, "reduce", too_soon, 1000.0, root=2)) == {"missing": 1}
    twice = [(0, 0, 0.0), (1, 0, TAU), (2, 0, 0.0)]  # what 0 has reaches 2 directly, and through 1 again
    assert counts(made(line, "reduce", twice, 1000.0, root=2)) == {"duplicate": 1, "missing": 1}


def test_an_all_reduce_may_exchange_whole_buffers() -> None:
    """Recursive doubling: every node sends twice, which is no tree, and all sums are of parts that differ."""
    square = graph_of(4, [(a, b, 1e9, 1e-6) for a in range(4) for b in (a ^ 1, a ^ 2)])
    rows = [(2 * a + step, chunk, (4 * step + chunk) * TAU) for step in (0, 1) for a in range(4) for chunk in range(4)]
    assert counts(made(square, "all_reduce", rows, 4000.0)) == {}
    assert counts(made(square, "all_reduce", rows[:-1], 4000.0)) == {"missing": 1}
    same = [(2 * a, chunk, (4 * step + chunk) * TAU) for step in (0, 1) for a in range(4) for chunk in range(4)]
    assert counts(made(square, "all_reduce", same, 4000.0)) == {"duplicate": 16, "missing": 16}


def test_a_whole_sum_replaces_a_part() -> None:
    pair = ring(2)
    rows = [(1, 0, 0.0), (0, 1, 0.0), (0, 0, TAU), (1, 1, TAU)]
    assert counts(made(pair, "all_reduce", rows, 2000.0)) == {}
    assert counts(made(pair, "all_reduce", rows[:3], 2000.0)) == {"missing": 1}


def test_a_switch_forwards_each_message_once() -> None:
    graph = star(3)  # up: 0, 1, 2; down: 3, 4, 5
    first = [(0, 0, 0.0), (4, 0, TAU), (0, 0, TAU), (5, 0, 2 * TAU)]
    assert counts(made(graph, "broadcast", first, 1000.0)) == {}
    assert counts(made(graph, "broadcast", first[:2] + first[3:], 1000.0)) == {"not_causal": 1}
    assert counts(made(graph, "broadcast", first[:3], 1000.0)) == {"duplicate": 1, "missing": 1}
    copies = replace(graph, reducing=frozenset({3}))
    assert counts(made(copies, "broadcast", first[:2] + first[3:], 1000.0)) == {}


def test_messages_of_one_chunk_cross_in_a_switch() -> None:
    """Recursive doubling around a switch: all four send the same chunk at once, and none gets its own back."""
    graph = star(4)
    rows = []
    for step, chunk in ((step, chunk) for step in range(2) for chunk in range(4)):
        start = (4 * step + chunk) * 2 * TAU
        rows += [(node, chunk, start) for node in range(4)] + [(4 + node, chunk, start + TAU) for node in range(4)]
    assert counts(made(graph, "all_reduce", rows, 4000.0)) == {}
    assert counts(made(graph, "all_reduce", rows[:-8], 4000.0)) == {"missing": 4}


def test_a_switch_that_reduces_adds_up() -> None:
    graph = replace(star(3), reducing=frozenset({3}))
    rows = [(1, 0, 0.0), (2, 0, 0.0), (3, 0, TAU)]
    assert counts(made(graph, "reduce", rows, 1000.0)) == {}
    assert counts(made(replace(graph, reducing=frozenset()), "reduce", rows, 1000.0)) == {"duplicate": 1, "missing": 1}
    all_at_once = [(0, 0, 0.0), (1, 0, 0.0), (2, 0, 0.0), (3, 0, TAU), (4, 0, TAU), (5, 0, TAU)]
    pool = replace(graph, npus=3)
    ones = [(link, chunk, start + 2 * TAU * chunk) for chunk in range(3) for link, _, start in all_at_once]
    assert counts(made(pool, "all_reduce", ones, 3000.0)) == {}


def test_groups_have_chunks_of_their_own() -> None:
    graph = ring(4)
    rows = [(0, 0, 0.0), (4, 1, 0.0), (2, 2, 0.0), (6, 3, 0.0)]
    assert counts(made(graph, "all_gather", rows, 2000.0, groups=((0, 1), (2, 3)))) == {}
    swapped = [(0, 2, 0.0), *rows[1:]]
    found = counts(made(graph, "all_gather", swapped, 2000.0, groups=((0, 1), (2, 3))))
    assert found == {"not_causal": 1, "missing": 1}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"chunk": np.array([9])}, "is none: there are 3"),
        ({"link": np.array([-1])}, "is none: there are 6"),
        ({"end_s": np.array([np.nan])}, "begins and ends at a time"),
        ({"groups": ((0, 0),)}, "is a member twice"),
        ({"groups": ((),)}, "at least 1 member"),
        ({"groups": ((0, 7),)}, "is no NPU"),
        ({"chunks_per_npu": 0}, "at least 1 chunk"),
        ({"size_bytes": 0.0}, "must be positive"),
        ({"root": 5}, "the root is a position"),
    ],
)
def test_what_is_no_schedule_is_refused(change: dict[str, Any], said: str) -> None:
    schedule = made(ring(3), "all_gather", [(0, 0, 0.0)], 3000.0)
    with pytest.raises(SpecError, match=said):
        check_schedule(replace(schedule, **change))


# ---- random


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_valid_schedules_are_valid_and_damaged_ones_are_not(kind: Kind, seed: int) -> None:
    rng = np.random.default_rng(seed)
    schedule = of_kind(kind, gathered(random_graph(rng, 3 + seed), 1 + seed % 3, rng=rng))
    assert check_schedule(schedule).valid
    row = int(rng.integers(schedule.transfers))
    kept = np.arange(schedule.transfers) != row
    columns = {name: getattr(schedule, name)[kept] for name in ("link", "chunk", "start_s", "end_s")}
    assert check_schedule(replace(schedule, **columns)).counts["missing"] >= 1
    start, end = schedule.start_s.copy(), schedule.end_s.copy()
    start[row], end[row] = start[row] - 1.0, end[row] - 1.0
    assert check_schedule(replace(schedule, start_s=start, end_s=end)).counts["not_causal"] >= 1
    end = schedule.end_s.copy()
    end[row] -= 0.5 * (end[row] - schedule.start_s[row])
    assert check_schedule(replace(schedule, end_s=end)).counts["too_short"] == 1


@pytest.mark.parametrize("seed", range(4))
def test_plain_sums_are_judged_as_event_by_event(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    schedule = of_kind(KINDS[1 + seed % 2], gathered(random_graph(rng, 5), 2, rng=rng))
    chunk = schedule.chunk.copy()
    if seed > 1:
        chunk[int(rng.integers(len(chunk)))] = int(rng.integers(10))
    quick = check_schedule(replace(schedule, chunk=chunk))
    monkeypatch.setattr(
        import_module("cosmic.network.schedules.schedule_checking"),
        "_find_plain_chunks",
        lambda _s, _f, chunks: np.zeros(chunks.count, np.bool_),
    )
    slow = check_schedule(replace(schedule, chunk=chunk))
    assert quick.counts == slow.counts
    assert quick.examples == slow.examples


def test_the_validator_knows_nothing_of_synthesis() -> None:
    folder = Path(schedules.__file__).parent
    assert not [
        path.name for path in folder.glob("*.py") if "cosmic.network.synthesis" in path.read_text(encoding="utf-8")
    ]


# ---- recorded

RECORDED = {
    "DGX1V_hybridcubemesh_8": {1: (56, 8), 4: (224, 27)},
    "DragonFly_5x4_50_25": {1: (380, 0), 4: (1520, 0)},
    "FC_8": {1: (56, 0), 4: (224, 0)},
    "MD_FC8@300us0.3_R4@100us0.7": {1: (992, 59), 4: (3968, 97)},
    "MD_R4@200us0.5_SW4@50us1.0d1": {1: (240, 10), 4: (960, 9)},
    "MD_R4@200us0.5_SW4@50us1.0d3": {1: (240, 0), 4: (960, 27)},
    "MD_SW8@300us0.5d7_SW4@25us2.0d1": {1: (992, 0), 4: (3968, 188)},
    "Mesh2DHetero_5x5_50_75": {1: (600, 36), 4: (2400, 18)},
    "Mesh2D_3x3": {1: (72, 0), 4: (288, 0)},
    "RingBi_8": {1: (56, 0), 4: (224, 0)},
    "Torus2D_4x4": {1: (240, 0), 4: (960, 0)},
}
"""Transfers of TACOS' recorded schedules, and how many of them send a chunk too early."""


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference data is not here")
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_schedules_send_some_chunks_too_early(name: str) -> None:
    graph = read_graph(REFERENCE / "tacos_links" / f"{name}.txt")
    for k, wanted in RECORDED[name].items():
        path = REFERENCE / "schedules" / f"tacos_sched_{name}_k{k}.csv"
        verdict = check_schedule(read_schedule(path, ScheduleOptions(graph, chunks_per_npu=k)))
        assert (verdict.transfers, verdict.counts["not_causal"]) == wanted
        assert sum(verdict.counts.values()) == wanted[1]

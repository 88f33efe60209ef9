"""Orders, cycles and longest chains, against what can be counted by hand."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from cosmic.traces import dependencies as module
from cosmic.traces.dependencies import Dependencies, dependencies_of, find_cycle, longest_chains, topological_order
from cosmic.traces.trace import template_of
from tests.traces.graphs import Rows, graphs, waits


def within(rows: Rows) -> Dependencies:
    return dependencies_of(template_of(rows)).within()


@given(graphs())
def test_every_node_runs_after_what_it_waits_for(rows: Rows) -> None:
    order = topological_order(within(rows))
    ids = template_of(rows).id[order].tolist()
    assert sorted(ids) == sorted(row["id"] for row in rows)
    assert all(ids.index(early) < ids.index(late) for late, wanted in waits(rows).items() for early in wanted)


@given(st.integers(40, 200), st.integers(0, 2**32 - 1))
def test_layers_that_are_taken_at_once_keep_the_order(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(count)
    late = rng.integers(1, count, 2 * count)
    early = (late * rng.random(2 * count)).astype(int)
    rows = [{"id": ids[place], "data": ids[early[late == place]]} for place in range(count)]
    found = within(rows)
    place = np.empty(count, int)
    place[topological_order(found)] = np.arange(count)
    assert (place[found.row] < place[found.dependent]).all()


@given(graphs(), st.data())
def test_an_edge_back_along_a_path_closes_a_cycle_that_is_found(rows: Rows, data: st.DataObject) -> None:
    wanted = waits(rows)
    late = data.draw(st.sampled_from([row for row in rows if wanted[row["id"]]] or rows))
    early = late["id"]
    for choice in data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=len(rows))):
        early = sorted(wanted[early])[choice % len(wanted[early])] if wanted[early] else early
    assume(early != late["id"])
    next(row for row in rows if row["id"] == early)["data"] += [late["id"]]
    found, template = within(rows), template_of(rows)
    around = template.id[find_cycle(found, topological_order(found))].tolist()
    assert len(around) == len(set(around)) > 1
    assert all(late in waits(rows)[early] for early, late in zip(around, [*around[1:], around[0]], strict=True))


@given(graphs())
def test_without_a_cycle_none_is_found(rows: Rows) -> None:
    found = within(rows)
    assert find_cycle(found, topological_order(found)) == []


def test_nodes_that_only_wait_for_a_cycle_are_not_in_it() -> None:
    rows: Rows = [{"id": 1, "data": [2]}, {"id": 2, "data": [3]}, {"id": 3, "data": [2, 4]}, {"id": 4}]
    found = within(rows)
    assert find_cycle(found, topological_order(found)) == [1, 2]


@given(graphs(most=9))
def test_the_longest_chains_are_those_of_brute_force(rows: Rows) -> None:
    template, wanted = template_of(rows), waits(rows)
    weight = {row["id"]: row["duration_us"] for row in rows}

    @cache
    def heaviest(node: int, counted: bool) -> int:
        return (1 if counted else weight[node]) + max((heaviest(each, counted) for each in wanted[node]), default=0)

    found = within(rows)
    chains = longest_chains(found, topological_order(found), [np.ones(template.nodes), template.duration_us])
    for chain, counted in zip(chains, (True, False), strict=True):
        ids = template.id[chain].tolist()
        assert all(early in wanted[late] for early, late in pairwise(ids))
        total = len(ids) if counted else sum(weight[node] for node in ids)
        assert total == max(heaviest(row["id"], counted) for row in rows)


def test_a_template_without_nodes_has_no_chain() -> None:
    found = within([])
    order = topological_order(found)
    assert [len(order), *map(len, longest_chains(found, order, [np.ones(0)]))] == [0, 0]


def test_ids_far_apart_are_searched_and_close_ones_looked_up_alike() -> None:
    ids = np.array([0, 3, 9, 2**62])
    wanted = np.array([3, 9, 4, 2**62, -5, 2**63 - 1])
    rows = module._find_rows(ids, wanted)
    assert (ids[rows] == wanted).tolist() == [True, True, False, True, False, False]
    rows = module._find_rows(ids[:3], wanted)
    assert (ids[:3][rows] == wanted).tolist() == [True, True, False, False, False, False]


def test_more_waiters_than_a_byte_counts_are_counted() -> None:
    rows = [{"id": 1000, "data": []}, *({"id": each, "data": [1000]} for each in range(300)), {"id": 999, "data": [7]}]
    rows += [{"id": 2000 + each, "data": [2001 + each]} for each in range(40)] + [{"id": 2040, "data": [1000]}]
    assert len(topological_order(within(rows))) == len(rows)

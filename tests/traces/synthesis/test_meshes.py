"""The mesh of a job is found in its groups, and keeps its shape with other sizes."""

from __future__ import annotations

import numpy as np
import pytest

from cosmic.traces.synthesis.rank_roles import (
    ALL,
    OWN,
    JobMesh,
    SourceJob,
    bind_mesh,
    placement_of,
    scale_mesh,
    source_job,
    strides_of,
)
from cosmic.traces.trace import RankTrace, TraceSet, template_of
from tests.traces.synthesis.jobs import COLLECTIVE, RECEIVE, SEND


def job(sizes: tuple[int, ...], axes: tuple[tuple[int, ...], ...], uses: tuple[int, ...] = ()) -> SourceJob:
    """Return a job on a mesh, with a group along each of *axes*, used so many times."""
    mesh = JobMesh(sizes)
    at = mesh.coordinates()
    groups: dict[str, tuple[int, ...]] = {}
    names: list[list[str]] = [[] for _ in range(mesh.ranks)]
    for along in axes:
        fixed = np.delete(at, along, axis=1)
        for key in np.unique(fixed, axis=0):
            members = np.flatnonzero((fixed == key).all(axis=1)).tolist()
            groups[str(len(groups) + 1)] = tuple(members)
            for rank in members:
                names[rank].append(str(len(groups)))
    kinds = [place for place, count in enumerate(uses or (1,) * len(axes)) for _ in range(count)]
    rows = [
        {"id": at, "type": COLLECTIVE, "comm_type": 0, "comm_size": 8, "group": place} for at, place in enumerate(kinds)
    ]
    template = template_of(rows)
    return source_job(TraceSet(tuple(RankTrace(template, tuple(each)) for each in names)), groups)


def test_strides_show_the_axes() -> None:
    found = placement_of(job((2, 4, 3), ((0,), (1,), (2,))))
    assert found is not None
    assert found.mesh.sizes == (2, 4, 3)
    assert found.extents == (((ALL, OWN, OWN), (OWN, ALL, OWN), (OWN, OWN, ALL)),)


def test_a_group_may_hold_several_axes() -> None:
    found = placement_of(job((2, 3, 2), ((0, 2), (1,))))
    assert found is not None
    assert found.mesh.sizes == (2, 3, 2)
    assert found.extents == (((ALL, OWN, ALL), (OWN, ALL, OWN)),)


def test_members_that_are_no_progressions_have_no_strides() -> None:
    assert strides_of((0, 1, 2, 3)) == [(1, 4)]
    assert strides_of((0, 2, 8, 10, 16, 18)) == [(2, 2), (8, 3)]
    assert strides_of((0, 1, 3, 4, 7, 8)) == []


@pytest.mark.parametrize(
    ("ranks", "sizes"), [(8, (2, 4)), (16, (2, 8)), (2, (2, 1)), (4, (2, 2)), (6, (2, 3)), (7, (1, 7)), (1, (1, 1))]
)
def test_the_axis_with_the_fewest_collectives_changes_first(ranks: int, sizes: tuple[int, ...]) -> None:
    found = placement_of(job((2, 4), ((0,), (1,)), (5, 1)))
    assert scale_mesh(found, 8, ranks).sizes == sizes


def test_groups_of_a_larger_mesh_are_those_of_a_job_of_that_size() -> None:
    small, large = job((2, 2, 2), ((0,), (1,), (2,)), (3, 2, 1)), job((2, 2, 5), ((0,), (1,), (2,)), (3, 2, 1))
    placement = placement_of(small)
    assert placement is not None
    found = bind_mesh(small, placement, scale_mesh(placement, 8, 20))
    wanted = {members for name, members in large.groups.items() if name not in ("", "0")}
    assert set(found.groups.values()) == wanted
    for rank, names in enumerate(found.names):
        assert all(rank in found.groups[name] for name in names)


def test_a_ring_of_messages_goes_both_ways_around() -> None:
    rows = [
        {"id": 0, "type": SEND, "peer": 0, "comm_tag": 1, "comm_size": 8},
        {"id": 1, "type": RECEIVE, "peer": 1, "comm_tag": 1, "comm_size": 8},
    ]
    template = template_of(rows)
    for ranks in (2, 4):
        ring = tuple(RankTrace(template, (), ((rank + 1) % ranks, (rank - 1) % ranks), rank) for rank in range(ranks))
        source = source_job(TraceSet(ring))
        placement = placement_of(source)
        assert placement is not None
        found = bind_mesh(source, placement, scale_mesh(placement, ranks, 6))
        half = len(found.peers[0]) // 2
        sends, receives = (template.peer[0], template.peer[1])
        own = source.roles[0].template.peer
        assert [each[own[0]] for each in found.peers] == [(rank + 1) % 6 for rank in range(6)]
        assert [each[own[1] + half] for each in found.peers] == [(rank - 1) % 6 for rank in range(6)]
        assert (sends, receives) == (0, 1)

"""Roles: ranks that run the same nodes, with their groups and peers, made fit for a model, and the mesh that they are on.

What no simulator could run is mended here, and said: dependencies on nodes that are not there are left out, and nodes
that lack what their type needs become compute of the same duration.

The mesh is found in groups, roles and peers, and can be laid out with other sizes. Members of a group are apart by strides: (0, 2, 4, 6) is an axis of 4 ranks with stride 2. All strides together cut the
ranks into axes, the innermost first: rank = a0 + n0 (a1 + n1 (a2 + …)). An axis can change its size if no role depends
on it, groups hold all of it or one rank of it, and messages go the same way from each of its ranks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from math import gcd, prod
from string import digits
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.traces.dependencies import dependencies_of, topological_order
from cosmic.traces.trace import ABSENT, ALL_RANKS, CollectiveType, Ints, NodeType, Template, TraceSet, known_groups
from cosmic.traces.trace_checks import LAST_COLLECTIVE, LAST_TYPE, NEEDED, check_traces

_NO_DIGITS = str.maketrans("", "", digits)
FEW_SIZES = 4
"""Amounts belong to a node's class if they make at most this many times as many classes."""
AMOUNTS = ("num_ops", "tensor_size", "comm_size")
STATED = ("type", "on_cpu", "comm_type", "group", "peer", "involved_dims", "comm_priority", "stream", "kernel")


@dataclass(frozen=True, eq=False)
class Role:
    """Nodes that several ranks run; ids are rows."""

    templates: tuple[Template, ...]
    """Of one structure; they differ in amounts and durations only."""
    ranks: tuple[int, ...]
    groups: tuple[tuple[str, ...], ...]
    """For each rank, the names of its groups, by the index in the column `group`."""
    peers: tuple[tuple[int, ...], ...]
    """For each rank, its peers, by the index in the column `peer`."""

    @property
    def template(self) -> Template:
        """The template of the first rank."""
        return self.templates[0]

    @cached_property
    def classes(self) -> Ints:
        """What kind of node each row is: type, collective, group, peer, name without numbers."""
        return number_node_classes(self.template)


def number_node_classes(template: Template) -> Ints:
    """Return a number for each node, equal for nodes of a kind.

    >>> from cosmic.traces.trace import template_of
    >>> rows = [{"id": 0, "type": 4, "name": "layer0"}, {"id": 1, "type": 4, "name": "layer1"}, {"id": 2, "type": 7}]
    >>> number_node_classes(template_of(rows)).tolist()
    [0, 0, 1]
    """
    classes = np.zeros(template.nodes, np.int64)
    numbers: dict[str, int] = {}
    words = np.array(
        [numbers.setdefault(name.translate(_NO_DIGITS), len(numbers)) for name in template.names], np.int64
    )
    for column in (*(getattr(template, name) for name in STATED), -words):
        classes = _join_classes(classes, column)
    sized = classes
    for name in AMOUNTS:
        sized = _join_classes(sized, getattr(template, name))
    few = len(np.unique(sized)) <= FEW_SIZES * len(np.unique(classes))
    return sized if few else classes


def _join_classes(classes: Ints, column: Ints) -> Ints:
    """Return classes that tell apart what either tells apart."""
    values, value_of = np.unique(column, return_inverse=True)
    return np.asarray(np.unique(classes * max(len(values), 1) + value_of, return_inverse=True)[1], np.int64)


# ---- of a job


@dataclass(frozen=True, slots=True, eq=False)
class SourceJob:
    """A job that a model is fitted on."""

    traces: TraceSet
    """Mended."""
    groups: dict[str, tuple[int, ...]]
    """All groups by name, that of all ranks included."""
    roles: tuple[Role, ...]
    notes: tuple[str, ...]
    """What was mended."""

    @property
    def role_of(self) -> Ints:
        """The index of each rank's role."""
        role_of = np.zeros(len(self.traces.ranks), np.int64)
        for index, role in enumerate(self.roles):
            role_of[list(role.ranks)] = index
        return role_of


def source_job(traces: TraceSet, groups: Mapping[str, Sequence[int]] | None = None) -> SourceJob:
    """Return a job to fit a model on; raise a `SpecError` where its ranks contradict each other."""
    require(traces.nodes > 0, traces.where, 0, "has no nodes: there is nothing to fit")
    notes: Counter[str] = Counter()
    cleaned = {id(template): _mend_template(template, notes) for template in traces.templates()}
    mended = TraceSet(
        tuple(replace(rank, template=cleaned[id(rank.template)]) for rank in traces.ranks), where=traces.where
    )
    check_traces(mended, groups)
    members = known_groups(mended, groups)
    everyone = {name for name in ALL_RANKS if members[name] == members[ALL_RANKS[0]]}
    texts = tuple(f"{traces.where}: {count:,} {mended_things}" for mended_things, count in notes.items() if count)
    # Ranks with one role differ only in amounts and durations.
    ranks_of_roles: dict[bytes, list[int]] = {}
    keys: dict[int, bytes] = {}
    several = len(mended.templates()) > 1
    for number, trace in enumerate(mended.ranks):
        if id(trace.template) not in keys:
            keys[id(trace.template)] = _structure(trace.template) if several else b""
        ranks_of_roles.setdefault(keys[id(trace.template)], []).append(number)
    return SourceJob(mended, members, tuple(_role(mended, ranks, everyone) for ranks in ranks_of_roles.values()), texts)


def _mend_template(template: Template, notes: Counter[str]) -> Template:
    """Return a template whose ids are rows, that lacks nothing."""
    kind = template.type.copy()
    lacks = (kind <= NodeType.INVALID) | (kind > LAST_TYPE)
    collectives = kind == NodeType.COMM_COLL
    lacks |= collectives & (template.comm_type > LAST_COLLECTIVE)
    for node_type, columns in NEEDED.items():
        for column in columns:
            barrier = (column == "comm_size") & (template.comm_type == CollectiveType.BARRIER)
            lacks |= (kind == node_type) & (getattr(template, column) == ABSENT) & ~barrier
    kind[lacks] = NodeType.COMP
    notes["nodes lack what their type needs: they become compute of the same duration"] += int(lacks.sum())
    unstated = np.where(lacks, ABSENT, 0)
    communication: dict[str, Any] = {
        name: np.where(unstated == ABSENT, ABSENT, getattr(template, name))
        for name in ("comm_type", "comm_size", "comm_tag", "group", "peer", "involved_dims")
    }
    data, ctrl = (_rows_within(template, name, notes) for name in ("data", "ctrl"))
    ids: dict[str, Any] = {"id": np.arange(template.nodes), "type": kind, "start_ns": np.full(template.nodes, ABSENT)}
    lists: dict[str, Any] = {"data_start": data[0], "data_id": data[1], "ctrl_start": ctrl[0], "ctrl_id": ctrl[1]}
    recorded = replace(template, **ids, **communication, **lists)
    nodes = recorded.nodes
    if not len(recorded.ctrl_id) or len(topological_order(dependencies_of(recorded).within())) == nodes:
        return recorded
    bare = replace(recorded, ctrl_start=np.zeros(nodes + 1, np.int64), ctrl_id=np.empty(0, np.int64))
    order = topological_order(dependencies_of(bare).within())
    if len(order) < nodes:
        return recorded  # the cycle is one of data: no reader could run it
    position = np.empty(nodes, np.int64)
    position[order] = np.arange(nodes)
    owner = np.repeat(np.arange(nodes), np.diff(recorded.ctrl_start))
    forward = position[recorded.ctrl_id] < position[owner]
    notes["control dependencies that may close cycles are left out"] += int((~forward).sum())
    start = np.concatenate([[0], np.cumsum(np.bincount(owner[forward], minlength=nodes))])
    return replace(recorded, ctrl_start=start, ctrl_id=recorded.ctrl_id[forward])


def _rows_within(template: Template, name: str, notes: Counter[str]) -> tuple[Ints, Ints]:
    """Return the rows that each row depends on, as a list each, without absent ones and itself."""
    start, ids = getattr(template, f"{name}_start"), getattr(template, f"{name}_id")
    owner = np.repeat(np.arange(template.nodes), np.diff(start))
    rows = np.minimum(np.searchsorted(template.id, ids), template.nodes - 1)
    valid = (template.id[rows] == ids) & (rows != owner)
    notes["dependencies on absent nodes, or of nodes on themselves, are left out"] += int((~valid).sum())
    return np.concatenate([[0], np.cumsum(np.bincount(owner[valid], minlength=template.nodes))]), rows[valid]


def _structure(template: Template) -> bytes:
    """Return the structure that templates of one role share, as bytes."""
    lists = (template.data_start, template.data_id, template.ctrl_start, template.ctrl_id)
    # A message's or a collective's size belongs to the structure: members of a group must agree on it.
    unsized: dict[str, Any] = dict.fromkeys(AMOUNTS, np.full(template.nodes, ABSENT))
    columns = (number_node_classes(replace(template, **unsized)), template.comm_size, template.comm_tag)
    names = tuple(sorted({name.translate(_NO_DIGITS) for name in template.names}))
    return b"".join(np.ascontiguousarray(column).tobytes() for column in (*lists, *columns)) + repr(names).encode()


def _role(traces: TraceSet, ranks: Sequence[int], everyone: Set[str]) -> Role:
    """Return the role of *ranks*, in which indices that mean the same group or peer on every rank are one."""
    members = [traces.ranks[rank] for rank in ranks]
    groups, group_of = _merge_columns([member.groups for member in members], everyone)
    peers, peer_of = _merge_columns([member.peers for member in members], frozenset())
    changed = {}
    for template in {id(member.template): member.template for member in members}.values():
        columns: dict[str, Any] = {"group": group_of[template.group], "peer": peer_of[template.peer]}
        changed[id(template)] = replace(template, **columns)
    return Role(tuple(changed.values()), tuple(ranks), groups, peers)


def _merge_columns(of_ranks: Sequence[tuple[Any, ...]], left_out: Set[Any]) -> tuple[tuple[tuple[Any, ...], ...], Ints]:
    """Return the distinct values of each rank, and the new index of each column; the last entry is `ABSENT`.

    Columns that hold only what is *left_out* are absent, too.

    >>> _merge_columns([("a", "b", "a"), ("c", "d", "c")], {"b", "d"})
    ((('a',), ('c',)), array([ 0, -1,  0, -1]))
    """
    columns = list(zip(*of_ranks, strict=True))
    slots: dict[tuple[Any, ...], int] = {}
    new = [
        ABSENT if left_out >= set(values_of_ranks) else slots.setdefault(values_of_ranks, len(slots))
        for values_of_ranks in columns
    ]
    merged = tuple(tuple(column[rank] for column in slots) for rank in range(len(of_ranks)))
    return merged, np.array([*new, ABSENT], np.int64)


OWN, ALL = "own", "all"
Extent = str | tuple[int, ...]
"""Which coordinates along an axis a group holds: the rank's own, all, or these."""


@dataclass(frozen=True, slots=True)
class JobMesh:
    """Ranks as coordinates."""

    sizes: tuple[int, ...]
    """The innermost axis first."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return prod(self.sizes)

    def coordinates(self) -> Ints:
        """Return the coordinates of all ranks, one row each.

        >>> JobMesh((2, 2)).coordinates().tolist()
        [[0, 0], [1, 0], [0, 1], [1, 1]]
        """
        coordinates, rest = [], np.arange(self.ranks)
        for size in self.sizes:
            rest, coordinate = np.divmod(rest, size)
            coordinates.append(coordinate)
        return np.stack(coordinates, axis=1) if coordinates else np.zeros((1, 0), np.int64)

    def rank(self, coordinates: Ints) -> Ints:
        """Return the ranks at *coordinates*; these are cyclic."""
        strides = np.cumprod([1, *self.sizes])[:-1]
        return np.asarray((coordinates % np.array(self.sizes, np.int64)) @ strides)


@dataclass(frozen=True, slots=True, eq=False)
class MeshPlacement:
    """How roles, groups and peers lie on a mesh."""

    mesh: JobMesh
    extents: tuple[tuple[tuple[Extent, ...], ...], ...]
    """By role and index of a group: what the group holds of each axis."""
    kinds: tuple[tuple[int, ...], ...]
    """By role and index of a group: groups of one number are named alike on all their members."""
    offsets: tuple[tuple[tuple[int, ...], ...], ...]
    """By role and index of a peer: where it is from the rank, axis by axis."""
    scalable: tuple[int, ...]
    """The axes that can change their sizes, those with the fewest collectives first."""


def strides_of(members: Iterable[int]) -> list[tuple[int, int]]:
    """Return stride and number of each of the progressions whose sums are *members*, the innermost first.

    >>> strides_of((0, 1, 8, 9)), strides_of((3,)), strides_of((0, 1, 5))
    ([(1, 2), (8, 2)], [], [])
    """
    remaining = sorted(members)
    strides = []
    while len(remaining) > 1:
        stride, count = remaining[1] - remaining[0], 1
        while count < len(remaining) and remaining[count] - remaining[count - 1] == stride:
            count += 1
        rows = [remaining[start : start + count] for start in range(0, len(remaining), count)]
        if any([member - row[0] for member in row] != [stride * step for step in range(count)] for row in rows):
            return []
        strides.append((stride, count))
        remaining = [row[0] for row in rows]
    return strides


def placement_of(job: SourceJob) -> MeshPlacement | None:
    """Return how a job lies on the mesh that its groups show; None where no mesh explains its groups and peers."""
    mesh = JobMesh(_sizes(job))
    coordinates = mesh.coordinates()
    try:
        extents = tuple(_extents(job, role, mesh, coordinates) for role in job.roles)
        offsets = tuple(_offsets(role, mesh, coordinates) for role in job.roles)
    except _IrregularGroup:
        return None
    # A number for each group of each role; groups with the same members and other names have others
    groups_of_members: dict[tuple[int, ...], list[str]] = {}
    for name, members in job.groups.items():
        if name not in ALL_RANKS:
            groups_of_members.setdefault(tuple(sorted(members)), []).append(name)
    nth = {name: index for names in groups_of_members.values() for index, name in enumerate(names)} | dict.fromkeys(
        ALL_RANKS, 0
    )
    kinds = tuple(tuple(nth[name] for name in role.groups[0]) for role in job.roles)
    fixed = {axis for axis in range(len(mesh.sizes)) if _decides_role(job, coordinates, axis)}
    for group_extent in (extent for of_role in extents for extent in of_role):
        fixed |= {axis for axis, held in enumerate(group_extent) if not isinstance(held, str)}
    use = _collectives_along(job, extents, len(mesh.sizes))
    free = [axis for axis in range(len(mesh.sizes)) if axis not in fixed]
    return MeshPlacement(mesh, extents, kinds, offsets, tuple(sorted(free, key=lambda axis: (use[axis], -axis))))


class _IrregularGroup(Exception):  # noqa: N818  it ends the attempt, and is no error
    """Groups or peers that no mesh explains."""


def _sizes(job: SourceJob) -> tuple[int, ...]:
    """Return the sizes of the axes: ratios of the strides at which groups, peers and roles change."""
    ranks = len(job.traces.ranks)
    cuts = {1, ranks}
    used = {name for role in job.roles for names in role.groups for name in names}
    for name in used:
        for stride, count in strides_of(job.groups[name]):
            cuts |= {stride, stride * count}
    for role in job.roles:
        away = np.array(role.peers, np.int64) - np.array(role.ranks)[:, None]
        steps = np.unique(np.abs(away[away != 0]))
        cuts |= {int(steps[0]), int(steps[-1] + steps[0])} if len(steps) else set()
    changes = (np.flatnonzero(np.diff(job.role_of)) + 1).tolist()
    cuts.add(gcd(ranks, *changes))
    chain = [1]
    for cut in sorted(cuts):
        if cut % chain[-1] == 0 and ranks % cut == 0:
            chain.append(cut)
    return tuple(after // before for before, after in pairwise(chain) if after > before)


def _extents(job: SourceJob, role: Role, mesh: JobMesh, coordinates: Ints) -> tuple[tuple[Extent, ...], ...]:
    """Return the extent of each of a role's groups along each axis."""
    extents = []
    for index in range(len(role.groups[0])):
        seen = {
            _extent(job.groups[names[index]], rank, mesh, coordinates)
            for rank, names in zip(role.ranks, role.groups, strict=True)
        }
        if len(seen) > 1:
            raise _IrregularGroup
        extents.append(seen.pop())
    return tuple(extents)


def _extent(members: tuple[int, ...], rank: int, mesh: JobMesh, coordinates: Ints) -> tuple[Extent, ...]:
    """Return a group's extent along each axis, as seen from one of its members."""
    own = coordinates[rank]
    held = [sorted(set(coordinates[list(members), axis].tolist())) for axis in range(len(mesh.sizes))]
    if prod(map(len, held)) != len(members):
        raise _IrregularGroup
    return tuple(
        ALL if len(values) == size else OWN if values == [own[axis]] else tuple(values)
        for axis, (values, size) in enumerate(zip(held, mesh.sizes, strict=True))
    )


def _offsets(role: Role, mesh: JobMesh, coordinates: Ints) -> tuple[tuple[int, ...], ...]:
    """Return where each of a role's peers is, from each of its ranks."""
    used = np.unique(role.template.peer)
    peers = np.array(role.peers, np.int64)
    offsets = []
    for index in range(peers.shape[1] if peers.ndim > 1 else 0):
        if index not in used:
            offsets.append((0,) * len(mesh.sizes))
            continue
        away = (coordinates[peers[:, index]] - coordinates[list(role.ranks)]) % np.array(mesh.sizes, np.int64)
        if (away != away[0]).any():
            raise _IrregularGroup
        signed = [
            step - size if 2 * step > size else step for step, size in zip(away[0].tolist(), mesh.sizes, strict=True)
        ]
        offsets.append(tuple(signed))
    return tuple(offsets)


def _decides_role(job: SourceJob, coordinates: Ints, axis: int) -> bool:
    """Return whether ranks that differ along an axis only have different roles."""
    other_axes = np.delete(coordinates, axis, axis=1)
    _, line_of = np.unique(other_axes, axis=0, return_inverse=True)
    pairs = np.unique(np.stack([line_of.ravel(), job.role_of]), axis=1)
    return bool(pairs.shape[1] > len(np.unique(line_of)))


def _collectives_along(job: SourceJob, extents: tuple[tuple[tuple[Extent, ...], ...], ...], axes: int) -> list[int]:
    """Return the number of nodes that communicate along each axis."""
    use = [0] * axes
    for role, of_role in zip(job.roles, extents, strict=True):
        for index, extent in enumerate(of_role):
            nodes = int(((role.template.group == index) & (role.template.type == NodeType.COMM_COLL)).sum())
            for axis, held in enumerate(extent):
                use[axis] += nodes if held == ALL else 0
    return use


# ---- other sizes


def scale_mesh(placement: MeshPlacement | None, before: int, ranks: int) -> JobMesh:
    """Return the mesh of a placement with *ranks* ranks; raise a `SpecError` where it has none."""
    if placement is None:
        raise SpecError(
            "ranks", ranks, f"the groups and peers of the traces are no mesh: only their {before} are possible"
        )
    sizes = list(placement.mesh.sizes)
    fixed = prod(size for axis, size in enumerate(sizes) if axis not in placement.scalable)
    require(
        ranks >= 1 and ranks % fixed == 0,
        "ranks",
        ranks,
        f"must be a multiple of {fixed}: roles differ along that many",
    )
    remaining = ranks // fixed
    if not placement.scalable:
        sizes.append(remaining)
        return JobMesh(tuple(sizes))  # replicas that nothing joins
    first, *others = placement.scalable
    for axis in reversed(others):
        sizes[axis] = gcd(sizes[axis], remaining)
        remaining //= sizes[axis]
    sizes[first] = remaining
    return JobMesh(tuple(sizes))


@dataclass(frozen=True, slots=True, eq=False)
class MeshBindings:
    """The roles, groups and peers of all ranks of a mesh."""

    role: Ints
    groups: dict[str, tuple[int, ...]]
    names: tuple[tuple[str, ...], ...]
    """By rank: its groups, by the index of a group in its role."""
    peers: tuple[tuple[int, ...], ...]
    """By rank: the targets of its sends, then the sources of its receives, by the index of a peer in its role."""


def bind_mesh(job: SourceJob, placement: MeshPlacement, mesh: JobMesh) -> MeshBindings:
    """Return who is who on *mesh*, a `scale_mesh` mesh of the placement."""
    coordinates = mesh.coordinates()
    axes = len(placement.mesh.sizes)
    like = np.minimum(coordinates[:, :axes], np.array(placement.mesh.sizes, np.int64) - 1)
    role = job.role_of[placement.mesh.rank(like)]
    namer = _GroupNamer(mesh, coordinates)
    names = tuple(
        tuple(
            namer.name(rank, extent, kind)
            for extent, kind in zip(placement.extents[own], placement.kinds[own], strict=True)
        )
        for rank, own in enumerate(role.tolist())
    )
    peers = np.empty((mesh.ranks, 0), np.int64)
    peers_of_ranks: list[tuple[int, ...]] = [()] * mesh.ranks
    for index, offsets in enumerate(placement.offsets):
        role_ranks = np.flatnonzero(role == index)
        columns = [
            mesh.rank(coordinates[role_ranks] + step) for step in _steps(offsets, placement.mesh, coordinates.shape[1])
        ]
        peers = np.stack(columns, axis=1) if columns else np.empty((len(role_ranks), 0), np.int64)
        for rank, peer in zip(role_ranks.tolist(), peers.tolist(), strict=True):
            peers_of_ranks[rank] = tuple(peer)
    return MeshBindings(role, namer.groups, names, tuple(peers_of_ranks))


def _steps(offsets: tuple[tuple[int, ...], ...], mesh: JobMesh, axes: int) -> Iterator[Ints]:
    """Yield the offsets of sends, then of receives: half an axis away, both directions look the same."""
    for sign in (1, -1):
        for offset in offsets:
            step = [sign * by if 2 * by == size else by for by, size in zip(offset, mesh.sizes, strict=True)]
            yield np.array([*step, *[0] * (axes - len(step))], np.int64)


class _GroupNamer:
    """Names groups, each once, by numbers from 1."""

    def __init__(self, mesh: JobMesh, coordinates: Ints) -> None:
        self.groups: dict[str, tuple[int, ...]] = {}
        self._mesh, self._at = mesh, coordinates
        self._names: dict[tuple[int, tuple[Extent, ...], tuple[int, ...]], str] = {}

    def name(self, rank: int, extent: tuple[Extent, ...], kind: int) -> str:
        """Return the name of a rank's group."""
        own = self._at[rank].tolist()
        held = (*extent, *[OWN] * (len(own) - len(extent)))
        base = tuple(own[axis] if part == OWN else ABSENT for axis, part in enumerate(held))
        key = (kind, held, base)
        if key not in self._names:
            sizes = self._mesh.sizes
            along = [
                range(sizes[axis]) if part == ALL else (own[axis],) if part == OWN else part
                for axis, part in enumerate(held)
            ]
            members = sorted(self._mesh.rank(np.array(list(product(*along)), np.int64)).tolist())
            self._names[key] = str(len(self.groups) + 1)
            self.groups[self._names[key]] = tuple(members)
        return self._names[key]

"""The compiled core of the event engine: columns in, columns out.

It does what the classes in Python do, event by event. It refuses what only Python does: custom collectives, a shared
bus, numbers beyond its range and closed forms that would take minutes. It runs in slices, so that Ctrl-C is heard.

A simulation is laid out as columns (`cosmic/base/native/events.h`). Tables refer to each other by index. What many ranks
share is there once: templates, rings, plans of collectives, programs of algorithms. A column that ends in `_first`,
`_start`, `_run`, `_level`, `_visit` or `_pair` says where the list of each row begins in the next table, and at last
where all end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from ctypes import Structure, byref, c_double, c_int64, c_void_p
from itertools import groupby
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError
from cosmic.base.native.library import native_library
from cosmic.simulate.events.astra_sim_inputs import INTRA, MEMORY_TYPES, OURS, TOPOLOGIES, Algorithm
from cosmic.simulate.events.collective_planner import (
    CollectivePlacement,
    CollectivePlanner,
    GroupLevel,
    PlannedVisit,
    QueueTurns,
    plan_visits,
    rotate_dimensions,
)
from cosmic.simulate.events.collective_rings import (
    NO_MEMBER,
    AlgorithmStep,
    Ring,
    algorithm_step_runs,
    double_binary_trees,
)
from cosmic.simulate.events.message_fabrics import AmbiguousOrder, AwareFabric, ConsistentFabric, TimedFabric
from cosmic.simulate.events.simulation_job import Job, Prepared, RingCache, number_distinct_rows
from cosmic.simulate.events.simulation_result import Simulation
from cosmic.simulate.events.simulation_world import NodeAction, World
from cosmic.traces.trace import CollectiveType, Ints

# ---- Lay a simulation out as columns, for the compiled core (`cosmic/base/native/events.h`)

ALGORITHMS = ("ring", "halvingDoubling", "direct", "doubleBinaryTree", "inSwitch", "given", OURS)
STEPWISE = ("ring", "halvingDoubling", OURS)
TURNS = (QueueTurns.next_any, QueueTurns.next_first, QueueTurns.next_last)
LONGEST_FORM = 2**30
"""Steps times members of a closed form that the core evaluates: it cannot be interrupted meanwhile."""
Channels = dict[tuple[int, int], tuple[int, ...]]
Shape = tuple[tuple[int, int, Algorithm], ...]
"""Dimension, members and algorithm of each level."""


def _code_name(name: str) -> str:
    """Return the entry of `ALGORITHMS` that an algorithm is simulated as."""
    return OURS if name.startswith(OURS) else name


class NotForCore(Exception):  # noqa: N818  no mistake: a reason to simulate in Python
    """The core cannot simulate this."""


class GrowingTables:
    """Growing columns of numbers."""

    def __init__(self) -> None:
        self._columns: defaultdict[str, list[int]] = defaultdict(list)

    def add(self, table: str, **row: int) -> int:
        """Append a row to a table, and return its index."""
        index = 0
        for name, value in row.items():
            column = self._columns[f"{table}_{name}"]
            index = len(column)
            column.append(value)
        return index

    def extend(self, name: str, values: Sequence[int]) -> int:
        """Append to a column, and return where these values begin."""
        column = self._columns[name]
        begin = len(column)
        column.extend(values)
        return begin

    def count(self, name: str) -> int:
        """Return the length of a column."""
        return len(self._columns[name])

    def arrays(self) -> dict[str, Ints]:
        """Return the columns as arrays."""
        return {name: np.array(values, np.int64) for name, values in self._columns.items()}


class _RingColumns:
    """Rings, and which of them each entity is in."""

    def __init__(self, rings: Sequence[tuple[int, Ring]], tables: GrowingTables) -> None:
        self._tables = tables
        self.index: dict[int, int] = {}
        self._entries: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        self._lists: dict[tuple[int, int, int], int] = {}
        for dim, ring in rings:
            if len(ring.position) != len(ring):
                raise NotForCore  # a member that is listed twice
            self.index[id(ring)] = tables.add("ring", first=tables.count("ring_rank"), pair=tables.count("pair_start"))
            tables.extend("ring_rank", ring.ranks)
            tables.extend("ring_entity", ring.entities)
            tables.extend("ring_slot", ring.slots)
            for (entity, slot), positions in ring.partners.items():
                pair = tables.add("pair", start=tables.count("pair_place"))
                tables.extend("pair_place", positions)
                self._entries.setdefault((entity, slot, dim), []).append((self.index[id(ring)], pair))

    def list_of(self, entity: int, slot: int, dim: int) -> int:
        """Return the list of the rings that an entity is in under this slot."""
        key = (entity, slot, dim)
        if key not in self._lists:
            if key not in self._entries:
                raise NotForCore  # a group that the rank lists twice
            self._lists[key] = self._tables.add("list", first=self._tables.count("list_ring"))
            for ring, pair in self._entries[key]:
                self._tables.add("list", ring=ring, pair=pair)
        return self._lists[key]


class _ProgramColumns:
    """The steps of algorithms, and trees."""

    def __init__(self, tables: GrowingTables, *, closed_forms: bool) -> None:
        self._tables, self._closed_forms = tables, closed_forms
        self._relations: dict[tuple[bytes, bytes], int] = {}
        self._programs: dict[tuple[str, CollectiveType, int, int, bool], tuple[int, int]] = {}
        self._trees: dict[int, int] = {}

    def program(self, algorithm: str, kind: CollectiveType, members: int, size: int, *, clockwise: bool) -> int:
        """Return the index of a program."""
        key = (algorithm, kind, members, size, clockwise)
        if key not in self._programs:
            runs = algorithm_step_runs(*key)
            begin = self._tables.count("step_times")
            for times, step in runs:
                relation = self._relation(step)
                self._tables.add(
                    "step", times=times, relation=relation, size=step.size, reduces=step.reduces, more=int(step.more)
                )
            program = self._tables.add("program", run=begin)
            self._programs[key] = (program, sum(times for times, _ in runs) * members)
        program, work = self._programs[key]
        if self._closed_forms and work > LONGEST_FORM:
            raise NotForCore
        return program

    def _relation(self, step: AlgorithmStep) -> int:
        key = (step.to.tobytes(), step.source.tobytes())
        if key not in self._relations:
            self._relations[key] = self._tables.add("relation", first=self._tables.count("to"))
            self._tables.extend("to", step.to.tolist())
            self._tables.extend("source", step.source.tolist())
        return self._relations[key]

    def trees(self, members: int) -> int:
        """Return where both trees over *members* begin."""
        if members not in self._trees:
            self._trees[members] = self._tables.count("parent")
            for tree in double_binary_trees(members):
                self._tables.extend("parent", tree.parent)
                for name, side in (("first_child", 0), ("second_child", 1)):
                    padded = ((*children, NO_MEMBER, NO_MEMBER) for children in tree.children)
                    self._tables.extend(name, [children[side] for children in padded])
        return self._trees[members]


class _PlanColumns:
    """Plans of collectives: runs of equal chunks, each a list of visits to levels."""

    def __init__(self, world: World, tables: GrowingTables) -> None:
        self._world, self._tables = world, tables
        self._planner = CollectivePlanner(world)
        self._programs = _ProgramColumns(tables, closed_forms=world.closed_forms)
        self._plans: dict[tuple[CollectiveType, int, Shape], int] = {}
        self._specs: dict[tuple[str, CollectiveType, int], int] = {}

    def plan(self, kind: CollectiveType, size: int, levels: list[GroupLevel]) -> int:
        """Return the index of the plan of a collective."""
        key = (kind, size, tuple((level.dim, len(level.ring), level.algorithm) for level in levels))
        if key not in self._plans:
            self._plans[key] = self._add(kind, size, levels)
        return self._plans[key]

    def _add(self, kind: CollectiveType, size: int, levels: list[GroupLevel]) -> int:
        rotations = len(levels) if levels and self._planner.rotates(levels) else 0
        cut = self._planner.cut(kind, size, levels) if levels else []
        begin = self._tables.count("run_times")
        first_visits: dict[tuple[int, tuple[int, ...]], int] = {}
        for (chunk, order), equal in groupby((chunk, tuple(order)) for chunk, order in cut):
            if (chunk, order) not in first_visits:
                first_visits[chunk, order] = self._tables.count("variant_visit")  # of the first of all rotations
                for by in range(max(1, rotations)):
                    self._add_variant(kind, chunk, rotate_dimensions(list(order), by), levels)
            self._tables.add("run", times=len(list(equal)), variant=first_visits[chunk, order])
        return self._tables.add("plan", rotations=rotations, run=begin)

    def _add_variant(self, kind: CollectiveType, size: int, order: list[int], levels: list[GroupLevel]) -> None:
        begin = self._tables.count("visit_level")
        for visit in plan_visits(self._world.system, kind, size, order, levels):
            self._visit(visit, levels[visit.level])
        self._tables.add("variant", visit=begin)

    def _visit(self, visit: PlannedVisit, level: GroupLevel) -> None:
        algorithm, members, turn = level.algorithm, len(level.ring), TURNS.index(visit.turn)
        forward = backward = -1
        if _code_name(algorithm.name) in STEPWISE:
            either = turn == 0 and self._world.queues_per_dim > 1 and algorithm.name == "ring"
            ways = (True, False) if either else (turn != TURNS.index(QueueTurns.next_last),)
            programs = [
                self._programs.program(algorithm.name, visit.kind, members, visit.size, clockwise=way) for way in ways
            ]
            forward, backward = programs[0], programs[-1]
        spec = (algorithm.name, visit.kind, visit.size)
        self._tables.add(
            "visit",
            level=visit.level,
            kind=visit.kind,
            turn=turn,
            size=visit.size,
            final=visit.final,
            algorithm=ALGORITHMS.index(_code_name(algorithm.name)),
            window=algorithm.window or 0,
            forward=forward,
            backward=backward,
            tree=self._programs.trees(members) if algorithm.name == "doubleBinaryTree" else -1,
            spec=self._specs.setdefault(spec, len(self._specs)),
        )


class SimulationColumns:
    """All columns of a simulation."""

    def __init__(self, world: World, prepared: Sequence[Prepared], rings: RingCache, channels: Channels) -> None:
        self._tables = GrowingTables()
        self._rings = _RingColumns(rings.made(), self._tables)
        self._plans = _PlanColumns(world, self._tables)
        self._calls: dict[tuple[int, int], int] = {}
        self.placements: list[CollectivePlacement] = []
        self._prepared = prepared
        self.nodes = sum(rank.work.nodes for rank in prepared)
        self.node_first = np.cumsum([0, *(rank.work.nodes for rank in prepared)])
        self.counter_first = np.cumsum([0, *(len(rank.trace.groups) + 1 for rank in prepared)])
        self.use = np.full(self.nodes, -1, np.int64)
        for rank in prepared:
            self._add_calls(rank)
        self.channels, exchanges = self._exchanges(channels)
        self.arrays = {
            "entity_of": np.array(world.entity_of, np.int64),
            "rank": np.array([rank.rank for rank in prepared], np.int64),
            "node_first": self.node_first,
            "counter_first": self.counter_first,
            "use": self.use,
            **exchanges,
            **self._templates(),
            **self._close_lists(self._tables.arrays()),
        }

    def call_of(self, node: int) -> CollectivePlacement:
        """Return the placement of a collective, by its node among those of all entities."""
        return self.placements[int(self.arrays["call_placement"][self.use[node]])]

    def _add_calls(self, prepared: Prepared) -> None:
        """Set the calls of an entity's collectives."""
        use = self.use[self.node_first[prepared.entity] : self.node_first[prepared.entity + 1]]
        for rows, kind, placement in prepared.collectives:
            if placement.script is not None:
                raise NotForCore  # a custom collective
            index = self._placement(prepared, placement)
            sizes = prepared.work.size[rows]
            for size in dict.fromkeys(sizes.tolist()):
                plan = self._plans.plan(kind, size, placement.levels)
                call = self._tables.add("call", kind=kind, size=size, placement=index, plan=plan)
                use[rows[sizes == size]] = call

    def _placement(self, prepared: Prepared, placement: CollectivePlacement) -> int:
        begin = self._tables.count("level_dim")
        for level in placement.levels:
            self._tables.add(
                "level",
                dim=level.dim,
                ring=self._rings.index[id(level.ring)],
                position=level.ring.position[prepared.rank],
                algorithm=ALGORITHMS.index(_code_name(level.algorithm.name)),
                list=self._rings.list_of(prepared.entity, placement.slot, level.dim),
            )
        self.placements.append(placement)
        return self._tables.add("placement", slot=placement.slot, priority=placement.priority, level=begin)

    def _exchanges(self, channels: Channels) -> tuple[int, dict[str, Ints]]:
        """Return the number of channels, and the peers and channels of sends and receives."""
        if not any(len(rank.exchanges) for rank in self._prepared):
            return 0, {"peer": np.zeros(0, np.int64), "channel": np.zeros(0, np.int64)}
        peers, numbers = [], []
        message_numbers: dict[tuple[int, ...], int] = {}
        begin = 0
        for rank in self._prepared:
            rows, template = rank.exchanges, rank.trace.template
            self.use[self.node_first[rank.entity] + rows] = np.arange(begin, begin + len(rows))
            begin += len(rows)
            peers.append(rank.peers)
            if channels:
                keys = [channels[rank.rank, row] for row in rows.tolist()]
                numbers.append(
                    np.array(
                        [[message_numbers.setdefault(key, len(message_numbers))] for key in keys], np.int64
                    ).reshape(-1, 1)
                )
            else:
                sends = rank.work.action[rows] == NodeAction.SEND
                pair = np.where(sends, rank.rank, rank.peers), np.where(sends, rank.peers, rank.rank)
                numbers.append(np.stack([*pair, template.comm_tag[rows], template.comm_size[rows]], axis=1))
        count, channel = number_distinct_rows(np.concatenate(numbers))
        return count, {"peer": np.concatenate(peers), "channel": channel}

    def _templates(self) -> dict[str, Ints]:
        """Return the rows of templates, each template once."""
        begin: dict[int, int] = {}
        works = []
        total = 0
        for rank in self._prepared:
            if id(rank.work) not in begin:
                begin[id(rank.work)] = total
                works.append(rank.work)
                total += rank.work.nodes
        names = ("slot", "action", "duration_ns", "size", "compute_ns", "waits", "child")
        arrays: dict[str, Ints] = {name: np.concatenate([getattr(work, name) for work in works]) for name in names}
        before = np.cumsum([0, *(len(work.child) for work in works)])
        starts = [work.child_start[:-1] + first for work, first in zip(works, before.tolist(), strict=False)]
        arrays["child_start"] = np.concatenate([*starts, before[-1:]])
        arrays["template_first"] = np.array([begin[id(rank.work)] for rank in self._prepared], np.int64)
        return arrays

    @staticmethod
    def _close_lists(arrays: dict[str, Ints]) -> dict[str, Ints]:
        """Return tables with the end of the last list added to every column of beginnings."""
        lists = {
            "ring_first": "ring_rank",
            "ring_pair": "pair_start",
            "pair_start": "pair_place",
            "list_first": "list_ring",
            "program_run": "step_times",
            "relation_first": "to",
            "plan_run": "run_times",
            "variant_visit": "visit_level",
            "placement_level": "level_dim",
        }
        nothing = np.zeros(0, np.int64)
        counts = {name: len(arrays.get(entries, nothing)) for name, entries in lists.items()}
        return arrays | {name: np.append(arrays.get(name, nothing), counts[name]) for name in lists}


SLICE = 1_000_000
"""Events between two looks at signals."""
DONE, MORE, AMBIGUOUS, UNLIKE, NO_MEMORY, INVALID = range(6)
FABRICS = (None, TimedFabric, AwareFabric, ConsistentFabric)
POLICIES = ("LIFO", "FIFO", "EXPLICIT")
INTEGERS = (
    *("npus", "dims", "entities", "channels"),
    *("fabric", "rendezvous", "compat", "closed_forms", "checks_order", "folded"),
    *("queues_per_dim", "places", "policy", "rule", "endpoint_ns"),
    *("memory", "memory_latency_ns", "npus_per_node"),
)
REALS = ("memory_bytes_per_s", "remote_gb_per_s")
COLUMNS = (
    *("topology", "dim_npus", "stride", "latency_ns", "bytes_per_ns", "entity_of"),
    *("rank", "node_first", "template_first", "counter_first"),
    *("slot", "action", "duration_ns", "size", "compute_ns", "waits", "child_start", "child"),
    *("use", "peer", "channel"),
    *("call_kind", "call_size", "call_placement", "call_plan"),
    *("placement_slot", "placement_priority", "placement_level"),
    *("level_dim", "level_ring", "level_position", "level_algorithm", "level_list"),
    *("plan_rotations", "plan_run", "run_times", "run_variant", "variant_visit"),
    *("visit_level", "visit_kind", "visit_turn", "visit_size", "visit_final", "visit_algorithm", "visit_window"),
    *("visit_forward", "visit_backward", "visit_tree", "visit_spec"),
    *("program_run", "step_times", "step_relation", "step_size", "step_reduces", "step_more"),
    *("relation_first", "to", "source"),
    *("parent", "first_child", "second_child"),
    *("ring_first", "ring_rank", "ring_entity", "ring_slot", "ring_pair", "pair_start", "pair_place"),
    *("list_first", "list_ring", "list_pair"),
    *("begun", "ended", "end_ns", "computed_ns", "sent", "streams"),
)


REAL_COLUMNS = ("latency_ns", "bytes_per_ns")


class _CoreColumn(Structure):
    _fields_ = [("at", c_void_p), ("count", c_int64)]


class _CoreJob(Structure):
    """As in `events.h`, field by field."""

    _fields_ = [
        *((name, c_int64) for name in INTEGERS),
        *((name, c_double) for name in REALS),
        *((name, _CoreColumn) for name in COLUMNS),
    ]


class CompiledRank:
    """A rank that the core has simulated."""

    def __init__(self, prepared: Prepared, columns: SimulationColumns, outputs: dict[str, Ints]) -> None:
        entity = prepared.entity
        self.rank = prepared.rank
        self.end_ns, self.compute_ns = int(outputs["end_ns"][entity]), int(outputs["computed_ns"][entity])
        self._first, end = columns.node_first[entity : entity + 2].tolist()
        self.begun_ns, self.ended_ns = (outputs[name][self._first : end] for name in ("begun", "ended"))
        self._columns, self._work = columns, prepared.work
        first, end = columns.counter_first[entity : entity + 2].tolist()
        self._streams = outputs["streams"][first:end]

    def action_of(self, row: int) -> int:
        """Return what issuing a node does."""
        return int(self._work.action[row])

    def placement_of(self, row: int) -> CollectivePlacement:
        """Return the placement of a collective."""
        return self._columns.call_of(self._first + row)

    def streams_of(self, slot: int) -> int:
        """Return the number of streams that the group in *slot* has begun."""
        return int(self._streams[slot + 1]) if 0 <= slot + 1 < len(self._streams) else 0


def simulate_compiled(
    job: Job, world: World, prepared: list[Prepared], rings: RingCache, channels: Channels
) -> Simulation | None:
    """Return the simulation of *prepared* ranks; None where only Python can do it, or can say what is wrong."""
    if job.system.bus is not None:
        return None
    try:
        columns = SimulationColumns(world, prepared, rings, channels)
    except (NotForCore, SpecError, OverflowError):  # an error only counts if the simulation comes to it
        return None
    dims = job.network.dims
    arrays = columns.arrays | {
        "topology": np.array([TOPOLOGIES.index(dim.topology) for dim in dims]),
        "dim_npus": np.array([dim.npus for dim in dims]),
        "stride": np.array(job.network.strides),
        "latency_ns": np.array([dim.latency_ns for dim in dims], np.float64),
        "bytes_per_ns": np.array(job.network.bytes_per_ns, np.float64),
    }
    entities = len(prepared)
    nodes = np.empty((2, columns.nodes), np.int64)
    outputs = {
        "begun": nodes[0],
        "ended": nodes[1],
        "end_ns": np.zeros(entities, np.int64),
        "computed_ns": np.zeros(entities, np.int64),
        "sent": np.zeros(entities * len(job.network.dims), np.int64),
        "streams": np.zeros(int(columns.counter_first[-1]), np.int64),
    }
    settings = _core_settings(job, world, len(prepared)) | {"channels": columns.channels}
    status, events, busy_ns = _run_core(settings, arrays | outputs)
    if status == AMBIGUOUS:
        raise AmbiguousOrder
    if status == NO_MEMORY:
        raise MemoryError
    if status != DONE:
        return None
    return Simulation(
        ranks=[CompiledRank(rank, columns, outputs) for rank in prepared],
        entity_of=world.entity_of,
        sent_bytes=outputs["sent"].reshape(len(prepared), -1),
        busy_ns=busy_ns,
        events=events,
    )


def _core_settings(job: Job, world: World, entities: int) -> dict[str, Any]:
    system, memory = job.system, job.memory
    kinds = MEMORY_TYPES[1:]
    return {
        "npus": job.network.npus,
        "dims": len(job.network.dims),
        "entities": entities,
        "fabric": next((code for code, fabric in enumerate(FABRICS) if fabric is type(world.fabric)), 0),
        "rendezvous": world.rendezvous,
        "compat": world.compat,
        "closed_forms": world.closed_forms,
        "checks_order": world.checks_order,
        "folded": entities < len(world.entity_of),
        "queues_per_dim": world.queues_per_dim,
        "places": -(-system.active_chunks // world.queues_per_dim),
        "policy": POLICIES.index(system.scheduling_policy),
        "rule": INTRA.index(system.intra_dimension_scheduling),
        "endpoint_ns": system.endpoint_delay_ns,
        "memory": kinds.index(memory.type) if memory.type in kinds else 0,
        "memory_latency_ns": memory.latency_ns,
        "npus_per_node": memory.npus_per_node,
        "memory_bytes_per_s": system.memory_bytes_per_s,
        "remote_gb_per_s": memory.bandwidth_gb_per_s,
    }


def _run_core(settings: dict[str, Any], arrays: dict[str, Any]) -> tuple[int, int, dict[str, int]]:
    """Run the core; return how it ended, the number of events, and how long links were busy."""
    core = native_library()
    if core is None:
        return UNLIKE, 0, {}
    nothing = np.zeros(0, np.int64)
    contiguous = {
        name: np.ascontiguousarray(arrays.get(name, nothing), np.float64 if name in REAL_COLUMNS else np.int64)
        for name in COLUMNS
    }
    columns = {name: _CoreColumn(array.ctypes.data, len(array)) for name, array in contiguous.items()}
    inputs = _CoreJob(**settings, **columns)
    simulation = core.cosmic_events_new(byref(inputs))
    if not simulation:
        return NO_MEMORY, 0, {}
    try:
        status = MORE
        while status == MORE:
            status = core.cosmic_events_run(simulation, SLICE)
        links = np.empty((core.cosmic_events_links(simulation), 5), np.int64)
        core.cosmic_events_read_links(simulation, links.ctypes.data)
        names = ("{from_}→{to}", "{from_}→switch", "switch→{to}", "{from_}→")
        return (
            status,
            core.cosmic_events_count(simulation),
            {
                f"dim {dim}: " + names[kind].format(from_=from_, to=to): busy
                for dim, kind, from_, to, busy in links.tolist()
            },
        )
    finally:
        core.cosmic_events_free(simulation)

"""Lay a simulation out as columns, for the compiled core (`cosmic/native/events.h`).

Tables refer to each other by index. What many ranks share is there once: templates, rings, plans of collectives,
programs of algorithms. A column that ends in `_first`, `_start`, `_run`, `_level`, `_visit` or `_pair` says where the
list of each row begins in the next table, and at last where all end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from cosmic.simulation.event.inputs import Algorithm
from cosmic.simulation.event.lowering import Rings
from cosmic.simulation.event.planning import CollectivePlacement, Level, Planner, Turns, Visit, rotated, visits
from cosmic.simulation.event.preparing import Prepared, numbered
from cosmic.simulation.event.programs import NO_MEMBER, Step, runs, trees
from cosmic.simulation.event.ranks import Action
from cosmic.simulation.event.rings import Ring
from cosmic.simulation.event.world import World
from cosmic.traces.trace import CollectiveType, Ints

ALGORITHMS = ("ring", "halvingDoubling", "direct", "doubleBinaryTree", "inSwitch", "given")
STEPWISE = ("ring", "halvingDoubling")
TURNS = (Turns.next_any, Turns.next_first, Turns.next_last)
LONGEST_FORM = 2**30
"""Steps times members of a closed form that the core evaluates: it cannot be interrupted meanwhile."""
Channels = dict[tuple[int, int], tuple[int, ...]]
Shape = tuple[tuple[int, int, Algorithm], ...]
"""Dimension, members and algorithm of each level."""


class Unlike(Exception):  # noqa: N818  no mistake: a reason to simulate in Python
    """The core cannot simulate this."""


class Tables:
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


class _Rings:
    """Rings, and which of them each entity is in."""

    def __init__(self, made: Sequence[tuple[int, Ring]], tables: Tables) -> None:
        self._tables = tables
        self.index: dict[int, int] = {}
        self._entries: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        self._lists: dict[tuple[int, int, int], int] = {}
        for dim, ring in made:
            if len(ring.position) != len(ring):
                raise Unlike  # a member that is listed twice
            self.index[id(ring)] = tables.add("ring", first=tables.count("ring_rank"), pair=tables.count("pair_start"))
            tables.extend("ring_rank", ring.ranks)
            tables.extend("ring_entity", ring.entities)
            tables.extend("ring_slot", ring.slots)
            for (entity, slot), places in ring.partners.items():
                pair = tables.add("pair", start=tables.count("pair_place"))
                tables.extend("pair_place", places)
                self._entries.setdefault((entity, slot, dim), []).append((self.index[id(ring)], pair))

    def list_of(self, entity: int, slot: int, dim: int) -> int:
        """Return the list of the rings that an entity is in under this slot."""
        key = (entity, slot, dim)
        if key not in self._lists:
            if key not in self._entries:
                raise Unlike  # a group that the rank lists twice
            self._lists[key] = self._tables.add("list", first=self._tables.count("list_ring"))
            for ring, pair in self._entries[key]:
                self._tables.add("list", ring=ring, pair=pair)
        return self._lists[key]


class _Programs:
    """The steps of algorithms, and trees."""

    def __init__(self, tables: Tables, *, closed_forms: bool) -> None:
        self._tables, self._closed_forms = tables, closed_forms
        self._relations: dict[tuple[bytes, bytes], int] = {}
        self._programs: dict[tuple[str, CollectiveType, int, int, bool], tuple[int, int]] = {}
        self._trees: dict[int, int] = {}

    def program(self, algorithm: str, kind: CollectiveType, members: int, size: int, *, clockwise: bool) -> int:
        """Return the index of a program."""
        key = (algorithm, kind, members, size, clockwise)
        if key not in self._programs:
            found = runs(*key)
            begin = self._tables.count("step_times")
            for times, step in found:
                relation = self._relation(step)
                self._tables.add("step", times=times, relation=relation, size=step.size, reduces=step.reduces)
            program = self._tables.add("program", run=begin)
            self._programs[key] = (program, sum(times for times, _ in found) * members)
        program, work = self._programs[key]
        if self._closed_forms and work > LONGEST_FORM:
            raise Unlike
        return program

    def _relation(self, step: Step) -> int:
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
            for tree in trees(members):
                self._tables.extend("parent", tree.parent)
                for name, side in (("first_child", 0), ("second_child", 1)):
                    padded = ((*children, NO_MEMBER, NO_MEMBER) for children in tree.children)
                    self._tables.extend(name, [children[side] for children in padded])
        return self._trees[members]


class _Plans:
    """Plans of collectives: runs of equal chunks, each a list of visits to levels."""

    def __init__(self, world: World, tables: Tables) -> None:
        self._world, self._tables = world, tables
        self._planner = Planner(world)
        self._programs = _Programs(tables, closed_forms=world.closed_forms)
        self._plans: dict[tuple[CollectiveType, int, Shape], int] = {}
        self._specs: dict[tuple[str, CollectiveType, int], int] = {}

    def plan(self, kind: CollectiveType, size: int, levels: list[Level]) -> int:
        """Return the index of the plan of a collective."""
        key = (kind, size, tuple((level.dim, len(level.ring), level.algorithm) for level in levels))
        if key not in self._plans:
            self._plans[key] = self._add(kind, size, levels)
        return self._plans[key]

    def _add(self, kind: CollectiveType, size: int, levels: list[Level]) -> int:
        rotations = len(levels) if levels and self._planner.rotates(levels) else 0
        cut = self._planner.cut(kind, size, levels) if levels else []
        begin = self._tables.count("run_times")
        made: dict[tuple[int, tuple[int, ...]], int] = {}
        for (chunk, order), equal in groupby((chunk, tuple(order)) for chunk, order in cut):
            if (chunk, order) not in made:
                made[chunk, order] = self._tables.count("variant_visit")  # of the first of all rotations
                for by in range(max(1, rotations)):
                    self._add_variant(kind, chunk, rotated(list(order), by), levels)
            self._tables.add("run", times=len(list(equal)), variant=made[chunk, order])
        return self._tables.add("plan", rotations=rotations, run=begin)

    def _add_variant(self, kind: CollectiveType, size: int, order: list[int], levels: list[Level]) -> None:
        begin = self._tables.count("visit_level")
        for visit in visits(self._world.system, kind, size, order, levels):
            self._visit(visit, levels[visit.level])
        self._tables.add("variant", visit=begin)

    def _visit(self, visit: Visit, level: Level) -> None:
        algorithm, members, turn = level.algorithm, len(level.ring), TURNS.index(visit.turn)
        forward = backward = -1
        if algorithm.name in STEPWISE:
            either = turn == 0 and self._world.queues_per_dim > 1 and algorithm.name == "ring"
            ways = (True, False) if either else (turn != TURNS.index(Turns.next_last),)
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
            algorithm=ALGORITHMS.index(algorithm.name),
            window=algorithm.window or 0,
            forward=forward,
            backward=backward,
            tree=self._programs.trees(members) if algorithm.name == "doubleBinaryTree" else -1,
            spec=self._specs.setdefault(spec, len(self._specs)),
        )


class Columns:
    """All columns of a simulation."""

    def __init__(self, world: World, prepared: Sequence[Prepared], rings: Rings, channels: Channels) -> None:
        self._tables = Tables()
        self._rings = _Rings(rings.made(), self._tables)
        self._plans = _Plans(world, self._tables)
        self._calls: dict[tuple[int, int], int] = {}
        self.placements: list[CollectivePlacement] = []
        self._prepared = prepared
        self.nodes = sum(each.work.nodes for each in prepared)
        self.node_first = np.cumsum([0, *(each.work.nodes for each in prepared)])
        self.counter_first = np.cumsum([0, *(len(each.trace.groups) + 1 for each in prepared)])
        self.use = np.full(self.nodes, -1, np.int64)
        for each in prepared:
            self._use(each)
        self.channels, exchanges = self._exchanges(channels)
        self.arrays = {
            "entity_of": np.array(world.entity_of, np.int64),
            "rank": np.array([each.rank for each in prepared], np.int64),
            "node_first": self.node_first,
            "counter_first": self.counter_first,
            "use": self.use,
            **exchanges,
            **self._templates(),
            **self._ended(self._tables.arrays()),
        }

    def call_of(self, node: int) -> CollectivePlacement:
        """Return the placement of a collective, by its node among those of all entities."""
        return self.placements[int(self.arrays["call_placement"][self.use[node]])]

    def _use(self, prepared: Prepared) -> None:
        """Set the calls of an entity's collectives."""
        use = self.use[self.node_first[prepared.entity] : self.node_first[prepared.entity + 1]]
        for rows, kind, placement in prepared.collectives:
            if placement.script is not None:
                raise Unlike  # a custom collective
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
                algorithm=ALGORITHMS.index(level.algorithm.name),
                list=self._rings.list_of(prepared.entity, placement.slot, level.dim),
            )
        self.placements.append(placement)
        return self._tables.add("placement", slot=placement.slot, priority=placement.priority, level=begin)

    def _exchanges(self, channels: Channels) -> tuple[int, dict[str, Ints]]:
        """Return the number of channels, and the peers and channels of sends and receives."""
        if not any(len(each.exchanges) for each in self._prepared):
            return 0, {"peer": np.zeros(0, np.int64), "channel": np.zeros(0, np.int64)}
        peers, numbers = [], []
        known: dict[tuple[int, ...], int] = {}
        begin = 0
        for each in self._prepared:
            rows, template = each.exchanges, each.trace.template
            self.use[self.node_first[each.entity] + rows] = np.arange(begin, begin + len(rows))
            begin += len(rows)
            peers.append(each.peers)
            if channels:
                keys = [channels[each.rank, row] for row in rows.tolist()]
                numbers.append(np.array([[known.setdefault(key, len(known))] for key in keys], np.int64).reshape(-1, 1))
            else:
                sends = each.work.action[rows] == Action.SEND
                pair = np.where(sends, each.rank, each.peers), np.where(sends, each.peers, each.rank)
                numbers.append(np.stack([*pair, template.comm_tag[rows], template.comm_size[rows]], axis=1))
        count, channel = numbered(np.concatenate(numbers))
        return count, {"peer": np.concatenate(peers), "channel": channel}

    def _templates(self) -> dict[str, Ints]:
        """Return the rows of templates, each template once."""
        begin: dict[int, int] = {}
        works = []
        total = 0
        for each in self._prepared:
            if id(each.work) not in begin:
                begin[id(each.work)] = total
                works.append(each.work)
                total += each.work.nodes
        names = ("slot", "action", "duration_ns", "size", "compute_ns", "waits", "child")
        arrays: dict[str, Ints] = {name: np.concatenate([getattr(work, name) for work in works]) for name in names}
        before = np.cumsum([0, *(len(work.child) for work in works)])
        starts = [work.child_start[:-1] + first for work, first in zip(works, before.tolist(), strict=False)]
        arrays["child_start"] = np.concatenate([*starts, before[-1:]])
        arrays["template_first"] = np.array([begin[id(each.work)] for each in self._prepared], np.int64)
        return arrays

    @staticmethod
    def _ended(arrays: dict[str, Ints]) -> dict[str, Ints]:
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

"""The compiled core of the event engine: columns in, columns out.

It does what the classes in Python do, event by event. It refuses what only Python does: custom collectives, a shared
bus, numbers beyond its range and closed forms that would take minutes. It runs in slices, so that Ctrl-C is heard.
"""

from __future__ import annotations

from ctypes import CDLL, POINTER, Structure, byref, c_double, c_int, c_int64, c_void_p
from functools import cache
from typing import Any

import numpy as np

from cosmic.errors import SpecError
from cosmic.native import library
from cosmic.simulation.event.columns import Channels, Columns, Unlike
from cosmic.simulation.event.inputs import INTRA, MEMORY_TYPES, TOPOLOGIES
from cosmic.simulation.event.job import Job
from cosmic.simulation.event.lowering import Rings
from cosmic.simulation.event.network import Ambiguous, Aware, Consistent, Timed
from cosmic.simulation.event.outcome import Simulation
from cosmic.simulation.event.planning import CollectivePlacement
from cosmic.simulation.event.preparing import Prepared
from cosmic.simulation.event.world import World
from cosmic.traces.trace import Ints

SLICE = 1_000_000
"""Events between two looks at signals."""
DONE, MORE, AMBIGUOUS, UNLIKE, NO_MEMORY, INVALID = range(6)
FABRICS = (None, Timed, Aware, Consistent)
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
    *("program_run", "step_times", "step_relation", "step_size", "step_reduces"),
    *("relation_first", "to", "source"),
    *("parent", "first_child", "second_child"),
    *("ring_first", "ring_rank", "ring_entity", "ring_slot", "ring_pair", "pair_start", "pair_place"),
    *("list_first", "list_ring", "list_pair"),
    *("begun", "ended", "end_ns", "computed_ns", "sent", "streams"),
)


REAL_COLUMNS = ("latency_ns", "bytes_per_ns")


class _Column(Structure):
    _fields_ = [("at", c_void_p), ("count", c_int64)]


class _Job(Structure):
    """As in `events.h`, field by field."""

    _fields_ = [
        *((name, c_int64) for name in INTEGERS),
        *((name, c_double) for name in REALS),
        *((name, _Column) for name in COLUMNS),
    ]


class CompiledRank:
    """A rank that the core has simulated."""

    def __init__(self, prepared: Prepared, columns: Columns, outputs: dict[str, Ints]) -> None:
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
    job: Job, world: World, prepared: list[Prepared], rings: Rings, channels: Channels
) -> Simulation | None:
    """Return the simulation of *prepared* ranks; None where only Python can do it, or can say what is wrong."""
    if job.system.bus is not None:
        return None
    try:
        columns = Columns(world, prepared, rings, channels)
    except (Unlike, SpecError, OverflowError):  # an error only counts if the simulation comes to it
        return None
    arrays = columns.arrays | _network(job)
    outputs = _outputs(columns, len(prepared), len(job.network.dims))
    settings = _settings(job, world, len(prepared)) | {"channels": columns.channels}
    status, events, busy_ns = _run(settings, arrays | outputs)
    if status == AMBIGUOUS:
        raise Ambiguous
    if status == NO_MEMORY:
        raise MemoryError
    if status != DONE:
        return None
    return Simulation(
        ranks=[CompiledRank(each, columns, outputs) for each in prepared],
        entity_of=world.entity_of,
        sent_bytes=outputs["sent"].reshape(len(prepared), -1),
        busy_ns=busy_ns,
        events=events,
    )


def _settings(job: Job, world: World, entities: int) -> dict[str, Any]:
    system, memory = job.system, job.memory
    kinds = MEMORY_TYPES[1:]
    return {
        "npus": job.network.npus,
        "dims": len(job.network.dims),
        "entities": entities,
        "fabric": next((code for code, each in enumerate(FABRICS) if each is type(world.fabric)), 0),
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


def _network(job: Job) -> dict[str, Any]:
    dims = job.network.dims
    return {
        "topology": np.array([TOPOLOGIES.index(dim.topology) for dim in dims]),
        "dim_npus": np.array([dim.npus for dim in dims]),
        "stride": np.array(job.network.strides),
        "latency_ns": np.array([dim.latency_ns for dim in dims], np.float64),
        "bytes_per_ns": np.array(job.network.bytes_per_ns, np.float64),
    }


def _outputs(columns: Columns, entities: int, dims: int) -> dict[str, Ints]:
    nodes = np.empty((2, columns.nodes), np.int64)
    return {
        "begun": nodes[0],
        "ended": nodes[1],
        "end_ns": np.zeros(entities, np.int64),
        "computed_ns": np.zeros(entities, np.int64),
        "sent": np.zeros(entities * dims, np.int64),
        "streams": np.zeros(int(columns.counter_first[-1]), np.int64),
    }


@cache
def _functions(core: CDLL) -> CDLL:
    """Return the library with the types of its functions declared."""
    core.cosmic_events_new.restype = c_void_p
    core.cosmic_events_new.argtypes = [POINTER(_Job)]
    core.cosmic_events_run.restype = c_int
    core.cosmic_events_run.argtypes = [c_void_p, c_int64]
    core.cosmic_events_count.restype = core.cosmic_events_links.restype = c_int64
    core.cosmic_events_count.argtypes = core.cosmic_events_links.argtypes = [c_void_p]
    core.cosmic_events_read_links.restype = core.cosmic_events_free.restype = None
    core.cosmic_events_read_links.argtypes = [c_void_p, c_void_p]
    core.cosmic_events_free.argtypes = [c_void_p]
    return core


def _run(settings: dict[str, Any], arrays: dict[str, Any]) -> tuple[int, int, dict[str, int]]:
    """Run the core; return how it ended, the number of events, and how long links were busy."""
    found = library()
    if found is None:
        return UNLIKE, 0, {}
    core = _functions(found)
    nothing = np.zeros(0, np.int64)
    kept = {
        name: np.ascontiguousarray(arrays.get(name, nothing), np.float64 if name in REAL_COLUMNS else np.int64)
        for name in COLUMNS
    }
    columns = {name: _Column(array.ctypes.data, len(array)) for name, array in kept.items()}
    inputs = _Job(**settings, **columns)
    simulation = core.cosmic_events_new(byref(inputs))
    if not simulation:
        return NO_MEMORY, 0, {}
    try:
        status = MORE
        while status == MORE:
            status = core.cosmic_events_run(simulation, SLICE)
        links = np.empty((core.cosmic_events_links(simulation), 5), np.int64)
        core.cosmic_events_read_links(simulation, links.ctypes.data)
        return status, core.cosmic_events_count(simulation), _named(links)
    finally:
        core.cosmic_events_free(simulation)


def _named(links: Ints) -> dict[str, int]:
    """Return how long each link was busy, by name."""
    names = ("{from_}→{to}", "{from_}→switch", "switch→{to}", "{from_}→")
    return {
        f"dim {place}: " + names[kind].format(from_=from_, to=to): busy
        for place, kind, from_, to, busy in links.tolist()
    }

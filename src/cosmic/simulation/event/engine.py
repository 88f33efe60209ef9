"""Simulate execution traces on a cluster: ASTRA-sim's job, on its inputs.

files ──▶ traces, system, network ──▶ classes of equivalent ranks ──▶ one rank of each simulated ──▶ times of all ranks
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os.path import exists
from pathlib import Path

from cosmic.errors import require
from cosmic.simulation.event.deadlocks import is_stuck, raise_if_deadlocked
from cosmic.simulation.event.folding import Folding, fold
from cosmic.simulation.event.graph_inputs import read_any_network
from cosmic.simulation.event.inputs import COLLECTIVES, Algorithm, RemoteMemory, System, read_remote_memory, read_system
from cosmic.simulation.event.job import BACKENDS, Job
from cosmic.simulation.event.local_memory import local_memory
from cosmic.simulation.event.network import Ambiguous, Network
from cosmic.simulation.event.outcome import Simulation
from cosmic.simulation.event.result import Result, result_of, result_of_replay
from cosmic.simulation.event.simulating import simulate_ranks
from cosmic.simulation.replay import replay
from cosmic.traces.groups import ALL_RANKS, known_groups, read_groups
from cosmic.traces.reading import read_traces
from cosmic.traces.trace import NodeType, TraceSet

__all__ = ["BACKENDS", "Job", "run", "simulate"]
AGREED = "chunks that reach a queue at one moment: ranks are assumed to agree on their order, else they deadlock"


APART = 0.02
"""From this relative difference on, durations in the traces are worth a sentence."""


def simulate(  # noqa: PLR0913  ASTRA-sim's inputs, by name
    *,
    workload: str | Path,
    system: str | Path | None = None,
    network: str | Path | None = None,
    comm_groups: str | Path | None = None,
    remote_memory: str | Path | None = None,
    fail: Sequence[str] = (),
    backend: str | None = None,
    queues_per_dim: int = 1,
    injection_scale: float = 1.0,
    rendezvous: bool = False,
    compat: bool = True,
    track_local_mem: bool = False,
) -> Result:
    """Simulate the traces *workload*.0.et, *workload*.1.et ... on ASTRA-sim's system and network files.

    Recorded traces need neither: they are replayed on the machine that they were recorded on. With a *network* alone,
    their compute takes what it took, and collectives run as rings.
    *network* may also be a graph of links, in any format that `cosmic.graphs.reading` knows; *fail* leaves out, or
    slows, some of them. Without *backend*, messages queue on the links of a graph, and nowhere else.
    *track_local_mem*, or the system's key of this name, adds the memory of the tensors that nodes state.
    """
    began = time.process_time()
    given = _groups(workload, comm_groups)
    if network is None:
        for name, value in {"system": system, "remote_memory": remote_memory, "fail": fail, "backend": backend}.items():
            require(not value, name, value, "needs a network; without one, a recorded trace is replayed as it was")
        return _tracked(_replayed(workload, given, began), workload, track_local_mem)
    dims, graph = read_any_network(network, fail)
    net = Network(dims)
    settings = read_system(system, injection_scale) if system is not None else _plain_system(len(dims))
    memory = read_remote_memory(remote_memory) if remote_memory else RemoteMemory()
    traces = read_traces(workload, net.npus if graph is None else None)
    if system is None:
        require(
            all(rank.template.is_recorded for rank in traces.ranks), "system", None, "was not given: name a system JSON"
        )
    known = {name: ranks for name, ranks in known_groups(traces, given).items() if name not in ALL_RANKS}
    job = Job(
        traces=traces,
        groups=known,
        system=settings,
        network=net,
        memory=memory,
        scripts=_scripts(settings, Path(system).parent) if system is not None else {},
        graph=graph,
        backend=backend or ("unaware" if graph is None else "aware"),
        queues_per_dim=queues_per_dim,
        rendezvous=rendezvous,
        compat=compat,
    )
    result = run(job, began=began)
    result = replace(result, warnings=(*result.warnings, *_other_durations(result, traces, settings)))
    return _tracked(result, workload, track_local_mem or settings.track_local_mem)


def _tracked(result: Result, workload: str | Path, tracked: bool) -> Result:
    """Return a result with the local memory of its ranks, if it is *tracked*."""
    if not tracked:
        return result
    found = local_memory(result, workload)
    unstated = sum(each.unstated for each in found)
    note = f"{unstated:,} nodes state no tensors: their memory is not counted"
    return replace(result, local_memory=found, warnings=(*result.warnings, *([note] if unstated else [])))


def _groups(workload: str | Path, given: str | Path | None) -> dict[str, tuple[int, ...]]:
    """Return the groups of a file that is given, or that lies beside the traces."""
    if given == "empty":  # ASTRA-sim's word for none
        return {}
    beside = f"{workload}.json"
    if given is None:
        return read_groups(beside) if exists(beside) and exists(f"{workload}.0.et") else {}
    return read_groups(given)


def _plain_system(dims: int) -> System:
    """Return a system whose compute takes what was recorded, with a ring in each dimension."""
    return System(implementations=dict.fromkeys(COLLECTIVES.values(), (Algorithm("ring"),) * dims))


def _replayed(workload: str | Path, groups: dict[str, tuple[int, ...]], began: float) -> Result:
    """Replay recorded traces."""
    traces = read_traces(workload)
    known = known_groups(traces, groups)
    found = replay(traces, known)
    return replace(result_of_replay(traces, found), cpu_s=time.process_time() - began)


def _other_durations(result: Result, traces: TraceSet, system: System) -> Iterator[str]:
    """Yield a sentence where the traces record other durations of compute than the roofline that replaces them."""
    if not system.roofline or system.replay_only:
        return
    slowest = max(result.per_npu, key=lambda npu: npu.cycles)
    template = traces.ranks[slowest.npu].template
    recorded = int(template.duration_us[template.type == NodeType.COMP].sum()) * 1000
    if recorded > 0 and abs(slowest.compute_cycles / recorded - 1) > APART:
        yield (
            f"compute takes {slowest.compute_cycles:,} cycles by the roofline of the system file, {recorded:,} as the"
            " traces record it: roofline-enabled 0 plays the latter"
        )


def _scripts(system: System, beside: Path) -> dict[str, TraceSet]:
    """Return the traces of custom collectives, by prefix relative to the working directory or to *beside*."""
    found = {}
    for prefix in {*system.custom.values(), *system.custom_by_node.values()}:
        here = exists(f"{prefix}.0.et") or not exists(beside / f"{prefix}.0.et")
        found[prefix] = read_traces(prefix if here else beside / prefix)
    return found


def run(job: Job, *, folded: bool = True, closed_forms: bool = True, began: float | None = None) -> Result:
    """Simulate *job*.

    *folded* simulates equivalent ranks once; *closed_forms* evaluates the phases of collectives that have a closed
    form. Neither keeps the order of events of one moment. Where the result depends on it, every rank and every message
    is simulated.
    """
    began = time.process_time() if began is None else began
    each = _unfolded(job)
    folding = _folding(job) if folded and not job.order_may_differ else each
    try:
        found = simulate_ranks(job, folding, closed_forms=closed_forms)
    except Ambiguous:
        found = simulate_ranks(job, each, closed_forms=False)
    warnings = job.system.warnings
    if any(map(is_stuck, found.ranks)) and (agreed := _simulate_in_agreed_order(job)) is not None:
        found = agreed
        warnings += (AGREED,)
    raise_if_deadlocked(job.traces, job.groups, found.ranks, found.entity_of)
    return replace(result_of(job, found, time.process_time() - began), warnings=warnings)


def _unfolded(job: Job) -> Folding:
    return Folding(list(range(len(job.traces.ranks))))


def _folding(job: Job) -> Folding:
    if job.graph is not None:
        return _unfolded(job)  # no two ranks of a graph are known to have equal links around them
    links = job.backend == "aware"
    return fold(job.traces, job.groups, job.system, job.network, links=links, whole=links or not job.compat)


def _simulate_in_agreed_order(job: Job) -> Simulation | None:
    """Simulate a deadlocked job as if equivalent ranks took events of one moment in one order; None if it deadlocks."""
    try:
        found = simulate_ranks(job, _folding(job), closed_forms=True, checks_order=False)
    except Ambiguous:
        return None
    return None if any(map(is_stuck, found.ranks)) else found

"""The compiled core does what Python does, to the nanosecond and to the last event."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.base.files import dump_json
from cosmic.base.native.library import FOLDER, native_library
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.events import compiled_core, trace_simulation
from cosmic.simulate.events.astra_sim_inputs import INTER, INTRA, RemoteMemory
from cosmic.simulate.events.design_simulation import simulate_design
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.simulation_result import SimulationResult
from cosmic.simulate.events.trace_simulation import simulate_job
from tests.simulate.jobs import Node, collective, computation, job, load, network, receive, send, traces
from tests.simulate.test_equivalence import KINDS, SIZES, algorithms, allowed, dimensions, groupings, jobs

pytestmark = pytest.mark.skipif(native_library() is None, reason="there is no compiled library")
Outcome = Any
WAYS = st.sampled_from([{}, {"folded": False}, {"folded": False, "closed_forms": False}])


@contextmanager
def using(*, native: bool) -> Iterator[list[bool]]:
    """Simulate compiled, however small the job, or in Python; yield whether the core did each simulation."""
    done: list[bool] = []

    def counted(*inputs: Any) -> Any:
        found = simulate_compiled(*inputs)
        done.append(found is not None)
        return found

    simulate_compiled = compiled_core.simulate_compiled
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSMIC_NATIVE", "1" if native else "0")
        patch.setattr(trace_simulation, "FEW", 0)
        patch.setattr(compiled_core, "simulate_compiled", counted)
        yield done


def outcome(simulate: Callable[[], SimulationResult]) -> Outcome:
    """Return everything that a simulation says, but how long it took; an error's sentence if it fails."""
    try:
        result = simulate()
    except SpecError as error:
        return str(error)
    times = [(each.ranks, each.peers, each.begun.tolist(), each.ended.tolist()) for each in result.rank_times]
    return json.loads(dump_json(result)) | {"cpu_s": None}, times


def both(simulate: Callable[[], SimulationResult], *, falls_back: bool = False) -> Outcome:
    """Return what both ways say, and check that it is the same."""
    with using(native=True) as done:
        found = outcome(simulate)
    assert not all(done) if falls_back else all(done)
    with using(native=False) as done:
        assert outcome(simulate) == found
    assert not done
    return found


# ---- jobs whose ranks differ


@st.composite
def ranks_apart(draw: st.DrawFn) -> Job:
    """Return jobs whose ranks differ: in durations, in orders, in groups, and in what one of them lacks."""
    net = draw(dimensions(3))
    groups = draw(groupings(net.npus))
    if draw(st.booleans()):
        groups["77"] = tuple(draw(st.permutations(range(net.npus)))[: draw(st.integers(2, net.npus))])
    chosen = draw(algorithms(net))
    ranks: list[list[Any]] = [[] for _ in range(net.npus)]
    for place in range(draw(st.integers(1, 5))):
        draw(_adding(place, ranks, groups, chosen))
        if draw(st.integers(0, 9)) == 0:
            del ranks[0][-1:]
        if draw(st.integers(0, 9)) == 0 and len(ranks[-1]) > 1:
            one, other = ranks[-1][-2:]
            ranks[-1][-2:] = other | {"data": []}, one | {"data": []}
    kinds = ["PER_NPU_MEMORY_EXPANSION", "PER_NODE_MEMORY_EXPANSION", "MEMORY_POOL"]
    latency = draw(st.sampled_from([0, 100]))
    return job(
        [nodes or [computation(1, 1)] for nodes in ranks],
        net,
        chosen,
        groups=groups,
        memory=RemoteMemory(
            type=draw(st.sampled_from(kinds)), latency_ns=latency, bandwidth_gb_per_s=10.0, npus_per_node=2
        ),
        backend=draw(st.sampled_from(["unaware", "aware"])),
        compat=draw(st.sampled_from([True, True, True, False])),
        rendezvous=draw(st.sampled_from([False, False, False, True])),
        queues_per_dim=draw(st.sampled_from([1, 1, 2, 3])),
        preferred_dataset_splits=draw(st.integers(1, 5)),
        active_chunks_per_dimension=draw(st.integers(1, 3)),
        scheduling_policy=draw(st.sampled_from(["LIFO", "FIFO", "EXPLICIT"])),
        collective_optimization=draw(st.sampled_from(["localBWAware", "baseline"])),
        intra_dimension_scheduling=draw(st.sampled_from(["FIFO", *INTRA])),
        inter_dimension_scheduling=draw(st.sampled_from(["ascending", *INTER])),
        endpoint_delay=draw(st.sampled_from([0, 10, 7])),
        local_mem_bw=draw(st.sampled_from([1000, 50, 1600])),
    )


@st.composite
def _adding(
    draw: st.DrawFn, place: int, ranks: list[list[Any]], groups: dict[str, tuple[int, ...]], chosen: list[str]
) -> None:
    """Add nodes of one sort to the ranks."""
    what = draw(st.sampled_from(["compute", "cpu", "skipped", "memory", "shift", "group", "all"]))
    kind, size = allowed(draw(KINDS), chosen), draw(SIZES)
    size = max(size, 5) if kind == "all_gather" else size
    shift, chained = draw(st.integers(1, len(ranks) - 1)), draw(st.booleans())
    name = draw(st.sampled_from(sorted(groups)))
    more = {"comm_priority": draw(st.integers(-2, 2))}
    everyone = more | draw(st.sampled_from([{}, {}, {"involved_dims": 1}, {"involved_dims": 2}]))
    for rank, nodes in enumerate(ranks):
        after = [len(nodes) - 1] if nodes and chained else []
        operations = draw(st.sampled_from([10**6, 10**9, 3 * 10**8, 1234567]))
        exchange = [send((rank + shift) % len(ranks), size, place, after)]
        exchange.append(receive((rank - shift) % len(ranks), size, place))
        added: dict[str, list[Node]] = {
            "compute": [computation(operations, 10**6, after)],
            "cpu": [computation(operations, 10**6, after, on_cpu=1, duration_us=operations % 3)],
            "skipped": [computation(operations, 0, after)],
            "memory": [load(size, after)],
            "shift": exchange,
            "group": [collective(kind, size, name, after, **more)] if rank in groups[name] else [],
            "all": [collective(kind, size, None, after, **everyone)],
        }
        nodes.extend(added[what])


@pytest.mark.long
@settings(max_examples=60, deadline=None, derandomize=True)
@given(ranks_apart(), WAYS)
def test_ranks_that_differ_end_at_the_same_nanosecond(work: Job, way: dict[str, bool]) -> None:
    both(lambda: simulate_job(work, **way))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    jobs(backend="unaware")
    | jobs(backend="aware")
    | jobs(backend="unaware", compat=False)
    | jobs(backend="aware", rendezvous=True),
    WAYS,
)
def test_so_do_ranks_that_are_alike(work: Job, way: dict[str, bool]) -> None:
    both(lambda: simulate_job(work, **way))


@pytest.mark.parametrize("mapping", [{"dp": 2, "tp": 2, "pp": 2}, {"dp": 4, "tp": 2, "pp": 1}])
def test_a_design_takes_the_same_step(mapping: dict[str, int]) -> None:
    settings = {f"workload.{key}": value for key, value in mapping.items()}
    point = load_design(
        "gpt3-6.7b@dgx-h100:8", {"model.layers": 4, "workload.global_batch": 16, **settings}, plain=True
    )
    assert both(lambda: simulate_design(point))[0]["cycles"] > 0


# ---- deadlocks and errors

FOUR = network(("Switch", 4, 50.0, 500.0))
SMALL = [[collective("all_reduce", 4096)]] * 4


def test_a_deadlock_is_explained_alike() -> None:
    groups = {"1": (0, 1, 2), "2": (0, 1, 3)}
    first, second = (collective("all_reduce", 8, name) for name in groups)
    ranks = [[first, second], [second, collective("all_reduce", 8, "1", after=[0])], [first], [second]]
    said = both(lambda: simulate_job(job(ranks, FOUR, groups=groups)))
    assert "deadlock" in said
    assert "waits for rank" in said


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_a_time_beyond_the_clock_is_python_s_to_explain(backend: str) -> None:
    slow = network(("Switch", 4, 1e-9, 500.0))
    ranks = [[collective("all_reduce", 2**52)]] * 4
    said = both(lambda: simulate_job(job(ranks, slow, backend=backend), folded=False), falls_back=True)
    assert "out of proportion" in said


# ---- what only Python does


def test_a_shared_bus_is_python_s() -> None:
    both(lambda: simulate_job(job(SMALL, FOUR, model_shared_bus=1, L=10, o=5, g=2, G=0.5)), falls_back=True)


def test_custom_collectives_are_python_s() -> None:
    scripts = traces([[send((rank + 1) % 4, 64), receive((rank - 1) % 4, 64)] for rank in range(4)])
    plain = job(SMALL, FOUR, backend="aware", all_reduce_implementation_custom=["script"])
    both(lambda: simulate_job(replace(plain, scripts={"script": scripts})), falls_back=True)


def test_sizes_beyond_those_that_a_double_counts_are_python_s() -> None:
    both(lambda: simulate_job(job([[collective("all_reduce", 2**56)]] * 4, FOUR), folded=False), falls_back=True)


def test_a_closed_form_that_would_take_minutes_is_python_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_core, "LONGEST_FORM", 1)
    both(lambda: simulate_job(job(SMALL, FOUR), folded=False), falls_back=True)


def test_a_collective_that_fails_to_start_is_python_s() -> None:
    ranks = [[collective("all_gather", 1)]] * 4
    assert "needs a byte for each" in both(lambda: simulate_job(job(ranks, FOUR)), falls_back=True)


def test_few_nodes_need_no_core() -> None:
    with using(native=True) as done, pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace_simulation, "FEW", 300)
        simulate_job(job(SMALL, FOUR))
        simulate_job(job(SMALL, FOUR, backend="aware"))
        assert not done
        simulate_job(job(SMALL, FOUR, backend="aware", preferred_dataset_splits=100))
        assert done == [True]


# ---- slices and safety


def busy() -> Job:
    ranks: list[list[Node]] = [
        [computation(10**6 * (rank + 1), 10**6), collective("all_reduce", 2**20, after=[0])] for rank in range(8)
    ]
    return job(ranks, network(("Ring", 8, 50.0, 500.0)), backend="aware")


def test_slices_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = both(lambda: simulate_job(busy()))
    monkeypatch.setattr(compiled_core, "SLICE", 7)
    assert both(lambda: simulate_job(busy())) == whole


def test_an_interrupt_is_heard_between_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    core: Any = native_library()
    freed = []

    class Interrupted:
        cosmic_events_new = core.cosmic_events_new
        calls = 0

        def cosmic_events_run(self, simulation: int, most: int) -> int:
            self.calls += 1
            if self.calls > 2:
                raise KeyboardInterrupt
            return int(core.cosmic_events_run(simulation, most))

        def cosmic_events_free(self, simulation: int) -> None:
            freed.append(simulation)
            core.cosmic_events_free(simulation)

    monkeypatch.setattr(compiled_core, "SLICE", 7)
    monkeypatch.setattr(compiled_core, "native_library", Interrupted)
    with using(native=True), pytest.raises(KeyboardInterrupt):
        simulate_job(busy())
    assert len(freed) == 1


def test_columns_that_are_unsound_are_refused() -> None:
    inputs: list[Any] = []
    simulate = compiled_core._run_core

    def noted(*given: Any) -> Any:
        inputs.extend(given)
        return simulate(*given)

    with using(native=True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_core, "_run_core", noted)
        simulate_job(busy())
    settings, arrays = inputs
    outputs = ("begun", "ended", "end_ns", "computed_ns", "sent", "streams")
    whole = [name for name, column in arrays.items() if column.dtype == np.int64 and len(column)]
    names = [name for name in whole if name not in outputs]
    rolled = random.Random(1)
    seen = set()
    for _ in range(400):
        name = rolled.choice(names)
        wrong = arrays[name].copy()
        wrong[rolled.randrange(len(wrong))] = rolled.choice([-(2**62), -3, 2**31 - 1, 2**40, 2**62])
        seen.add(simulate(settings, arrays | {name: wrong})[0])
    assert compiled_core.INVALID in seen
    short = {name: arrays[name][:-1] for name in ("use", "ring_rank", "node_first", "entity_of", "child_start")}
    assert {simulate(settings, arrays | {name: column})[0] for name, column in short.items()} == {compiled_core.INVALID}


def test_the_structure_has_the_fields_of_the_header() -> None:
    header = (FOLDER / "events.h").read_text()
    body = re.sub(r"/\*.*?\*/", "", header[: header.index("} Job;")].rpartition("typedef struct {")[2], flags=re.DOTALL)
    declared = re.findall(r"\w+", re.sub(r"\b(int64_t|double|Column|Reals|Output)\b", "", body))
    assert declared == [*compiled_core.INTEGERS, *compiled_core.REALS, *compiled_core.COLUMNS]

"""Simulate one step of a design from its own traces.

Every node takes the seconds that the analytic engine computes for it (`cosmic.simulate.trace_generation`), so both
engines share one cost model. Simulation adds the order: which rank waits for which, and what overlaps.

A step of many microbatches is simulated by a few (`simulate_step`). Once a pipeline is full, every round of
microbatches takes as long as the one before. So steps of three numbers of microbatches are simulated, equally far
apart. Where every count of every rank grows by the same nanoseconds from the first to the second as from the second to
the third, it grows so up to the whole step, and the answer is that of the whole simulation, to the nanosecond. Where
they do not, longer steps are tried, and then the whole.

    c(m) = c(a) + (c(b) - c(a)) (m - a) / (b - a)        a, b, m: microbatches, with b - a a divisor of m - a
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cosmic.base.event_clock import check_time
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.simulate.analytic_step import controller_s, dissect_step
from cosmic.simulate.events.astra_sim_inputs import COLLECTIVES, Algorithm, AstraSimDimension, System
from cosmic.simulate.events.collective_rings import GIVEN
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.simulation_result import NpuTimes, SimulationResult
from cosmic.simulate.events.trace_simulation import simulate_job
from cosmic.simulate.stage_traces import Floats
from cosmic.simulate.trace_generation import generate_traces
from cosmic.workload.mesh_sizes import microbatches

UNLIMITED = 2**30


def simulate_design(point: DesignPoint) -> SimulationResult:
    """Return one simulated step of *point*; collectives take given times, so links and dimensions are not simulated."""
    job = generate_traces(point)
    durations_ns = {id(template): _round_to_ns(job.seconds_of(template)) for template in job.traces.templates()}
    algorithms = {kind: (Algorithm(GIVEN),) for kind in COLLECTIVES.values()}
    system = System(implementations=algorithms, active_chunks=UNLIMITED, endpoint_delay_ns=0)
    network = SimulatedNetwork(
        (AstraSimDimension("Switch", len(job.traces.ranks), 1.0, 0.0),)
    )  # all ranks are equally far
    result = simulate_job(
        Job(traces=job.traces, groups=job.groups, system=system, network=network, given_ns=durations_ns)
    )
    return replace(_add_controller_wait(point, result), dimensions=(), links=())


def _add_controller_wait(point: DesignPoint, result: SimulationResult) -> SimulationResult:
    """Return a step that waits for its controller as the closed form says."""
    if point.workload.runtime == "multi_controller":
        return result
    anatomy = dissect_step(batch_of(point))
    seconds = max(npu.cycles for npu in result.per_npu) / 1e9
    late = round(1e9 * float(controller_s(anatomy.profile, anatomy.stage, seconds, anatomy.others)))
    per_npu = (replace(npu, cycles=npu.cycles + late, idle_cycles=npu.idle_cycles + late) for npu in result.per_npu)
    return replace(result, cycles=result.cycles + late, per_npu=tuple(per_npu))


def _round_to_ns(seconds: Floats) -> npt.NDArray[np.int64]:
    """Return times in whole nanoseconds; refuse those that add up to more than the clock can count."""
    check_time(1e9 * float(seconds.sum()))
    return np.rint(1e9 * seconds).astype(np.int64)


# ---- Steps of many microbatches: a few are simulated, and what each further one adds is taken for the rest

ROUNDS = (3, 8)
"""Rounds of microbatches, one for each stage, after which a pipeline is taken to be full: first few, then more."""
WORTH = 4
"""The whole step is simulated unless it is this many times as long as the longest of those instead of it."""
EXTRAPOLATED_COUNTS = (
    "cycles",
    "exposed_cycles",
    "compute_cycles",
    "communication_cycles",
    "hidden_cycles",
    "idle_cycles",
)


def simulate_step(point: DesignPoint) -> SimulationResult:
    """Return one simulated step of *point*, of which only counts are asked: no node of a long one has a time."""
    workload = point.workload
    all_microbatches = int(microbatches(batch_of(point))) if workload.task == "training" else 1
    stride = max(1, workload.pp) * max(1, workload.virtual_stages)
    for rounds in ROUNDS:
        first = rounds * stride + (all_microbatches - rounds * stride) % stride
        tried = [first, first + stride, first + 2 * stride]
        if (
            all_microbatches < WORTH * tried[-1]
            or all_microbatches * workload.dp * workload.micro_batch != workload.global_batch
        ):
            break
        simulated = [simulate_design(_with_microbatches(point, count)) for count in tried]
        if (extrapolated := _extrapolate_step(simulated, (all_microbatches - first) // stride)) is not None:
            return extrapolated
    return simulate_design(point)


def _with_microbatches(point: DesignPoint, count: int) -> DesignPoint:
    """Return the same design with a step of so many microbatches."""
    workload = point.workload
    return replace(point, workload=replace(workload, global_batch=count * workload.dp * workload.micro_batch))


def _extrapolate_step(simulated: list[SimulationResult], further: int) -> SimulationResult | None:
    """Return a step that is *further* strides longer than the first of three; None where they grow unevenly."""
    per_npu = []
    for first, second, third in zip(*(result.per_npu for result in simulated), strict=True):
        counts = _extrapolate_counts(first, second, third, further)
        if counts is None:
            return None
        per_npu.append(replace(first, **counts))
    ends = [result.cycles for result in simulated]
    if ends[2] - ends[1] != ends[1] - ends[0]:
        return None
    return replace(simulated[0], cycles=ends[0] + further * (ends[1] - ends[0]), per_npu=tuple(per_npu))


def _extrapolate_counts(first: NpuTimes, second: NpuTimes, third: NpuTimes, further: int) -> dict[str, int] | None:
    counts = {}
    for name in EXTRAPOLATED_COUNTS:
        count_1, count_2, count_3 = (int(getattr(times, name)) for times in (first, second, third))
        if count_3 - count_2 != count_2 - count_1:
            return None
        counts[name] = count_1 + further * (count_2 - count_1)
    return counts

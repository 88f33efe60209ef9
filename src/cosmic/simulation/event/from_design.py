"""Simulate one step of a design from its own traces.

Every node takes the seconds that the analytic engine computes for it (`cosmic.traces.generation`), so both engines
share one cost model. Simulation adds the order: which rank waits for which, and what overlaps.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.simulation.analytic import anatomy, controller_s
from cosmic.simulation.event.clock import within
from cosmic.simulation.event.engine import Job, run
from cosmic.simulation.event.inputs import COLLECTIVES, Algorithm, AstraSimDimension, System
from cosmic.simulation.event.network import Network
from cosmic.simulation.event.result import Result
from cosmic.simulation.event.rings import GIVEN
from cosmic.traces.generation import generate
from cosmic.traces.generation.stages import Floats

UNLIMITED = 2**30


def simulate_design(point: DesignPoint) -> Result:
    """Return one simulated step of *point*; collectives take given times, so links and dimensions are not simulated."""
    job = generate(point)
    given = {id(template): _nanoseconds(job.seconds_of(template)) for template in job.traces.templates()}
    algorithms = {kind: (Algorithm(GIVEN),) for kind in COLLECTIVES.values()}
    system = System(implementations=algorithms, active_chunks=UNLIMITED, endpoint_delay_ns=0)
    network = Network((AstraSimDimension("Switch", len(job.traces.ranks), 1.0, 0.0),))  # all ranks are equally far
    result = run(Job(traces=job.traces, groups=job.groups, system=system, network=network, given_ns=given))
    return replace(_dispatched(point, result), dimensions=(), links=())


def _dispatched(point: DesignPoint, result: Result) -> Result:
    """Return a step that waits for its controller as the closed form says."""
    if point.workload.runtime == "multi_controller":
        return result
    found = anatomy(batch_of(point))
    seconds = max(npu.cycles for npu in result.per_npu) / 1e9
    late = round(1e9 * float(controller_s(found.profile, found.stage, seconds, found.others)))
    per_npu = (replace(npu, cycles=npu.cycles + late, idle_cycles=npu.idle_cycles + late) for npu in result.per_npu)
    return replace(result, cycles=result.cycles + late, per_npu=tuple(per_npu))


def _nanoseconds(seconds: Floats) -> npt.NDArray[np.int64]:
    """Return times in whole nanoseconds; refuse those that add up to more than the clock can count."""
    within(1e9 * float(seconds.sum()))
    return np.rint(1e9 * seconds).astype(np.int64)

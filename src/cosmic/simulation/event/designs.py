"""A design's own traces, played: what closed forms add up, in its order.

Every node takes what the analytic engine charges for it (`cosmic.traces.generation`), so both engines have one physics.
What playing adds is when things happen: who waits for whom, and what hides behind what.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cosmic.design.point import DesignPoint
from cosmic.simulation.event.engine import Job, run
from cosmic.simulation.event.inputs import KINDS, Algorithm, Dimension, System
from cosmic.simulation.event.network import Network
from cosmic.simulation.event.result import Result
from cosmic.simulation.event.rings import GIVEN
from cosmic.traces.generation import generate

UNLIMITED = 2**30


def play_design(point: DesignPoint) -> Result:
    """Return one step of *point*, played; links and dimensions are not simulated, as collectives' times are given."""
    job = generate(point)
    given = {
        id(template): np.rint(1e9 * job.seconds_of(template)).astype(np.int64) for template in job.traces.templates()
    }
    algorithms = {kind: (Algorithm(GIVEN),) for kind in KINDS.values()}
    system = System(implementations=algorithms, active_chunks=UNLIMITED, endpoint_delay_ns=0)
    anywhere = Network((Dimension("Switch", len(job.traces.ranks), 1.0, 0.0),))  # all ranks are equally far
    played = run(Job(traces=job.traces, groups=job.groups, system=system, network=anywhere, given_ns=given))
    return replace(played, dimensions=(), links=())

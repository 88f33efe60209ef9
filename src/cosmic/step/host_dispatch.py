"""How hosts start the work of a step: a process on every host, or one controller for all of them.

    multi_controller     every host starts its own kernels: nothing beyond what kernels take to launch
    single_parallel      one client starts a program on all h hosts at once while the last one runs:
                         step = max(step, t(h)),  t(h) = t_client + t_host h
    single_sequential    a node of the program is prepared when those before it were enqueued: a node of c seconds takes
                         max(c, t(h) + 2 l),  l one message between hosts

A step without a pipeline is one node: one compiled function on all hosts. Of a pipeline, every pass of a microbatch
through a virtual stage is one, on the hosts of that stage. After Barham et al., Pathways, arXiv 2203.12533; t(h) is the
line through the two thresholds that it states, and is taken for the preparation of a node too, which it does not state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cosmic.base.numeric import Numeric, sum_of
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import Batch


@dataclass(frozen=True, slots=True)
class RuntimeConstants:
    """What a single controller takes."""

    client_s: float
    """To start a program, whatever the number of hosts."""
    host_s: float
    """More, for each host."""
    control_latency_s: float
    """One message between hosts."""


RUNTIME = load_constants("runtime", RuntimeConstants)


def controller_dispatch_s(hosts: Numeric) -> Numeric:
    """Return the seconds that a single controller takes to start a program on so many *hosts*.

    Programs that take longer hide it: 2.3 ms at 16 hosts, 35 ms at 512.

    >>> [round(1e3 * float(controller_dispatch_s(hosts)), 1) for hosts in (16, 512)]
    [2.3, 35.0]
    """
    return RUNTIME.client_s + RUNTIME.host_s * hosts


def host_counts(batch: Batch) -> Numeric:
    """Return the hosts of each design; at least one."""
    hosts: Numeric = np.ceil(batch.npus / batch["workload.npus_per_host"])
    return hosts


def virtual_stages(batch: Batch) -> Numeric:
    """Return how many nodes a microbatch has on each stage in a pass; serving, stages are not divided."""
    return batch["workload.virtual_stages"] if batch.base.workload.task == "training" else 1


def controller_wait_s(
    batch: Batch,
    step_s: Numeric,
    passes_s: tuple[Numeric, ...],
    microbatches: Numeric,
    filling: Callable[[Numeric], Numeric] | None = None,
) -> Numeric:
    """Return the seconds that a step of *step_s* waits for its controller.

    *passes_s* are those of a stage's passes, forward and backward, of all *microbatches* together. *filling* says how
    much longer the stage idles while the others run, if each of their nodes takes so many seconds at least;
    without it, stages - 1 nodes as late as those of the stage itself.
    """
    runtime = batch.base.workload.runtime
    if runtime == "multi_controller":
        return 0.0
    hosts = host_counts(batch)
    if runtime == "single_parallel":
        return np.maximum(0.0, controller_dispatch_s(hosts) - step_s)
    return_s = 2 * RUNTIME.control_latency_s
    alone = np.maximum(0.0, controller_dispatch_s(hosts) + return_s - step_s)
    if np.all(batch["workload.pp"] == 1):
        return alone
    stages, nodes = batch["workload.pp"], microbatches * virtual_stages(batch)
    least = controller_dispatch_s(np.ceil(hosts / stages)) + return_s
    late = sum_of((np.maximum(0.0, least - each / nodes) for each in passes_s), 0.0)
    filled = late * (stages - 1) if filling is None else filling(least)
    return np.where(stages > 1, np.maximum(0.0, late * nodes + filled), alone)

"""Jobs and clusters made by hand: steps of a second, and no model."""

from __future__ import annotations

from cosmic.cluster.job_requests import Demand, JobOption, JobRequest, SharedTier, UplinkTraffic


def cluster(
    npus: int = 8, *, node: int = 1, leaf: int = 0, oversubscription: float = 1.0, rate: float = 100.0
) -> SharedTier:
    """Return a cluster of nodes."""
    blocks = (node,) if node > 1 else ()
    return SharedTier(
        npus=npus, blocks=blocks, leaf=leaf or node, bandwidth_bytes_per_s=rate, oversubscription=oversubscription
    )


def demand(
    npus: int, *, step_s: float = 1.0, memory_bytes: float = 0.0, traffic: tuple[UplinkTraffic, ...] = ()
) -> Demand:
    """Return what a job takes whose step is half communication in the tier, if it has any."""
    slowed = (step_s, step_s + 1.5 * step_s) if traffic else (step_s,)
    return Demand(
        npus=npus,
        held=npus,
        tokens=1.0,
        memory_bytes=memory_bytes,
        capacity_bytes=100.0,
        traffic=traffic,
        factors=(1.0, 4.0) if traffic else (1.0,),
        steps_s=slowed,
    )


def request(
    name: str,
    npus: int | tuple[int, ...],
    steps: float,
    arrival_s: float = 0.0,
    *,
    priority: int = 0,
    share: float = 1.0,
    gap_s: float = 0.0,
    memory_bytes: float = 0.0,
    traffic: tuple[UplinkTraffic, ...] = (),
) -> JobRequest:
    """Return a job of so many steps of a second each; on k times the accelerators of its least, a k-th of them."""
    numbers = (npus,) if isinstance(npus, int) else npus
    options = tuple(
        JobOption(
            demand=demand(each, memory_bytes=memory_bytes, traffic=traffic),
            steps=steps * numbers[0] / each,
            alone_step_s=1.0 + gap_s,
        )
        for each in numbers
    )
    return JobRequest(name=name, arrival_s=arrival_s, options=options, priority=priority, share=share, gap_s=gap_s)

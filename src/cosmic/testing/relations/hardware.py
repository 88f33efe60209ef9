"""Relations of hardware: more bandwidth, more flop, more memory or less latency never makes a design slower."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from cosmic.design.compute import SHARES
from cosmic.design.point import DesignPoint
from cosmic.testing.relations.relation import (
    PLAYED_ROUNDING,
    Changes,
    Relation,
    at_most,
    comparison,
    is_small,
    played,
    stays_feasible,
)

RATES = ("bf16", "fp32", "tf32", "fp8", "fp4", "int8", "achieved_bf16")
NO_WORSE = (at_most("step_s"), at_most("memory_bytes"), stays_feasible)


def scaled(point: DesignPoint, paths: Iterable[str], factor: float) -> list[Changes]:
    """Return one change for each of the fields at *paths* that is known and not 0: scaled by *factor*."""
    return [{path: factor * point.fields[path]} for path in paths if point.fields.get(path)]


def network(point: DesignPoint, key: str) -> list[str]:
    """Return the paths of a field of every network dimension."""
    return [f"network.dims.{place}.{key}" for place in range(len(point.network.dims))]


def more_network_bandwidth(point: DesignPoint, _: Random) -> list[Changes]:
    """Return more bandwidth of each dimension: a little, twice, much."""
    paths = network(point, "bandwidth")
    return [with_ports(point, change) for factor in (1.25, 2, 8) for change in scaled(point, paths, factor)]


def with_ports(point: DesignPoint, change: Changes) -> Changes:
    """Return a *change* of bandwidth with ports of switches that are wider by as much.

    As wide as they were, they would be joined: a leaf would hold fewer NPUs, and more traffic would leave it.
    """
    found = dict(change)
    for path, value in change.items():
        ports = path.removesuffix("bandwidth") + "fabric.port_bandwidth"
        if path.endswith(".bandwidth") and point.fields.get(ports):
            found[ports] = point.fields[ports] * value / point.fields[path]
    return found


def less_latency(point: DesignPoint, _: Random) -> list[Changes]:
    """Return half of each time that a message takes whatever its size."""
    keys = ("latency", "transport.overhead", "transport.bulk", "transport.bulk_latency", "transport.reduction")
    return [change for key in keys for change in scaled(point, network(point, key), 0.5)]


def more_flop(point: DesignPoint, _: Random) -> list[Changes]:
    """Return twice the peak of each number format, and of all."""
    each = scaled(point, (f"compute.{rate}" for rate in RATES), 2)
    return [*each, {path: value for change in each for path, value in change.items()}]


def better_kernels(point: DesignPoint, _: Random) -> list[Changes]:
    """Return each share of a peak that kernels reach, halfway nearer to the peak."""
    paths = (f"compute.{share}" for share in SHARES)
    return [{path: (1 + point.fields[path]) / 2} for path in paths if point.fields.get(path)]


def more_memory_bandwidth(point: DesignPoint, _: Random) -> list[Changes]:
    """Return twice the bandwidth of the memory, and of each tier behind it."""
    tiers = [f"memory.tiers.{place}.bandwidth" for place in range(len(point.memory.tiers))]
    return scaled(point, ("memory.bandwidth", *tiers), 2)


def more_memory(point: DesignPoint, _: Random) -> list[Changes]:
    """Return twice the capacity of the memory, and of each tier behind it."""
    tiers = [f"memory.tiers.{place}.capacity" for place in range(len(point.memory.tiers))]
    return scaled(point, ("memory.capacity", *tiers), 2)


def quicker_launches(point: DesignPoint, _: Random) -> list[Changes]:
    """Return half of each time that a kernel takes besides its work, and of the spread over ranks.

    Not for a controller that prepares stage after stage of a schedule which fills the bubble with other work: where
    nodes of the stage wait for it, and those of others do not, less of that work leaves a longer bubble.
    """
    if point.workload.runtime == "single_sequential" and point.workload.schedule not in ("gpipe", "1f1b"):
        return []
    keys = ("launch", "host_launch", "tile_ramp", "fp8_cast", "block_cast", "attention_ramp", "stream_ramp")
    return scaled(point, (f"compute.{key}" for key in (*keys, "straggler_slack")), 0.5)


def played_hardware(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return one change of each kind, for a design that the event engine plays at once."""
    if not is_small(point):
        return []
    kinds = (more_network_bandwidth, less_latency, more_flop, more_memory_bandwidth, quicker_launches)
    found = [kind(point, rng) for kind in kinds]
    return [rng.choice(changes) for changes in found if changes]


RELATIONS: tuple[Relation, ...] = (
    comparison(
        "network bandwidth",
        "More bandwidth of a network dimension is never slower and takes no memory.",
        more_network_bandwidth,
        *NO_WORSE,
    ),
    comparison("latency", "Half the latency of a network dimension is never slower.", less_latency, *NO_WORSE),
    comparison("flop", "Twice the peak of a number format is never slower.", more_flop, *NO_WORSE),
    comparison("kernel efficiency", "Kernels nearer to the peak are never slower.", better_kernels, *NO_WORSE),
    comparison("memory bandwidth", "Twice the memory's bandwidth is never slower.", more_memory_bandwidth, *NO_WORSE),
    comparison("memory capacity", "Twice the memory never takes what fitted away.", more_memory, *NO_WORSE),
    comparison("launches", "Half of what launching a kernel costs is never slower.", quicker_launches, *NO_WORSE),
    comparison(
        "hardware, simulated",
        "Better hardware is never slower in the event engine.",
        played_hardware,
        at_most("step_s", PLAYED_ROUNDING),
        engine=played,
    ),
)

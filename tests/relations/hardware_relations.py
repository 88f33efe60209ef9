"""Relations of hardware: more bandwidth, flop or memory, or less latency, never makes a design slower.

Of communication: better links never make a step longer, nor do collectives that take less time. Who proves that no
design of a space is better than the best one relies on both: the fastest links of a range of designs, and the least
seconds of their collectives, give the least seconds of a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import numpy as np
import numpy.typing as npt

from cosmic.base.numeric import Numeric
from cosmic.design.compute_layer import SHARES
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.network_layer import UNTIERED
from cosmic.network.switch_tiers import FAT_TREE
from cosmic.simulate.analytic_step import compute_step_seconds
from cosmic.step.communication import CollectiveUse
from cosmic.step.step_profile import profile_step, prolong_collectives
from tests.relations.metamorphic import (
    PLAYED_ROUNDING,
    Changes,
    Finding,
    Relation,
    Violation,
    answer_by_events,
    at_most,
    command_of,
    comparison,
    is_small,
    stays_feasible,
)

RATES = ("bf16", "fp32", "tf32", "fp8", "fp4", "int8", "achieved_bf16")
NO_WORSE = (at_most("step_s"), at_most("memory_bytes"), stays_feasible)


def scale_fields(point: DesignPoint, paths: Iterable[str], factor: float) -> list[Changes]:
    """Return one change for each of the fields at *paths* that is known and not 0: scaled by *factor*."""
    return [{path: factor * point.fields[path]} for path in paths if point.fields.get(path)]


def network_paths(point: DesignPoint, key: str) -> list[str]:
    """Return the paths of a field of every network dimension."""
    return [f"network.dims.{index}.{key}" for index in range(len(point.network.dims))]


def more_network_bandwidth(point: DesignPoint, _: Random) -> list[Changes]:
    """Return more bandwidth of each dimension: a little, twice, much."""
    paths = network_paths(point, "bandwidth")
    return [with_ports(point, change) for factor in (1.25, 2, 8) for change in scale_fields(point, paths, factor)]


def with_ports(point: DesignPoint, change: Changes) -> Changes:
    """Return a *change* of bandwidth with ports of switches that are wider by as much.

    As wide as they were, they would be joined: a leaf would hold fewer NPUs, and more traffic would leave it.
    """
    changed = dict(change)
    for path, value in change.items():
        ports = path.removesuffix("bandwidth") + "fabric.port_bandwidth"
        if path.endswith(".bandwidth") and point.fields.get(ports):
            changed[ports] = point.fields[ports] * value / point.fields[path]
    return changed


def less_latency(point: DesignPoint, _: Random) -> list[Changes]:
    """Return half of each time that a message takes whatever its size."""
    keys = ("latency", "transport.overhead", "transport.bulk", "transport.bulk_latency", "transport.reduction")
    return [change for key in keys for change in scale_fields(point, network_paths(point, key), 0.5)]


def more_flop(point: DesignPoint, _: Random) -> list[Changes]:
    """Return twice the peak of each number format, and of all."""
    scaled = scale_fields(point, (f"compute.{rate}" for rate in RATES), 2)
    return [*scaled, {path: value for change in scaled for path, value in change.items()}]


def better_kernels(point: DesignPoint, _: Random) -> list[Changes]:
    """Return each share of a peak that kernels reach, halfway nearer to the peak."""
    paths = (f"compute.{share}" for share in SHARES)
    return [{path: (1 + point.fields[path]) / 2} for path in paths if point.fields.get(path)]


def more_memory_bandwidth(point: DesignPoint, _: Random) -> list[Changes]:
    """Return twice the bandwidth of the memory, and of each tier behind it."""
    tiers = [f"memory.tiers.{index}.bandwidth" for index in range(len(point.memory.tiers))]
    return scale_fields(point, ("memory.bandwidth", *tiers), 2)


def more_memory(point: DesignPoint, _: Random) -> list[Changes]:
    """Return twice the capacity of the memory, and of each tier behind it."""
    tiers = [f"memory.tiers.{index}.capacity" for index in range(len(point.memory.tiers))]
    return scale_fields(point, ("memory.capacity", *tiers), 2)


def quicker_launches(point: DesignPoint, _: Random) -> list[Changes]:
    """Return half of each time that a kernel takes besides its work, and of the spread over ranks.

    Not for a controller that prepares stage after stage of a schedule which fills the bubble with other work: where
    nodes of the stage wait for it, and those of others do not, less of that work leaves a longer bubble.
    """
    if point.workload.runtime == "single_sequential" and point.workload.schedule not in ("gpipe", "1f1b"):
        return []
    keys = ("launch", "host_launch", "tile_ramp", "fp8_cast", "block_cast", "attention_ramp", "stream_ramp")
    return scale_fields(point, (f"compute.{key}" for key in (*keys, "straggler_slack")), 0.5)


def drawn_hardware(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return one change of each kind, for a design that the event engine plays at once."""
    if not is_small(point):
        return []
    kinds = (more_network_bandwidth, less_latency, more_flop, more_memory_bandwidth, quicker_launches)
    changes_of_kinds = [kind(point, rng) for kind in kinds]
    return [rng.choice(changes) for changes in changes_of_kinds if changes]


HARDWARE_RELATIONS: tuple[Relation, ...] = (
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
        drawn_hardware,
        at_most("step_s", PLAYED_ROUNDING),
        engine=answer_by_events,
    ),
)


EXACT = 1e-12
"""Rounding of one step, written in one way."""
MORE_BYTES_PER_S = 50e9
"""What a parameter set typically adds to a dimension."""
FACTORS = (1.0, 1.001, 1.03, 1.3, 3.0, 10.0, 100.0)
"""How many times longer collectives take, one more than the other."""
MIXTURES = 8
"""Ways to prolong all of them at once, each by a factor of its own."""
LATE = ("latency", *(f"transport.{name}" for name in ("overhead", "bulk", "bulk_latency", "reduction")))
MODES = ("baseline", "blueconnect", "themis")


def better_links(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return a little more bandwidth or less latency of one dimension, as any order of chunks meets it."""
    if not point.network.dims:
        return []
    faster: list[Changes] = []
    for path in network_paths(point, "bandwidth"):
        bandwidth = point.fields[path]
        bandwidths = [bandwidth + MORE_BYTES_PER_S, bandwidth * rng.choice((1.001, 1.02, 1.1, 3.0))]
        faster += [with_ports(point, {path: faster_bandwidth}) for faster_bandwidth in bandwidths]
    for key in LATE:
        faster += scale_fields(point, network_paths(point, key), rng.choice((0.0, 0.3, 0.99)))
    return faster


def in_some_order(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return pairs: a design whose chunks take orders of their own, and the same on better links."""
    changes: list[Changes] = []
    for better in better_links(point, rng):
        order = {"collective.multi_dim": rng.choice(MODES), "collective.chunks": rng.randint(1, 32)}
        changes += [order, {**order, **better}]
    return changes


def less_oversubscription(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return pairs: a dimension with some oversubscription, and with less; with none where its fabric has tiers.

    How many NPUs are below a leaf or a pod follows from its oversubscription: with more of it, more traffic may stay
    below. A fat tree then has shorter paths, too.
    """
    changes: list[Changes] = []
    for index, dim in enumerate(point.network.dims):
        path, least = f"network.dims.{index}", rng.choice((1.0, 1.3, 2.0))
        higher = least * rng.choice((1.0, 1.001, 2.5, 16.0))
        if dim.fabric.build in UNTIERED:
            changes += [{f"{path}.oversubscription": higher}, {f"{path}.oversubscription": least}]
        elif dim.topology != FAT_TREE:
            core = {f"{path}.fabric.core_oversubscription": rng.choice((1.0, 2.0, 5.0))}
            changes.append({f"{path}.oversubscription": higher, **core})
            changes.append({f"{path}.oversubscription": 1.0, f"{path}.fabric.core_oversubscription": 1.0})
    return changes


def longer_collectives(point: DesignPoint, rng: Random) -> list[Violation]:
    """Return where a step is shorter though the collectives of a role, or all of them, take longer."""
    batch = batch_of(point)
    kinds = sorted({(collective.role, collective.phase) for collective in profile_step(batch).traffic})
    if not kinds:
        return []
    factors = {kind: _factors(index, len(kinds), rng) for index, kind in enumerate(kinds)}

    def longer(use: CollectiveUse) -> Numeric:
        return factors.get((use.role, use.phase), 1.0)

    seconds = np.broadcast_to(compute_step_seconds(prolong_collectives(batch, longer)).seconds, len(factors[kinds[0]]))
    rows = [(kind, seconds[index * len(FACTORS) :][: len(FACTORS)]) for index, kind in enumerate(kinds)]
    mixed = seconds[len(kinds) * len(FACTORS) :]
    named = [(f"{role} of {phase}", row) for (role, phase), row in rows]
    named += [("all of them", np.array([mixed[2 * index], mixed[2 * index + 1]])) for index in range(MIXTURES)]
    return [fall for name, row in named for fall in _find_falls(point, name, row)]


def _factors(index: int, kinds: int, rng: Random) -> npt.NDArray[np.float64]:
    """Return how many times longer a kind of collective takes: in its own rows more and more, then in mixtures."""
    factors = np.ones((kinds, len(FACTORS)))
    factors[index] = FACTORS
    pairs = []
    for _ in range(MIXTURES):
        first = rng.choice((0.1, 1.0, 1.0, 5.0, 40.0)) * rng.uniform(0.5, 2)
        pairs += [first, first * rng.choice((1.0, 1.001, 1.5, 8.0))]
    return np.concatenate([factors.reshape(-1), pairs])


def _find_falls(point: DesignPoint, name: str, seconds: npt.NDArray[np.float64]) -> list[Violation]:
    """Return where the seconds of one step are less than those before it."""
    drops = 1 - seconds[1:] / seconds[:-1]
    worst = int(np.argmax(drops))
    if not drops[worst] > EXACT:
        return []
    text = f"step_s {seconds[worst]:.6g} -> {seconds[worst + 1]:.6g} where {name} take longer"
    return [Violation("longer collectives", Finding(text, float(drops[worst])), command_of(point), "")]


NETWORK_RELATIONS: tuple[Relation, ...] = (
    comparison(
        "better links",
        "A little more bandwidth or less latency of a network dimension is never slower, whatever the order of chunks.",
        in_some_order,
        at_most("step_s", EXACT),
        between=[(2 * index, 2 * index + 1) for index in range(64)],
    ),
    comparison(
        "oversubscription",
        "A dimension with less oversubscription, or with none in any of its tiers, is never slower.",
        less_oversubscription,
        at_most("step_s", EXACT),
        between=[(2 * index, 2 * index + 1) for index in range(64)],
    ),
    Relation(
        "longer collectives",
        "A step in which some collectives take longer is never shorter.",
        longer_collectives,
    ),
)

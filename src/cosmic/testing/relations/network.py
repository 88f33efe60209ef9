"""Relations of communication: better links never make a step longer, nor do collectives that take less time.

Who proves that no design of a space is better than the best one relies on both: the fastest links of a range of
designs, and the least seconds of their collectives, give the least seconds of a step.
"""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt

from cosmic.cost.tiers import FAT_TREE
from cosmic.design.batch import batch_of
from cosmic.design.fabric import UNTIERED
from cosmic.design.point import DesignPoint
from cosmic.numeric import Numeric
from cosmic.simulation.analytic import step
from cosmic.step.communication import CollectiveUse
from cosmic.step.profile import profile, prolonged
from cosmic.testing.relations.commands import command_of
from cosmic.testing.relations.hardware import network as paths_of
from cosmic.testing.relations.hardware import scaled, with_ports
from cosmic.testing.relations.relation import Changes, Finding, Relation, Violation, at_most, comparison

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
    for path in paths_of(point, "bandwidth"):
        bandwidth = point.fields[path]
        more = [bandwidth + MORE_BYTES_PER_S, bandwidth * rng.choice((1.001, 1.02, 1.1, 3.0))]
        faster += [with_ports(point, {path: each}) for each in more]
    for key in LATE:
        faster += scaled(point, paths_of(point, key), rng.choice((0.0, 0.3, 0.99)))
    return faster


def in_some_order(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return pairs: a design whose chunks take orders of their own, and the same on better links."""
    found: list[Changes] = []
    for better in better_links(point, rng):
        order = {"collective.multi_dim": rng.choice(MODES), "collective.chunks": rng.randint(1, 32)}
        found += [order, {**order, **better}]
    return found


def less_oversubscription(point: DesignPoint, rng: Random) -> list[Changes]:
    """Return pairs: a dimension with some oversubscription, and with less; with none where its fabric has tiers.

    How many NPUs are below a leaf or a pod follows from its oversubscription: with more of it, more traffic may stay
    below. A fat tree then has shorter paths, too.
    """
    found: list[Changes] = []
    for place, dim in enumerate(point.network.dims):
        path, least = f"network.dims.{place}", rng.choice((1.0, 1.3, 2.0))
        more = least * rng.choice((1.0, 1.001, 2.5, 16.0))
        if dim.fabric.build in UNTIERED:
            found += [{f"{path}.oversubscription": more}, {f"{path}.oversubscription": least}]
        elif dim.topology != FAT_TREE:
            core = {f"{path}.fabric.core_oversubscription": rng.choice((1.0, 2.0, 5.0))}
            found.append({f"{path}.oversubscription": more, **core})
            found.append({f"{path}.oversubscription": 1.0, f"{path}.fabric.core_oversubscription": 1.0})
    return found


def longer_collectives(point: DesignPoint, rng: Random) -> list[Violation]:
    """Return where a step is shorter though the collectives of a role, or all of them, take longer."""
    batch = batch_of(point)
    kinds = sorted({(each.role, each.phase) for each in profile(batch).traffic})
    if not kinds:
        return []
    factors = {kind: _factors(place, len(kinds), rng) for place, kind in enumerate(kinds)}

    def longer(use: CollectiveUse) -> Numeric:
        return factors.get((use.role, use.phase), 1.0)

    seconds = np.broadcast_to(step(prolonged(batch, longer)).seconds, len(factors[kinds[0]]))
    rows = [(kind, seconds[place * len(FACTORS) :][: len(FACTORS)]) for place, kind in enumerate(kinds)]
    mixed = seconds[len(kinds) * len(FACTORS) :]
    named = [(f"{role} of {phase}", row) for (role, phase), row in rows]
    named += [("all of them", np.array([mixed[2 * place], mixed[2 * place + 1]])) for place in range(MIXTURES)]
    return [each for name, row in named for each in _falls(point, name, row)]


def _factors(place: int, kinds: int, rng: Random) -> npt.NDArray[np.float64]:
    """Return how many times longer a kind of collective takes: in its own rows more and more, then in mixtures."""
    own = np.ones((kinds, len(FACTORS)))
    own[place] = FACTORS
    pairs = []
    for _ in range(MIXTURES):
        first = rng.choice((0.1, 1.0, 1.0, 5.0, 40.0)) * rng.uniform(0.5, 2)
        pairs += [first, first * rng.choice((1.0, 1.001, 1.5, 8.0))]
    return np.concatenate([own.reshape(-1), pairs])


def _falls(point: DesignPoint, name: str, seconds: npt.NDArray[np.float64]) -> list[Violation]:
    """Return where the seconds of one step are less than those before it."""
    drops = 1 - seconds[1:] / seconds[:-1]
    worst = int(np.argmax(drops))
    if not drops[worst] > EXACT:
        return []
    text = f"step_s {seconds[worst]:.6g} -> {seconds[worst + 1]:.6g} where {name} take longer"
    return [Violation("longer collectives", Finding(text, float(drops[worst])), command_of(point), "")]


RELATIONS: tuple[Relation, ...] = (
    comparison(
        "better links",
        "A little more bandwidth or less latency of a network dimension is never slower, whatever the order of chunks.",
        in_some_order,
        at_most("step_s", EXACT),
        between=[(2 * place, 2 * place + 1) for place in range(64)],
    ),
    comparison(
        "oversubscription",
        "A dimension with less oversubscription, or with none in any of its tiers, is never slower.",
        less_oversubscription,
        at_most("step_s", EXACT),
        between=[(2 * place, 2 * place + 1) for place in range(64)],
    ),
    Relation(
        "longer collectives",
        "A step in which some collectives take longer is never shorter.",
        longer_collectives,
    ),
)

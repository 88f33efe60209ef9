"""What a service achieves, and what would help it: moves that an operator has, each tried.

The mapping is the stated one, or the best for the load. A service that cannot run has reasons, and the fewest
accelerators with which it could.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from cosmic.advice.serving_moves import Try, moves_of
from cosmic.advice.sizing import next_size
from cosmic.design.point import DesignPoint
from cosmic.design.serving import Load
from cosmic.evaluation import Infeasible
from cosmic.loading.services import Service
from cosmic.serving.accuracy import errors_of
from cosmic.serving.candidates import load_of, serving_of
from cosmic.serving.confirming import differences, simulated
from cosmic.serving.estimating import estimated
from cosmic.serving.outcome import ServingMetrics
from cosmic.serving.requests import MOST_REQUESTS, Requests
from cosmic.serving.searching import best_mappings, cheapest_in_one
from cosmic.serving.shapes import Shape, shape_of
from cosmic.serving.simulation import Simulated
from cosmic.serving.slo import Slo

LEAST_GAIN = 1.02
"""A move that gains less is not worth its line."""
MOST_MOVES = 5
QUICK, ROUNDS, MOST_CLIENTS = 1_000, 10, 1_500
"""Requests of a simulation that nobody asked for, at least and for each in flight, and the most in flight."""
MOST_REPLAYED = 20_000
"""Requests of a trace that are replayed with a move, too."""
DOUBTFUL = 1.25
"""How many times as long as in closed form a simulated request takes if the mapping is not to be trusted."""
LARGE = (1024, 576, 512, 256, 64)
"""Accelerators of machines on which any instance fits."""


@dataclass(frozen=True)
class Move:
    """Something that an operator can change, and what comes of it."""

    tried: Try
    metrics: ServingMetrics
    gain: float
    """Times as many tokens a second; for a stated rate, times as fast to the last token."""
    holds: bool
    """Whether all limits hold with it."""
    simulated: ServingMetrics | None = None
    """What the simulation says; of the first move alone, where it does not take long."""
    simulated_gain: float | None = None

    @property
    def gain_of(self) -> str:
        """What it has more of, or what is shorter: the time of a request where the rate is stated."""
        return "end to end" if load_of(self.tried.design).rate is not None else "tokens/s"

    @property
    def kind(self) -> str:
        """Whether it takes more accelerators."""
        return "action" if self.tried.npus is None else "purchase"


@dataclass(frozen=True)
class Fewest:
    """The fewest accelerators that bear a load in one pool, in closed form."""

    npus: int
    """Those of a machine that there is."""
    shape: Shape
    """One of its instances."""
    within: bool
    """Whether the limits hold, not the load alone."""
    mapped: bool
    """Whether its instances have the mapping that was stated."""


@dataclass(frozen=True)
class Answer:
    """What a service achieves."""

    design: DesignPoint
    metrics: ServingMetrics | None
    """None where it cannot run."""
    reasons: tuple[str, ...]
    searched: int
    """Mappings of which it has the best; 0 where the mapping was stated."""
    holds: Mapping[str, bool]
    """Which limits hold, as they are written."""
    moves: tuple[Move, ...] = ()
    simulated: ServingMetrics | None = None
    """What the simulation says; None of so many clients that it would take long, unless it was asked for."""
    differences: Mapping[str, float] = field(default_factory=dict)
    """Of the metrics in which closed form and simulation differ by more than 10 %: simulated over closed form."""
    seen: Simulated | None = None
    """All that the simulation saw."""
    leads: bool = False
    """Whether the simulation was asked for."""
    fewest: Fewest | None = None
    """Of a service that cannot run: the fewest accelerators that could."""

    @property
    def shown(self) -> ServingMetrics:
        """What is shown first, and what limits are compared with: the simulation where it was asked for."""
        assert self.metrics is not None  # noqa: S101  it runs
        return self.simulated if self.simulated and self.leads else self.metrics

    @property
    def shape(self) -> Shape:
        """One of its instances."""
        return shape_of(self.design.workload)

    @property
    def instances(self) -> int:
        """Their number."""
        return max(1, self.design.workload.dp // self.shape.ranks)


@dataclass(frozen=True)
class Simulation:
    """What a user wants simulated."""

    requests: Requests | None = None
    """Those of a trace."""
    count: int | None = None
    seed: int = 0
    noting: bool = False
    """Whether a timeline is wanted."""


def answer(service: Service, limits: Sequence[Slo], simulation: Simulation | None = None, *, seed: int = 0) -> Answer:
    """Return what a service achieves, in closed form and where asked for simulated, and what would help it.

    *seed* is of the short simulation that is run where none was asked for.
    """
    mappings, searched = [service.design], 0
    if not service.mapped:
        found, searched = best_mappings(service.design, limits, service.stated)
        mappings = found or mappings
    tried = _tried(mappings[0], simulation, seed)
    if searched and len(mappings) > 1 and tried.doubtful:
        tried = min((tried, *(_tried(each, simulation, seed) for each in mappings[1:])), key=_Tried.seconds)
    design, closed, seen = tried.design, tried.closed, tried.seen
    if closed is None:
        return Answer(design, None, tried.reasons, searched, {}, fewest=_fewest(service, limits))
    shown = seen.metrics if seen and simulation else closed
    holds = {f"{each.metric.upper()} {each}": bool(each.holds(shown)) for each in limits}
    moves = _helpful(moves_of(service, design, limits, mapped=not searched), closed, limits)
    if moves and seen is not None:
        moves[0] = _confirmed(moves[0], seen.metrics, simulation, seed)
    return Answer(
        design,
        closed,
        (),
        searched,
        holds,
        tuple(moves),
        seen.metrics if seen else None,
        differences(closed, seen.metrics) if seen else {},
        seen.all if seen else None,
        leads=simulation is not None,
    )


@dataclass(frozen=True)
class _Seen:
    metrics: ServingMetrics
    all: Simulated


@dataclass(frozen=True)
class _Tried:
    """A mapping in closed form and simulated."""

    design: DesignPoint
    closed: ServingMetrics | None
    """None where it cannot serve."""
    seen: _Seen | None = None
    reasons: tuple[str, ...] = ()

    @property
    def doubtful(self) -> bool:
        """Whether the simulation takes much longer than the closed form says: another mapping may be better."""
        if self.closed is None or self.seen is None:
            return self.closed is None
        return self.seconds() > DOUBTFUL * float(self.closed.e2e.mean_s)

    def seconds(self) -> float:
        """Return the mean time of a request; infinite where it cannot serve."""
        if self.closed is None:
            return inf
        return float((self.seen.metrics if self.seen else self.closed).e2e.mean_s)


def _tried(design: DesignPoint, simulation: Simulation | None, seed: int) -> _Tried:
    closed = estimated(design)
    if isinstance(closed, Infeasible):
        return _Tried(design, None, None, closed.reasons)
    asked = _sized(simulation, closed, seed)
    if asked is None:
        return _Tried(design, closed)
    outcome = simulated(design, asked.requests, asked.count, asked.seed, noting=asked.noting)
    if isinstance(outcome, Infeasible):
        return _Tried(design, None, None, outcome.reasons)
    return _Tried(design, closed, _Seen(*outcome))


def _sized(asked: Simulation | None, closed: ServingMetrics, seed: int) -> Simulation | None:
    """Return a simulation of enough requests; where nobody asks for one, a short one, or none if it would take long.

    Requests must come for several times as long as one of them takes, or hardly any ends while others come.
    """
    in_flight = float(closed.running + closed.waiting)
    if asked is None:
        short = Simulation(count=int(max(QUICK, ROUNDS * in_flight)), seed=seed)
        return short if in_flight <= MOST_CLIENTS else None
    if asked.requests is not None or asked.count is not None:
        return asked
    return replace(asked, count=int(min(max(2 * QUICK, 2 * ROUNDS * in_flight), MOST_REQUESTS)))


# ------------------------------------------------------------------------------------------------ what would help


def _helpful(tries: Iterable[Try], base: ServingMetrics, limits: Sequence[Slo]) -> list[Move]:
    """Return the best of each lever, of those that gain something; first what makes limits hold, then the most gain."""
    best: dict[str, Move] = {}
    held = all(bool(each.holds(base)) for each in limits)
    for each in tries:
        metrics = estimated(each.design)
        if isinstance(metrics, Infeasible):
            continue
        holds = all(bool(limit.holds(metrics)) for limit in limits)
        move = Move(each, metrics, _gain(base, metrics, load_of(each.design)), holds)
        if move.gain < LEAST_GAIN and not (holds and not held):
            continue
        if each.lever == "engine" and move.gain < 1 + _error(each.design):
            continue  # as much as the engines' times may be off
        known = best.get(each.lever)
        if known is None or (holds, move.gain) > (known.holds, known.gain):
            best[each.lever] = move
    return sorted(best.values(), key=lambda each: (each.kind, not each.holds, -each.gain))[:MOST_MOVES]


def _error(design: DesignPoint) -> float:
    """Return the error that is expected of the times of an engine; 0 where none was measured."""
    serving = serving_of(design)
    found = errors_of(serving.engine, disaggregated=serving.disaggregated)
    return found.tpot if found else 0.0


def _confirmed(move: Move, base: ServingMetrics, asked: Simulation | None, seed: int) -> Move:
    """Return a move with what the simulation says of it beside that of the *base*; as it is where that takes long."""
    in_flight = float(move.metrics.running + move.metrics.waiting)
    if in_flight > MOST_CLIENTS or (asked and asked.requests and asked.requests.count > MOST_REPLAYED):
        return move
    wanted = _sized(asked and replace(asked, noting=False), move.metrics, seed)
    if wanted is None:
        return move
    outcome = simulated(move.tried.design, wanted.requests, wanted.count, wanted.seed)
    if isinstance(outcome, Infeasible):
        return move
    return replace(move, simulated=outcome[0], simulated_gain=_gain(base, outcome[0], load_of(move.tried.design)))


def _gain(base: ServingMetrics, other: ServingMetrics, load: Load) -> float:
    if load.rate is not None:
        return float(base.e2e.mean_s / other.e2e.mean_s)
    return float(other.output_tokens_per_s / base.output_tokens_per_s)


# ----------------------------------------------------------------------------------------------- what it would need


def _fewest(service: Service, limits: Sequence[Slo]) -> Fewest | None:
    """Return the fewest accelerators that bear the load within the limits.

    The stated mapping is kept, and the limits, as far as anything bears the load with them.
    """
    base = next((one for npus in LARGE if (one := service.sized(npus))), service.design)
    for within, mapped in ((True, True), (False, True), (True, False), (False, False)):
        found = cheapest_in_one(base, limits if within else (), service.held if mapped else {})
        for each in found:
            npus = next_size(service, each.npus)
            if npus is not None and npus % each.kind.shape.npus == 0:
                return Fewest(npus, each.kind.shape, within, mapped)
        if found:
            return Fewest(found[0].npus, found[0].kind.shape, within, mapped)
    return None

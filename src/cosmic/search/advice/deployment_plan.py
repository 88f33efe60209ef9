"""Which deployment to choose: the front, the cheapest within the limits, one pool beside two, confirmed by simulation.

Machines come in sizes: whole hosts. On a machine of a size, the closed form ranks what fills it: kinds of instances,
and how two pools share them. The one that keeps furthest from its limits is simulated. What the simulation says of
instances over the closed form corrects other deployments of them, so that one that the closed form flatters comes after
the others. The smallest machine of which some deployment holds is the answer. It does not depend on how many
accelerators one may have: a tighter bound never leads to a cheaper deployment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.base.units import SECONDS, format_quantity
from cosmic.design.design_point import DesignPoint
from cosmic.search.advice.service_question import Service
from cosmic.serving.deployment_candidates import (
    Candidate,
    DeploymentRows,
    InstanceKind,
    InstanceShape,
    as_design,
    deployment_rows,
    load_of,
    named_load,
)
from cosmic.serving.deployment_estimates import DeploymentEstimates, estimate_design
from cosmic.serving.deployment_search import FoundDeployments, search_in_one, search_in_two
from cosmic.serving.serving_metrics import ServingMetrics
from cosmic.serving.simulation_check import choose_part, simulate_part_of_design
from cosmic.serving.slo import Slo, all_hold, shares_used
from cosmic.simulate.metrics import Infeasible

# --------------------------------------------------------------------------------------
# How many accelerators a service takes: deployments of one machine after another, the best of each simulated
# --------------------------------------------------------------------------------------

GROWTH = 1.08
"""By what a machine grows if no deployment of it holds, and shrinks if one does."""
LEAPS = 2
"""Sizes after which it grows by more."""
LARGEST_LEAP = 1.5
SIZES = 9
"""Larger machines that are tried at most."""
SIMULATED, OF_A_SIZE = 12, 4
"""Deployments that are simulated at most, and on a machine of one size."""
BESIDE = 0.1
"""What the mean of all limits counts beside the one that is used most."""
DOUBTED = 3
"""Deployments that are simulated at last, on the largest machine that failed."""
REFINED = 6
"""Deployments that are simulated besides, on machines between one that fails and one that holds."""
HOPEFUL, LIKELY = 1.1, 1.05
"""How much of a limit a deployment may use in closed form to be simulated, and where the closed form is corrected."""
DISTRUST = 3.0
"""How many times the closed form's a simulated time counts at most for other deployments of its kind."""
SPLITS = 12
"""Ways to share a machine between two pools that are priced, for each kind."""
STARVED = 0.85
"""A pool has at least this share of the instances that it needs beside plenty of the other."""
MOST_INSTANCES = 48
"""Instances that stand for all of a deployment, at most, where another has fewer."""
BORNE = 0.93
"""Share of the requests of an open loop that end while more come: with less, they queue up."""
FURTHEST = 128
"""Accelerators until the next size of a machine."""


@dataclass(frozen=True)
class Checked:
    """A deployment as it would be built, with what the simulation says of it."""

    candidate: Candidate
    """With what the closed form says of the design."""
    design: DesignPoint
    simulated: ServingMetrics | None
    """Of the whole deployment; None where it cannot serve the requests."""
    holds: bool
    """Whether the limits hold there."""
    share: float = 1.0
    """Share of its instances, with their share of the load, that was simulated."""


class LimitKey(NamedTuple):
    """What decides how much of a limit is used."""

    limit: int
    shape: InstanceShape
    kind: InstanceKind | None
    """None of instances that only prefill, which are the same beside any others."""

    @property
    def alike(self) -> tuple[int, bool, bool, bool]:
        """Instances that are much alike: with attention data parallelism and pipeline stages, or without."""
        return self.limit, self.shape.ranks > 1, self.shape.pp > 1, self.kind is None


@dataclass
class DeploymentSizing:
    """The search for the smallest machine of which a deployment of some kinds holds."""

    service: Service
    kinds: Sequence[Candidate]
    """For each kind the fewest instances that hold in closed form."""
    limits: Sequence[Slo]
    seed: int = 0
    progress: Callable[[str], None] = lambda _: None
    checked: list[Checked] = field(default_factory=list)
    corrections: dict[Hashable, float] = field(default_factory=dict)
    """Simulated over closed form, by what decides it: of each limit, the instances that it is about."""
    sizes: list[int] = field(default_factory=list)
    """Accelerators of the machines that were tried."""
    budget: int = SIMULATED
    """Deployments that are simulated at most."""

    def smallest(self, most: float = inf) -> Checked | None:
        """Return the deployment on the smallest machine that holds; machines larger than *most* are not tried."""
        size = self.next(self.kinds[0].npus) if self.kinds else None
        if size is None or size > most:
            return None
        first = self.on(size)
        found = self._shrunk(first) if first else self._grown(size, most)
        return found and self._again(found)

    def _again(self, found: Checked) -> Checked:
        """Return what holds on the largest machine that failed, of those that what was seen of others made doubtful.

        What the closed form misses of queues weighs least where a pool is least busy: those come first.
        """
        fails = max((size for size in self.sizes if size < found.candidate.npus), default=0)
        options = MachineFillings.on(self.service.design, self.kinds, fails, self.limits) if fails else None
        if options is None:
            return found
        known = set(self._known(options))
        hopeful = options.runs & (options.used.max(axis=0) <= 1)
        order = [int(place) for place in np.argsort(options.busy, kind="stable") if hopeful[place]]
        for place in [each for each in order if each not in known][:DOUBTED]:
            checked = self._checked_at(options, place, fails)
            if checked is not None and checked.holds:
                return checked
        return found

    def _grown(self, size: int, most: float) -> Checked | None:
        """Return what holds on a larger machine than *size*, on which nothing does."""
        for tried in range(1, SIZES + 1):
            wanted = size * (GROWTH if tried <= LEAPS else min(GROWTH**tried, LARGEST_LEAP))
            larger = self.within(size, floor(wanted)) or self.next(size + 1)
            if larger is None or larger > most:
                return None
            found = self.on(larger)
            if found:
                return self._between(size, found)
            size = larger
        return None

    def _between(self, fails: int, found: Checked) -> Checked:
        """Return what holds on the smallest machine that is tried between one that fails and one that holds."""
        self.budget += REFINED
        while found.candidate.npus > GROWTH * fails and self.left:
            middle = self.within(fails, (fails + found.candidate.npus) // 2) or self.next(fails + 1)
            if middle is None or middle >= found.candidate.npus:
                break
            other = self.on(middle)
            if other:
                found = other
            else:
                fails = middle
        return found

    def _shrunk(self, found: Checked) -> Checked:
        """Return what holds on smaller and smaller machines."""
        while self.left:
            size = found.candidate.npus
            smaller = self.within(0, min(size - 1, floor(size / GROWTH)))
            if smaller is None:
                break
            other = self.on(smaller)
            if other is None:
                return self._between(smaller, found)
            found = other
        return found

    @property
    def left(self) -> bool:
        """Whether more may be simulated."""
        return len(self.checked) < self.budget

    def next(self, npus: int) -> int | None:
        """Return the accelerators of the smallest machine with at least so many that instances fill."""
        return next((each for each in range(npus, npus + FURTHEST) if self._filled(each) and self._there(each)), None)

    def within(self, above: int, most: int) -> int | None:
        """Return the accelerators of a machine of about *most*, but more than *above*: one that most kinds fill."""
        sizes = range(max(above, floor(most / GROWTH)) + 1, most + 1)
        order = sorted(((self._filled(each), each) for each in sizes), reverse=True)
        return next((size for kinds, size in order if kinds and self._there(size)), None)

    def _filled(self, npus: int) -> int:
        """Return how many kinds fill so many accelerators."""
        return sum(fills_machine(kind, npus) for kind in self.kinds)

    def _there(self, npus: int) -> bool:
        return self.service.sized(npus) is not None

    def on(self, npus: int) -> Checked | None:
        """Return the deployment on a machine of so many accelerators that holds; None if none does."""
        options = MachineFillings.on(self.service.design, self.kinds, npus, self.limits)
        if options is None:
            return None
        if self.left:
            self.sizes.append(npus)
        tried: set[int] = set()
        while self.left and len(tried) < OF_A_SIZE:
            place = self._best(options, tried)
            if place is None:
                break
            tried.add(place)
            checked = self._checked_at(options, place, npus)
            if checked is not None and checked.holds:
                return checked
        return None

    def _checked_at(self, options: MachineFillings, place: int, npus: int) -> Checked | None:
        """Return a deployment as it is built, simulated, and note it."""
        checked = self._check(options, place, npus)
        if checked is not None:
            self.checked.append(checked)
        return checked

    def _known(self, options: MachineFillings) -> Iterator[int]:
        """Yield the places of deployments that were simulated."""
        simulated = [each.candidate for each in self.checked]
        seen = {(each.kind, each.instances, each.prefill_instances if each.kind.prefill else 1) for each in simulated}
        rows = options.rows
        every = zip(rows.kinds, rows.instances.tolist(), rows.prefill_instances.tolist(), strict=True)
        yield from (index for index, each in enumerate(every) if each in seen)

    def untried(self, npus: int) -> bool:
        """Return whether instances fill a smaller machine than so many accelerators, larger than any that failed."""
        fails = max((size for size in self.sizes if size < npus), default=None)
        return fails is not None and any(self._filled(each) and self._there(each) for each in range(fails + 1, npus))

    def _best(self, options: MachineFillings, tried: set[int]) -> int | None:
        """Return the place of the deployment that keeps furthest from its limits, of those worth a simulation.

        Where those that are like others which failed are not, one that was never simulated is given a chance.
        """
        for guessing in (True, False):
            keys = [self._keys(kind) for kind in options.rows.kinds]
            factors = np.array([[self._factor(key, guessing=guessing) for key in each] for each in keys]).T
            used = options.used * factors
            worst = np.where(options.runs, used.max(axis=0), inf)
            worst[list(tried)] = inf
            best = int(np.argmin(worst + BESIDE * used.mean(axis=0)))
            known = all(key in self.corrections for key in keys[best])
            if worst[best] <= (LIKELY if known else HOPEFUL):
                return best
            if len(tried) > 1:
                break
        return None

    def _keys(self, kind: InstanceKind) -> list[LimitKey]:
        """Return what decides how much of each limit is used: in two pools, TTFT is of those that prefill."""
        first = {index for index, limit in enumerate(self.limits) if limit.metric == "ttft"} | {len(self.limits)}
        return [
            LimitKey(index, kind.prefill, None)
            if kind.prefill and index in first
            else LimitKey(index, kind.shape, kind)
            for index in range(self._shares)
        ]

    def _factor(self, key: LimitKey, *, guessing: bool) -> float:
        """Return by what the closed form is corrected: as its own instances are, or *guessing* as those like them."""
        return self.corrections.get(key, self.corrections.get(key.alike, 1.0) if guessing else 1.0)

    @property
    def _shares(self) -> int:
        """How many limits there are, with the wait that nobody limits."""
        return len(self.limits) + (not any(limit.metric in ("ttft", "e2e") for limit in self.limits))

    def _correct(self, kind: InstanceKind, ratios: npt.NDArray[np.float64]) -> None:
        for key, ratio in zip(self._keys(kind), ratios.tolist(), strict=True):
            self.corrections |= {key: ratio, key.alike: ratio}

    def _check(self, options: MachineFillings, place: int, npus: int) -> Checked | None:
        rows = options.rows
        each = rows.candidates(options.found, [place], self.limits)[0]
        machine = self.service.sized(npus)
        assert machine is not None  # noqa: S101  as there is such a size
        loaded = replace(machine, serving=self.service.design.serving)
        design = as_design(loaded, each.kind, each.instances, each.prefill_instances)
        closed = estimate_design(design)
        if isinstance(closed, Infeasible):
            return None
        self.progress(f"simulating {npus:,} accelerators: {each}")
        seen = simulate_part_of_design(design, float(closed.running + closed.waiting), self.seed)
        candidate = replace(each, metrics=closed, holds=bool(all_hold(closed, self.limits)))
        if isinstance(seen, Infeasible):
            self._correct(each.kind, np.full(len(options.used), DISTRUST))
            return Checked(candidate, design, None, holds=False)
        ratio = np.array(shares_used(seen.metrics, self.limits)) / np.maximum(shares_used(closed, self.limits), 1e-9)
        self._correct(each.kind, np.clip(np.nan_to_num(ratio, nan=DISTRUST), 1 / DISTRUST, DISTRUST))
        rate = load_of(design).rate
        borne = rate is None or float(seen.metrics.requests_per_s) >= BORNE * rate
        return Checked(candidate, design, seen.metrics, borne and bool(all_hold(seen.metrics, self.limits)), seen.share)


@dataclass(frozen=True)
class MachineFillings:
    """Deployments that fill a machine."""

    rows: DeploymentRows
    found: DeploymentEstimates
    used: npt.NDArray[np.float64]
    """How much of each limit they use in closed form: a row for each limit."""

    @property
    def runs(self) -> npt.NDArray[np.bool_]:
        """Which bear the load."""
        return self.found.runs

    @property
    def busy(self) -> npt.NDArray[np.float64]:
        """Share of the time that instances are busy: in two pools, those that prefill."""
        shares = self.found.metrics.utilisation
        busy = np.asarray(shares.get("prefill", shares.get("all", 1.0)), dtype=float)
        return np.broadcast_to(busy, self.runs.shape)

    @classmethod
    def on(
        cls, base: DesignPoint, kinds: Sequence[Candidate], npus: int, limits: Sequence[Slo]
    ) -> MachineFillings | None:
        """Return the deployments of some kinds that fill so many accelerators; None if there are none."""
        clients = load_of(base).concurrency
        every = [(kind.kind, *counts) for kind in kinds for counts in split_machine(kind, npus, clients)]
        if not every:
            return None
        chosen, instances, filling = zip(*every, strict=True)
        name, whole = named_load(load_of(base))
        rows = deployment_rows(base, chosen, name, whole, instances, np.maximum(filling, 1))
        found = rows.estimates()
        used = [np.broadcast_to(each, (len(chosen),)) for each in shares_used(found.metrics, limits)]
        return cls(rows, found, np.nan_to_num(np.array(used, dtype=float), nan=inf))


def fills_machine(each: Candidate, npus: int) -> bool:
    """Return whether instances of a kind fill a machine: in two pools, both with most of what they need."""
    one, other = each.kind.shape.npus, each.kind.prefill.npus if each.kind.prefill else 0
    if not other:
        return npus % one == 0
    least, beside = _fewest_instances(each)
    most = (npus - beside * other) // one
    return any((npus - count * one) % other == 0 for count in range(least, min(most, least + other - 1) + 1))


def _fewest_instances(each: Candidate) -> tuple[int, int]:
    """Return the fewest instances of either pool that are tried."""
    return max(1, ceil(STARVED * each.instances)), max(1, ceil(STARVED * each.prefill_instances))


def split_machine(each: Candidate, npus: int, clients: int | None) -> Iterator[tuple[int, int]]:
    """Yield the instances of a kind that fill a machine: of those that decode or do all, and of those that prefill.

    Where some splits have a small part that stands for the whole, only those.
    """
    one, other = each.kind.shape.npus, each.kind.prefill.npus if each.kind.prefill else 0
    if not other:
        if npus % one == 0:
            yield npus // one, 0
        return
    least, beside = _fewest_instances(each)
    every = [
        (count, (npus - count * one) // other)
        for count in range(least, (npus - beside * other) // one + 1)
        if (npus - count * one) % other == 0
    ]
    every = [counts for counts in every if sum(choose_part(*counts, clients)) <= MOST_INSTANCES] or every
    yield from every[:: max(1, ceil(len(every) / SPLITS))]


def next_machine_size(service: Service, npus: int) -> int | None:
    """Return the accelerators of the smallest machine with at least so many; None if there is none."""
    own = service.design.network.npus
    if not service.system:
        return own if npus <= own else None
    return next((each for each in range(npus, npus + FURTHEST) if service.sized(each)), None)


# --------------------------------------------------------------------------------------
# Which deployment: the front, the cheapest within the limits, one pool beside two, confirmed by simulation
# --------------------------------------------------------------------------------------

SHORT = 1.25
"""By how many times the closed form's fewest accelerators must be too many for nothing to be simulated."""
DEARER = 2.0
"""Machines that are so many times as large as one that holds are not tried for the other kind of pools."""


@dataclass(frozen=True)
class Plan:
    """What a search for a deployment found."""

    one: FoundDeployments
    """All instances do both."""
    two: FoundDeployments
    """Some prefill, the others decode."""
    checked: tuple[Checked, ...]
    """The cheapest deployments in one pool and in two, as they would be built: those that hold the limits first."""
    reasons: tuple[str, ...]
    """Why there is none."""
    needed: int | None
    """Fewest accelerators that hold the limits: simulated, in closed form where nothing was; None if none do."""
    seconds: float
    untried: tuple[int, int] | None = None
    """The largest machine that failed and the one chosen, where not all sizes between them were tried."""

    @property
    def chosen(self) -> Checked | None:
        """The cheapest deployment that holds the limits in the simulation; of two as cheap, the one in one pool."""
        return next((each for each in self.checked if each.holds), None)

    def built(self, *, disaggregated: bool) -> Checked | None:
        """Return the cheapest deployment in one pool, or in two, that holds the limits in the simulation."""
        return next(
            (each for each in self.checked if each.holds and bool(each.candidate.kind.prefill) == disaggregated), None
        )

    @property
    def front(self) -> tuple[Candidate, ...]:
        """The front of both, slowest users first."""
        every = sorted((*self.one.front, *self.two.front), key=_speed_then_throughput)
        kept: list[Candidate] = []
        for each in every:
            if not kept or each.metrics.tokens_per_s_per_npu > kept[-1].metrics.tokens_per_s_per_npu:
                kept.append(each)
        return tuple(kept[::-1])


def _speed_then_throughput(each: Candidate) -> tuple[float, float]:
    return -each.metrics.tokens_per_s_per_user, -each.metrics.tokens_per_s_per_npu


def plan_deployments(
    service: Service,
    limits: Sequence[Slo],
    most: int | None = None,
    *,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Return the deployments of a service that are worth choosing, on *most* accelerators at most.

    *progress* is told what is being done.
    """
    began = time.monotonic()
    base, held = service.design, service.held
    progress("comparing deployments in one pool")
    one = search_in_one(base, limits, held)
    if not held:
        progress("comparing deployments in two pools")
    two = FoundDeployments() if held else search_in_two(base, limits, most)
    tried = _confirm_deployments(service, (one, two), limits, most, seed, progress)
    checked = [each for sizing in tried for each in sizing.checked]
    within = [each for each in checked if most is None or each.candidate.npus <= most]
    within.sort(key=lambda each: (not each.holds, each.candidate.npus, each.candidate.kind.prefill is not None))
    reasons = () if any(each.holds for each in within) else _explain_failure(service, (one, two), checked, limits, most)
    best = within[0] if within and within[0].holds else None
    untried = _untried_sizes(tried, best) if best else None
    needed = _fewest_needed(service, (one, two), checked)
    return Plan(one, two, tuple(within), reasons, needed, time.monotonic() - began, untried)


def _untried_sizes(tried: Sequence[DeploymentSizing], best: Checked) -> tuple[int, int] | None:
    """Return the sizes between which not all were tried, of the search that found the best."""
    npus = best.candidate.npus
    sizing = next(each for each in tried if best in each.checked)
    return (max(size for size in sizing.sizes if size < npus), npus) if sizing.untried(npus) else None


def _confirm_deployments(
    service: Service,
    parts: Sequence[FoundDeployments],
    limits: Sequence[Slo],
    most: int | None,
    seed: int,
    progress: Callable[[str], None],
) -> list[DeploymentSizing]:
    """Return what was tried in one pool and in two: deployments as they would be built, until one of each holds.

    What is tried does not depend on *most*, except that nothing is where it is far too few.
    """
    found: list[DeploymentSizing] = []
    bound = inf
    for part in sorted((each for each in parts if each.cheapest), key=lambda each: each.cheapest[0].npus):
        if most is not None and part.cheapest[0].npus > SHORT * most:
            continue
        sizing = DeploymentSizing(service, part.cheapest, limits, seed, progress)
        smallest = sizing.smallest(bound)
        found.append(sizing)
        bound = min(bound, DEARER * smallest.candidate.npus) if smallest else bound
    return found


def _fewest_needed(service: Service, parts: Sequence[FoundDeployments], checked: Sequence[Checked]) -> int | None:
    """Return the fewest accelerators that hold the limits in the simulation; in closed form where none was found."""
    confirmed = [each.candidate.npus for each in checked if each.holds]
    priced = [part.cheapest[0].npus for part in parts if part.cheapest]
    sizes = confirmed or [size for npus in priced if (size := next_machine_size(service, npus)) is not None] or priced
    return min(sizes, default=None)


def _explain_failure(
    service: Service,
    parts: Sequence[FoundDeployments],
    checked: Sequence[Checked],
    limits: Sequence[Slo],
    most: int | None,
) -> tuple[str, ...]:
    """Return why no deployment holds, on *most* accelerators at most."""
    one, base = parts[0], service.design
    if one.kinds == 0:
        return (
            f"no instance of up to {accelerators_text(base.network.npus)} has memory for the weights and a request",
        )
    said = " and ".join(f"{limit.metric.upper()} {limit}" for limit in limits)
    needed = _fewest_needed(service, parts, checked)
    if needed is None:
        return (f"no deployment holds {said}, however many accelerators: {_nearest_to_limits(one, limits)}",)
    name, whole = named_load(load_of(base))
    load = f"{whole:,.4g} requests/s" if name == "rate" else f"{whole:,.0f} requests in flight"
    asked = f"{load}{f' within {said}' if said else ''}"
    if most is not None and needed > most:
        by = "simulated" if any(each.holds for each in checked) else "in closed form"
        return (f"{asked} take {accelerators_text(needed)} ({by}), more than {most:,}",)
    if not checked:
        own = base.network.npus
        return (
            f"{asked} take {accelerators_text(needed)}, and there is no such machine: {service.source} has {own:,}",
        )
    return (f"{asked}: no deployment holds in the simulation, of {len(checked)} that do in closed form or nearly",)


def accelerators_text(npus: int) -> str:
    """Return a number of accelerators in words.

    >>> accelerators_text(1), accelerators_text(1024)
    ('1 accelerator', '1,024 accelerators')
    """
    return f"{npus:,} accelerator{'' if npus == 1 else 's'}"


def _nearest_to_limits(one: FoundDeployments, limits: Sequence[Slo]) -> str:
    """Return what comes nearest to each limit."""
    parts = []
    for limit in limits:
        best = min((float(limit.value(candidate.metrics)) for candidate in one.front), default=float("nan"))
        parts.append(
            f"the least {limit.metric.upper()} ({limit.statistic}) is {format_quantity(float(f'{best:.3g}'), SECONDS)}"
        )
    return ", ".join(parts) or "none bears the load"

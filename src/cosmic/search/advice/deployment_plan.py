"""Which deployment to choose: the front, the cheapest within the limits, one pool beside two, confirmed by simulation.

Machines come in sizes: whole hosts. On a machine of a size, the closed form ranks what fills it: kinds of instances,
and how two pools share them. The one that keeps furthest from its limits is simulated. What the simulation says of
instances over the closed form corrects other deployments of them, so that one that the closed form flatters comes after
the others. The smallest machine of which some deployment holds is the answer. It does not depend on how many
accelerators one may have: a tighter bound never leads to a cheaper deployment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.base.json_types import Count, Keywords, PositiveCount, json_keys
from cosmic.base.optimise import Steps, optimise
from cosmic.base.units import SECONDS, format_quantity
from cosmic.design.answer import Answer, Answered, Provenance
from cosmic.design.design_point import DesignPoint
from cosmic.search.advice.service_question import Service
from cosmic.serving.deployment_candidates import (
    Candidate,
    DeploymentRows,
    InstanceKind,
    InstanceShape,
    RequestLoad,
    as_design,
    deployment_rows,
    load_of,
    named_load,
)
from cosmic.serving.deployment_search import FoundDeployments, search_in_one, search_in_two
from cosmic.serving.served_evaluation import DeploymentEstimates, estimate_design
from cosmic.serving.serving_accuracy import JudgedLimit, ServingErrors, errors_of_design, judge_limits
from cosmic.serving.serving_metrics import ServingMetrics, Slo, all_hold, shares_used
from cosmic.serving.simulation_check import choose_part, simulate_part_of_design
from cosmic.simulate.metrics import Infeasible

# ---- How many accelerators a service takes: deployments of one machine after another, the best of each simulated

GROWTH_FACTOR = 1.08
"""By what a machine grows if no deployment of it holds, and shrinks if one does."""
SMALL_STEPS = 2
"""Sizes after which it grows by more."""
MAX_GROWTH = 1.5
MAX_SIZES = 9
"""Larger machines that are tried at most."""
MAX_SIMULATED, MAX_SIMULATED_PER_SIZE = 12, 4
"""Deployments that are simulated at most, and on a machine of one size."""
MEAN_WEIGHT = 0.1
"""What the mean of all limits counts beside the one that is used most."""
MAX_RETRIES = 3
"""Deployments that are simulated at last, on the largest machine that failed."""
EXTRA_SIMULATIONS = 6
"""Deployments that are simulated besides, on machines between one that fails and one that holds."""
MAX_USE_UNCORRECTED, MAX_USE_CORRECTED = 1.1, 1.05
"""How much of a limit a deployment may use in closed form to be simulated, and where the closed form is corrected."""
MAX_CORRECTION = 3.0
"""How many times the closed form's a simulated time counts at most for other deployments of its kind."""
MAX_SPLITS = 12
"""Ways to share a machine between two pools that are priced, for each kind."""
MIN_POOL_SHARE = 0.85
"""A pool has at least this share of the instances that it needs beside plenty of the other."""
MAX_INSTANCES = 48
"""Instances that stand for all of a deployment, at most, where another has fewer."""
MIN_SERVED_SHARE = 0.93
"""Share of the requests of an open loop that end while more come: with less, they queue up."""
SIZE_RANGE = 128
"""Accelerators until the next size of a machine."""


@json_keys(
    "expected_error",
    without=("limits",),
    identity="design.identity",
    deployment="candidate",
    simulated_share="share",
    limits="judged",
)
@dataclass(frozen=True)
class Checked:
    """A deployment as it would be built."""

    candidate: Candidate
    """With what the closed form says of the design."""
    design: DesignPoint
    simulated: ServingMetrics | None
    """Of the whole deployment; None where it cannot serve the requests."""
    holds: bool
    """Whether all limits hold, in the simulation too where there was one."""
    share: Annotated[float, Keywords(maximum=1, exclusiveMinimum=0)] = 1.0
    """Share of its instances that was simulated, in the ratio of its pools, with their share of the load."""
    limits: tuple[Slo, ...] = ()

    @property
    def judged(self) -> tuple[JudgedLimit, ...]:
        """The limits that were asked for."""
        return judge_limits(self.limits, self.simulated or self.candidate.metrics, self.design)

    @property
    def expected_error(self) -> ServingErrors | None:
        """How far off times are expected to be: mean errors of published runs of this kind; None where there were none."""
        return errors_of_design(self.design)


class LimitKey(NamedTuple):
    """What decides how much of a limit is used."""

    limit: int
    shape: InstanceShape
    kind: InstanceKind | None
    """None of instances that only prefill, which are the same beside any others."""

    @property
    def similar(self) -> tuple[int, bool, bool, bool]:
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
    budget: int = MAX_SIMULATED
    """Deployments that are simulated at most."""

    def find_smallest(self, most: float = inf) -> Checked | None:
        """Return the deployment on the smallest machine that holds; machines larger than *most* are not tried."""
        return optimise(self.steps(most), self._check_and_record)

    def steps(self, most: float) -> Steps[Filling, Checked | None, Checked | None]:
        """Ask for deployments to simulate, on one machine after another; return the one on the smallest that holds."""
        size = self.next_size(self.kinds[0].npus) if self.kinds else None
        if size is None or size > most:
            return None
        first = yield from self._try_size(size)
        deployment = yield from (self._try_smaller(first) if first else self._try_larger(size, most))
        if deployment is None:
            return None
        return (yield from self._retry_failed(deployment))

    def _retry_failed(self, deployment: Checked) -> Steps[Filling, Checked | None, Checked]:
        """Return what holds on the largest machine that failed, of those that what was seen of others made doubtful.

        What the closed form misses of queues weighs least where a pool is least busy: those come first.
        """
        fails = max((size for size in self.sizes if size < deployment.candidate.npus), default=0)
        options = MachineFillings.fill(self.service.design, self.kinds, fails, self.limits) if fails else None
        if options is None:
            return deployment
        simulated = set(self._simulated_rows(options))
        promising = options.runs & (options.used.max(axis=0) <= 1)
        order = [int(row) for row in np.argsort(options.busy, kind="stable") if promising[row]]
        for row in [option_row for option_row in order if option_row not in simulated][:MAX_RETRIES]:
            checked = yield Filling(options, row, fails)
            if checked is not None and checked.holds:
                return checked
        return deployment

    def _try_larger(self, size: int, most: float) -> Steps[Filling, Checked | None, Checked | None]:
        """Return what holds on a larger machine than *size*, on which nothing does."""
        for attempt in range(1, MAX_SIZES + 1):
            target = size * (GROWTH_FACTOR if attempt <= SMALL_STEPS else min(GROWTH_FACTOR**attempt, MAX_GROWTH))
            larger = self.size_within(size, floor(target)) or self.next_size(size + 1)
            if larger is None or larger > most:
                return None
            deployment = yield from self._try_size(larger)
            if deployment:
                return (yield from self._try_between(size, deployment))
            size = larger
        return None

    def _try_between(self, fails: int, deployment: Checked) -> Steps[Filling, Checked | None, Checked]:
        """Return what holds on the smallest machine that is tried between one that fails and one that holds."""
        self.budget += EXTRA_SIMULATIONS
        while deployment.candidate.npus > GROWTH_FACTOR * fails and self.may_simulate:
            middle = self.size_within(fails, (fails + deployment.candidate.npus) // 2) or self.next_size(fails + 1)
            if middle is None or middle >= deployment.candidate.npus:
                break
            smaller = yield from self._try_size(middle)
            if smaller:
                deployment = smaller
            else:
                fails = middle
        return deployment

    def _try_smaller(self, deployment: Checked) -> Steps[Filling, Checked | None, Checked]:
        """Return what holds on smaller and smaller machines."""
        while self.may_simulate:
            size = deployment.candidate.npus
            smaller = self.size_within(0, min(size - 1, floor(size / GROWTH_FACTOR)))
            if smaller is None:
                break
            checked = yield from self._try_size(smaller)
            if checked is None:
                return (yield from self._try_between(smaller, deployment))
            deployment = checked
        return deployment

    @property
    def may_simulate(self) -> bool:
        """Whether more may be simulated."""
        return len(self.checked) < self.budget

    def next_size(self, npus: int) -> int | None:
        """Return the accelerators of the smallest machine with at least so many that instances fill."""
        return next(
            (size for size in range(npus, npus + SIZE_RANGE) if self._count_filling(size) and self._exists(size)), None
        )

    def size_within(self, above: int, most: int) -> int | None:
        """Return the accelerators of a machine of about *most*, but more than *above*: one that most kinds fill."""
        sizes = range(max(above, floor(most / GROWTH_FACTOR)) + 1, most + 1)
        order = sorted(((self._count_filling(npus), npus) for npus in sizes), reverse=True)
        return next((size for kinds, size in order if kinds and self._exists(size)), None)

    def _count_filling(self, npus: int) -> int:
        """Return how many kinds fill so many accelerators."""
        return sum(fills_machine(kind, npus) for kind in self.kinds)

    def _exists(self, npus: int) -> bool:
        return self.service.sized(npus) is not None

    def _try_size(self, npus: int) -> Steps[Filling, Checked | None, Checked | None]:
        """Ask for deployments on a machine of so many accelerators; return one that holds, None if none does."""
        options = MachineFillings.fill(self.service.design, self.kinds, npus, self.limits)
        if options is None:
            return None
        if self.may_simulate:
            self.sizes.append(npus)
        tried: set[int] = set()
        while self.may_simulate and len(tried) < MAX_SIMULATED_PER_SIZE:
            row = self._choose_option(options, tried)
            if row is None:
                break
            tried.add(row)
            checked = yield Filling(options, row, npus)
            if checked is not None and checked.holds:
                return checked
        return None

    def _check_and_record(self, filling: Filling) -> Checked | None:
        """Return a deployment as it is built, simulated, and note it."""
        checked = self._check(filling.options, filling.row, filling.npus)
        if checked is not None:
            self.checked.append(checked)
        return checked

    def _simulated_rows(self, options: MachineFillings) -> Iterator[int]:
        """Yield the places of deployments that were simulated."""
        simulated = [candidate.candidate for candidate in self.checked]
        seen = {
            (candidate.kind, candidate.instances, candidate.prefill_instances if candidate.kind.prefill else 1)
            for candidate in simulated
        }
        rows = options.rows
        option_keys = zip(rows.kinds, rows.instances.tolist(), rows.prefill_instances.tolist(), strict=True)
        yield from (index for index, candidate in enumerate(option_keys) if candidate in seen)

    def untried(self, npus: int) -> bool:
        """Return whether instances fill a smaller machine than so many accelerators, larger than any that failed."""
        fails = max((size for size in self.sizes if size < npus), default=None)
        return fails is not None and any(
            self._count_filling(between) and self._exists(between) for between in range(fails + 1, npus)
        )

    def _choose_option(self, options: MachineFillings, tried: set[int]) -> int | None:
        """Return the place of the deployment that keeps furthest from its limits, of those worth a simulation.

        Where those that are like others which failed are not, one that was never simulated is given a chance.
        """
        for guessing in (True, False):
            keys = [self._keys(kind) for kind in options.rows.kinds]
            factors = np.array([[self._factor(key, guessing=guessing) for key in row_keys] for row_keys in keys]).T
            used = options.used * factors
            worst = np.where(options.runs, used.max(axis=0), inf)
            worst[list(tried)] = inf
            best = int(np.argmin(worst + MEAN_WEIGHT * used.mean(axis=0)))
            all_corrected = all(key in self.corrections for key in keys[best])
            if worst[best] <= (MAX_USE_CORRECTED if all_corrected else MAX_USE_UNCORRECTED):
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
        return self.corrections.get(key, self.corrections.get(key.similar, 1.0) if guessing else 1.0)

    @property
    def _shares(self) -> int:
        """How many limits there are, with the wait that nobody limits."""
        return len(self.limits) + (not any(limit.metric in ("ttft", "e2e") for limit in self.limits))

    def _correct(self, kind: InstanceKind, ratios: npt.NDArray[np.float64]) -> None:
        for key, ratio in zip(self._keys(kind), ratios.tolist(), strict=True):
            self.corrections |= {key: ratio, key.similar: ratio}

    def _check(self, options: MachineFillings, row: int, npus: int) -> Checked | None:
        rows = options.rows
        option = rows.candidates([row], self.limits)[0]
        machine = self.service.sized(npus)
        assert machine is not None  # noqa: S101  as there is such a size
        loaded = replace(machine, serving=self.service.design.serving)
        design = as_design(loaded, option.kind, option.instances, option.prefill_instances)
        closed = estimate_design(design)
        if isinstance(closed, Infeasible):
            return None
        self.progress(f"simulating {npus:,} accelerators: {option}")
        simulation = simulate_part_of_design(design, float(closed.running + closed.waiting), self.seed)
        candidate = replace(option, metrics=closed, holds=bool(all_hold(closed, self.limits)))
        if isinstance(simulation, Infeasible):
            self._correct(option.kind, np.full(len(options.used), MAX_CORRECTION))
            return Checked(candidate, design, None, holds=False, limits=tuple(self.limits))
        ratio = np.array(shares_used(simulation.metrics, self.limits)) / np.maximum(
            shares_used(closed, self.limits), 1e-9
        )
        self._correct(
            option.kind, np.clip(np.nan_to_num(ratio, nan=MAX_CORRECTION), 1 / MAX_CORRECTION, MAX_CORRECTION)
        )
        rate = load_of(design).rate
        borne = rate is None or float(simulation.metrics.requests_per_s) >= MIN_SERVED_SHARE * rate
        return Checked(
            candidate,
            design,
            simulation.metrics,
            borne and bool(all_hold(simulation.metrics, self.limits)),
            simulation.share,
            tuple(self.limits),
        )


@dataclass(frozen=True)
class MachineFillings:
    """Deployments that fill a machine."""

    rows: DeploymentRows
    estimates: DeploymentEstimates
    used: npt.NDArray[np.float64]
    """How much of each limit they use in closed form: a row for each limit."""

    @property
    def runs(self) -> npt.NDArray[np.bool_]:
        """Which bear the load."""
        return self.estimates.runs

    @property
    def busy(self) -> npt.NDArray[np.float64]:
        """Share of the time that instances are busy: in two pools, those that prefill."""
        shares = self.estimates.metrics.utilisation
        busy = np.asarray(shares.get("prefill", shares.get("all", 1.0)), dtype=float)
        return np.broadcast_to(busy, self.runs.shape)

    @classmethod
    def fill(
        cls, base: DesignPoint, kinds: Sequence[Candidate], npus: int, limits: Sequence[Slo]
    ) -> MachineFillings | None:
        """Return the deployments of some kinds that fill so many accelerators; None if there are none."""
        clients = load_of(base).concurrency
        fillings = [(kind.kind, *counts) for kind in kinds for counts in split_machine(kind, npus, clients)]
        if not fillings:
            return None
        chosen, instances, filling = zip(*fillings, strict=True)
        name, load_value = named_load(load_of(base))
        rows = deployment_rows(base, chosen, name, load_value, instances, np.maximum(filling, 1))
        estimates = rows.estimates
        used = [np.broadcast_to(shares, (len(chosen),)) for shares in shares_used(estimates.metrics, limits)]
        return cls(rows, estimates, np.nan_to_num(np.array(used, dtype=float), nan=inf))


class Filling(NamedTuple):
    """One of the deployments that fill a machine of so many accelerators, to simulate."""

    options: MachineFillings
    row: int
    npus: int


def fills_machine(candidate: Candidate, npus: int) -> bool:
    """Return whether instances of a kind fill a machine: in two pools, both with most of what they need."""
    instance_npus, prefill_npus = (
        candidate.kind.shape.npus,
        candidate.kind.prefill.npus if candidate.kind.prefill else 0,
    )
    if not prefill_npus:
        return npus % instance_npus == 0
    least, min_prefill = _fewest_instances(candidate)
    most = (npus - min_prefill * prefill_npus) // instance_npus
    return any(
        (npus - count * instance_npus) % prefill_npus == 0
        for count in range(least, min(most, least + prefill_npus - 1) + 1)
    )


def _fewest_instances(candidate: Candidate) -> tuple[int, int]:
    """Return the fewest instances of either pool that are tried."""
    return max(1, ceil(MIN_POOL_SHARE * candidate.instances)), max(
        1, ceil(MIN_POOL_SHARE * candidate.prefill_instances)
    )


def split_machine(candidate: Candidate, npus: int, clients: int | None) -> Iterator[tuple[int, int]]:
    """Yield the instances of a kind that fill a machine: of those that decode or do all, and of those that prefill.

    Where some splits have a small part that stands for the whole, only those.
    """
    instance_npus, prefill_npus = (
        candidate.kind.shape.npus,
        candidate.kind.prefill.npus if candidate.kind.prefill else 0,
    )
    if not prefill_npus:
        if npus % instance_npus == 0:
            yield npus // instance_npus, 0
        return
    least, min_prefill = _fewest_instances(candidate)
    splits = [
        (count, (npus - count * instance_npus) // prefill_npus)
        for count in range(least, (npus - min_prefill * prefill_npus) // instance_npus + 1)
        if (npus - count * instance_npus) % prefill_npus == 0
    ]
    splits = [counts for counts in splits if sum(choose_part(*counts, clients)) <= MAX_INSTANCES] or splits
    yield from splits[:: max(1, ceil(len(splits) / MAX_SPLITS))]


def next_machine_size(service: Service, npus: int) -> int | None:
    """Return the accelerators of the smallest machine with at least so many; None if there is none."""
    design_npus = service.design.network.npus
    if not service.system:
        return design_npus if npus <= design_npus else None
    return next((size for size in range(npus, npus + SIZE_RANGE) if service.sized(size)), None)


# ---- Which deployment: the front, the cheapest within the limits, one pool beside two, confirmed by simulation

SHORTFALL_FACTOR = 1.25
"""By how many times the closed form's fewest accelerators must be too many for nothing to be simulated."""
MAX_SIZE_RATIO = 2.0
"""Machines that are so many times as large as one that holds are not tried for the other kind of pools."""


@dataclass(frozen=True, slots=True)
class ComparedInstanceKinds:
    """Kinds of instances that were compared."""

    aggregated: Count
    """Shapes of an instance and limits of its steps."""
    disaggregated: Count
    """Pairs of shapes."""


@json_keys(
    "feasible",
    "load",
    "assumed",
    "front",
    "aggregated",
    "disaggregated",
    "held",
    "chosen",
    "kinds",
    "priced",
    "exhaustive",
    "answer",
    without=("one", "two", "service", "seed"),
    needed_npus="needed",
)
@dataclass(frozen=True)
class Plan(Answered):
    """What a search for a deployment found; where none holds the limits, the command ends with exit code 1."""

    one: FoundDeployments
    """All instances do both."""
    two: FoundDeployments
    """Some prefill, the others decode."""
    checked: tuple[Checked, ...]
    """Deployments as they would be built that were simulated: those that hold first, then the smallest."""
    reasons: tuple[str, ...]
    """Why none does, a sentence each; empty if one does."""
    needed: PositiveCount | None
    """The fewest accelerators of a machine that hold the limits: simulated, in closed form where nothing was; None if
    none do."""
    seconds: float
    """Time that the search took."""
    service: Service = field(repr=False, compare=False)
    """What was asked."""
    untried: tuple[PositiveCount, PositiveCount] | None = None
    """The largest machine that failed and the one chosen, where not all sizes between them were tried; None where all
    were."""
    limits: tuple[Slo, ...] = ()
    """The limits that were asked for."""
    seed: int = 0

    @property
    def feasible(self) -> bool:
        """Whether some deployment holds the limits at the load."""
        return self.chosen is not None

    @property
    def load(self) -> RequestLoad:
        """What clients ask for."""
        return RequestLoad.of(load_of(self.service.design))

    @property
    def assumed(self) -> tuple[str, ...]:
        """What was assumed as nobody said it, a sentence each."""
        return self.service.assumed

    @property
    def aggregated(self) -> Candidate | None:
        """The cheapest deployment whose instances do both prefill and decode; None if none holds the limits."""
        return next(iter(self.one.cheapest), None)

    @property
    def disaggregated(self) -> Candidate | None:
        """The cheapest with instances for prefill and others for decode; None if none holds the limits."""
        return next(iter(self.two.cheapest), None)

    @property
    def held(self) -> Mapping[str, PositiveCount]:
        """Fields of an instance's mapping that the file or --set states: only such instances in one pool are compared."""
        return self.service.held

    @property
    def kinds(self) -> ComparedInstanceKinds:
        """How many kinds of instances were compared."""
        return ComparedInstanceKinds(self.one.kinds, self.two.kinds)

    @property
    def priced(self) -> Count:
        """Deployments that were priced."""
        return self.one.priced + self.two.priced

    @property
    def exhaustive(self) -> bool:
        """Whether all kinds that fit were compared."""
        return self.one.exhaustive and self.two.exhaustive

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        best, service = self.chosen, self.service
        verdict = (
            f"cannot serve: {'; '.join(self.reasons)}"
            if best is None
            else f"cheapest: {accelerators_text(best.candidate.npus)}, {best.candidate}"
        )
        return Answer(
            question="deployment",
            verdict=verdict,
            reasons=self.reasons,
            assumptions=(*service.assumed, *self.untried_in_words),
            provenance=Provenance(
                inputs={"design": service.source, "settings": dict(service.settings)},
                seed=self.seed,
            ),
        )

    @property
    def untried_in_words(self) -> tuple[str, ...]:
        """Between which sizes not all were tried, in a sentence; none where all were."""
        between = "between {:,} accelerators, which fail, and {:,} not all sizes were tried"
        return (between.format(*self.untried),) if self.untried else ()

    @property
    def chosen(self) -> Checked | None:
        """The cheapest deployment that holds the limits as it would be built."""
        return next((deployment for deployment in self.checked if deployment.holds), None)

    def built(self, *, disaggregated: bool) -> Checked | None:
        """Return the cheapest deployment in one pool, or in two, that holds the limits in the simulation."""
        return next(
            (
                deployment
                for deployment in self.checked
                if deployment.holds and bool(deployment.candidate.kind.prefill) == disaggregated
            ),
            None,
        )

    @property
    def front(self) -> tuple[Candidate, ...]:
        """The Pareto front, slowest users first: no deployment has more tokens/s for an accelerator and for a user."""
        candidates = sorted((*self.one.front, *self.two.front), key=_speed_then_throughput)
        best: list[Candidate] = []
        for candidate in candidates:
            if not best or candidate.metrics.tokens_per_s_per_npu > best[-1].metrics.tokens_per_s_per_npu:
                best.append(candidate)
        return tuple(best[::-1])


def _speed_then_throughput(candidate: Candidate) -> tuple[float, float]:
    return -candidate.metrics.tokens_per_s_per_user, -candidate.metrics.tokens_per_s_per_npu


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
    base, fixed_fields = service.design, service.held
    progress("comparing deployments in one pool")
    one_pool = search_in_one(base, limits, fixed_fields)
    if not fixed_fields:
        progress("comparing deployments in two pools")
    two_pools = FoundDeployments() if fixed_fields else search_in_two(base, limits, most)
    sizings = _confirm_deployments(service, (one_pool, two_pools), limits, most, seed, progress)
    checked = [deployment for sizing in sizings for deployment in sizing.checked]
    within = [deployment for deployment in checked if most is None or deployment.candidate.npus <= most]
    within.sort(
        key=lambda deployment: (
            not deployment.holds,
            deployment.candidate.npus,
            deployment.candidate.kind.prefill is not None,
        )
    )
    reasons = (
        ()
        if any(deployment.holds for deployment in within)
        else _explain_failure(service, (one_pool, two_pools), checked, limits, most)
    )
    best = within[0] if within and within[0].holds else None
    untried = _untried_sizes(sizings, best) if best else None
    needed = _fewest_needed(service, (one_pool, two_pools), checked)
    seconds = time.monotonic() - began
    return Plan(one_pool, two_pools, tuple(within), reasons, needed, seconds, service, untried, tuple(limits), seed)


def _untried_sizes(sizings: Sequence[DeploymentSizing], best: Checked) -> tuple[int, int] | None:
    """Return the sizes between which not all were tried, of the search that found the best."""
    npus = best.candidate.npus
    sizing = next(deployment for deployment in sizings if best in deployment.checked)
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
    sizings: list[DeploymentSizing] = []
    bound = inf
    for part in sorted((pools for pools in parts if pools.cheapest), key=lambda pools: pools.cheapest[0].npus):
        if most is not None and part.cheapest[0].npus > SHORTFALL_FACTOR * most:
            continue
        sizing = DeploymentSizing(service, part.cheapest, limits, seed, progress)
        smallest = sizing.find_smallest(bound)
        sizings.append(sizing)
        bound = min(bound, MAX_SIZE_RATIO * smallest.candidate.npus) if smallest else bound
    return sizings


def _fewest_needed(service: Service, parts: Sequence[FoundDeployments], checked: Sequence[Checked]) -> int | None:
    """Return the fewest accelerators that hold the limits in the simulation; in closed form where none was found."""
    confirmed = [deployment.candidate.npus for deployment in checked if deployment.holds]
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
    one_pool, base = parts[0], service.design
    if one_pool.kinds == 0:
        return (
            f"no instance of up to {accelerators_text(base.network.npus)} has memory for the weights and a request",
        )
    limits_text = " and ".join(f"{limit.metric.upper()} {limit}" for limit in limits)
    needed = _fewest_needed(service, parts, checked)
    if needed is None:
        return (
            f"no deployment holds {limits_text}, however many accelerators: {_nearest_limits_text(one_pool, limits)}",
        )
    name, load_value = named_load(load_of(base))
    load = f"{load_value:,.4g} requests/s" if name == "rate" else f"{load_value:,.0f} requests in flight"
    question_text = f"{load}{f' within {limits_text}' if limits_text else ''}"
    if most is not None and needed > most:
        by = "simulated" if any(deployment.holds for deployment in checked) else "in closed form"
        return (f"{question_text} take {accelerators_text(needed)} ({by}), more than {most:,}",)
    if not checked:
        design_npus = base.network.npus
        return (
            f"{question_text} take {accelerators_text(needed)}, and there is no such machine: {service.source} has {design_npus:,}",
        )
    return (
        f"{question_text}: no deployment holds in the simulation, of {len(checked)} that do in closed form or nearly",
    )


def accelerators_text(npus: int) -> str:
    """Return a number of accelerators in words.

    >>> accelerators_text(1), accelerators_text(1024)
    ('1 accelerator', '1,024 accelerators')
    """
    return f"{npus:,} accelerator{'' if npus == 1 else 's'}"


def _nearest_limits_text(one_pool: FoundDeployments, limits: Sequence[Slo]) -> str:
    """Return what comes nearest to each limit."""
    parts = []
    for limit in limits:
        best = min((float(limit.value(candidate.metrics)) for candidate in one_pool.front), default=float("nan"))
        parts.append(
            f"the least {limit.metric.upper()} ({limit.statistic}) is {format_quantity(float(f'{best:.3g}'), SECONDS)}"
        )
    return ", ".join(parts) or "none bears the load"

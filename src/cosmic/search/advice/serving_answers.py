"""What a service achieves, and what would help it: moves that an operator has, each tried.

The mapping is the stated one, or the best for the load. A service that cannot run has reasons, and the fewest
accelerators with which it could. An operator can change its instances, engine, number formats, limits, pools, and their
number.

`serve` is `cosmic serve` in one call, `plan_serving` is `cosmic serve --search`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, nan
from typing import Annotated, Any, TypedDict, Unpack

from cosmic.base.json_types import (
    AlwaysFalse,
    AlwaysTrue,
    Count,
    Keywords,
    PositiveCount,
    Ratio,
    json_keys,
    one_of,
)
from cosmic.design.answer import Answer, Answered, Improvement, Provenance
from cosmic.design.catalog_entries import entry_names
from cosmic.design.design_point import DesignPoint, full_path
from cosmic.design.serving_layer import Load
from cosmic.frameworks.launch import targets, unsupported_reason
from cosmic.search.advice.deployment_plan import Plan, accelerators_text, next_machine_size, plan_deployments
from cosmic.search.advice.moves import ACCURACY, ENGINE, NARROWER, TOKEN_BUDGETS
from cosmic.search.advice.service_question import Asked, Service, read_service
from cosmic.search.design_wording import seconds_text, setting_option
from cosmic.serving.deployment_candidates import (
    Candidate,
    InstanceKind,
    InstancePool,
    InstanceShape,
    RequestLoad,
    as_design,
    has_experts,
    load_of,
    pool_of,
    prefill_pool_of,
    serving_of,
    shape_of,
)
from cosmic.serving.deployment_search import best_mappings, best_split, cheapest_in_one
from cosmic.serving.request_simulation import SimulatedLoad
from cosmic.serving.served_evaluation import estimate_design
from cosmic.serving.serving_accuracy import JudgedLimit, ServingErrors, errors_of_design, judge_limits
from cosmic.serving.serving_metrics import ServingMetrics, Slo, read_rate, read_slo
from cosmic.serving.serving_requests import MOST_REQUESTS, Requests
from cosmic.serving.simulation_check import compare_with_simulation, simulate_design
from cosmic.simulate.metrics import Infeasible

# ---- What an operator of a service can change: its instances, engine, number formats, limits, pools, and their number

NARROWER_THAN_16_BITS = ("fp8", "fp4")
"""Formats narrower than 16 bits that accelerators multiply in."""


@dataclass(frozen=True)
class ServiceChange:
    """A change that has not been tried."""

    lever: str
    """Of the changes of one lever, the best is told."""
    what: str
    """What changes."""
    design: DesignPoint
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields to set."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the command to give."""
    npus: int | None = None
    """Accelerators, if others."""
    condition: str = ""
    """When it is open, such as 'if accuracy allows'; empty if always."""


def list_service_changes(
    service: Service, design: DesignPoint, limits: Sequence[Slo], *, mapped: bool
) -> Iterator[ServiceChange]:
    """Yield every change of a service's design; of its instances only where its mapping was stated."""
    serving = serving_of(design)
    if mapped or serving.disaggregated:
        yield from _instance_changes(design, limits)
    yield from _format_changes(design)
    for tokens in TOKEN_BUDGETS:
        if tokens != serving.max_num_batched_tokens:
            changed = design.changed({"serving.max_num_batched_tokens": tokens})
            yield ServiceChange("chunk", f"steps of {tokens:,} tokens", changed, {"max_num_batched_tokens": tokens})
    for engine in entry_names("engines"):
        if engine != serving.engine and engine in targets and not unsupported_reason(engine, design):
            changed = design.changed({"serving.engine": engine})
            yield ServiceChange(
                "engine", f"{engine}, not {serving.engine}", changed, {}, {"--engine": engine}, None, ENGINE
            )
    if not serving.disaggregated:
        split = best_split(design, limits)
        if split is not None:
            yield _split_pools(design, split)
        yield from _double_accelerators(service, design)


def _instance_changes(design: DesignPoint, limits: Sequence[Slo]) -> Iterator[ServiceChange]:
    """Yield the best other instances in one pool."""
    npus, current = design.network.npus, shape_of(design.workload)
    serving = serving_of(design)
    one_pool = not serving.disaggregated
    mappings, _ = best_mappings(replace(design, serving=replace(serving, prefill=None)), limits, {})
    for shape in (shape_of(mapped.workload) for mapped in mappings):
        if shape != current or not one_pool:
            count = npus // shape.npus
            settings = {**mesh_of(shape, experts=has_experts(design)), "dp": shape.ranks * count}
            pool_settings = {} if one_pool else {"prefill.replicas": 0}
            label = f"{count:,} × {shape}" if one_pool else f"aggregated: {count:,} × {shape}"
            yield ServiceChange(
                "instances", label, as_design(design, InstanceKind(shape), count), {**settings, **pool_settings}
            )


def _format_changes(design: DesignPoint) -> Iterator[ServiceChange]:
    precision, compute = design.workload.precision, design.compute
    rates = {"fp8": compute.fp8_flop_per_s, "fp4": compute.fp4_flop_per_s}
    for narrower in NARROWER.get(precision, NARROWER_THAN_16_BITS):
        if rates.get(narrower):
            changed = design.changed({"workload.precision": narrower})
            yield ServiceChange(
                "precision", f"weights in {narrower}", changed, {}, {"--precision": narrower}, None, ACCURACY
            )
    if serving_of(design).kv_cache_dtype == "auto":
        changed = design.changed({"serving.kv_cache_dtype": "fp8"})
        yield ServiceChange("cache", "KV cache in fp8", changed, {"kv_cache_dtype": "fp8"}, condition=ACCURACY)


def _split_pools(design: DesignPoint, split: Candidate) -> ServiceChange:
    """Return the change to two pools."""
    shape, prefill_shape = split.kind.shape, split.kind.prefill
    assert prefill_shape is not None  # noqa: S101  as it is split
    experts = has_experts(design)
    mesh = {**mesh_of(shape, experts=experts), "dp": shape.ranks * split.instances}
    prefill_pool = {
        "replicas": split.prefill_instances,
        **mesh_of(prefill_shape, experts=experts),
        "dp": prefill_shape.ranks,
    }
    settings = {**mesh, **{f"prefill.{name}": value for name, value in prefill_pool.items()}}
    split_design = as_design(design, split.kind, split.instances, split.prefill_instances)
    return ServiceChange("pools", f"disaggregated: {split}", split_design, settings)


def _double_accelerators(service: Service, design: DesignPoint) -> Iterator[ServiceChange]:
    """Yield twice the accelerators."""
    shape, npus = shape_of(design.workload), 2 * design.network.npus
    twice = service.sized(npus)
    if twice is not None:
        count = npus // shape.npus
        settings = {**mesh_of(shape, experts=has_experts(design)), "dp": shape.ranks * count}
        doubled = as_design(twice, InstanceKind(shape), count)
        yield ServiceChange("npus", f"{npus:,} accelerators: {count:,} × {shape}", doubled, settings, npus=npus)


def mesh_of(shape: InstanceShape, *, experts: bool) -> dict[str, int]:
    """Return what to set for instances of a shape, besides their number.

    >>> mesh_of(InstanceShape(tp=2, ranks=4, ep=8), experts=True)
    {'tp': 2, 'pp': 1, 'ep': 8, 'etp': 1}
    """
    mesh = {"tp": shape.tp, "pp": shape.pp}
    return mesh | ({"ep": shape.ep, "etp": shape.etp} if experts else {})


MIN_GAIN = 1.02
"""A move that gains less is not worth its line."""
MAX_MOVES = 5
MIN_SIMULATED, REQUESTS_PER_SLOT, MAX_CLIENTS = 1_000, 10, 1_500
"""Requests of a simulation that nobody asked for, at least and for each in flight, and the most in flight."""
MAX_REPLAYED = 20_000
"""Requests of a trace that are replayed with a move, too."""
DOUBT_FACTOR = 1.25
"""How many times as long as in closed form a simulated request takes if the mapping is not to be trusted."""
LARGE_MACHINES = (1024, 576, 512, 256, 64)
"""Accelerators of machines on which any instance fits."""


@json_keys(
    "kind",
    "gain_of",
    what="tried.what",
    condition="tried.condition",
)
@dataclass(frozen=True)
class ServingMove:
    """One change."""

    tried: ServiceChange
    metrics: ServingMetrics
    gain: Ratio
    """Times as many tokens a second; at a stated rate, times as soon at the last token."""
    holds: bool
    """Whether all limits hold with it."""
    command: str = ""
    """The command that serves so, quoted for a shell."""
    simulated: ServingMetrics | None = None
    """What the simulation says; of the first change alone, where it does not take long."""
    simulated_gain: Ratio | None = None
    """The same as simulated; None where it was not."""

    @property
    def gain_of(self) -> Annotated[str, one_of("tokens/s", "end to end")]:
        """What the gain is of."""
        return "end to end" if load_of(self.tried.design).rate is not None else "tokens/s"

    @property
    def kind(self) -> Annotated[str, one_of("action", "purchase")]:
        """Something that an operator does, or something to buy."""
        return "action" if self.tried.npus is None else "purchase"


@json_keys("npus", "pool", own=False, within_limits="within", as_mapped="mapped")
@dataclass(frozen=True)
class SmallestMachine:
    """The fewest accelerators with which a deployment could serve."""

    npus: PositiveCount
    """Accelerators of a machine that there is."""
    shape: InstanceShape
    """One of its instances."""
    within: bool
    """Whether the limits hold there, not the load alone."""
    mapped: bool
    """Whether its instances have the mapping that was stated."""

    @property
    def pool(self) -> InstancePool:
        """Equal engine instances."""
        return InstancePool(self.npus // self.shape.npus, self.shape)


@dataclass(frozen=True, slots=True)
class DesignedDeployment:
    """The deployment."""

    npus: PositiveCount
    """Accelerators."""
    engine: str
    """The serving engine."""
    precision: str
    """Number format of the weights."""
    pool: InstancePool
    """Instances that do all, or those that decode."""
    prefill: InstancePool | None
    """Instances that only prefill; None in one pool."""


@dataclass(frozen=True)
class ServiceAnswer(Answered):
    """What a service achieves."""

    design: DesignPoint
    metrics: ServingMetrics | None
    """None where it cannot run."""
    reasons: tuple[str, ...]
    """Why it cannot, a sentence each."""
    searched: Count
    """Mappings of which this is the best; 0 where the mapping was stated."""
    holds: Mapping[str, bool]
    """Which limits hold, as they are written."""
    service: Service = field(repr=False, compare=False)
    """What was asked."""
    moves: tuple[ServingMove, ...] = ()
    """What would help: actions before purchases, each best first."""
    simulated: ServingMetrics | None = None
    """The same by the simulation of requests; None where there was none, as with very many clients."""
    differences: Mapping[str, Ratio] = field(default_factory=dict)
    """Simulated over closed form, for each metric in which they differ by more than 10 %."""
    seen: SimulatedLoad | None = None
    """The simulation, request by request; None where there was none."""
    leads: bool = False
    """Whether the simulation was asked for; if so, its metrics are shown first, and limits are compared with them."""
    replayed: bool = False
    """Whether the requests of a trace were simulated."""
    fewest: SmallestMachine | None = None
    """The same as a deployment in one pool, in closed form; None where none are enough."""
    limits: tuple[Slo, ...] = ()
    """The limits that it was asked to hold."""

    @property
    def deployment(self) -> DesignedDeployment:
        """What serves them."""
        design = self.design
        pools = pool_of(design), prefill_pool_of(design)
        return DesignedDeployment(design.network.npus, serving_of(design).engine, design.workload.precision, *pools)

    @property
    def load(self) -> RequestLoad:
        """What clients ask for."""
        return RequestLoad.of(load_of(self.design))

    @property
    def assumed(self) -> tuple[str, ...]:
        """What was assumed as nobody said it, a sentence each."""
        return self.service.assumed

    @property
    def expected_error(self) -> ServingErrors | None:
        """How far off times are expected to be: mean errors of published runs of this kind; None where there were none."""
        return errors_of_design(self.design)

    def __repr__(self) -> str:
        """Say what clients see in a line: a notebook shows it."""
        machine = f"{self.design.model.name} on {accelerators_text(self.design.network.npus)}"
        if self.metrics is None:
            return f"<Answer: {machine} cannot serve: {'; '.join(self.reasons)}>"
        shown = self.shown
        latencies = ", ".join(
            f"{name} {seconds_text(float(getattr(shown, name.lower()).p95_s))}" for name in ("TTFT", "TPOT")
        )
        return (
            f"<Answer: {machine}, {self.deployment.pool.instances:,} × {self.deployment.pool.shape}: P95 {latencies}>"
        )

    @property
    def answer(self) -> Answer:
        """What every question is answered with."""
        service = self.service
        broken = [limit for limit, holds in self.holds.items() if not holds]
        errors = self.expected_error
        constants = "" if errors is None else f"mean errors of {errors.runs:,} published runs {errors.kind}"
        inputs = {"design": service.source, "settings": dict(service.settings)}
        return Answer(
            question="deployment",
            verdict=repr(self).removeprefix("<Answer: ").removesuffix(">"),
            reasons=self.reasons or tuple(f"{limit} does not hold" for limit in broken),
            assumptions=self.assumed,
            improvements=tuple(
                Improvement(
                    what=move.tried.what,
                    gain=move.gain,
                    condition=move.tried.condition,
                    command=move.command,
                )
                for move in self.moves
            ),
            provenance=Provenance(inputs=inputs, constants=constants),
        )

    @property
    def shown(self) -> ServingMetrics:
        """What is shown first, and what limits are compared with: the simulation where it was asked for."""
        assert self.metrics is not None  # noqa: S101  it runs
        return self.simulated if self.simulated and self.leads else self.metrics


@json_keys(
    "feasible",
    "reasons",
    "deployment",
    "load",
    "assumed",
    "searched",
    "fewest_npus",
    "fewest",
    "answer",
    own=False,
    identity="design.identity",
)
@dataclass(frozen=True, repr=False)
class UnservableDeploymentAnswer(ServiceAnswer):
    """A deployment that cannot serve the load; the command ends with exit code 1."""

    reasons: Annotated[tuple[str, ...], Keywords(minItems=1)]
    """Why it cannot, a sentence each."""

    @property
    def feasible(self) -> AlwaysFalse:
        """Whether it can serve."""
        return False

    @property
    def fewest_npus(self) -> PositiveCount | None:
        """The fewest accelerators with which it could; None where none are enough."""
        return None if self.fewest is None else self.fewest.npus


@json_keys(
    "feasible",
    "reasons",
    "deployment",
    "load",
    "assumed",
    "searched",
    "expected_error",
    "metrics",
    "simulated",
    "differences",
    "answer",
    own=False,
    identity="design.identity",
    limits="judged",
    improvements="moves",
)
@dataclass(frozen=True, repr=False)
class ServedDeploymentAnswer(ServiceAnswer):
    """A deployment that serves the load."""

    metrics: ServingMetrics
    """What clients see, and what it costs."""
    reasons: Annotated[tuple[str, ...], Keywords(maxItems=0)]
    """Why the design cannot run, a sentence each; empty if it can."""

    @property
    def feasible(self) -> AlwaysTrue:
        """Whether it can serve."""
        return True

    @property
    def judged(self) -> tuple[JudgedLimit, ...]:
        """The limits that were asked for or that the file has; of the simulation where that was asked for."""
        simulated = [nan if self.simulated is None else float(limit.value(self.simulated)) for limit in self.limits]
        judged = judge_limits(self.limits, self.shown, self.design)
        return tuple(replace(each, simulated_s=value) for each, value in zip(judged, simulated, strict=True))


@dataclass(frozen=True)
class SimulationRequest:
    """What a user wants simulated."""

    requests: Requests | None = None
    """Those of a trace."""
    count: int | None = None
    seed: int = 0
    noting: bool = False
    """Whether a timeline is wanted."""
    replayed: tuple[str, ...] = ()
    """Options that name the trace of the requests, which the commands that are advised have, too."""


def answer_service(
    service: Service, limits: Sequence[Slo], simulation: SimulationRequest | None = None, *, seed: int = 0
) -> ServiceAnswer:
    """Return what a service achieves, in closed form and where asked for simulated, and what would help it.

    *seed* is of the short simulation that is run where none was asked for.
    """
    mappings, searched = [service.design], 0
    if not service.mapped:
        mappings_found, searched = best_mappings(service.design, limits, service.stated)
        mappings = mappings_found or mappings
    tried = _try_service(mappings[0], simulation, seed)
    if searched and len(mappings) > 1 and tried.doubtful:
        tried = min(
            (tried, *(_try_service(mapping, simulation, seed) for mapping in mappings[1:])), key=_TriedService.seconds
        )
    design, closed, outcome = tried.design, tried.closed, tried.outcome
    asked: dict[str, Any] = {"service": service, "limits": tuple(limits), "searched": searched}
    if closed is None:
        fewest = _find_smallest_machine(service, limits)
        return UnservableDeploymentAnswer(design, None, tried.reasons, holds={}, fewest=fewest, **asked)
    shown = outcome.metrics if outcome and simulation else closed
    holds = {f"{limit.metric.upper()} {limit}": bool(limit.holds(shown)) for limit in limits}
    moves = _select_helpful(list_service_changes(service, design, limits, mapped=not searched), closed, limits)
    if moves and outcome is not None:
        moves[0] = _confirm_move(moves[0], outcome.metrics, simulation, seed)
    replayed = simulation.replayed if simulation else ()
    moves = [replace(each, command=serve_command_of(service, design, each.tried, limits, replayed)) for each in moves]
    return ServedDeploymentAnswer(
        design,
        closed,
        (),
        holds=holds,
        moves=tuple(moves),
        simulated=outcome.metrics if outcome else None,
        differences=compare_with_simulation(closed, outcome.metrics) if outcome else {},
        seen=outcome.load if outcome else None,
        leads=simulation is not None,
        replayed=bool(replayed),
        **asked,
    )


def serve_command_of(
    service: Service, design: DesignPoint, tried: ServiceChange, limits: Sequence[Slo], replayed: Sequence[str] = ()
) -> str:
    """Return the command that serves with a move, within the same limits."""
    load, source = load_of(design), service.source
    if tried.npus:
        source = f"{source.rpartition(':')[0]}:{tried.npus}"
    words = ["cosmic", "serve", source]
    words += replayed or _load_options(load)
    words += ["--prefix-hit", f"{load.prefix_hit:g}"] if load.prefix_hit else []
    if not load.classes:  # which have limits of their own
        words += [word for limit in limits if limit.metric != "e2e" for word in (f"--{limit.metric}", str(limit))]
    usual = {"--engine": serving_of(design).engine, "--precision": design.workload.precision}
    changed = {**mesh_of(shape_of(design.workload), experts=has_experts(design)), **tried.settings}
    settings = {**service.settings, **{full_path(name): value for name, value in changed.items()}}
    words += [word for name, value in {**usual, **tried.options}.items() for word in (name, value)]
    words += [
        word
        for path, value in settings.items()
        if path != "workload.precision"
        for word in ("--set", setting_option(path, value))
    ]
    return shlex.join(words)


def _load_options(load: Load) -> list[str]:
    """Return the options that say a load."""
    words: list[str] = []
    if not load.classes:  # which a file has, each with its own lengths
        words += ["--input", f"{load.mean('isl'):.0f}", "--output", f"{load.mean('osl'):.0f}"]
    words += ["--rate", f"{load.rate:g} req/s"] if load.rate is not None else ["--concurrency", str(load.concurrency)]
    return words + (["--spread", f"{load.isl_cv:g}"] if load.isl_cv else [])


@dataclass(frozen=True)
class _SimulationOutcome:
    """What a simulation of a service says: in metrics, and request by request."""

    metrics: ServingMetrics
    load: SimulatedLoad


@dataclass(frozen=True)
class _TriedService:
    """A mapping in closed form and simulated."""

    design: DesignPoint
    closed: ServingMetrics | None
    """None where it cannot serve."""
    outcome: _SimulationOutcome | None = None
    """None where it was not simulated."""
    reasons: tuple[str, ...] = ()

    @property
    def doubtful(self) -> bool:
        """Whether the simulation takes much longer than the closed form says: another mapping may be better."""
        if self.closed is None or self.outcome is None:
            return self.closed is None
        return self.seconds() > DOUBT_FACTOR * float(self.closed.e2e.mean_s)

    def seconds(self) -> float:
        """Return the mean time of a request; infinite where it cannot serve."""
        if self.closed is None:
            return inf
        return float((self.outcome.metrics if self.outcome else self.closed).e2e.mean_s)


def _try_service(design: DesignPoint, simulation: SimulationRequest | None, seed: int) -> _TriedService:
    closed = estimate_design(design)
    if isinstance(closed, Infeasible):
        return _TriedService(design, None, None, closed.reasons)
    sized = _size_simulation(simulation, closed, seed)
    if sized is None:
        return _TriedService(design, closed)
    outcome = simulate_design(design, sized.requests, sized.count, sized.seed, noting=sized.noting)
    if isinstance(outcome, Infeasible):
        return _TriedService(design, None, None, outcome.reasons)
    return _TriedService(design, closed, _SimulationOutcome(*outcome))


def _size_simulation(request: SimulationRequest | None, closed: ServingMetrics, seed: int) -> SimulationRequest | None:
    """Return a simulation of enough requests; where nobody asks for one, a short one, or none if it would take long.

    Requests must come for several times as long as one of them takes, or hardly any ends while others come.
    """
    in_flight = float(closed.running + closed.waiting)
    if request is None:
        short = SimulationRequest(count=int(max(MIN_SIMULATED, REQUESTS_PER_SLOT * in_flight)), seed=seed)
        return short if in_flight <= MAX_CLIENTS else None
    if request.requests is not None or request.count is not None:
        return request
    return replace(request, count=int(min(max(2 * MIN_SIMULATED, 2 * REQUESTS_PER_SLOT * in_flight), MOST_REQUESTS)))


# ---- what would help


def _select_helpful(changes: Iterable[ServiceChange], base: ServingMetrics, limits: Sequence[Slo]) -> list[ServingMove]:
    """Return the best of each lever, of those that gain something; first what makes limits hold, then the most gain."""
    best: dict[str, ServingMove] = {}
    all_held = all(bool(slo.holds(base)) for slo in limits)
    for change in changes:
        metrics = estimate_design(change.design)
        if isinstance(metrics, Infeasible):
            continue
        holds = all(bool(limit.holds(metrics)) for limit in limits)
        move = ServingMove(change, metrics, _gain(base, metrics, load_of(change.design)), holds)
        if move.gain < MIN_GAIN and not (holds and not all_held):
            continue
        if change.lever == "engine" and move.gain < 1 + _expected_error(change.design):
            continue  # as much as the engines' times may be off
        previous = best.get(change.lever)
        if previous is None or (holds, move.gain) > (previous.holds, previous.gain):
            best[change.lever] = move
    return sorted(best.values(), key=lambda move: (move.kind, not move.holds, -move.gain))[:MAX_MOVES]


def _expected_error(design: DesignPoint) -> float:
    """Return the error that is expected of the times of an engine; 0 where none was measured."""
    errors = errors_of_design(design)
    return errors.tpot if errors else 0.0


def _confirm_move(move: ServingMove, base: ServingMetrics, request: SimulationRequest | None, seed: int) -> ServingMove:
    """Return a move with what the simulation says of it beside that of the *base*; as it is where that takes long."""
    in_flight = float(move.metrics.running + move.metrics.waiting)
    if in_flight > MAX_CLIENTS or (request and request.requests and request.requests.count > MAX_REPLAYED):
        return move
    sized = _size_simulation(request and replace(request, noting=False), move.metrics, seed)
    if sized is None:
        return move
    outcome = simulate_design(move.tried.design, sized.requests, sized.count, sized.seed)
    if isinstance(outcome, Infeasible):
        return move
    return replace(move, simulated=outcome[0], simulated_gain=_gain(base, outcome[0], load_of(move.tried.design)))


def _gain(base: ServingMetrics, changed: ServingMetrics, load: Load) -> float:
    if load.rate is not None:
        return float(base.e2e.mean_s / changed.e2e.mean_s)
    return float(changed.output_tokens_per_s / base.output_tokens_per_s)


# ---- what it would need


def _find_smallest_machine(service: Service, limits: Sequence[Slo]) -> SmallestMachine | None:
    """Return the smallest machine that bears the load within the limits; None where none bears it.

    Where none does with the stated mapping within the limits, the limits are given up first, then the mapping, then
    both.
    """
    base = next((sized for npus in LARGE_MACHINES if (sized := service.sized(npus))), service.design)
    for within, mapped in ((True, True), (False, True), (True, False), (False, False)):
        candidates = cheapest_in_one(base, limits if within else (), service.held if mapped else {})
        for candidate in candidates:
            npus = next_machine_size(service, candidate.npus)
            if npus is not None and npus % candidate.kind.shape.npus == 0:
                return SmallestMachine(npus, candidate.kind.shape, within, mapped)
        if candidates:
            return SmallestMachine(candidates[0].npus, candidates[0].kind.shape, within, mapped)
    return None


# ---- Questions about serving in one call: `serve` is `cosmic serve`, `plan_serving` is `cosmic serve --search`


class ServingQuestion(TypedDict, total=False):
    """What may be said of a load and its limits, with the names that the command's options have."""

    input: int
    output: int
    concurrency: int
    rate: float | str
    """Requests a second, or ``"100 req/s"``."""
    spread: float
    prefix_hit: float
    ttft: str
    """A limit: ``"p95 <= 1 s"``."""
    tpot: str
    engine: str
    precision: str


def serve(
    source: str,
    settings: Mapping[str, Any] | None = None,
    *,
    simulation: SimulationRequest | None = None,
    **question: Unpack[ServingQuestion],
) -> ServiceAnswer:
    """Return what a deployment achieves under a load, where its time goes and what would help it.

    *source* is ``MODEL@SYSTEM:N`` or a design file, *settings* are fields as ``--set`` has them. A *simulation* follows
    each request.

    >>> found = serve("llama3-8b@h100:1", {"tp": 1}, input=1000, output=100, concurrency=1)
    >>> found.metrics.ttft.mean_s < 0.1
    True
    """
    service, limits = _read_question(source, settings, question, largest=False)
    return answer_service(service, limits, simulation)


def plan_serving(
    source: str,
    settings: Mapping[str, Any] | None = None,
    *,
    max_gpus: int | None = None,
    **question: Unpack[ServingQuestion],
) -> Plan:
    """Return the deployments that hold the limits at the load: the cheapest (`chosen`), and the front of all.

    ``plan_serving("llama3-70b@h100", input=1000, output=300, rate=50, ttft="1 s", tpot="p95 <= 30 ms").chosen``
    """
    service, limits = _read_question(source, settings, question, largest=True)
    return plan_deployments(service, limits, max_gpus)


def _read_question(
    source: str, settings: Mapping[str, Any] | None, question: ServingQuestion, *, largest: bool
) -> tuple[Service, list[Slo]]:
    answers: dict[str, Any] = dict(question)
    limits = [read_slo(answers.pop(name), name) for name in ("ttft", "tpot") if name in answers]
    if isinstance(answers.get("rate"), str):
        answers["rate"] = read_rate(answers["rate"], "rate")
    limits_s = {limit.metric: limit.limit_s for limit in limits}
    return read_service(source, settings or {}, Asked(**answers, limits_s=limits_s, largest=largest)), limits

"""The problem that a search solves: a parameter set, objectives and limits, and the evaluation of its points.

    rows ──▶ designs ──▶ evaluate each workload ──▶ one value per metric ──▶ limits ──▶ results

Pure: the same rows give the same results, in any process and in batches of any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cosmic.design import schema
from cosmic.design.batch import Batch, Column
from cosmic.design.point import DesignPoint
from cosmic.engines import Answer, Engine, engine_of, metrics_of
from cosmic.engines.engine import BUILT_IN
from cosmic.errors import SpecError, require
from cosmic.evaluation import BETTER, BatchOutcome, Infeasible, Metrics, Outcome, evaluate, evaluate_batch
from cosmic.exploration.agent import Flags, Floats, Outcomes
from cosmic.exploration.learning.features import physics
from cosmic.exploration.never_known import never_known
from cosmic.exploration.objectives import Limit, check_objectives, limit, losses
from cosmic.exploration.reasons import Reasons
from cosmic.metrics import OF_RUNS
from cosmic.psa.diagram import Indices
from cosmic.psa.shares import applies, replace_base
from cosmic.psa.space import ParameterSet, Share
from cosmic.simulation.analytic import COMMUNICATED

METRICS = tuple(BETTER)
SAME_SYSTEM = (
    *("cost_usd", "network_usd", "power_w", "memory_bytes", "offloaded_bytes"),
    *("ttft_s", "tpot_s", "ttft_p95_s", "tpot_p95_s"),
)
"""Metrics that a mix of workloads has the maximum of; the others are sums or means."""
UNKNOWN = " is unknown"
"""Ends the reason of a design that has no value of an objective."""
NEVER = 99.0
"""The logarithm of the loss of a design that cannot run, for models that take numbers only."""
UNMET = "no bandwidth meets the limits of provision"


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a batch of points, as a study keeps them."""

    columns: Mapping[str, Floats]
    """Each metric of the engine (`Problem.metrics`); NaN for a point that cannot run, or that has no such metric."""
    excess: Floats
    """0 for a point that can run, see `Outcomes`."""
    reasons: Sequence[str]
    """Why a point cannot run: the names of broken rules and exceeded limits, separated by commas; see `coded`."""
    counted: Flags
    """Which points took an evaluation: all but those with an invalid mapping."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "reasons", Reasons.of(self.reasons))

    def __len__(self) -> int:
        return len(self.excess)

    @property
    def coded(self) -> Reasons:
        """The reasons as codes."""
        return Reasons.of(self.reasons)

    @property
    def feasible(self) -> Flags:
        """Which points can run."""
        return np.asarray(self.excess == 0)

    def figures(self, place: int) -> dict[str, float | None]:
        """Return the metrics of the point at *place*; None for a metric that it does not have."""
        values = {name: float(column[place]) for name, column in self.columns.items()}
        return {name: None if np.isnan(value) else value for name, value in values.items()}

    def part(self, places: slice) -> Results:
        """Return consecutive results; nothing is copied."""
        columns = {name: column[places] for name, column in self.columns.items()}
        return Results(columns, self.excess[places], self.coded[places], self.counted[places])

    def take(self, places: Indices) -> Results:
        """Return the results at *places*."""
        columns = {name: column[places] for name, column in self.columns.items()}
        return Results(columns, self.excess[places], self.coded.take(places), self.counted[places])

    @classmethod
    def join(cls, parts: Iterable[Results]) -> Results:
        """Return the results of several batches as those of one."""
        some = list(parts)
        columns = {name: np.concatenate([part.columns[name] for part in some]) for name in some[0].columns}
        reasons = Reasons.join(part.coded for part in some)
        excess, counted = (np.concatenate([getattr(part, name) for part in some]) for name in ("excess", "counted"))
        return cls(columns, excess, reasons, counted)

    @classmethod
    def failed(cls, n: int, reason: str, metrics: Sequence[str] = METRICS) -> Results:
        """Return the results of *n* points that could not be evaluated, for this *reason*."""
        columns = {name: np.full(n, np.nan) for name in metrics}
        return cls(columns, np.full(n, np.inf), Reasons.same(reason, n), np.ones(n, dtype=bool))


@dataclass(frozen=True)
class Problem:
    """A parameter set to search, with objectives, limits and the engine that evaluates."""

    space: ParameterSet
    objectives: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    engine: str = "analytic"

    def __post_init__(self) -> None:
        check_objectives(self.objectives, metrics_of(self.engine))

    @property
    def brought(self) -> Engine | None:
        """The engine, where somebody else brought it; None for COSMIC's own."""
        return engine_of(self.engine)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the engine gives."""
        return tuple(metrics_of(self.engine))

    @property
    def of_designs(self) -> bool:
        """Whether COSMIC itself can evaluate its points, and so say more of them than their metrics."""
        return self.engine in BUILT_IN

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The workloads that the system runs: those of the set, or its base alone."""
        return self.space.workloads or (Share("", 1.0, self.space.base),)

    def outcomes(self, rows: Indices, results: Results) -> Outcomes:
        """Return *results* as an agent learns them."""
        return Outcomes(rows, losses(self.objectives, results.columns), results.excess)

    # ------------------------------------------------------------------------------------------ evaluation

    def evaluate(self, rows: Indices) -> Results:
        """Return the results of the points *rows*."""
        if not len(rows):
            return Results.failed(0, "", self.metrics)
        brought = self.brought
        return self.measured(rows)[1] if brought is None else self._answered(rows, brought)

    def _answered(self, rows: Indices, engine: Engine) -> Results:
        """Return what the engine of somebody else says of the points *rows*; all count, as each was asked."""
        able = np.ones(len(rows), dtype=bool)
        if self.space.provisioner is not None:
            able = self.space.provisioner.possible(rows)
        unmet = Answer({}, (UNMET,))
        found = [engine.ask(self.space.point(row)) if can else unmet for row, can in zip(rows, able, strict=True)]
        columns = {name: np.array([each.metrics.get(name, np.nan) for each in found]) for name in self.metrics}
        silent = np.array([bool(each.reasons) for each in found])
        results = self._limited(columns, np.where(silent, np.inf, 0.0), {})
        said = [", ".join(each.reasons) or text for each, text in zip(found, results.reasons, strict=True)]
        return Results(results.columns, results.excess, said, np.ones(len(rows), dtype=bool))

    def measured(self, rows: Indices) -> tuple[list[BatchOutcome], Results]:
        """Return what each workload achieves in closed form, and the results of the points *rows*."""
        fields = self.space.columns(rows)
        batches = [Batch(share.base, self._fields_of(share, fields, rows)) for share in self.shares]
        found = [_for_each(evaluate_batch(batch), len(rows)) for batch in batches]
        columns = self._mixed([each.columns for each in found])
        excess = np.sum([each.excess for each in found], axis=0)
        why: dict[str, Flags] = {}
        for share, each in zip(self.shares, found, strict=True):
            why |= {f"{share.name}: {rule}" if share.name else rule: broken for rule, broken in each.broken.items()}
        if self.space.provisioner is not None:
            why[UNMET] = ~self.space.provisioner.possible(rows)
            excess = excess + why[UNMET]
        if self.engine != "analytic":
            columns = self._simulated(rows, columns, excess == 0)
        return found, self._limited(columns, excess, why)

    def _fields_of(self, share: Share, fields: Mapping[str, Column], rows: Indices) -> dict[str, Column]:
        """Return the fields of one workload: those of the set, and those that follow them; or its own instead."""
        if all(applies(share, path) for path in fields):
            return dict(fields) | {path: self._spaces[share.name].derive(path, rows) for path in share.derived}
        return self._spaces[share.name].columns(rows)

    @cached_property
    def _spaces(self) -> dict[str, ParameterSet]:
        return {share.name: replace_base(self.space, share) for share in self.shares}

    def _mixed(self, parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
        """Return the metrics of a round in which each workload runs as often as its weight says.

        Times and energies are sums; utilisation is averaged over time, dollars per token over tokens; memory is the
        maximum, as the workloads run one after the other.
        """
        if len(parts) == 1:
            return {name: parts[0][name] for name in METRICS}
        weights = np.array([share.weight for share in self.shares])[:, None]

        def column(name: str) -> Floats:
            return np.stack([part[name] for part in parts])

        seconds = weights * column("step_s")
        tokens = seconds * column("tokens_per_s")
        samples = seconds * column("samples_per_s")
        whole = seconds.sum(axis=0)
        slower = whole / column("step_s")[0]
        mixed = {name: np.fmax.reduce(column(name)) for name in SAME_SYSTEM}
        mixed |= {name: (seconds * column(name)).sum(axis=0) / whole for name in ("mfu", "hfu")}
        mixed |= {name: column(name)[0] / slower for name in ("perf_per_bandwidth", "perf_per_network_cost")}
        mixed |= {name: np.full_like(whole, np.nan) for name in OF_RUNS}  # a mix is no training run
        return (
            mixed
            | self._of_requests(column, seconds)
            | {
                "step_s": whole,
                "tokens_per_s": tokens.sum(axis=0) / whole,
                "cost_usd_per_token": (tokens * column("cost_usd_per_token")).sum(axis=0) / tokens.sum(axis=0),
                "samples_per_s": samples.sum(axis=0) / whole,
                "cost_usd_per_sample": (samples * column("cost_usd_per_sample")).sum(axis=0) / samples.sum(axis=0),
                "energy_j": (weights * column("energy_j")).sum(axis=0),
            }
        )

    @staticmethod
    def _of_requests(column: Callable[[str], Floats], seconds: Floats) -> dict[str, Floats]:
        """Return what the workloads that serve a load have: rates over the time that they serve; of users the worst."""
        found = {"tokens_per_s_per_user": np.fmin.reduce(column("tokens_per_s_per_user"))}
        for name, weights in (
            ("goodput_per_s", seconds),
            ("tokens_per_s_per_npu", seconds),
            ("energy_j_per_token", seconds * column("tokens_per_s")),
        ):
            known = np.where(np.isnan(column(name)), 0.0, weights)
            with np.errstate(invalid="ignore"):
                found[name] = np.nansum(known * column(name), axis=0) / known.sum(axis=0)
        return found

    def _limited(self, columns: Mapping[str, Floats], excess: Floats, why: Mapping[str, Flags]) -> Results:
        """Return results in which designs beyond a limit are infeasible too; infeasible ones have no metrics."""
        reasons, fitting = dict(why), np.isfinite(excess)
        for name in self.objectives:
            unknown = np.isnan(columns[name])
            if unknown.any():
                excess = np.where(unknown, np.inf, excess)
                reasons[f"{name}{UNKNOWN}"] = unknown & fitting
        for each in self.limits:
            beyond = each.excess(columns[each.metric])
            excess = excess + beyond
            reasons[each.text] = beyond > 0
        runs = excess == 0
        kept = {name: np.where(runs, columns[name], np.nan) for name in self.metrics}
        return Results(kept, excess, _reasons(reasons, len(excess)), fitting)

    def _simulated(self, rows: Indices, columns: Mapping[str, Floats], runs: Flags) -> dict[str, Floats]:
        """Return the metrics after the event engine has simulated the points that can run."""
        simulated = {name: column.copy() for name, column in columns.items()}
        for place in np.flatnonzero(runs).tolist():
            parts = [_figures(self._outcome(share, rows[place])) for share in self.shares]
            for name, value in self._mixed(parts).items():
                simulated[name][place] = value[0]
        return simulated

    # ------------------------------------------------------------------------------------------- one point

    def _outcome(self, share: Share, row: Indices) -> Outcome:
        return evaluate(point_of(self.space, share, row), self.engine)

    def explain(self, row: Indices) -> tuple[str, ...]:
        """Return the reasons why the point *row* cannot run, a sentence each; none for one that can."""
        if outside := self.space.broken(row):
            return tuple(outside.values())
        if self.brought is not None:
            return tuple(text for text in self.evaluate(row[None, :]).reasons[0].split(", ") if text)
        said = []
        for share in self.shares:
            outcome = self._outcome(share, row)
            if isinstance(outcome, Infeasible):
                said += [f"{share.name}: {reason}" if share.name else reason for reason in outcome.reasons]
        if not said:
            broken = [text for text in self.evaluate(row[None, :]).reasons[0].split(", ") if text]
            said += [text if text.endswith((UNKNOWN, UNMET)) else f"exceeds the limit {text}" for text in broken]
        return tuple(said)

    def base(self) -> Results:
        """Return the results of the base design, which every search is compared with."""
        frozen = replace(self.space, parameters=(), derived={}, constraints=(), provisioner=None)
        return replace(self, space=frozen).evaluate(np.empty((1, 0), dtype=np.intp))

    def features(self, rows: Indices) -> Floats:
        """Return what closed forms say of points: features before they are simulated.

        The logarithms of their metrics and, of one workload, what its step is made of: flop, bytes by axis, headroom of
        memory, bubble and other parts.
        """
        closed = replace(self, engine="analytic", limits=()).evaluate(rows)
        known = np.stack([closed.columns[name] for name in METRICS], axis=1)
        found = np.log(np.where(known > 0, known, 1.0))
        if len(self.shares) > 1:
            return found
        parts = physics(Batch(self.space.base, self.space.columns(rows)))[0].columns
        names = [f"bytes of {part}" for part in COMMUNICATED]  # those that some design has, or all rows would not match
        columns = {name: parts.get(name, np.zeros(len(rows))) for name in (*parts, *names)}
        return np.concatenate([found, np.stack([columns[name] for name in sorted(columns)], axis=1)], axis=1)

    def closed_losses(self, rows: Indices) -> Floats:
        """Return the logarithm of the first objective's loss of points by closed forms; large where they cannot run."""
        closed = replace(self, engine="analytic", limits=()).evaluate(rows)
        found = losses(self.objectives[:1], closed.columns)[:, 0]
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(np.abs(found))
        return np.where(np.isfinite(logs), logs, NEVER)


def make_problem(
    space: ParameterSet, objectives: Sequence[str] = (), constraints: Sequence[str] = (), engine: str = "analytic"
) -> Problem:
    """Return the problem of searching *space*, by default for its own objective; its own limits hold as well."""
    engine = _engine_for(space, engine)
    known = metrics_of(engine)
    wanted = tuple(objectives) or (space.objective,)
    limits = tuple(limit(text, known) for text in (*space.limits, *constraints))
    if engine not in BUILT_IN:
        _check_given(space, engine, wanted)
        return Problem(space, wanted, limits, engine)
    for name in wanted:
        require(not (why := never_known(space, name)), "objective", name, f"is unknown for every design: {why}")
    for each in limits:
        why = never_known(space, each.metric)
        require(not why, "constraint", each.text, f"{each.metric} is unknown for every design: {why}")
    return Problem(space, wanted, limits, engine)


def _engine_for(space: ParameterSet, engine: str) -> str:
    """Return the engine that evaluates *space*: the one that is asked for, unless the set names its own."""
    brought = engine_of(engine)
    if not space.engine or engine == space.engine:
        own = brought is not None and brought.fields is not None and space.of_designs
        rule = f"has fields of its own, and takes no designs: search a set that says 'engine: {engine}'"
        require(not own, "engine", engine, rule)
        require(
            brought is None or not space.workloads, "engine", engine, "takes one design, and the set mixes workloads"
        )
        return engine
    rule = f"the set {space.name} is for the engine {space.engine}"
    require(engine == BUILT_IN[0], "engine", engine, rule)  # which is what nobody asked for
    return _engine_for(space, space.engine)


def _check_given(space: ParameterSet, engine: str, wanted: Sequence[str]) -> None:
    """Refuse objectives that an engine does not give; of those of the set, say how to choose another."""
    for name in wanted:
        if name not in metrics_of(engine) and name == space.objective:
            rule = f"is the objective of {space.name}, and {engine} gives {', '.join(metrics_of(engine))}: choose one"
            raise SpecError("objective", name, f"{rule} (--objective)")


def _for_each(found: BatchOutcome, n: int) -> BatchOutcome:
    """Return an outcome for each of *n* points, also of a workload in which they do not differ."""
    if len(found.excess) == n:
        return found
    columns = {name: np.broadcast_to(column, (n,)) for name, column in found.columns.items()}
    broken = {name: np.broadcast_to(flags, (n,)) for name, flags in found.broken.items()}
    return BatchOutcome(columns, broken, np.broadcast_to(found.excess, (n,)))


def point_of(space: ParameterSet, share: Share, row: Indices) -> DesignPoint:
    """Return the design of a workload of *space* in the point *row*; searched fields that it lacks are left out."""
    changes = replace_base(space, share).changes(row)
    point: DesignPoint = schema.assign(share.base, {path: changes[path] for path in changes if applies(share, path)})
    return point


def _figures(outcome: Outcome) -> dict[str, Floats]:
    if not isinstance(outcome, Metrics):
        raise SpecError("engine", "event", "refuses a design that the analytic engine accepts")
    values = {name: getattr(outcome, name) for name in METRICS}
    return {name: np.array([np.nan if value is None else value]) for name, value in values.items()}


def _reasons(why: Mapping[str, Flags], n: int) -> Reasons:
    """Return for each point the names of what it breaks; the text of each combination is built once."""
    broken = {name: flags for name, flags in why.items() if flags.any()}
    if not broken:
        return Reasons.same("", n)
    table = np.stack(list(broken.values()), axis=1)
    packed = np.packbits(table, axis=1)
    key = np.zeros((n, -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
    key[:, : packed.shape[1]] = packed
    wide = key.view(np.uint64) if key.shape[1] > 8 else key.view(np.uint64)[:, 0]  # much faster
    _, first, codes = np.unique(wide, axis=0, return_index=True, return_inverse=True)
    texts = [", ".join(name for name, flag in zip(broken, table[place], strict=True) if flag) for place in first]
    return Reasons.of(texts).take(codes.reshape(-1))

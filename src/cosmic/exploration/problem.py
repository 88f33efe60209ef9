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
from cosmic.design.fabric import INCLUDED
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, UnknownName, require
from cosmic.evaluation import (
    BETTER,
    ENGINES,
    IN_THE_NODE,
    NEEDS,
    OF_REQUESTS,
    OF_RUNS,
    BatchOutcome,
    Infeasible,
    Metrics,
    Outcome,
    evaluate,
    evaluate_batch,
    unknown_metrics,
)
from cosmic.exploration.agent import Flags, Floats, Outcomes
from cosmic.exploration.objectives import Limit, check_objectives, limit, losses
from cosmic.exploration.reasons import Reasons
from cosmic.pricing.unknown import needed_figures
from cosmic.psa.diagram import Indices
from cosmic.psa.shares import applies, replace_base
from cosmic.psa.space import ParameterSet, Share

METRICS = tuple(BETTER)
SAME_SYSTEM = (
    *("cost_usd", "network_usd", "power_w", "memory_bytes", "offloaded_bytes"),
    *("ttft_s", "tpot_s", "ttft_p95_s", "tpot_p95_s"),
)
"""Metrics that a mix of workloads has the maximum of; the others are sums or means."""
SERVING = "serving a load"
TASKS = {"ttft_s": ("prefill", SERVING), "tpot_s": ("decode", SERVING), **dict.fromkeys(OF_REQUESTS, (SERVING,))}
TASKS |= dict.fromkeys(OF_RUNS, ("training",))
"""Metrics of some tasks alone."""
LIMITS = ("ttft_slo", "tpot_slo")
"""Limits of requests, without which none counts as good."""
OF_NETWORK = ("perf_per_bandwidth", "perf_per_network_cost")
OF_LENGTH = ("train_days", "train_usd", "train_energy_j", "train_co2_kg")
"""Metrics of training runs that have a length."""
UNKNOWN = " is unknown"
"""Ends the reason of a design that has no value of an objective."""
UNMET = "no bandwidth meets the limits of provision"


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a batch of points, as a study keeps them."""

    columns: Mapping[str, Floats]
    """Each metric of `METRICS`; NaN for a point that cannot run, or that has no such metric."""
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
        columns = {name: np.concatenate([part.columns[name] for part in some]) for name in METRICS}
        reasons = Reasons.join(part.coded for part in some)
        excess, counted = (np.concatenate([getattr(part, name) for part in some]) for name in ("excess", "counted"))
        return cls(columns, excess, reasons, counted)

    @classmethod
    def failed(cls, n: int, reason: str) -> Results:
        """Return the results of *n* points that could not be evaluated, for this *reason*."""
        columns = {name: np.full(n, np.nan) for name in METRICS}
        return cls(columns, np.full(n, np.inf), Reasons.same(reason, n), np.ones(n, dtype=bool))


@dataclass(frozen=True)
class Problem:
    """A parameter set to search, with objectives, limits and the engine that evaluates."""

    space: ParameterSet
    objectives: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    engine: str = "analytic"

    def __post_init__(self) -> None:
        check_objectives(self.objectives)
        if self.engine not in ENGINES:
            raise UnknownName.among("engine", self.engine, "engine", ENGINES)

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
        return self.measured(rows)[1] if len(rows) else Results.failed(0, "")

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
        kept = {name: np.where(runs, columns[name], np.nan) for name in METRICS}
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
        """Return the logarithms of the closed-form metrics of points: features before they are simulated."""
        closed = replace(self, engine="analytic", limits=()).evaluate(rows)
        known = np.stack([closed.columns[name] for name in METRICS], axis=1)
        return np.log(np.where(known > 0, known, 1.0))


def make_problem(
    space: ParameterSet, objectives: Sequence[str] = (), constraints: Sequence[str] = (), engine: str = "analytic"
) -> Problem:
    """Return the problem of searching *space*, by default for its own objective; its own limits hold as well."""
    wanted = tuple(objectives) or (space.objective,)
    limits = tuple(limit(text) for text in (*space.limits, *constraints))
    for name in wanted:
        require(not (why := _never_known(space, name)), "objective", name, f"is unknown for every design: {why}")
    for each in limits:
        why = _never_known(space, each.metric)
        require(not why, "constraint", each.text, f"{each.metric} is unknown for every design: {why}")
    return Problem(space, wanted, limits, engine)


def _never_known(space: ParameterSet, metric: str) -> str:
    """Return why no design of *space* has a *metric*: for want of a figure, a network or a task; empty if some do."""
    tasks = _tasks(space)
    if metric in TASKS and not set(TASKS[metric]) & set(tasks):
        return f"it is a metric of {' or '.join(TASKS[metric])}, and the task is {' or '.join(tasks)}"
    if metric == "goodput_per_s" and not _has_limits(space):
        return "no request has a limit: give serving.load.ttft_slo or tpot_slo"
    if metric in OF_NETWORK and not space.base.network.dims:
        return "one accelerator has no network"
    if metric in OF_RUNS and all(value is None for value in space.values_of("run.npu_mtbf")):
        return "no rate of interruptions is known for any of the accelerators: set run.npu_mtbf"
    if metric in OF_LENGTH and all(value is None for value in space.values_of("run.tokens")):
        return "the run has no length: set run.tokens, such as 15T"
    if metric == OF_NETWORK[1] and _all_included(space):
        return IN_THE_NODE
    for quantity in NEEDS.get(metric, ()):
        for path, part in needed_figures(space.base, quantity).items():
            if all(value is None for value in space.values_of(path)) and not _builds_vary(space, path):
                of = "any of the accelerators" if path.startswith("compute.") else part
                return unknown_metrics(space.base).get(metric, f"no {quantity.rpartition('.')[2]} is known for {of}")
    return ""


def _all_included(space: ParameterSet) -> bool:
    """Return whether every dimension of every design of *space* is part of a node."""
    places = range(len(space.base.network.dims))
    return {name for place in places for name in space.values_of(f"network.dims.{place}.fabric.build")} == {INCLUDED}


def _builds_vary(space: ParameterSet, path: str) -> bool:
    """Return whether designs of *space* have the dimension of a figure at *path* built in several ways."""
    where, fabric, _ = path.partition(".fabric.")
    return bool(fabric) and len(set(space.values_of(f"{where}.fabric.build"))) > 1


def _tasks(space: ParameterSet) -> list[str]:
    """Return what designs of *space* do: tasks of a step, or serving."""
    bases = [share.base for share in space.workloads] or [space.base]
    found = {SERVING if base.serving is not None else base.workload.task for base in bases}
    if not space.workloads and space.base.serving is None:
        found = set(space.values_of("workload.task"))
    return sorted(found)


def _has_limits(space: ParameterSet) -> bool:
    """Return whether some request of some design has a limit."""
    if any(path.rpartition(".")[2] in LIMITS for each in space.parameters for path in each.paths):
        return True
    loads = [each.serving.load for each in (space.base, *(share.base for share in space.workloads)) if each.serving]
    return any(getattr(kind, f"{name}_s") is not None for load in loads for kind in load.all_classes for name in LIMITS)


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

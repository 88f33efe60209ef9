"""The problem that a search solves: a parameter set, objectives and limits, and the evaluation of its points.

    rows ──▶ designs ──▶ evaluate each workload ──▶ one value per metric ──▶ limits ──▶ results

Pure: the same rows give the same results, in any process and in batches of any size. `Reasons` says why points cannot
run: few texts, and a code into them for each point. `why_never_known` says which metrics no design of a set has.

A lower bound says what no mapping can be faster than, so that most of them need not be evaluated. Recomputation adds
work, communication that is not overlapped adds time, and offloading adds transfers. So the mapping that does none of
these is a lower bound of all that differ from it in these switches alone, whether it fits into memory or not. There are
few such mappings: one stands for twenty others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import SpecError, require
from cosmic.cluster.cluster_cost import needed_figures
from cosmic.design import schema
from cosmic.design.design_batch import Batch, Column, column_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.field_facts import facts_of
from cosmic.design.model_layer import has_tokens
from cosmic.design.network_layer import INCLUDED
from cosmic.design.workload_layer import Workload
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.agent import Flags, Floats, Outcomes
from cosmic.search.learning.design_features import physics_features
from cosmic.search.objectives import MetricLimit, check_objectives, loss, losses, read_limit
from cosmic.search.space.diagram import Indices
from cosmic.search.space.parameter_set import ParameterSet, Share, replace_base, share_applies
from cosmic.search.space.parameters import Parameter
from cosmic.simulate.analytic_step import COMMUNICATED
from cosmic.simulate.metrics import (
    BETTER,
    OF_REQUESTS,
    OF_RUNS,
    OF_SAMPLES,
    OF_TOKENS,
    BatchOutcome,
    Infeasible,
    Metrics,
    Outcome,
)
from cosmic.simulate.step_evaluation import IN_THE_NODE, NEEDS, NO_TOKENS, unknown_metrics
from cosmic.simulate.user_engines import BUILT_IN, EngineAnswer, UserEngine, engine_of, metrics_of

# ---- Which metrics no design of a parameter set has, and why

SERVING = "serving a load"
TASK_METRICS = {"ttft_s": ("prefill", SERVING), "tpot_s": ("decode", SERVING), **dict.fromkeys(OF_REQUESTS, (SERVING,))}
TASK_METRICS |= dict.fromkeys(OF_RUNS, ("training",))
"""Metrics of some tasks alone."""
SLO_FIELDS = ("ttft_slo", "tpot_slo")
"""Limits of requests, without which none counts as good."""
NETWORK_METRICS = ("perf_per_bandwidth", "perf_per_network_cost")
LENGTH_METRICS = ("train_days", "train_usd", "train_energy_j", "train_co2_kg")
"""Metrics of training runs that have a length."""


def why_unavailable(space: ParameterSet, metric: str) -> str:
    """Return why no design of *space* has a *metric*: for want of a figure, a network or a task; empty if some do."""
    if reason := _why_other_task(space, metric) or _why_counted_otherwise(space, metric):
        return reason
    if metric == "goodput_per_s" and not _has_limits(space):
        return "no request has a limit: give serving.load.ttft_slo or tpot_slo"
    if metric in NETWORK_METRICS and not space.base.network.dims:
        return "one accelerator has no network"
    if metric in OF_RUNS and all(value is None for value in space.values_of("run.npu_mtbf")):
        return "no rate of interruptions is known for any of the accelerators: set run.npu_mtbf"
    if metric in LENGTH_METRICS and all(value is None for value in space.values_of("run.tokens")):
        return "the run has no length: set run.tokens, such as 15T"
    if metric == NETWORK_METRICS[1] and _all_included(space):
        return IN_THE_NODE
    for quantity in NEEDS.get(metric, ()):
        for path, part in needed_figures(space.base, quantity).items():
            if all(value is None for value in space.values_of(path)) and not _varies_build(space, path):
                owner = "any of the accelerators" if path.startswith("compute.") else part
                return unknown_metrics(space.base).get(metric, f"no {quantity.rpartition('.')[2]} is known for {owner}")
    return ""


def _why_other_task(space: ParameterSet, metric: str) -> str:
    """Return that a *metric* is one of other tasks than those of *space*."""
    tasks = _tasks_of_designs(space)
    if metric not in TASK_METRICS or set(TASK_METRICS[metric]) & set(tasks):
        return ""
    return f"it is a metric of {' or '.join(TASK_METRICS[metric])}, and the task is {' or '.join(tasks)}"


def _why_counted_otherwise(space: ParameterSet, metric: str) -> str:
    """Return why a *metric* counts what the model of *space* does not have: tokens, or samples without any."""
    tokens = has_tokens(space.base.model)
    if metric in OF_SAMPLES and tokens:
        return "the model has a sequence, so that tokens are counted: see tokens_per_s"
    return NO_TOKENS if metric in OF_TOKENS and not tokens else ""


def _all_included(space: ParameterSet) -> bool:
    """Return whether every dimension of every design of *space* is part of a node."""
    dims = range(len(space.base.network.dims))
    return {name for dim in dims for name in space.values_of(f"network.dims.{dim}.fabric.build")} == {INCLUDED}


def _varies_build(space: ParameterSet, path: str) -> bool:
    """Return whether designs of *space* have the dimension of a figure at *path* built in several ways."""
    where, fabric, _ = path.partition(".fabric.")
    return bool(fabric) and len(set(space.values_of(f"{where}.fabric.build"))) > 1


def _tasks_of_designs(space: ParameterSet) -> list[str]:
    """Return what designs of *space* do: tasks of a step, or serving."""
    bases = [share.base for share in space.workloads] or [space.base]
    tasks = {SERVING if base.serving is not None else base.workload.task for base in bases}
    if not space.workloads and space.base.serving is None:
        tasks = set(space.values_of("workload.task"))
    return sorted(tasks)


def _has_limits(space: ParameterSet) -> bool:
    """Return whether some request of some design has a limit."""
    if any(path.rpartition(".")[2] in SLO_FIELDS for parameter in space.parameters for path in parameter.paths):
        return True
    loads = [base.serving.load for base in (space.base, *(share.base for share in space.workloads)) if base.serving]
    return any(
        getattr(kind, f"{name}_s") is not None for load in loads for kind in load.all_classes for name in SLO_FIELDS
    )


# ---- Why points cannot run, for many points: few texts, and a code into them for each point

Codes = npt.NDArray[np.uint32]


class Reasons(Sequence[str]):
    """A sequence of texts in which few are different: a million of them take 4 MB.

    >>> some = Reasons.encode(["memory", "", "memory"])
    >>> some.texts, some.codes.tolist(), some[2], list(some[1:])
    (('memory', ''), [0, 1, 0], 'memory', ['', 'memory'])
    """

    __slots__ = ("codes", "texts")

    def __init__(self, texts: tuple[str, ...], codes: Codes) -> None:
        self.texts = texts
        """All different, and maybe some that no code points to."""
        self.codes = codes

    @classmethod
    def encode(cls, texts: Sequence[str]) -> Reasons:
        """Return *texts* as codes."""
        if isinstance(texts, Reasons):
            return texts
        code: dict[str, int] = {}
        codes = [code.setdefault(text, len(code)) for text in texts]
        return cls(tuple(code), np.array(codes, dtype=np.uint32))

    @classmethod
    def same(cls, text: str, n: int) -> Reasons:
        """Return one text *n* times."""
        return cls((text,), np.zeros(n, dtype=np.uint32))

    @classmethod
    def join(cls, parts: Iterable[Reasons]) -> Reasons:
        """Return several sequences as one."""
        code: dict[str, int] = {}
        codes = [part.codes_in(code) for part in parts]
        return cls(tuple(code), np.concatenate(codes) if codes else np.empty(0, dtype=np.uint32))

    def codes_in(self, code: dict[str, int]) -> Codes:
        """Return the codes of these texts in another table, to which unknown texts are added."""
        table = np.array([code.setdefault(text, len(code)) for text in self.texts], dtype=np.uint32)
        return table[self.codes] if len(self.codes) else self.codes

    def select(self, indices: Indices) -> Reasons:
        """Return the texts at *indices*."""
        return Reasons(self.texts, self.codes[indices])

    def counts(self) -> dict[str, int]:
        """Return how often each text is there, in the order in which they first appear."""
        used, first, count = np.unique(self.codes, return_index=True, return_counts=True)
        order = sorted(zip(first.tolist(), used.tolist(), count.tolist(), strict=True))
        return {self.texts[code]: times for _, code, times in order}

    def differs(self, other: Reasons) -> Flags:
        """Return at which places two sequences of the same length have different texts."""
        code: dict[str, int] = {}
        return np.asarray(self.codes_in(code) != other.codes_in(code))

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return map(self.texts.__getitem__, self.codes.tolist())

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Reasons: ...
    def __getitem__(self, index: int | slice) -> str | Reasons:
        if isinstance(index, slice):
            return Reasons(self.texts, self.codes[index])
        return self.texts[int(self.codes[index])]

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and not self.differs(Reasons.encode(other)).any()

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        return f"Reasons.encode({list(self)!r})"


METRICS = tuple(BETTER)
MAXIMUM_METRICS = (
    *("cost_usd", "network_usd", "power_w", "memory_bytes", "memory_used_bytes", "offloaded_bytes"),
    *("ttft_s", "tpot_s", "ttft_p95_s", "tpot_p95_s"),
)
"""Metrics that a mix of workloads has the maximum of; the others are sums or means."""
UNKNOWN_SUFFIX = " is unknown"
"""Ends the reason of a design that has no value of an objective."""
INFEASIBLE_LOG_LOSS = 99.0
"""The logarithm of the loss of a design that cannot run, for models that take numbers only."""
UNMET_PROVISION = "no bandwidth meets the limits of provision"


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
        object.__setattr__(self, "reasons", Reasons.encode(self.reasons))

    def __len__(self) -> int:
        return len(self.excess)

    @property
    def coded(self) -> Reasons:
        """The reasons as codes."""
        return Reasons.encode(self.reasons)

    @property
    def feasible(self) -> Flags:
        """Which points can run."""
        return np.asarray(self.excess == 0)

    def figures(self, index: int) -> dict[str, float | None]:
        """Return the metrics of the point at *index*; None for a metric that it does not have."""
        values = {name: float(column[index]) for name, column in self.columns.items()}
        return {name: None if np.isnan(value) else value for name, value in values.items()}

    def part(self, span: slice) -> Results:
        """Return consecutive results; nothing is copied."""
        columns = {name: column[span] for name, column in self.columns.items()}
        return Results(columns, self.excess[span], self.coded[span], self.counted[span])

    def select(self, indices: Indices) -> Results:
        """Return the results at *indices*."""
        columns = {name: column[indices] for name, column in self.columns.items()}
        return Results(columns, self.excess[indices], self.coded.select(indices), self.counted[indices])

    @classmethod
    def join(cls, parts: Iterable[Results]) -> Results:
        """Return the results of several batches as those of one."""
        batches = list(parts)
        columns = {name: np.concatenate([part.columns[name] for part in batches]) for name in batches[0].columns}
        reasons = Reasons.join(part.coded for part in batches)
        excess, counted = (np.concatenate([getattr(part, name) for part in batches]) for name in ("excess", "counted"))
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
    limits: tuple[MetricLimit, ...] = ()
    engine: str = "analytic"

    def __post_init__(self) -> None:
        check_objectives(self.objectives, metrics_of(self.engine))

    @property
    def user_engine(self) -> UserEngine | None:
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
        brought = self.user_engine
        return self.evaluate_shares(rows)[1] if brought is None else self._ask_engine(rows, brought)

    def _ask_engine(self, rows: Indices, engine: UserEngine) -> Results:
        """Return what the engine of somebody else says of the points *rows*; all count, as each was asked."""
        possible = np.ones(len(rows), dtype=bool)
        if self.space.provisioner is not None:
            possible = self.space.provisioner.possible(rows)
        unmet = EngineAnswer({}, (UNMET_PROVISION,))
        answers = [
            engine.ask(self.space.point(row)) if is_possible else unmet
            for row, is_possible in zip(rows, possible, strict=True)
        ]
        columns = {name: np.array([answer.metrics.get(name, np.nan) for answer in answers]) for name in self.metrics}
        silent = np.array([bool(answer.reasons) for answer in answers])
        results = self._apply_limits(columns, np.where(silent, np.inf, 0.0), {})
        reasons = [", ".join(answer.reasons) or text for answer, text in zip(answers, results.reasons, strict=True)]
        return Results(results.columns, results.excess, reasons, np.ones(len(rows), dtype=bool))

    def evaluate_shares(self, rows: Indices) -> tuple[list[BatchOutcome], Results]:
        """Return what each workload achieves in closed form, and the results of the points *rows*."""
        fields = self.space.columns(rows)
        batches = [Batch(share.base, self._fields_of(share, fields, rows)) for share in self.shares]
        outcomes = [_spread_outcome(evaluate_batch(batch), len(rows)) for batch in batches]
        columns = self._mix_shares([outcome.columns for outcome in outcomes])
        excess = np.sum([outcome.excess for outcome in outcomes], axis=0)
        why: dict[str, Flags] = {}
        for share, outcome in zip(self.shares, outcomes, strict=True):
            why |= {f"{share.name}: {rule}" if share.name else rule: broken for rule, broken in outcome.broken.items()}
        if self.space.provisioner is not None:
            why[UNMET_PROVISION] = ~self.space.provisioner.possible(rows)
            excess = excess + why[UNMET_PROVISION]
        if self.engine != "analytic":
            columns = self._simulate_feasible(rows, columns, excess == 0)
        return outcomes, self._apply_limits(columns, excess, why)

    def _fields_of(self, share: Share, fields: Mapping[str, Column], rows: Indices) -> dict[str, Column]:
        """Return the fields of one workload: those of the set, and those that follow them; or its own instead."""
        if all(share_applies(share, path) for path in fields):
            return dict(fields) | {path: self._spaces[share.name].derive(path, rows) for path in share.derived}
        return self._spaces[share.name].columns(rows)

    @cached_property
    def _spaces(self) -> dict[str, ParameterSet]:
        return {share.name: replace_base(self.space, share) for share in self.shares}

    def _mix_shares(self, parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
        """Return the metrics of a round in which each workload runs as often as its weight says.

        Times and energies are sums; utilisation is averaged over time, dollars per token over tokens; memory is the
        maximum, as the workloads run one after the other.
        """
        if len(parts) == 1:
            return {name: parts[0][name] for name in METRICS}
        weights = np.array([share.weight for share in self.shares])[:, None]

        def column(name: str) -> Floats:
            return np.stack([part[name] for part in parts])

        # A round runs workload i weight_i times: T = sum of w_i t_i, and rates are totals over T.
        seconds = weights * column("step_s")
        tokens = seconds * column("tokens_per_s")
        samples = seconds * column("samples_per_s")
        round_s = seconds.sum(axis=0)
        slower = round_s / column("step_s")[0]
        mixed = {name: np.fmax.reduce(column(name)) for name in MAXIMUM_METRICS}
        mixed |= {name: (seconds * column(name)).sum(axis=0) / round_s for name in ("mfu", "hfu")}
        mixed |= {name: column(name)[0] / slower for name in ("perf_per_bandwidth", "perf_per_network_cost")}
        mixed |= {name: np.full_like(round_s, np.nan) for name in OF_RUNS}  # a mix is no training run
        return (
            mixed
            | self._of_requests(column, seconds)
            | {
                "step_s": round_s,
                "tokens_per_s": tokens.sum(axis=0) / round_s,
                "cost_usd_per_token": (tokens * column("cost_usd_per_token")).sum(axis=0) / tokens.sum(axis=0),
                "samples_per_s": samples.sum(axis=0) / round_s,
                "cost_usd_per_sample": (samples * column("cost_usd_per_sample")).sum(axis=0) / samples.sum(axis=0),
                "energy_j": (weights * column("energy_j")).sum(axis=0),
            }
        )

    @staticmethod
    def _of_requests(column: Callable[[str], Floats], seconds: Floats) -> dict[str, Floats]:
        """Return what the workloads that serve a load have: rates over the time that they serve; of users the worst."""
        metrics = {"tokens_per_s_per_user": np.fmin.reduce(column("tokens_per_s_per_user"))}
        for name, weights in (
            ("goodput_per_s", seconds),
            ("tokens_per_s_per_npu", seconds),
            ("energy_j_per_token", seconds * column("tokens_per_s")),
        ):
            weight = np.where(np.isnan(column(name)), 0.0, weights)
            with np.errstate(invalid="ignore"):
                metrics[name] = np.nansum(weight * column(name), axis=0) / weight.sum(axis=0)
        return metrics

    def _apply_limits(self, columns: Mapping[str, Floats], excess: Floats, why: Mapping[str, Flags]) -> Results:
        """Return results in which designs beyond a limit are infeasible too; infeasible ones have no metrics."""
        reasons, fitting = dict(why), np.isfinite(excess)
        for name in self.objectives:
            unknown = np.isnan(columns[name])
            if unknown.any():
                excess = np.where(unknown, np.inf, excess)
                reasons[f"{name}{UNKNOWN_SUFFIX}"] = unknown & fitting
        for limit in self.limits:
            beyond = limit.excess(columns[limit.metric])
            excess = excess + beyond
            reasons[limit.text] = beyond > 0
        runs = excess == 0
        metrics = {name: np.where(runs, columns[name], np.nan) for name in self.metrics}
        return Results(metrics, excess, _reason_texts(reasons, len(excess)), fitting)

    def _simulate_feasible(self, rows: Indices, columns: Mapping[str, Floats], runs: Flags) -> dict[str, Floats]:
        """Return the metrics after the event engine has simulated the points that can run."""
        simulated = {name: column.copy() for name, column in columns.items()}
        for index in np.flatnonzero(runs).tolist():
            parts = [_metric_columns(self._outcome(share, rows[index])) for share in self.shares]
            for name, value in self._mix_shares(parts).items():
                simulated[name][index] = value[0]
        return simulated

    # ------------------------------------------------------------------------------------------- one point

    def _outcome(self, share: Share, row: Indices) -> Outcome:
        return evaluate(design_of_row(self.space, share, row), self.engine)

    def explain(self, row: Indices) -> tuple[str, ...]:
        """Return the reasons why the point *row* cannot run, a sentence each; none for one that can."""
        if outside := self.space.broken(row):
            return tuple(outside.values())
        if self.user_engine is not None:
            return tuple(text for text in self.evaluate(row[None, :]).reasons[0].split(", ") if text)
        sentences = []
        for share in self.shares:
            outcome = self._outcome(share, row)
            if isinstance(outcome, Infeasible):
                sentences += [f"{share.name}: {reason}" if share.name else reason for reason in outcome.reasons]
        if not sentences:
            broken = [text for text in self.evaluate(row[None, :]).reasons[0].split(", ") if text]
            sentences += [
                text if text.endswith((UNKNOWN_SUFFIX, UNMET_PROVISION)) else f"exceeds the limit {text}"
                for text in broken
            ]
        return tuple(sentences)

    @cached_property
    def base(self) -> Results:
        """The results of the base design, which every search is compared with."""
        frozen = replace(self.space, parameters=(), derived={}, constraints=(), provisioner=None)
        return replace(self, space=frozen).evaluate(np.empty((1, 0), dtype=np.intp))

    @property
    def base_figures(self) -> dict[str, float | None] | None:
        """The metrics of the base design; None where it cannot run."""
        return self.base.figures(0) if self.base.feasible[0] else None

    @property
    def base_loss(self) -> float:
        """The loss of the base design by the first objective; infinite where it cannot run."""
        return float(losses(self.objectives[:1], self.base.columns)[0, 0]) if self.base.feasible[0] else np.inf

    def features(self, rows: Indices) -> Floats:
        """Return what closed forms say of points: features before they are simulated.

        The logarithms of their metrics and, of one workload, what its step is made of: flop, bytes by axis, headroom of
        memory, bubble and other parts.
        """
        closed = replace(self, engine="analytic", limits=()).evaluate(rows)
        metrics = np.stack([closed.columns[name] for name in METRICS], axis=1)
        logs = np.log(np.where(metrics > 0, metrics, 1.0))
        if len(self.shares) > 1:
            return logs
        parts = physics_features(Batch(self.space.base, self.space.columns(rows)))[0].columns
        names = [f"bytes of {part}" for part in COMMUNICATED]  # those that some design has, or all rows would not match
        columns = {name: parts.get(name, np.zeros(len(rows))) for name in (*parts, *names)}
        return np.concatenate([logs, np.stack([columns[name] for name in sorted(columns)], axis=1)], axis=1)

    def closed_losses(self, rows: Indices) -> Floats:
        """Return the logarithm of the first objective's loss of points by closed forms; large where they cannot run."""
        closed = replace(self, engine="analytic", limits=()).evaluate(rows)
        closed_loss = losses(self.objectives[:1], closed.columns)[:, 0]
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(np.abs(closed_loss))
        return np.where(np.isfinite(logs), logs, INFEASIBLE_LOG_LOSS)


def make_problem(
    space: ParameterSet, objectives: Sequence[str] = (), constraints: Sequence[str] = (), engine: str = "analytic"
) -> Problem:
    """Return the problem of searching *space*, by default for its own objective; its own limits hold as well."""
    engine = _choose_engine(space, engine)
    metrics = metrics_of(engine)
    objective_names = tuple(objectives) or (space.objective,)
    limits = tuple(read_limit(text, metrics) for text in (*space.limits, *constraints))
    if engine not in BUILT_IN:
        _check_engine_objectives(space, engine, objective_names)
        return Problem(space, objective_names, limits, engine)
    for name in objective_names:
        require(not (why := why_unavailable(space, name)), "objective", name, f"is unknown for every design: {why}")
    for limit in limits:
        why = why_unavailable(space, limit.metric)
        require(not why, "constraint", limit.text, f"{limit.metric} is unknown for every design: {why}")
    return Problem(space, objective_names, limits, engine)


def _choose_engine(space: ParameterSet, engine: str) -> str:
    """Return the engine that evaluates *space*: the one that is asked for, unless the set names its own."""
    user_engine = engine_of(engine)
    if not space.engine or engine == space.engine:
        has_own_fields = user_engine is not None and user_engine.fields is not None and space.of_designs
        rule = f"has fields of its own, and takes no designs: search a set that says 'engine: {engine}'"
        require(not has_own_fields, "engine", engine, rule)
        require(
            user_engine is None or not space.workloads,
            "engine",
            engine,
            "takes one design, and the set mixes workloads",
        )
        return engine
    rule = f"the set {space.name} is for the engine {space.engine}"
    require(engine == BUILT_IN[0], "engine", engine, rule)  # which is what nobody asked for
    return _choose_engine(space, space.engine)


def _check_engine_objectives(space: ParameterSet, engine: str, objectives: Sequence[str]) -> None:
    """Refuse objectives that an engine does not give; of those of the set, say how to choose another."""
    for name in objectives:
        if name not in metrics_of(engine) and name == space.objective:
            rule = f"is the objective of {space.name}, and {engine} gives {', '.join(metrics_of(engine))}: choose one"
            raise SpecError("objective", name, f"{rule} (--objective)")


def _spread_outcome(outcome: BatchOutcome, n: int) -> BatchOutcome:
    """Return an outcome for each of *n* points, also of a workload in which they do not differ."""
    if len(outcome.excess) == n:
        return outcome
    columns = {name: np.broadcast_to(column, (n,)) for name, column in outcome.columns.items()}
    broken = {name: np.broadcast_to(flags, (n,)) for name, flags in outcome.broken.items()}
    return BatchOutcome(columns, broken, np.broadcast_to(outcome.excess, (n,)))


def design_of_row(space: ParameterSet, share: Share, row: Indices) -> DesignPoint:
    """Return the design of a workload of *space* in the point *row*; searched fields that it lacks are left out."""
    changes = replace_base(space, share).changes(row)
    point: DesignPoint = schema.assign_fields(
        share.base, {path: changes[path] for path in changes if share_applies(share, path)}
    )
    return point


def _metric_columns(outcome: Outcome) -> dict[str, Floats]:
    if not isinstance(outcome, Metrics):
        raise SpecError("engine", "event", "refuses a design that the analytic engine accepts")
    values = {name: getattr(outcome, name) for name in METRICS}
    return {name: np.array([np.nan if value is None else value]) for name, value in values.items()}


def _reason_texts(why: Mapping[str, Flags], n: int) -> Reasons:
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
    texts = [", ".join(name for name, flag in zip(broken, table[index], strict=True) if flag) for index in first]
    return Reasons.encode(texts).select(codes.reshape(-1))


# ---- Bounds: what no mapping can be faster than, so that most of them need not be evaluated

FASTEST_SWITCHES: dict[str, Any] = {
    f"workload.{name}": about.fastest for name, about in facts_of(Workload).items() if about.fastest is not None
}
"""The value of each switch with which a step takes least."""
EITHER_FASTER = "workload.ep_overlap"
"""A switch of which either value may be faster: where a step waits for its host, overlap takes the seconds of compute
that would hide weights."""
BOUNDED = ("step_s", "ttft_s", "tpot_s", "tokens_per_s", "samples_per_s", "mfu")
"""Objectives that are better the less a step takes, all else equal."""


def make_loss_bound(problem: Problem) -> Callable[[Indices], Floats] | None:
    """Return a function that gives a lower bound of the loss of points; None where a problem has no such bound."""
    if not problem.of_designs:
        return None
    single = len(problem.objectives) == 1 and problem.objectives[0] in BOUNDED
    served = problem.space.base.serving is not None  # its seconds are of many steps
    if not single or served or problem.engine != "analytic" or problem.space.workloads:
        return None
    if problem.space.provisioner is not None:  # the bandwidth of one mapping is not that of another
        return None
    if not any(path in FASTEST_SWITCHES for parameter in problem.space.parameters for path in parameter.paths):
        return None
    return lambda rows: lower_bounds(problem, rows)


def lower_bounds(problem: Problem, rows: Indices) -> Floats:
    """Return for each point a loss that it cannot be below; 0 where that is not known."""
    space, objective = problem.space, problem.objectives[0]
    codes = np.stack(
        [_group_switches(parameter)[rows[:, index]] for index, parameter in enumerate(space.parameters)], axis=1
    )
    _, first, group = np.unique(_pack_rows(codes), return_index=True, return_inverse=True)
    fields = space.columns(rows[first])
    fields |= {path: column_of([value] * len(first)) for path, value in FASTEST_SWITCHES.items() if path in fields}
    tried = [fields, *([fields | {EITHER_FASTER: column_of([False] * len(first))}] if EITHER_FASTER in fields else [])]
    least = np.min(
        [loss(objective, evaluate_batch(Batch(space.base, columns)).columns[objective]) for columns in tried], 0
    )
    return np.asarray(np.where(np.isfinite(least), least, 0.0)[group.reshape(-1)])


def _group_switches(parameter: Parameter) -> Indices:
    """Return a number for each value: two have the same if they differ in switches of `FASTEST_SWITCHES` alone."""
    group_numbers: dict[tuple[Any, ...], int] = {}
    other_fields = [index for index, path in enumerate(parameter.paths) if path not in FASTEST_SWITCHES]
    values = [
        group_numbers.setdefault(tuple(row[field] for field in other_fields), len(group_numbers))
        for row in parameter.values
    ]
    return np.array(values, dtype=np.intp)


def _pack_rows(codes: Indices) -> Indices:
    """Return one number for each row of small whole numbers, the same for equal rows."""
    packed = np.zeros(len(codes), dtype=np.int64)
    for column in codes.T:
        size = int(column.max(initial=0)) + 1
        if packed.max(initial=0) >= 2**62 // size:  # too many for one number: count those that there are
            packed = np.unique(packed, return_inverse=True)[1].reshape(-1)
        packed = packed * size + column
    return packed

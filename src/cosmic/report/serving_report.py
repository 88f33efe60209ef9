"""What a search for deployments found, as a page: the front in one pool and in two, and the cheapest of each.

The same document as that of a study: each deployment is a trial, and those that a machine can be had for are designs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.design.design_point import DesignPoint, model_title
from cosmic.evaluation import evaluate
from cosmic.report.container import Binary
from cosmic.report.design_view import NamedDesign, design_without_timeline, pack_timeline, timeline_of
from cosmic.report.document_types import (
    BlockJson,
    ChoicesCoding,
    Coding,
    Column,
    CommandJson,
    Convergence,
    Design,
    NumbersCoding,
    ReportDocument,
    Trust,
    VerdictJson,
    Why,
)
from cosmic.report.launch_commands import accelerator_label
from cosmic.report.serving_view import (
    LATENCY_LABELS,
    LATENCY_METRICS,
    describe_missed_slos,
    design_in_words,
    serving_facts,
    serving_of,
    serving_study,
)
from cosmic.report.study_report import Report, headline_of, spread_evenly
from cosmic.report.trial_block import parameter_column
from cosmic.report.trust import model_limits as left_out
from cosmic.search.advice.deployment_plan import Checked, Plan, accelerators_text
from cosmic.search.advice.service_question import Service
from cosmic.search.design_wording import load_in_words, metric_unit, price_in_words, seconds_text
from cosmic.search.objectives import MetricLimit
from cosmic.search.search_verdict import SearchGain
from cosmic.search.study.study import software_versions
from cosmic.serving.deployment_candidates import Candidate, as_design
from cosmic.serving.serving_metrics import ServingMetrics, Slo
from cosmic.simulate.metrics import Infeasible, Metrics

CandidateField = Callable[[Candidate], Any]


def _in_flight(seen: ServingMetrics) -> int:
    """Return the mean requests in flight of an open loop."""
    return max(1, round(float(seen.running + seen.waiting)))


DEPLOYMENT_PARAMETERS: dict[str, CandidateField] = {
    "workload.tp": lambda each: each.kind.shape.tp,
    "workload.pp": lambda each: each.kind.shape.pp,
    "workload.attention_dp": lambda each: each.kind.shape.ranks,
    "workload.ep": lambda each: each.kind.shape.ep,
    "serving.instances": lambda each: each.instances,
    "serving.prefill.replicas": lambda each: each.prefill_instances if each.kind.prefill else 0,
    "serving.prefill.tp": lambda each: each.kind.prefill.tp if each.kind.prefill else 0,
    "serving.prefill.pp": lambda each: each.kind.prefill.pp if each.kind.prefill else 0,
    "serving.max_num_batched_tokens": lambda each: each.kind.chunk or "engine's own",
    "serving.load.concurrency": lambda each: each.load.concurrency or _in_flight(each.metrics),
    "network.accelerators": lambda each: each.npus,
}
"""What tells deployments apart."""
RATE_METRICS: dict[str, Callable[[ServingMetrics], Any]] = {
    "tokens_per_s_per_npu": lambda seen: seen.tokens_per_s_per_npu,
    "tokens_per_s_per_user": lambda seen: seen.tokens_per_s_per_user,
    "tokens_per_s": lambda seen: seen.output_tokens_per_s,
    "cost_usd_per_token": lambda seen: (
        None if seen.usd_per_million_tokens is None else seen.usd_per_million_tokens / 1e6
    ),
}
"""Metrics of deployments besides their latencies."""
LESS_IS_BETTER = "cost_usd_per_token"
DEPLOYMENT_KINDS = ("aggregated", "disaggregated")
MOST_OPENED = 10
"""Deployments of the front of each kind that are shown in full."""


@dataclass(frozen=True)
class DeploymentRow:
    """A deployment on the page."""

    label: str
    candidate: Candidate
    design: DesignPoint | None
    """None where no machine of its size can be had."""
    chosen: bool = False

    @property
    def kind(self) -> int:
        """Which of `DEPLOYMENT_KINDS` it is."""
        return int(self.candidate.kind.prefill is not None)


def serving_report(plan: Plan, command: str = "", saved: str = "") -> Report:
    """Return the page of a search for deployments of a service; *command* found them, *saved* has the chosen one."""
    service, limits = plan.service, plan.limits
    binary = Binary()
    asked = [_as_limit(limit) for limit in limits]
    rows = list(_deployment_rows(service, plan))
    designs = list(_designs(rows, asked, binary, saved))
    best = next((index for index, design in enumerate(designs) if design.role == "best"), None)
    others = [index for index, design in enumerate(designs) if design.role == "other"]
    compared = ([] if best is None else [best]) + others
    point = plan.chosen.design if plan.chosen else service.design
    document = ReportDocument(
        format=1,
        title=f"serve {model_title(point.model)} on {point.compute.accelerator}: {load_in_words(serving_of(point).load)}",
        study="",
        verdict=_deployment_verdict(plan, command),
        why=Why(compared=compared),
        trials=_deployment_block(rows, asked, point, binary),
        front=[index for index, row in enumerate(rows) if row.candidate in plan.front],
        convergence=Convergence(objective="cost_usd", label="accelerators", unit="", better="less", series=[]),
        designs=designs,
        best=best,
        base=None,
        trust=_deployment_trust(plan, point, command),
        serving=serving_study(point, asked),
    )
    return Report(document, binary)


def _as_limit(slo: Slo) -> MetricLimit:
    metric = next(name for name, limit_key in LATENCY_METRICS.items() if limit_key == (slo.metric, slo.statistic))
    return MetricLimit(f"{metric} <= {slo.limit_s:g} s", metric, most=True, bound=slo.limit_s)


# ---- deployments


def _deployment_rows(service: Service, plan: Plan) -> Iterator[DeploymentRow]:
    """Yield the chosen deployment, the cheapest of the other kind, and the fronts of both kinds."""
    chosen = plan.chosen
    if chosen is not None:
        yield DeploymentRow("best", chosen.candidate, chosen.design, chosen=True)
    for kind, part in zip(DEPLOYMENT_KINDS, (plan.one, plan.two), strict=True):
        mine = chosen is not None and DEPLOYMENT_KINDS[_has_two_pools(chosen.candidate)] == kind
        if part.cheapest and not mine:
            checked = next(
                (each for each in plan.checked if DEPLOYMENT_KINDS[_has_two_pools(each.candidate)] == kind), None
            )
            yield _cheapest(service, kind, part.cheapest[0], checked)
    for kind, part in zip(DEPLOYMENT_KINDS, (plan.one, plan.two), strict=True):
        opened = spread_evenly(list(range(len(part.front))), MOST_OPENED)
        for index, each in enumerate(part.front):
            yield DeploymentRow(f"{kind} {index + 1}", each, _designs_built(service, each) if index in opened else None)


def _cheapest(service: Service, kind: str, candidate: Candidate, checked: Checked | None) -> DeploymentRow:
    label = f"cheapest {kind}"
    if checked is not None:
        return DeploymentRow(label, checked.candidate, checked.design)
    return DeploymentRow(label, candidate, _designs_built(service, candidate))


def _has_two_pools(candidate: Candidate) -> int:
    return int(candidate.kind.prefill is not None)


def _designs_built(service: Service, candidate: Candidate) -> DesignPoint | None:
    """Return the design of a deployment under its own load; None where no machine has its accelerators."""
    machine = service.sized(candidate.npus)
    if machine is None or service.design.serving is None:
        return None
    loaded = replace(machine, serving=replace(service.design.serving, load=candidate.load))
    return as_design(loaded, candidate.kind, candidate.instances, candidate.prefill_instances)


def _designs(
    rows: Sequence[DeploymentRow], limits: Sequence[MetricLimit], binary: Binary, saved: str
) -> Iterator[Design]:
    """Yield the deployments that can be built; the chosen one with a timeline, and the file that it was saved to."""
    for index, row in enumerate(rows):
        if row.design is None or isinstance(evaluate(row.design), Infeasible):
            continue
        role = "best" if row.chosen else "other" if row.label.startswith("cheapest") else "front"
        named = NamedDesign(row.label, role, row.design, index, saved if row.chosen else "")  # type: ignore[arg-type]
        document = design_without_timeline(named, "analytic", limits)
        if row.chosen:
            document = replace(document, timeline=pack_timeline(timeline_of(row.design, "analytic"), binary))
        yield document


# ---- trials


def _deployment_block(
    rows: Sequence[DeploymentRow], limits: Sequence[MetricLimit], point: DesignPoint, binary: Binary
) -> BlockJson:
    columns = [
        _parameter_column_of(name, [read(row.candidate) for row in rows], binary)
        for name, read in DEPLOYMENT_PARAMETERS.items()
    ]
    seen = [row.candidate.metrics for row in rows]
    rates = {name: [read(each) for each in seen] for name, read in RATE_METRICS.items()}
    wanted = dict.fromkeys(["ttft_s", "ttft_p95_s", "tpot_s", "tpot_p95_s", *(limit.metric for limit in limits)])
    times = {name: [_time_column(each, name) for each in seen] for name in wanted}
    columns += [_metric_column_of(name, values, point, binary) for name, values in {**rates, **times}.items()]
    return BlockJson(
        first=0,
        count=len(rows),
        columns=columns,
        reasons=[""],
        outcomes=binary.add_codes(np.zeros(len(rows), dtype=np.intp), 1),
        pools=binary.add_codes(np.array([row.kind for row in rows], dtype=np.intp), 2),
    )


def _time_column(seen: ServingMetrics, metric: str) -> float:
    name, statistic = LATENCY_METRICS[metric]
    return float(getattr(seen, name).at(statistic))


def _parameter_column_of(name: str, values: Sequence[Any], binary: Binary) -> Column:
    distinct = sorted(set(values), key=lambda each: (isinstance(each, str), each))
    codes = np.array([distinct.index(value) for value in values], dtype=np.intp)
    labels = [each if isinstance(each, str) else f"{each:,}" for each in distinct]
    coding: Coding = ChoicesCoding(
        kind="choices", values=distinct, labels=labels, codes=binary.add_codes(codes, max(1, len(distinct)))
    )
    return parameter_column(name, name.partition(".")[0], "", coding)


def _metric_column_of(name: str, values: Sequence[Any], point: DesignPoint, binary: Binary) -> Column:
    numbers = np.array([np.nan if value is None else float(value) for value in values])
    latency, statistic = LATENCY_METRICS.get(name, ("", ""))
    return Column(
        name=name,
        label=accelerator_label(point, name)
        if statistic in ("", "mean", "p95")
        else f"{LATENCY_LABELS[latency]} {statistic}",
        role="metric",
        unit="s" if latency else metric_unit(name),
        better="less" if latency or name == LESS_IS_BETTER else "more",
        objective=name == "tokens_per_s_per_npu",
        coding=NumbersCoding(kind="numbers", numbers=binary.add(numbers, "f32")),
    )


# ---- verdict


def _deployment_verdict(plan: Plan, command: str) -> VerdictJson:
    chosen, slos, limits = plan.chosen, plan.limits, [_as_limit(slo) for slo in plan.limits]
    point = chosen.design if chosen else None
    outcome = None if point is None else evaluate(point)
    metrics = outcome if isinstance(outcome, Metrics) else None
    shown = point is not None and metrics is not None
    caveats = [f"Assumed: {each}." for each in plan.assumed]
    caveats += [f"Held: {name} {value}, as stated." for name, value in plan.held.items()]
    caveats += _refuted_by_simulation(plan, slos) + (_expected_errors(chosen) if chosen else [])
    caveats += describe_missed_slos(point, limits) if point is not None and metrics is not None else []
    return VerdictJson(
        headline=headline_of(point, metrics),
        sentence=_verdict_sentence(plan, slos),
        design=design_in_words(point) if point is not None else "",
        objective="cost_usd",
        gains=list(_gains_over_cheapest(plan)),
        bound="",
        facts=serving_facts(point, metrics, limits) if point is not None and metrics is not None else [],
        provenance=metrics.provenance if metrics else "",
        expected_error=metrics.expected_error if metrics else None,
        expected_on=metrics.expected_on if metrics else "",
        command=command,
        python="",
        caveats=caveats if shown else [*caveats, *plan.reasons],
        plateau=None,
    )


def _verdict_sentence(plan: Plan, slos: Sequence[Slo]) -> str:
    """Return how many accelerators are needed, and what the simulation says."""
    priced = plan.priced
    achievement = "holds the limits" if slos else "bears the load"
    if plan.chosen is None:
        return f"None of {priced:,} deployments {achievement}"
    candidate, seen = plan.chosen.candidate, plan.chosen.simulated
    fewest = "is the fewest that holds" if candidate.npus == 1 else "are the fewest that hold"
    condition = f"{fewest} the limits" if slos else fewest.replace("hold", "bear") + " the load"
    sentence = f"{accelerators_text(candidate.npus)} {condition}, of {priced:,} deployments"
    if seen is None:
        return sentence
    return f"{sentence}; simulated: {_tails_in_words(seen)}"


def _tails_in_words(seen: ServingMetrics) -> str:
    return f"TTFT p95 {seconds_text(float(seen.ttft.p95_s))}, TPOT p95 {seconds_text(float(seen.tpot.p95_s))}"


def _gains_over_cheapest(plan: Plan) -> Iterator[SearchGain]:
    """Yield how many times fewer accelerators the chosen deployment takes than the cheapest of each kind."""
    chosen = plan.chosen
    if chosen is None:
        return
    for kind in DEPLOYMENT_KINDS:
        if DEPLOYMENT_KINDS[_has_two_pools(chosen.candidate)] == kind:
            continue
        checked = next(
            (each for each in plan.checked if each.holds and DEPLOYMENT_KINDS[_has_two_pools(each.candidate)] == kind),
            None,
        )
        if checked is not None:
            yield SearchGain(f"the cheapest {kind}", checked.candidate.npus / chosen.candidate.npus)


def _refuted_by_simulation(plan: Plan, slos: Sequence[Slo]) -> list[str]:
    """Return which deployments hold the limits in closed form alone, a sentence for each kind."""
    sentences: dict[str, str] = {}
    for each in plan.checked:
        if each.simulated is None or each.holds or not each.candidate.holds:
            continue
        kind = DEPLOYMENT_KINDS[_has_two_pools(each.candidate)]
        claim = "the limits hold" if slos else "the load is borne"
        sentence = f"With {accelerators_text(each.candidate.npus)}, {each.candidate} ({kind}), {claim} in closed form"
        sentences.setdefault(kind, f"{sentence} but not in the simulation: {_tails_in_words(each.simulated)}.")
    return list(sentences.values())


def _expected_errors(chosen: Checked) -> list[str]:
    """Return how far off times are expected to be, and which limits hold by less."""
    errors = chosen.expected_error
    if errors is None:
        return ["How far off times are was not measured: no published run has this engine."]
    return [
        f"TTFT is expected to be off by {100 * errors.ttft:.0f} %, TPOT by {100 * errors.tpot:.0f} %, "
        f"as on average of {errors.runs:,} published runs {errors.kind}.",
        *(
            f"{LATENCY_LABELS[each.limit.metric]} {each.limit} holds by {100 * each.apart:.0f} %, less than that."
            for each in chosen.judged
            if each.within_error
        ),
    ]


def _deployment_trust(plan: Plan, point: DesignPoint, command: str) -> Trust:
    priced, kinds = plan.priced, plan.one.kinds + plan.two.kinds
    every = "all of them" if plan.exhaustive else "not all of them"
    serving, price = serving_of(point), price_in_words(point)
    inputs = [
        ("design", plan.service.source),
        ("load", load_in_words(serving.load)),
        ("limits", ", ".join(f"{LATENCY_LABELS[limit.metric]} {limit}" for limit in plan.limits)),
        ("engine", serving.engine),
    ]
    return Trust(
        inputs=[input_ for input_ in inputs if input_[1]],
        versions=list(software_versions().items()),
        limits=[*left_out(point, "analytic"), *([f"Cost is {price}."] if price else [])],
        failures=[],
        raw=priced,
        valid=priced,
        evaluated=priced,
        feasible=priced,
        coverage=f"{priced:,} deployments of {kinds:,} kinds were priced: {every}.",
        commands=[CommandJson(label="search again", command=command)] if command else [],
    )

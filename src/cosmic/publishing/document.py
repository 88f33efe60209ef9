"""A study as the document that pages show: verdict, why, trials, front, convergence, designs, trust."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from cosmic.design.point import DesignPoint
from cosmic.engines import direction
from cosmic.evaluation import Metrics, evaluate
from cosmic.exploration.problem import Problem, point_of
from cosmic.exploration.searching import Found
from cosmic.exploration.studies.study import Study, versions
from cosmic.exploration.verdict import Verdict, judge
from cosmic.publishing.block import block_of, label_in
from cosmic.publishing.container import Binary
from cosmic.publishing.contract import Convergence, Design, Fact, ReportDocument, Series, Why, WorkloadVerdict
from cosmic.publishing.contract import Verdict as VerdictPart
from cosmic.publishing.design_view import Named, facts_of, per_accelerator, timeline_of, undrawn
from cosmic.publishing.plateau import plateau_of
from cosmic.publishing.serving_view import design_in_words, headline, missed, serving_study, trade_off
from cosmic.publishing.timelines import packed_size, packed_timeline
from cosmic.publishing.trust import search_command, search_python, trust_of
from cosmic.publishing.why import NOTHING, why
from cosmic.reporting.words import figure, mapping_in_words, metric_unit

FRONT = 8
"""Members of the front that are shown in full."""
TIMELINES = 32 * 1024
"""Bytes of all timelines, gzipped: what the rest of the page leaves of 120 KB, trials apart."""
DRAWN = ("best", "base", "isolated", "front", "other")
"""Roles in the order in which designs get a timeline."""
MOST_STEPS = 400
"""Steps of a convergence curve that are kept: more than a screen can show."""

Say = Callable[[str], None]
"""Called with a line of text before each stage of the work."""


@dataclass(frozen=True)
class Subject:
    """What a report is about."""

    found: Found
    beside: Mapping[str, Found] = field(default_factory=dict)
    """Searches of one layer each, by the layer's name."""
    written_by: Mapping[str, str] = field(default_factory=versions)
    created: str = ""
    """When the study was started; empty for a search that is not kept."""
    best_file: str = ""
    """The YAML file of the best design, if there is one."""


def found_in(study: Study) -> Found:
    """Return what a study on disk has found so far."""
    found = Found(study.inputs, study.trials, study.stopped, 0.0, 0, study.path)
    return replace(found, learned=study.learned, evidence=study.evidence)


def document_of(subject: Subject, binary: Binary, say: Say = lambda _: None) -> ReportDocument:
    """Return the document of a study, its numbers added to *binary*."""
    found = subject.found
    problem, trials = found.problem, found.trials
    say("summarising the search")
    verdict = judge(found, subject.beside)
    designs = _designs(list(shown(subject, verdict)), problem, binary, say)
    base, best = (_place(designs, role) for role in ("base", "best"))
    say("packing trials")
    document: ReportDocument = {
        "format": 1,
        "title": title_of(found),
        "study": "" if found.path is None else str(found.path),
        "verdict": verdict_part(found, verdict, subject.beside),
        "why": _why(found, verdict, designs, base),
        "trials": block_of(problem, trials, binary),
        "front": trials.front(problem).tolist() if trials.feasible else [],
        "convergence": convergence_of(found, subject.beside),
        "designs": designs,
        "best": best,
        "base": base,
        "trust": trust_of(found, verdict.point, subject.written_by, subject.created),
    }
    alone = problem.of_designs and not problem.space.workloads
    served = serving_study(problem.space.base, problem.limits) if alone else None
    return document if served is None else {**document, "serving": served}


def title_of(found: Found) -> str:
    """Return the title of a report: the parameter set, the models, the number and the kind of accelerators."""
    space = found.problem.space
    if not space.of_designs:
        return f"{space.name}: by {found.problem.engine}"
    models = dict.fromkeys(share.base.model.name for share in space.workloads) or {space.base.model.name: None}
    machine = machine_of(space.base)
    return f"{space.name}: {', '.join(models)} on {machine}"


def machine_of(point: DesignPoint) -> str:
    """Return the accelerators of a design.

    >>> from cosmic.mapping.completing import load_design
    >>> machine_of(load_design("llama3-8b@dgx-h100:16"))
    '16 × h100-sxm-80gb'
    """
    return f"{point.network.npus:,} × {point.compute.accelerator or 'NPU'}"


def _designs(some: list[Named], problem: Problem, binary: Binary, say: Say) -> list[Design]:
    """Return designs, with timelines up to `TIMELINES` bytes: first of the best and the base."""
    designs, engine = [], problem.engine
    for named in some:
        say(f"evaluating {named.label}")
        designs.append(undrawn(named, engine, problem.limits))
    left = TIMELINES
    for place in sorted(range(len(some)), key=lambda place: DRAWN.index(some[place].role)):
        if designs[place]["feasible"] and left > 0:
            say(f"drawing {some[place].label}")
            timeline = timeline_of(some[place].point, engine)
            left -= packed_size(timeline)
            if left > 0 or some[place].role == "best":
                designs[place]["timeline"] = packed_timeline(timeline, binary)
    return designs


def shown(subject: Subject, verdict: Verdict) -> Iterator[Named]:
    """Yield the designs to show: the base, the best of each layer alone, the best, and members of the front."""
    found = subject.found
    space, trials = found.problem.space, found.trials
    if not found.problem.of_designs:  # COSMIC knows no more than what was answered
        return
    if space.workloads:  # several workloads are no single design
        yield from _mixed(found, verdict)
        return
    start = space.row_of(space.base)
    numbers = [] if start is None else np.flatnonzero((trials.points == start).all(axis=1)).tolist()
    yield Named("base", "base", space.base, numbers[0] if numbers else None)
    for name, each in subject.beside.items():
        place = each.trials.best(each.problem)
        if place is not None:
            yield Named(f"{name} alone", "isolated", each.problem.space.point(each.trials.row(place)))
    if verdict.plateau is None or verdict.point is None:
        return
    best = verdict.plateau.place
    yield Named("best", "best", verdict.point, best, subject.best_file)
    others = [place for place in trials.front(found.problem).tolist() if place != best]
    if space.base.serving is not None:
        rates = [trials.results.columns[name] for name in ("tokens_per_s_per_user", "tokens_per_s_per_npu")]
        others = [place for place in trade_off(*rates) if place != best]
    for place in spread(others, FRONT):
        yield Named(f"trial {place:,}", "front", space.point(trials.row(place)), place)


def _mixed(found: Found, verdict: Verdict) -> Iterator[Named]:
    """Yield the best system with each of its workloads, where one of them serves requests: each is a design."""
    space, ground = found.problem.space, verdict.plateau
    if ground is None or not found.problem.of_designs or all(share.base.serving is None for share in space.workloads):
        return
    row = found.trials.row(ground.place)
    for share in space.workloads:
        yield Named(share.name, "other", point_of(space, share, row))


def spread(places: list[int], most: int) -> list[int]:
    """Return at most *most* of *places*, evenly spread from the first to the last.

    >>> spread([1, 2, 3, 4, 5], 3), spread([7], 3)
    ([1, 3, 5], [7])
    """
    if len(places) <= most:
        return places
    return [places[round(step * (len(places) - 1) / (most - 1))] for step in range(most)]


def _place(designs: list[Design], role: str) -> int | None:
    return next((place for place, each in enumerate(designs) if each["role"] == role), None)


def _why(found: Found, verdict: Verdict, designs: list[Design], base: int | None) -> Why:
    compared = [place for place, each in enumerate(designs) if each["role"] in ("base", "isolated", "best")]
    if verdict.point is None or base is None:
        return {**NOTHING, "compared": compared}
    if not designs[base]["feasible"]:
        reasons = "; ".join(designs[base]["reasons"])
        return {**NOTHING, "sentence": f"The base design cannot run: {reasons}.", "compared": compared}
    problem = found.problem
    return why(problem.space.base, verdict.point, problem.objectives[0], compared, problem.engine)


def verdict_part(found: Found, verdict: Verdict, beside: Mapping[str, Found]) -> VerdictPart:
    """Return the verdict for the document."""
    metrics, caveats = verdict.metrics, list(verdict.caveats)
    point = verdict.point
    if not beside and found.problem.of_designs and len(found.problem.space.stacks) > 1 and verdict.gains:
        caveats.append("No layer was searched alone, so the gain over tuning one layer is not known.")
    caveats += [] if point is None or metrics is None else missed(point, found.problem.limits, found.problem.engine)
    part: VerdictPart = {
        "headline": _headline(point, metrics),
        "sentence": verdict.sentence,
        "design": verdict.design if point is None or point.serving is None else design_in_words(point),
        "objective": found.problem.objectives[0],
        "gains": [{"over": each.over, "times": each.times} for each in verdict.gains],
        "bound": verdict.bound,
        "facts": _facts(found, verdict),
        "provenance": metrics.provenance if metrics else "",
        "expected_error": metrics.expected_error if metrics else None,
        "expected_on": metrics.expected_on if metrics else "",
        "command": search_command(found.inputs),
        "python": search_python(found.inputs),
        "caveats": caveats,
        "plateau": plateau_of(found, verdict.plateau),
    }
    mixed = [_workload(each, found) for each in _mixed(found, verdict)]
    return {**part, "workloads": mixed} if mixed else part


def _workload(named: Named, found: Found) -> WorkloadVerdict:
    """Return what the best system does with one of its workloads, in the words of that workload."""
    problem, point = found.problem, named.point
    outcome = evaluate(point, problem.engine)
    metrics = outcome if isinstance(outcome, Metrics) else None
    weight = next(share.weight for share in problem.shares if share.name == named.label)
    return {
        "name": named.label,
        "note": f"weight {weight:g}",
        "headline": _headline(point, metrics),
        "design": mapping_in_words(point) if point.serving is None else design_in_words(point),
        "facts": [] if metrics is None else facts_of(point, metrics, problem.limits, problem.engine),
    }


def _headline(point: DesignPoint | None, metrics: Metrics | None) -> str:
    """Return what a design is and does: the model, the accelerators, the rate of each; empty without one."""
    if point is None or metrics is None:
        return ""
    if point.serving is not None:
        return headline(point, metrics, machine_of(point))
    rate = per_accelerator(point, metrics)
    return f"{point.model.name or 'The model'} on {machine_of(point)}: {rate['text']} {rate['label']}"


def _facts(found: Found, verdict: Verdict) -> list[Fact]:
    if verdict.point is not None and verdict.metrics is not None:
        return facts_of(verdict.point, verdict.metrics, found.problem.limits, found.problem.engine)
    best = found.best
    metrics = {} if best is None else best["metrics"]
    return [
        {"label": label_in(found.problem, name), "text": figure(name, value), "value": value, "note": ""}
        for name, value in metrics.items()
        if value is not None
    ]


def convergence_of(found: Found, beside: Mapping[str, Found]) -> Convergence:
    """Return the convergence of the search and of those of single layers."""
    objective = found.problem.objectives[0]
    named = {**{f"{name} alone": each for name, each in beside.items()}, found.inputs.agent: found}
    return {
        "objective": objective,
        "label": label_in(found.problem, objective),
        "unit": metric_unit(objective),
        "better": direction(objective),
        "series": [_series(name, each) for name, each in named.items()],
    }


def _series(name: str, found: Found) -> Series:
    """Return the convergence of a search: evaluations, each with the best value from then on."""
    evaluations, values = found.trials.curve(found.problem)
    kept = spread(list(range(len(values))), MOST_STEPS)
    points = [[int(evaluations[place]), float(values[place])] for place in kept]
    if points and points[-1][0] < found.trials.evaluated:
        points.append([found.trials.evaluated, points[-1][1]])
    return {"name": name, "points": points}

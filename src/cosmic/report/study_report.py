"""Reports: a study as one document and one page, on disk or in a notebook.

The document has a verdict, why, trials, the front, convergence, designs and trust. The plateau says how many designs
are
as good as the best. Why says where the gain of a search comes from, the changes from the base to the best:

    gain = product of the factors        factor of a change = exp(its Shapley value of -ln loss)

Shapley values add up to the whole difference (see `cosmic.search.compare.design_differences`); of logarithms, they give factors whose product
is the gain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from math import exp, isfinite, log, prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.files import write_text
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.report.container import Binary, plain_data
from cosmic.report.design_view import (
    NamedDesign,
    design_facts,
    design_without_timeline,
    pack_timeline,
    rate_per_accelerator,
    timeline_bytes,
    timeline_of,
)
from cosmic.report.document_types import (
    ChangedField,
    ChangeJson,
    Convergence,
    Design,
    Fact,
    PlateauJson,
    ReportDocument,
    SeriesJson,
    VerdictJson,
    Why,
    WorkloadVerdict,
)
from cosmic.report.html_file import render_report
from cosmic.report.launch_commands import join_names
from cosmic.report.serving_view import describe_missed_slos, design_in_words, serving_headline, serving_study
from cosmic.report.trial_block import block_of, metric_label_in
from cosmic.report.trust import search_command, search_python, trust_of
from cosmic.search.compare.design_differences import (
    DesignsBetween,
    Fields,
    Group,
    attribute_worth,
    couple_groups,
    differing_fields,
    field_text,
    fine_group_of,
)
from cosmic.search.design_wording import mapping_in_words, metric_text, metric_unit
from cosmic.search.objectives import loss
from cosmic.search.plateau import Plateau as Ground
from cosmic.search.problem import Problem, design_of_row
from cosmic.search.search_loop import Found, Progress, Watch
from cosmic.search.search_verdict import SearchVerdict, choice_text, gain_times_text, judge_search
from cosmic.search.search_verdict import search_open_layers as search_layers
from cosmic.search.study.study import INPUTS, Study, open_study, software_versions
from cosmic.simulate.metrics import Metrics
from cosmic.simulate.user_engines import direction


def plateau_of(found: Found, ground: Ground | None) -> PlateauJson | None:
    """Return how many designs are as good as the best; None where none can run."""
    if ground is None:
        return None
    return PlateauJson(
        share=ground.within,
        count=ground.count,
        error=ground.error,
        within_error=None if ground.error is None else ground.within_error,
        sentence=_describe_plateau(found, ground),
    )


def _describe_plateau(found: Found, ground: Ground) -> str:
    if found.trials.feasible == 1:
        return "It is the only design that can run."
    problem = found.problem
    chosen = len(problem.objectives) == 1 and not problem.space.workloads and problem.engine == "analytic"
    sentence = (
        f"{ground.count:,} designs lie within {_two_digit_percent(ground.within)} of the best, this one among them"
    )
    if ground.count == 1:
        sentence = f"No other design lies within {_two_digit_percent(ground.within)} of it"
    elif chosen:
        sentence = choice_text(ground)
    if ground.error is None:
        return f"{sentence}."
    error = f"within {_two_digit_percent(ground.error)}, the error to expect of the model"
    if ground.within_error == ground.count:
        return f"{sentence}, and no more {error}."
    return f"{sentence}; {ground.within_error:,} lie {error}."


def _two_digit_percent(share: float) -> str:
    """Return a share with two digits.

    >>> _two_digit_percent(0.01), _two_digit_percent(0.0589)
    ('1 %', '5.9 %')
    """
    return f"{100 * share:.2g} %"


MOST_CHANGES = 5
FACTOR_OF_NONE = 1e-3
"""Changes whose factor is nearer to 1 than this have no effect, to three digits."""


def explain_gain(
    base: DesignPoint, best: DesignPoint, objective: str, compared: list[int], engine: str = "analytic"
) -> Why:
    """Return the changes that make *best* better than *base* in an objective: in closed form with any *engine*."""
    fields = fields_that_differ(base, best)
    if not fields:
        return Why(sentence="The best design is the base.", compared=compared)

    def measure(metrics: Mapping[str, float]) -> float | None:
        value = float(loss(objective, np.array([metrics[objective]]))[0])
        return log(value) if isfinite(value) and value > 0 else None

    between = DesignsBetween(base, best, fields, measure)
    groups = couple_groups([(name,) for name in fields], between.fits)
    start, end = between.value(()), between.value(groups)
    if start is None or end is None:
        changes = [_change_json(group, fields, None, None) for group in groups]
        sentence = "One of the designs has no value of the objective, so no change has a factor."
        return Why(sentence=sentence, changes=changes[:MOST_CHANGES], compared=compared)
    method, worth = attribute_worth(groups, between.value)
    explained = []
    for group in groups:
        part, alone = worth[group], between.value((group,))
        factors = (None if part is None else exp(-part), None if alone is None else exp(start - alone))
        explained.append(_change_json(group, fields, *factors))
    explained.sort(key=lambda each: -abs(log(each.worth or 1.0)))
    largest = explained[:MOST_CHANGES]
    gain = exp(start - end)
    rest = gain / prod(each.worth or 1.0 for each in largest)
    rest_shown = rest if len(explained) > MOST_CHANGES or abs(rest - 1) > FACTOR_OF_NONE else None
    return Why(
        sentence=_describe_changes(largest, gain)
        + ("" if engine == "analytic" else " These factors are closed forms, not simulated."),
        changes=largest,
        rest=rest_shown,
        method=method,
        compared=compared,
    )


def fields_that_differ(base: DesignPoint, best: DesignPoint) -> Fields:
    """Return the fields that differ, in groups; finer ones for designs with equally many network dimensions."""
    same_dimensions = len(base.network.dims) == len(best.network.dims)
    return differing_fields(base, best, fine_group_of if same_dimensions else None)


def _change_json(group: Group, fields: Fields, worth: float | None, alone: float | None) -> ChangeJson:
    changed = [(path, pair) for name in group for path, pair in fields[name].items()]
    return ChangeJson(
        label=" and ".join(name.removeprefix("workload.").replace("_", " ") for name in group),
        fields=[ChangedField(path=path, old=field_text(old), new=field_text(new)) for path, (old, new) in changed],
        worth=worth,
        alone=alone,
    )


def _describe_changes(changes: list[ChangeJson], gain: float) -> str:
    rated = [change for change in changes if change.worth is not None]
    if not rated:
        return "The gain cannot be split over the changes."
    named = [(each.worth or 1.0, f"{each.label} ({gain_times_text(each.worth or 1.0)})") for each in rated]
    helps = [name for factor, name in named if factor > 1 + FACTOR_OF_NONE]
    costs = [name for factor, name in named if factor < 1 - FACTOR_OF_NONE]
    sentence = f"{gain_times_text(gain)} in all" + (f": {join_names(helps[:3])}" if helps else "")
    return (
        sentence
        + (f"; {join_names(costs[:2])} cost{'s' if len(costs[:2]) == 1 else ''} some of it" if costs else "")
        + "."
    )


MOST_FRONT_MEMBERS = 8
"""Members of the front that are shown in full."""
MOST_TIMELINE_BYTES = 32 * 1024
"""Bytes of all timelines, gzipped: what the rest of the page leaves of 120 KB, trials apart."""
ROLES_BY_TIMELINE = ("best", "base", "isolated", "front", "other")
"""Roles in the order in which designs get a timeline."""
MOST_STEPS = 400
"""Steps of a convergence curve that are kept: more than a screen can show."""

Say = Callable[[str], None]
"""Called with a line of text before each stage of the work."""


@dataclass(frozen=True)
class ReportSubject:
    """What a report is about."""

    found: Found
    beside: Mapping[str, Found] = field(default_factory=dict)
    """Searches of one layer each, by the layer's name."""
    written_by: Mapping[str, str] = field(default_factory=software_versions)
    created: str = ""
    """When the study was started; empty for a search that is not kept."""
    best_file: str = ""
    """The YAML file of the best design, if there is one."""


def found_in_study(study: Study) -> Found:
    """Return what a study on disk has found so far."""
    found = Found(study.inputs, study.trials, study.stopped, 0.0, 0, study.path)
    return replace(found, learned=study.learned, evidence=study.evidence)


def document_of(subject: ReportSubject, binary: Binary, say: Say = lambda _: None) -> ReportDocument:
    """Return the document of a study, its numbers added to *binary*."""
    found = subject.found
    problem, trials = found.problem, found.trials
    say("summarising the search")
    verdict = judge_search(found, subject.beside) if subject.beside else found.judged
    designs = _describe_designs(list(designs_to_show(subject, verdict)), problem, binary, say)
    base, best = (_place_of_role(designs, role) for role in ("base", "best"))
    say("packing trials")
    alone = problem.of_designs and not problem.space.workloads
    return ReportDocument(
        format=1,
        title=title_of(found),
        study="" if found.path is None else str(found.path),
        verdict=verdict_part(found, verdict, subject.beside),
        why=_explain_verdict(found, verdict, designs, base),
        trials=block_of(problem, trials, binary),
        front=trials.front(problem).tolist() if trials.feasible else [],
        convergence=convergence_of(found, subject.beside),
        designs=designs,
        best=best,
        base=base,
        trust=trust_of(found, verdict.point, subject.written_by, subject.created),
        serving=serving_study(problem.space.base, problem.limits) if alone else None,
    )


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

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> machine_of(load_design("llama3-8b@dgx-h100:16"))
    '16 × h100-sxm-80gb'
    """
    return f"{point.network.npus:,} × {point.compute.accelerator or 'NPU'}"


def _describe_designs(some: list[NamedDesign], problem: Problem, binary: Binary, say: Say) -> list[Design]:
    """Return designs, with timelines up to `MOST_TIMELINE_BYTES` bytes: first of the best and the base."""
    designs, engine = [], problem.engine
    for named in some:
        say(f"evaluating {named.label}")
        designs.append(design_without_timeline(named, engine, problem.limits))
    bytes_left = MOST_TIMELINE_BYTES
    for shown in sorted(range(len(some)), key=lambda shown: ROLES_BY_TIMELINE.index(some[shown].role)):
        if designs[shown].feasible and bytes_left > 0:
            say(f"drawing {some[shown].label}")
            timeline = timeline_of(some[shown].point, engine)
            bytes_left -= timeline_bytes(timeline)
            if bytes_left > 0 or some[shown].role == "best":
                designs[shown] = replace(designs[shown], timeline=pack_timeline(timeline, binary))
    return designs


def designs_to_show(subject: ReportSubject, verdict: SearchVerdict) -> Iterator[NamedDesign]:
    """Yield the designs to show: the base, the best of each layer alone, the best, and members of the front."""
    found = subject.found
    space, trials = found.problem.space, found.trials
    if not found.problem.of_designs:  # COSMIC knows no more than what was answered
        return
    if space.workloads:  # several workloads are no single design
        yield from _designs_of_workloads(found, verdict)
        return
    start = space.row_of(space.base)
    numbers = [] if start is None else np.flatnonzero((trials.points == start).all(axis=1)).tolist()
    yield NamedDesign("base", "base", space.base, numbers[0] if numbers else None)
    for name, each in subject.beside.items():
        trial = each.trials.best(each.problem)
        if trial is not None:
            yield NamedDesign(f"{name} alone", "isolated", each.problem.space.point(each.trials.row(trial)))
    if verdict.plateau is None or verdict.point is None:
        return
    best = verdict.plateau.place
    yield NamedDesign("best", "best", verdict.point, best, subject.best_file)
    others = [trial for trial in trials.front(found.problem).tolist() if trial != best]
    if space.base.serving is not None:
        rates = [trials.results.columns[name] for name in ("tokens_per_s_per_user", "tokens_per_s_per_npu")]
        others = [trial for trial in _speed_throughput_front(*rates) if trial != best]
    for trial in spread_evenly(others, MOST_FRONT_MEMBERS):
        yield NamedDesign(f"trial {trial:,}", "front", space.point(trials.row(trial)), trial)


def _speed_throughput_front(speed: npt.NDArray[np.float64], throughput: npt.NDArray[np.float64]) -> list[int]:
    """Return the places of the deployments than which no other has more of both, fastest users first.

    >>> _speed_throughput_front(np.array([40.0, 60.0, 30.0, 50.0, np.nan]), np.array([100.0, 50.0, 90.0, 40.0, np.nan]))
    [1, 0]
    """
    front: list[int] = []
    for index in np.lexsort((-throughput, -speed)).tolist():
        if np.isfinite(speed[index]) and (not front or throughput[index] > throughput[front[-1]]):
            front.append(index)
    return front


def _designs_of_workloads(found: Found, verdict: SearchVerdict) -> Iterator[NamedDesign]:
    """Yield the best system with each of its workloads, where one of them serves requests: each is a design."""
    space, ground = found.problem.space, verdict.plateau
    if ground is None or not found.problem.of_designs or all(share.base.serving is None for share in space.workloads):
        return
    row = found.trials.row(ground.place)
    for share in space.workloads:
        yield NamedDesign(share.name, "other", design_of_row(space, share, row))


def spread_evenly(places: list[int], most: int) -> list[int]:
    """Return at most *most* of *places*, evenly spread from the first to the last.

    >>> spread_evenly([1, 2, 3, 4, 5], 3), spread_evenly([7], 3)
    ([1, 3, 5], [7])
    """
    if len(places) <= most:
        return places
    return [places[round(step * (len(places) - 1) / (most - 1))] for step in range(most)]


def _place_of_role(designs: list[Design], role: str) -> int | None:
    return next((index for index, design in enumerate(designs) if design.role == role), None)


def _explain_verdict(found: Found, verdict: SearchVerdict, designs: list[Design], base: int | None) -> Why:
    compared = [index for index, design in enumerate(designs) if design.role in ("base", "isolated", "best")]
    if verdict.point is None or base is None:
        return Why(compared=compared)
    if not designs[base].feasible:
        reasons = "; ".join(designs[base].reasons)
        return Why(sentence=f"The base design cannot run: {reasons}.", compared=compared)
    problem = found.problem
    return explain_gain(problem.space.base, verdict.point, problem.objectives[0], compared, problem.engine)


def verdict_part(found: Found, verdict: SearchVerdict, beside: Mapping[str, Found]) -> VerdictJson:
    """Return the verdict for the document."""
    metrics, caveats = verdict.metrics, list(verdict.caveats)
    point = verdict.point
    if not beside and found.problem.of_designs and len(found.problem.space.stacks) > 1 and verdict.gains:
        caveats.append("No layer was searched alone, so the gain over tuning one layer is not known.")
    caveats += (
        []
        if point is None or metrics is None
        else describe_missed_slos(point, found.problem.limits, found.problem.engine)
    )
    return VerdictJson(
        headline=headline_of(point, metrics),
        sentence=verdict.sentence,
        design=verdict.design if point is None or point.serving is None else design_in_words(point),
        objective=found.problem.objectives[0],
        gains=verdict.gains,
        bound=verdict.bound,
        facts=_verdict_facts(found, verdict),
        provenance=metrics.provenance if metrics else "",
        expected_error=metrics.expected_error if metrics else None,
        expected_on=metrics.expected_on if metrics else "",
        command=search_command(found.inputs),
        python=search_python(found.inputs),
        caveats=caveats,
        plateau=plateau_of(found, verdict.plateau),
        workloads=[_workload_verdict(workload, found) for workload in _designs_of_workloads(found, verdict)] or None,
    )


def _workload_verdict(named: NamedDesign, found: Found) -> WorkloadVerdict:
    """Return what the best system does with one of its workloads, in the words of that workload."""
    problem, point = found.problem, named.point
    outcome = evaluate(point, problem.engine)
    metrics = outcome if isinstance(outcome, Metrics) else None
    weight = next(share.weight for share in problem.shares if share.name == named.label)
    return WorkloadVerdict(
        name=named.label,
        note=f"weight {weight:g}",
        headline=headline_of(point, metrics),
        design=mapping_in_words(point) if point.serving is None else design_in_words(point),
        facts=[] if metrics is None else design_facts(point, metrics, problem.limits, problem.engine),
    )


def headline_of(point: DesignPoint | None, metrics: Metrics | None) -> str:
    """Return what a design is and does: the model, the accelerators, the rate of each; empty without one."""
    if point is None or metrics is None:
        return ""
    if point.serving is not None:
        return serving_headline(point, metrics, machine_of(point))
    rate = rate_per_accelerator(point, metrics)
    return f"{point.model.name or 'The model'} on {machine_of(point)}: {rate.text} {rate.label}"


def _verdict_facts(found: Found, verdict: SearchVerdict) -> list[Fact]:
    if verdict.point is not None and verdict.metrics is not None:
        return design_facts(verdict.point, verdict.metrics, found.problem.limits, found.problem.engine)
    best = found.best
    metrics = {} if best is None else best["metrics"]
    return [
        Fact(label=metric_label_in(found.problem, name), text=metric_text(name, value), value=value, note="")
        for name, value in metrics.items()
        if value is not None
    ]


def convergence_of(found: Found, beside: Mapping[str, Found]) -> Convergence:
    """Return the convergence of the search and of those of single layers."""
    objective = found.problem.objectives[0]
    named = {**{f"{name} alone": each for name, each in beside.items()}, found.inputs.agent: found}
    return Convergence(
        objective=objective,
        label=metric_label_in(found.problem, objective),
        unit=metric_unit(objective),
        better="less" if direction(objective) == "less" else "more",
        series=[_convergence_series_of(name, each) for name, each in named.items()],
    )


def _convergence_series_of(name: str, found: Found) -> SeriesJson:
    """Return the convergence of a search: evaluations, each with the best value from then on."""
    evaluations, values = found.trials.curve(found.problem)
    indices = spread_evenly(list(range(len(values))), MOST_STEPS)
    points = [(int(evaluations[index]), float(values[index])) for index in indices]
    if points and points[-1][0] < found.trials.evaluated:
        points.append((found.trials.evaluated, points[-1][1]))
    return SeriesJson(name=name, points=points)


ISOLATED_TRIALS = 1_000
"""Designs to evaluate in the search of each layer alone."""
BEST_FILE = "best.yaml"
FRAME_HEIGHT = 900
"""Pixels of a report in a notebook."""


@dataclass(frozen=True)
class Report:
    """The report of a study."""

    contents: ReportDocument
    """What the page shows."""
    binary: Binary
    """The numbers that it points to."""

    @cached_property
    def document(self) -> dict[str, Any]:
        """The document as plain data, as `ui/src/document.ts` describes it."""
        return plain_data(self.contents)

    @cached_property
    def html(self) -> str:
        """The whole page as one HTML file."""
        return render_report(self.contents, self.binary)

    @property
    def verdict(self) -> str:
        """The verdict on the study, in one sentence."""
        return self.contents.verdict.sentence

    def write(self, path: str | Path) -> Path:
        """Write the page to a file; return its path."""
        write_text(path, self.html, "--out")
        return Path(path)

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a sandboxed frame."""
        style = f"width: 100%; height: {FRAME_HEIGHT}px; border: 0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def report(
    study: str | Path | Study | Found,
    *,
    isolated: int = ISOLATED_TRIALS,
    beside: Mapping[str, Found] | None = None,
    say: Say = lambda _: None,
) -> Report:
    """Return the report of a study on disk, or of what a search has found.

    For a study of several layers, each layer is also searched alone, with *isolated* designs, unless such searches are
    given as *beside*. *say* is called with a line of text before each stage of the work.
    """
    found, opened = _open_found(study)
    layers = search_layers(found, isolated, _watch_layers(say)) if beside is None else beside
    subject = ReportSubject(found, layers)
    if opened is not None:
        file = opened.path / BEST_FILE
        subject = ReportSubject(found, layers, opened.written_by, opened.created, str(file) if file.exists() else "")
    binary = Binary()
    return Report(document_of(subject, binary, say), binary)


def _open_found(study: str | Path | Study | Found) -> tuple[Found, Study | None]:
    """Return what was found, and the study on disk, if there is one."""
    if isinstance(study, Found):
        on_disk = study.path is not None and (study.path / INPUTS).exists()
        return study, open_study(study.path) if on_disk and study.path is not None else None
    opened = study if isinstance(study, Study) else open_study(study)
    return found_in_study(opened), opened


def _watch_layers(say: Say) -> Callable[[str], Watch]:
    """Return a function from a layer to the callback for the progress of its search."""

    def layer(name: str) -> Watch:
        def watch(progress: Progress) -> None:
            say(f"searching {name} alone: {progress.evaluated:,} of {progress.trials:,}")

        return watch

    return layer

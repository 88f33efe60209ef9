"""What commands print of a search: its progress and what it found."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from cosmic.cli.console import emit_table, format_brief, format_seconds, plot_columns, print_sentences
from cosmic.cli.output_streams import StatusLine, emit, speaks_unicode
from cosmic.simulate.metrics import OF_RUNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cosmic.cli.answers.common_keys import TriedDesign
    from cosmic.cli.answers.study_answers import SearchAnswer, SearchFacts, SearchPlateau
    from cosmic.search.plateau import Plateau
    from cosmic.search.search_loop import Found, Progress
    from cosmic.search.search_verdict import SearchVerdict


BEST = "best.yaml"
FEW = 100_000
"""Designs that are gone through in seconds."""
LONGEST_NAME = 60
"""Characters of a study's name that is made up; with others than ASCII, four times as many bytes."""
MOST_SHOWN = 20
"""Members of a front that are listed; JSON has all."""
_SHOWN = ("step_s", "ttft_s", "tpot_s", "tokens_per_s", "samples_per_s", "mfu", "memory_bytes", "network_usd")


OF_MACHINES_AND_RUNS = ("power_w", "energy_j", *OF_RUNS)
"""Metrics that are written as on pages."""


class ProgressLine(StatusLine):
    """The status line of a search; it keeps the last progress that it got."""

    def __init__(self, *, shown: bool | None = None) -> None:
        super().__init__(shown=shown)
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        """Draw the line, unless it was drawn just now."""
        self.last = progress
        self.show(progress_text(progress))


def progress_text(progress: Progress) -> str:
    """Return a search's progress: trials, rate, best so far, feasible share, time left."""
    rate = progress.computed / progress.elapsed_s if progress.elapsed_s else 0.0
    remaining_s = (progress.trials - progress.evaluated) / rate if rate else 0.0
    has_best = progress.best < float("inf")
    best = f"best {named_metric(progress.objective, _metric_in_words(progress))}" if has_best else "none feasible yet"
    feasible = 100 * progress.feasible / max(1, progress.seen)
    return (
        f"{progress.evaluated:,} of {progress.trials:,} trials · {rate:,.0f}/s · {best}"
        f" · {feasible:.0f} % feasible · {format_seconds(remaining_s) if remaining_s >= 1 else '< 1 s'} left"
    )


def _metric_in_words(progress: Progress) -> float | None:
    from cosmic.search.study.study_comparison import metric_of_loss  # noqa: PLC0415  heavy

    return metric_of_loss(progress.objective, progress.best)


def headline_of_metrics(metrics: Mapping[str, float | None]) -> str:
    """Return the main metrics of a design on one line."""
    shown = _SHOWN if metrics.keys() >= set(_SHOWN) else tuple(metrics)
    return " · ".join(named_metric(name, metrics[name]) for name in shown if metrics[name] is not None)


def named_metric(name: str, value: float | None) -> str:
    """Return a metric with its name and a readable unit.

    >>> named_metric("step_s", 12.345), named_metric("mfu", 0.4), named_metric("tokens_per_s", 1234.5), named_metric("train_days", 9.8146)
    ('step 12.35 s', 'MFU 40.0 %', '1,234 tokens/s', 'time to train 9.815 day')
    """
    if name in ("tokens_per_s", "samples_per_s"):
        return f"{format_metric(name, value)} {name.removesuffix('_per_s')}/s"
    if name in OF_MACHINES_AND_RUNS:
        from cosmic.search.design_wording import metric_label  # noqa: PLC0415  heavy

        return f"{metric_label(name)} {format_metric(name, value)}"
    shown = name.upper() if name in ("mfu", "hfu") else re.sub("(?<!_per)_(s|bytes|usd|j)$", "", name)
    return f"{shown} {format_metric(name, value)}"


def format_metric(name: str, value: float | None) -> str:
    """Return a metric's value with a readable unit.

    >>> format_metric("memory_bytes", 2**34), format_metric("network_usd", 1e6), format_metric("perf_per_bandwidth", 1.2345e-14)
    ('16.0 GiB', '1,000,000 USD', '1.235e-14')
    >>> format_metric("power_w", 2.084e5), format_metric("goodput", 0.9958), format_metric("train_co2_kg", 3_026_320.0)
    ('208.4 kW', '99.6 %', '3,026,320 kg')
    """
    if value is None:
        return "-"
    if name in OF_MACHINES_AND_RUNS:
        from cosmic.search.design_wording import metric_text as written  # noqa: PLC0415  heavy

        return written(name, value)
    if name in ("mfu", "hfu"):
        return f"{100 * value:.1f} %"
    if name in ("tokens_per_s", "samples_per_s"):
        return f"{value:,.0f}"
    if name.startswith("tokens_per_s") or name.endswith("_per_s"):
        return f"{value:,.4g}"
    for suffix, text in (("_s", format_seconds), ("_bytes", _format_gib), ("_usd", _format_usd)):
        if name.endswith(suffix):
            return text(value)
    return f"{value:.4g}"


def _format_gib(value: float) -> str:
    return f"{value / 2**30:.1f} GiB"


def _format_usd(value: float) -> str:
    return f"{value:,.0f} USD"


# ---- what was found


def search_summary(outcome: Found, changes: Sequence[str] | None = None) -> SearchAnswer:
    """Return what a search found, as JSON holds it."""
    answer = cast("SearchAnswer", {**facts_of(outcome), "answer": outcome.answer})
    if changes is not None:
        answer["changes"] = changes
    return answer


def facts_of(outcome: Found) -> SearchFacts:
    """Return what a search found and its verdict, as JSON holds them."""
    problem, trials, verdict = outcome.problem, outcome.trials, outcome.judged
    base = problem.base
    runs = bool(base.feasible[0])
    ground, front = verdict.plateau, outcome.front
    best = None if ground is None else cast("TriedDesign", trials.describe(problem, ground.place))
    return {
        "verdict": verdict.sentence,
        "space": problem.space.name,
        "agent": outcome.inputs.agent,
        "seed": outcome.inputs.seed,
        "objectives": list(problem.objectives),
        "constraints": [limit.text for limit in problem.limits],
        "best": best,
        "plateau": None if ground is None else plateau_facts(outcome, ground),
        "front": [cast("TriedDesign", design) for design in front],
        "hypervolume": trials.hypervolume(problem) if len(problem.objectives) > 1 else None,
        "base": base.figures(0) if runs else None,
        "gain_over_base": verdict.gains[0].times if verdict.gains else None,
        "bound": verdict.bound,
        "valid": problem.space.valid,
        "trials": trials.evaluated,
        "feasible": trials.feasible,
        "refused": len(trials) - trials.evaluated,
        "reasons": trials.reasons(),
        "stopped": outcome.stopped,
        "computed": outcome.computed,
        "elapsed_s": outcome.elapsed_s,
        "evaluations_per_s": outcome.computed / outcome.elapsed_s if outcome.elapsed_s else None,
        "study": None if outcome.path is None else str(outcome.path),
    }


def plateau_facts(outcome: Found, ground: Plateau) -> SearchPlateau:
    """Return the designs that are as good as the best, as JSON holds them."""
    return {
        "within": ground.within,
        "count": ground.count,
        "above": ground.above,
        "least_trial": cast("int", outcome.trials.best(outcome.problem)),
        "expected_error": ground.error,
        "within_error": ground.within_error,
    }


def print_search(outcome: Found) -> None:
    """Print what a search found, the verdict first."""
    verdict, facts = outcome.judged, facts_of(outcome)
    space, best = outcome.problem.space, facts["best"]
    wanted = " and ".join(facts["objectives"])
    print_sentences([verdict.sentence[:1].upper() + verdict.sentence[1:], *verdict.caveats, ""])
    print_sentences(
        [
            f"{space.name} · {facts['agent']} · for {wanted} · seed {facts['seed']}",
            _effort(facts) + _provable(outcome),
            "",
        ]
    )
    if best is None:
        emit(["Why designs are infeasible:"] if facts["reasons"] else [])
        emit([f"  {reason}: {count:,} design{'' if count == 1 else 's'}" for reason, count in facts["reasons"].items()])
        return
    metrics = cast("Mapping[str, float | None]", best["metrics"])
    first = facts["objectives"][0]
    print_sentences([f"best design (trial {best['trial']:,}): {named_metric(first, metrics[first])}"])
    print_sentences(
        [
            *filter(None, [verdict.design]),
            headline_of_metrics(metrics),
            *_expected(verdict),
            *_equally_good_in_words(outcome, verdict),
            "",
        ]
    )
    emit_table("", ["parameter", "base", "best"], best_rows(outcome, best))
    if len(facts["objectives"]) > 1:
        _show_front(outcome, facts)


def _equally_good_in_words(outcome: Found, verdict: SearchVerdict) -> list[str]:
    """Return how many other designs are as good as the best, as far as the model can tell."""
    from cosmic.search.search_verdict import choice_text  # noqa: PLC0415  heavy

    ground = verdict.plateau
    if ground is None or ground.count == 1:
        return []
    error = ground.error
    least = "at least " if len(outcome.trials) < outcome.problem.space.valid else ""
    more = f"; {least}{ground.within_error:,} within the expected error of {100 * error:.0f} %" if error else ""
    return [f"{choice_text(ground)}{more}"]


def _show_front(outcome: Found, facts: SearchFacts) -> None:
    """Print the Pareto front: a plot of it among the trials, if there are two objectives, and its first members."""
    from cosmic.report.search_charts import front_plot  # noqa: PLC0415  heavy
    from cosmic.search.design_wording import metric_label  # noqa: PLC0415

    names, front = facts["objectives"], outcome.front
    if len(names) == 2:
        emit(["", *front_plot(outcome, plot_columns(), braille=speaks_unicode())])
    rows = [
        [each["trial"], *(format_metric(name, each["metrics"][name]) for name in names)] for each in front[:MOST_SHOWN]
    ]
    more = f", the first {MOST_SHOWN} of {len(front):,}" if len(front) > MOST_SHOWN else ""
    emit([""])
    emit_table(
        f"Pareto front{more}, hypervolume {facts['hypervolume']:.4f}",
        ["trial", *map(metric_label, names)],
        rows,
    )


def write_best(outcome: Found) -> str:
    """Write the best design into the study as YAML and return its path; an empty text if there is none."""
    from cosmic.base.files import write_text  # noqa: PLC0415
    from cosmic.design.loading import dump_design  # noqa: PLC0415  heavy
    from cosmic.search.search_verdict import best_point  # noqa: PLC0415  heavy

    point, space, trial = best_point(outcome), outcome.problem.space, outcome.trials.best(outcome.problem)
    if outcome.problem.user_engine is not None and trial is not None:
        point = space.point(outcome.trials.row(trial))
    if point is None or outcome.path is None:
        return ""
    path = outcome.path / BEST
    write_text(path, dump_design(point) if space.of_designs else dump_point(outcome.problem.engine, point), BEST)
    return str(path)


def dump_point(engine: str, point: Any) -> str:
    """Return a choice of an engine's own fields as the file that `cosmic evaluate` reads."""
    from cosmic.design import schema  # noqa: PLC0415  heavy
    from cosmic.design.plain_data import dump_yaml  # noqa: PLC0415  heavy

    return dump_yaml({"engine": engine, "fields": schema.write_value(point)})


def _expected(verdict: SearchVerdict) -> list[str]:
    """Return a line with the expected error of the best design's step time."""
    metrics = verdict.metrics
    if metrics is None:
        return []
    if metrics.expected_error is None:
        return [f"expected error {metrics.expected_on} ({metrics.provenance})"]
    return [f"expected to be off by {100 * metrics.expected_error:.0f} % ({metrics.provenance}: {metrics.expected_on})"]


def _effort(facts: SearchFacts) -> str:
    rate = facts["evaluations_per_s"] or 0.0
    share = 100 * facts["feasible"] / max(1, facts["trials"])
    afresh = "" if facts["computed"] >= facts["trials"] else f", {facts['computed']:,} of them now"
    sentence = f"{facts['trials']:,} designs evaluated{afresh}, in {format_seconds(facts['elapsed_s'])} ({rate:,.0f}/s)"
    sentence += f"; {share:.0f} % feasible"
    if facts["refused"]:
        sentence += f"; {facts['refused']:,} more proposed, invalid mapping{'' if facts['refused'] == 1 else 's'}"
    barren = "the agent has nothing new to propose" if facts["trials"] else "it is given up"
    is_exhaustive = facts["trials"] + facts["refused"] >= facts["valid"]
    others = f"none of the other {facts['valid'] - facts['trials']:,} can be better"
    every = "that is every valid design" if is_exhaustive else others
    endings = {"exhausted": f"; {every}", "stalled": f"; {barren}"}
    return sentence + endings.get(facts["stopped"], "")


def _provable(outcome: Found) -> str:
    """Return how to go through every design, where a search was not, and there are few enough to prove the best."""
    valid = outcome.problem.space.valid
    if outcome.stopped != "trials" or outcome.problem.engine != "analytic" or not len(outcome.trials) < valid <= FEW:
        return ""
    return f"; without --agent, -n {valid} goes through all {valid:,} valid designs and proves the best"


def best_rows(outcome: Found, best: TriedDesign) -> list[list[Any]]:
    """Return each searched and derived field with its value in the base and in the best design."""
    from cosmic.design import schema  # noqa: PLC0415  heavy
    from cosmic.search.space.parameters import ACCELERATOR, design_label, value_label  # noqa: PLC0415  heavy

    space = outcome.problem.space
    rows = []
    for parameter in space.parameters:
        ours, theirs = design_label(parameter, space.base), best["point"][parameter.name]
        several = len(parameter.paths) > 1 and "{" in parameter.name and parameter.name != ACCELERATOR
        if several:
            own = [value_label(space.base, path, schema.get_field(space.base, path)) for path in parameter.paths]
            rows += [
                [path, _value_cell(a), _value_cell(b)] for path, a, b in zip(parameter.paths, own, theirs, strict=True)
            ]
        else:
            rows.append([parameter.name, _value_cell(ours), _value_cell(theirs)])
    base = {path: value_label(space.base, path, schema.get_field(space.base, path)) for path in space.derived}
    return rows + [[path, _value_cell(base[path]), _value_cell(best["point"][path])] for path in space.derived]


def _value_cell(value: Any) -> str:
    return ", ".join(map(format_brief, value)) if isinstance(value, list) else format_brief(value)


def split_values(text: str) -> list[str]:
    """Return the values of an option that takes several, separated by commas.

    >>> split_values("workload, network")
    ['workload', 'network']
    """
    return [each.strip() for each in text.split(",") if each.strip()]


def free_folder(root: Path, name: str) -> Path:
    """Return a directory in *root* that does not exist yet: *name*, or *name* with a number; a long one is cut."""
    from cosmic.base.files import exists  # noqa: PLC0415

    name = name[:LONGEST_NAME]
    count, path = 1, root / name
    while exists(path):
        count += 1
        path = root / f"{name}-{count}"
    return path

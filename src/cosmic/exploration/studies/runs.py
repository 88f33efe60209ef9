"""The measured runs of a study: as text in its database, beside what was predicted, and put in from files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.digests import digest
from cosmic.errors import require
from cosmic.evaluation import BETTER
from cosmic.exploration.agent import Floats
from cosmic.exploration.corrections import FAR, UNIT
from cosmic.exploration.learning.quality import Quality, quality
from cosmic.exploration.measuring import MOST_RUNS, Run
from cosmic.exploration.objectives import loss
from cosmic.exploration.problem import Problem

LONGEST_SOURCE = 500
FORMAT = 1


def runs_text(runs: Sequence[Run]) -> str:
    """Return measured runs as text, with the digest of what it holds."""
    plain = [asdict(run) for run in runs]
    return json.dumps({"format": FORMAT, "runs": plain, "sha256": _digest(plain)}, ensure_ascii=False)


def _digest(plain: Any) -> str:
    return digest(json.dumps(plain, sort_keys=True))


def read_text_of_runs(text: str, problem: Problem | None) -> list[Run]:
    """Return the runs of a text; one that no search writes, or that *problem* cannot have, is a `ValueError`."""
    try:
        content = json.loads(text)
        plain = content["runs"]
        if content["format"] != FORMAT or content["sha256"] != _digest(plain) or len(plain) > MOST_RUNS:
            raise ValueError("its digest")
        return [_run(each, problem) for each in plain]
    except (KeyError, TypeError, RecursionError, AttributeError) as error:
        raise ValueError("its form") from error


def _run(plain: Any, problem: Problem | None) -> Run:
    point, metrics, source = tuple(plain["point"]), dict(plain["metrics"]), plain["source"]
    whole = all(type(each) is int and each >= 0 for each in point)
    if problem is not None:
        sizes = problem.space.sizes
        whole = whole and len(point) == len(sizes) and all(at < size for at, size in zip(point, sizes, strict=True))
        known = (*BETTER, *problem.metrics)
    else:
        known = tuple(metrics)  # an engine of somebody else may give any
    numbers = all(name in known and type(each) is float and isfinite(each) for name, each in metrics.items())
    if not (whole and numbers and isinstance(source, str) and len(source) <= LONGEST_SOURCE and source.isprintable()):
        raise ValueError("a run")
    return Run(point, metrics, source)


# --------------------------------------------------------------------------------- measured beside predicted


@dataclass(frozen=True)
class Beside:
    """What was measured of one design, beside what the study's engine predicts."""

    point: tuple[int, ...]
    trial: int | None
    """Its trial in the study; None where the search has not tried it."""
    measured: float
    """The median over its runs."""
    predicted: float | None
    """None where the engine says that it cannot run."""
    runs: int
    sources: tuple[str, ...]

    @property
    def ratio(self) -> float | None:
        """The measured number over the predicted one."""
        return None if self.predicted is None else self.measured / self.predicted


@dataclass(frozen=True)
class Evidence:
    """The measured runs of a study, by its first objective or, if that was not measured, by the time of a step."""

    metric: str
    rows: tuple[Beside, ...]
    """Each measured design once, the best measured first."""

    @property
    def quality(self) -> Quality | None:
        """How well the predictions rank the measured designs."""
        known = [row for row in self.rows if row.predicted is not None]
        measured, predicted = (
            loss(self.metric, np.array([getattr(row, name) for row in known], dtype=float))
            for name in ("measured", "predicted")
        )
        return quality(predicted, measured)

    @property
    def best_predicted(self) -> Beside | None:
        """The measured design with the best prediction."""
        known = [row for row in self.rows if row.predicted is not None]
        order = loss(self.metric, np.array([row.predicted for row in known], dtype=float))
        return known[int(np.argmin(order))] if known else None


def evidence(problem: Problem, runs: Sequence[Run], points: Any) -> Evidence | None:
    """Return measured *runs* beside predictions; *points* are those of the study's trials. None without runs."""
    wanted = [name for name in (problem.objectives[0], "step_s") if name in problem.metrics]
    metric = next((name for name in wanted if any(name in run.metrics for run in runs)), "")
    if not metric:
        return None
    grouped: dict[tuple[int, ...], list[Run]] = {}
    for run in runs:
        if metric in run.metrics:
            grouped.setdefault(run.point, []).append(run)
    rows = np.array(list(grouped), dtype=np.intp).reshape(len(grouped), -1)
    predicted: Floats = problem.evaluate(rows).columns[metric]
    found = []
    for place, (point, some) in enumerate(grouped.items()):
        at = np.flatnonzero((points == rows[place]).all(axis=1))
        value = float(np.median([run.metrics[metric] for run in some]))
        known = None if np.isnan(predicted[place]) else float(predicted[place])
        sources = tuple(run.source for run in some)
        found.append(Beside(point, int(at[0]) if len(at) else None, value, known, len(some), sources))
    order = np.argsort(loss(metric, np.array([each.measured for each in found])), kind="stable")
    return Evidence(metric, tuple(found[place] for place in order.tolist()))


def summary_of(found: Evidence) -> list[str]:
    """Return what measured runs say of the predictions, a sentence each."""
    best, predicted = found.rows[0], found.best_predicted
    many = f"{len(found.rows):,} measured design{'' if len(found.rows) == 1 else 's'}"
    said = []
    if predicted is None:
        said.append(f"None of {many} can run by the model.")
    elif predicted.point == best.point:
        said.append(f"Of {many} the best predicted is also the best measured{_of(best)}.")
    else:
        behind = abs(predicted.measured / best.measured - 1)
        said.append(
            f"Of {many} the best measured{_of(best)} is not the best predicted{_of(predicted)}, which is measured"
            f" {100 * behind:.1f} % worse."
        )
    ratios = [row.ratio for row in found.rows if row.ratio is not None]
    if ratios:
        span = f"{np.median(ratios):.3f} in the median, {min(ratios):.3f} to {max(ratios):.3f}"
        said.append(f"Measured over predicted: {span}.")
        if max(*ratios, *(1 / each for each in ratios)) > UNIT:
            said.append(FAR)
    if (ranked := found.quality) is not None and len(ratios) > 2:
        said.append(f"Predictions rank the measured designs with Kendall τ {ranked.tau:.2f}.")
    return said


def _of(row: Beside) -> str:
    return "" if row.trial is None else f" (trial {row.trial:,})"


def added(before: Sequence[Run], new: Sequence[Run], folder: str | Path) -> list[Run]:
    """Return the runs of a study with *new* ones; the same row of the same file is not added twice."""
    whole = list(dict.fromkeys(_key(run) for run in [*before, *new]))
    require(len(whole) <= MOST_RUNS, "runs", len(whole), f"{folder} keeps at most {MOST_RUNS:,}")
    return [Run(point, dict(metrics), source) for point, metrics, source in whole]


def _key(run: Run) -> tuple[tuple[int, ...], tuple[tuple[str, float], ...], str]:
    return run.point, tuple(run.metrics.items()), run.source

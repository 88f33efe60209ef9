"""What corrects predictions: measured runs of designs, or simulations of them, by features of designs.

log(measured / predicted)  =  what `cosmic.exploration.learning.residuals` makes of few runs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from cosmic.design.batch import Batch, batch_of
from cosmic.design.model import Recommender
from cosmic.design.own import Fields
from cosmic.design.point import DesignPoint
from cosmic.engines import direction
from cosmic.evaluation import Metrics, evaluate
from cosmic.exploration.agent import Floats
from cosmic.exploration.learning.features import Features, encoding_of, fields_of, joined, physics, worked_out
from cosmic.exploration.learning.residuals import Residuals, fit_residuals
from cosmic.exploration.measuring import MeasuredDesign
from cosmic.exploration.problem import Problem
from cosmic.psa.diagram import Indices

OF_RUN = ("step_s", "tokens_per_s", "samples_per_s", "mfu")
"""Metrics that say how long a measured step took, the one that says most first."""
UNIT = 30.0
"""Predictions are not off by such a factor: a unit is."""
FAR = f"They are more than {UNIT:.0f} times apart: look at the units of what was measured."


def factor_of(
    problem: Problem, measured: Sequence[MeasuredDesign]
) -> tuple[Callable[[Indices], Floats] | None, list[str]]:
    """Return the correction that measured runs teach, and what to say of it."""
    if not measured:
        return None, []
    parts, logs, predicted, failed = [], [], [], 0
    paths = paths_of(problem)
    usual = OF_RUN if problem.of_designs else problem.objectives[:1]
    for each in measured:
        name = next((name for name in usual if name in each.metrics), "")
        known = _predicted(problem, each.point, name) if name else None
        if known is None:
            failed += 1
            continue
        logs.append(_log(name, each.metrics[name] / known[0]))
        predicted.append(_log(usual[0], known[1]))
        parts.append(features_of(batch_of(each.point), paths, closed=problem.of_designs))
    lack = "time" if problem.of_designs else usual[0]
    left = f" {failed} of them say nothing of it: they have no {lack}, or cannot run by the model." if failed else ""
    if not parts:
        return None, [f"Measured runs teach nothing.{left}"]
    seen = joined(parts)
    own = described(problem, problem.space.sample(1, np.random.default_rng(0)), closed=problem.of_designs)
    encode = encoding_of(seen, shared_names(seen, own))
    model = fit_residuals(encode(seen), np.array(logs), np.array(predicted), encode.parts)

    def factor(rows: Indices) -> Floats:
        return model.at(encode(described(problem, rows, closed=problem.of_designs)))

    of = "times are {}× as long" if problem.of_designs else f"{usual[0]} is {{}}× as much"
    return (None if model.kind == "none" else factor), [in_words(len(logs), "measured run", model, of) + left]


def _predicted(problem: Problem, point: DesignPoint, name: str) -> tuple[float, float] | None:
    """Return what the engine says of a metric, and of the usual one; None where it says neither, or not above 0."""
    if (brought := problem.brought) is not None:
        found = brought.ask(point).metrics.get(name, 0.0)
        return (found, found) if found > 0 else None
    outcome = evaluate(point, problem.engine)
    known = getattr(outcome, name) if isinstance(outcome, Metrics) else None
    return (known, outcome.step_s) if known and isinstance(outcome, Metrics) else None


def _log(name: str, value: float) -> float:
    """Return the logarithm of a metric, or of a ratio of two, as a loss."""
    return float(np.log(value)) * (1 if direction(name) == "less" else -1)


def in_words(count: int, what: str, model: Residuals, of: str = "times are {}× as long") -> str:
    """Return how far a rung of the ladder is from the one below it, in words, and what corrects that.

    *of* says what one factor does.
    """
    one = count == 1
    many = f"{count:,} {what}{'' if one else 's'}"
    below = "closed forms" if what.startswith("simulated") else "predictions"
    before, after = (f"{100 * np.expm1(each):.1f} %" for each in (model.before, model.error))
    far = f" {FAR}" if abs(model.level) > np.log(UNIT) or (model.kind == "none" and model.before > np.log(UNIT)) else ""
    if model.kind == "none":
        said = f"{many} {'does' if one else 'do'} not improve {below}, which are off by {before}: none is corrected."
        return said + far
    how = {
        "factor": of.format(f"{np.exp(model.level):.3f}"),
        "parts": "parts of a step differ",
        "trend": "they differ by what a design is",
    }
    kind = what.rpartition(" ")[2]
    return (
        f"{many} correct {below} ({how[model.kind]}): each {kind}, predicted from the others, is off by {after}"
        f" instead of {before}.{far}"
    )


# --------------------------------------------------------------------------------------------------- features


def paths_of(problem: Problem) -> list[str]:
    """Return the fields in which designs of a problem differ."""
    space = problem.space
    found = [path for parameter in space.parameters for path in parameter.paths]
    return [*dict.fromkeys([*found, *space.derived])]


def described(problem: Problem, rows: Indices, *, closed: bool) -> Features:
    """Return the features of points of a problem."""
    batch = Batch(problem.space.base, problem.space.columns(rows))
    return features_of(batch, paths_of(problem), closed=closed)


def features_of(batch: Batch, paths: Iterable[str], *, closed: bool) -> Features:
    """Return the features of designs; the closed form's only where it is *closed*-form evaluation that is corrected."""
    held = [path for path in paths if path in batch.columns or path in batch.base.fields]
    found = fields_of(batch, held)
    if isinstance(batch.base, Fields):
        return found
    if batch.base.serving is None and not isinstance(batch.base.model, Recommender):
        found = found | worked_out(batch)
    return found | physics(batch)[0] if closed else found


def shared_names(seen: Features, own: Features) -> list[str]:
    """Return the features that both have, of one kind."""
    return [
        name
        for name, column in seen.columns.items()
        if name in own.columns and isinstance(column, tuple) == isinstance(own.columns[name], tuple)
    ]

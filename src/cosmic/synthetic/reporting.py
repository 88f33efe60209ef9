"""How well a model does on the job it is fitted on, beside a baseline: both at the job's own length and ranks."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.synthetic.baseline import resample
from cosmic.synthetic.fidelity import Fidelity, fidelity
from cosmic.synthetic.model import Model, synthesize


@dataclass(frozen=True, slots=True)
class Report:
    """Distances of traces that a model and a baseline make from those that the model is fitted on."""

    model: Fidelity
    baseline: Fidelity


def report(model: Model, seed: int = 0) -> Report:
    """Return how close a model and the baseline come to the job whose structure *seed* draws."""
    made = synthesize(model, seed=seed)
    source = model.jobs[made.job].source
    original = (source.traces, source.groups)
    return Report(fidelity((made.traces, made.groups), original), fidelity(resample(source, seed), original))


def rows(found: Report) -> list[tuple[str, float | None, float | None]]:
    """Return the distances by name, those of the model before those of the baseline."""
    return [
        (name, *values)
        for name, *values in zip(_names(found.model), *map(_values, (found.model, found.baseline)), strict=True)
    ]


def _names(one: Fidelity) -> list[str]:
    return [
        "types: total variation",
        "bigrams of types: total variation",
        *(f"{name}: Kolmogorov-Smirnov" for name in one.sizes),
        "in-degrees: Wasserstein",
        "out-degrees: Wasserstein",
        "nodes: ratio",
        "critical path: ratio",
        *(f"simulated time, {name}: error" for name in one.seconds),
    ]


def _values(one: Fidelity) -> list[float | None]:
    degrees = (one.in_degrees, one.out_degrees, one.nodes, one.critical_path)
    return [one.types, one.bigrams, *one.sizes.values(), *degrees, *one.seconds.values()]

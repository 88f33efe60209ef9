"""Keys and parts of what several commands print with `--json`: metrics, points, trials, recorded ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from cosmic.base.json_types import AlwaysFalse, AnyOf, Count, Keywords, described
from cosmic.simulate.metrics import DesignMetrics

Identity = Annotated[
    str,
    described("Hash of the complete design: equal for equal designs, however they were written."),
    Keywords(pattern="^[0-9a-f]{16}$"),
]
Reasons = Annotated[Sequence[str], described("Why the design cannot run, a sentence each; empty if it can.")]


InvalidMapping = Annotated[
    Sequence[str], described("Why the mapping is invalid, a sentence each; memory is not checked.")
]


class InfeasibleDesignAnswer(TypedDict):
    """An infeasible design; the command ends with exit code 1."""

    feasible: AlwaysFalse
    """Whether the design can run."""
    reasons: Annotated[Reasons, Keywords(minItems=1)]
    """Why the design cannot run, a sentence each."""
    identity: Identity


StepTime = Annotated[
    float, described("Time of one step: a training step, a prefill, or one decoded token for all sequences at once.")
]


UserEngineMetrics = Annotated[
    Mapping[str, float | None],
    described("Metrics of an engine that somebody brought, by their names; null where one is unknown."),
]


PointValues = Annotated[
    Mapping[str, Any],
    described("Value of each parameter and derived field of the space, by path, written as in YAML files."),
]


class TriedDesign(TypedDict):
    """One design that a search tried."""

    trial: Count
    """Number of the trial, from 0 on."""
    point: PointValues
    metrics: AnyOf[DesignMetrics, UserEngineMetrics]
    """Metrics of a design."""
    reasons: Reasons


CatalogSource = Annotated[str, described("Source of the numbers.")]
CatalogSummary = Annotated[str, described("One sentence on it.")]

"""What commands on design spaces print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from cosmic.base.json_types import AnyOf, Count, Keywords, PositiveCount, Ratio, Share, described, one_of
from cosmic.cli.answers.common_keys import DesignMetrics, Identity, PointValues, StepTime


class ProvenDesign(TypedDict):
    """One design."""

    point: PointValues
    metrics: DesignMetrics


class NearBestDesigns(TypedDict):
    """How many designs are near the best; null unless asked for."""

    share: float
    """How near: so much worse than the best, at most."""
    count: Count | None
    """How many designs; null if time ran out."""


class SimulatedBestDesign(TypedDict):
    """One design."""

    point: PointValues
    step_s: StepTime
    simulated_step_s: float
    """The step as the event engine simulates it."""


class ProofAnswer(TypedDict):
    """What is proven of a parameter set."""

    space: str
    """The space as it was named."""
    designs: PositiveCount
    """How many designs it has."""
    objectives: Annotated[Sequence[str], Keywords(minItems=1)]
    """The metrics that are optimised."""
    limits: Sequence[str]
    """The limits that designs must meet."""
    method: Annotated[str, one_of("bounded", "enumerated")]
    """How it was proven: by bounds, or because every design was evaluated."""
    why_enumerated: str | None
    """Why designs could not be bounded; null if they were."""
    proven: bool
    """Whether nothing is better by more than the gap that was asked for (1e-9 at least)."""
    gap: Share | None
    """By what share something may be better than the best; null if nothing is known of it."""
    front: Sequence[ProvenDesign]
    """The best design, or the front of several objectives; empty if none can run."""
    within: NearBestDesigns | None
    """How many designs are near the best; null unless asked for."""
    judged: Count
    """Boxes and designs that were evaluated."""
    elapsed_s: float
    """Time of the proof."""
    certificate: str | None
    """The file of the certificate; null if none was written."""
    expected_error: Share | None
    """Mean relative error of the best design's step that validation found for designs like it; null where none was
    measured."""
    expected_on: str | None
    """What that error rests on; null if no design can run."""
    simulated: Sequence[SimulatedBestDesign]
    """The best designs that were met, simulated by the event engine."""
    simulated_note: str | None
    """Why fewer designs were simulated; null if none is missing."""


class CertificateCheckAnswer(TypedDict):
    """Whether a certificate holds."""

    valid: bool
    """Whether it holds."""
    proven: bool | None
    """Whether it claims a proof; null if it is refused."""
    gap: Share | None
    """By what share something may be better than its best; null if it is refused, or where that is not known."""
    slack: Share | None
    """What its checks allow: leaves and designs may be better by this share; null if it is refused."""
    checked: Sequence[str]
    """What was checked, a sentence each."""
    refused: str | None
    """Why it is refused; null if it holds."""


CertifyAnswer = Annotated[
    AnyOf[ProofAnswer, CertificateCheckAnswer],
    described("What is proven of a parameter set; with --check, whether a certificate holds."),
]


class SpaceParameterRow(TypedDict):
    """A parameter."""

    name: str
    """Its path, or a pattern of several."""
    stack: str
    """Layer of the stack: workload, collective, network, compute, memory."""
    sets: Sequence[str]
    """Paths of the fields that it sets."""
    values: Annotated[Sequence[Any], Keywords(minItems=1)]
    """The values that it takes, written as in files."""


class SpaceShowAnswer(TypedDict):
    """What may vary around a base design."""

    name: str
    """Name of the space."""
    base: Identity
    """Identity of the base design."""
    parameters: Sequence[SpaceParameterRow]
    """What may vary."""
    derived: Mapping[str, str]
    """Fields that follow from others, by path: the expression."""
    constraints: Sequence[str]
    """Expressions that every valid point fulfils."""
    limits: Sequence[str]
    """Limits on metrics."""
    workloads: Mapping[str, Ratio]
    """Workloads that a design has to run, by name: how often each runs in a round."""
    objective: str
    """The objective."""


class StackCount(TypedDict):
    """One layer."""

    raw: Count
    """All combinations of values."""
    valid: Count
    """Those that the constraints allow, all else as in the base design."""


class SpaceCountAnswer(TypedDict):
    """The number of points."""

    raw: Count
    """All combinations of values."""
    valid: Count
    """Those that the constraints allow."""
    by_stack: Mapping[str, StackCount]
    """The numbers of the set that opens one layer alone, by layer."""


SampleAnswer = Annotated[
    PointValues,
    described("One valid point a line (JSON Lines): this is the schema of a line."),
    Keywords(**{"x-lines": True}),
]


_SpaceSchemaAnswerKeys = TypedDict(
    "_SpaceSchemaAnswerKeys",
    {
        "$schema": Annotated[
            Literal["https://json-schema.org/draft/2020-12/schema"], described("The dialect of JSON Schema.")
        ]
    },
)


class SpaceSchemaAnswer(_SpaceSchemaAnswerKeys):
    """A parameter set as JSON Schema of its points."""

    title: str
    """Name of the space."""
    type: Literal["object"]
    """A point is an object."""
    properties: Mapping[str, Mapping[str, Any]]
    """Each parameter: its values, its layer, the fields that it sets."""

"""What commands on models and their operator programs print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from cosmic.base.json_types import (
    AnyOf,
    Count,
    Keywords,
    NonNegative,
    PositiveCount,
    SecondsOrBytes,
    described,
    one_of,
    unit,
)
from cosmic.cli.answers.common_keys import CatalogSource
from cosmic.search.sharding.sharding_result import Sent


class ProgramOperatorRow(TypedDict):
    """One operator of a program."""

    part: str
    """The part that it belongs to, and how often that is repeated."""
    name: str
    """What it makes."""
    kind: str
    """Its kind."""
    reads: str
    """The tensors that it reads, with their dimensions."""
    makes: str
    """The dimensions of what it makes."""
    flop: float
    """Flop of one run."""


class CatalogModelAnswer(TypedDict):
    """A model of the catalog."""

    name: str
    """Name in the catalog."""
    family: str
    """Family of models: decoder, encoder, vision, …"""
    parameters: int
    """All parameters."""
    active_parameters: int
    """Parameters that one token uses."""
    bf16_bytes: int
    """All parameters in bfloat16."""
    sequence: int | None
    """Usual sequence length in tokens; null if there is none."""
    shape: Mapping[str, Any]
    """Fields of a model, those with a usual value left out."""
    source: CatalogSource


class ModelProgramAnswer(TypedDict):
    """A program, operator by operator."""

    name: str
    """Its name."""
    flop: float
    """Flop of a forward pass, at the sizes that the program states."""
    parameters: int
    """Elements of all weights."""
    dims: Mapping[str, int]
    """Every dimension with its size."""
    operators: Sequence[ProgramOperatorRow]
    """Every operator, in order."""


ModelShowAnswer = Annotated[
    AnyOf[CatalogModelAnswer, ModelProgramAnswer],
    described("A model of the catalog, or a program, operator by operator."),
]


class ShardedTensorRow(TypedDict):
    """One tensor."""

    part: str
    """Its part of the program."""
    tensor: str
    """Its name."""
    role: str
    """input, index, weight, activation or gradient."""
    dims: Sequence[str]
    """Its dimensions."""
    axes: Sequence[str]
    """For each dimension its axes, joined by +, or _ for none."""
    partial: Sequence[str]
    """Axes over which its sum is pending."""
    given: bool
    """Whether it was annotated."""
    reason: str
    """Which collectives it costs or saves."""


class ReshardedUseRow(TypedDict):
    """One use."""

    part: str
    """Its part of the program."""
    operator: str
    """The operator that reads it."""
    tensor: str
    """The tensor."""
    sharding: str
    """The sharding in which it is read."""


class ModelShardAnswer(TypedDict):
    """The best sharding of a program over a mesh, what it costs, and how far from the best it may be."""

    program: str
    """Name of the program or model."""
    mesh: Mapping[str, PositiveCount]
    """Devices along each axis, outermost first."""
    objective: Annotated[str, one_of("step", "bytes", "memory")]
    """What is least."""
    mode: Annotated[str, one_of("best", "as_compiled")]
    """best, or the rules of XLA."""
    unit: Annotated[str, one_of("seconds", "bytes")]
    """The unit of costs: seconds on a system, else bytes on the wire."""
    value: Annotated[float, unit("s, or byte"), Keywords(minimum=0)]
    """The objective, as the planner prices these annotations."""
    searched_value: SecondsOrBytes
    """The same as the search added it up."""
    bound: Annotated[float, unit("s, or byte"), Keywords(minimum=0)]
    """No annotations have a lower objective."""
    gap: Annotated[float, unit("share"), Keywords(minimum=0)]
    """How far the objective may be above the optimum, relative to it."""
    exact: bool
    """Whether no table was split while variables were eliminated."""
    fits: bool
    """Whether memory is within the limit."""
    limit_bytes: float | None
    """The limit on memory of a device."""
    memory_bytes: NonNegative
    """Weights, gradients, optimizer states and kept activations on a device."""
    compute: Annotated[float, unit("s"), Keywords(minimum=0)]
    """Seconds of kernels; 0 without a system."""
    update: Annotated[float, unit("s"), Keywords(minimum=0)]
    """Seconds of the optimizer; 0 without a system."""
    exposed: Annotated[float, unit("s, or byte"), Keywords(minimum=0)]
    """Collectives that the next operator waits for."""
    overlapped: Annotated[float, unit("s, or byte"), Keywords(minimum=0)]
    """Collectives of weights and their gradients, beside compute."""
    wire_bytes: NonNegative
    """Bytes that a device sends in a step."""
    operators: Count
    """Operators of both passes, each part once."""
    annotations: Sequence[ShardedTensorRow]
    """Every tensor, with the axes that split its dimensions."""
    uses: Sequence[ReshardedUseRow]
    """Tensors that must be read in another sharding than they are kept in, stated at their use."""
    collectives: Sequence[Sent]
    """Every collective of a step."""
    warnings: Sequence[str]
    """Tensors made whole only to be split anew, and padding."""
    written: Sequence[str]
    """Files that were written."""

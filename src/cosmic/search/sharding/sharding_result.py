"""A mesh of devices as users write it, and what automatic sharding found on it.

A mesh has named axes with their sizes, the last one innermost.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.base.json_types import SecondsOrBytes, one_of
from cosmic.workload.sharding.tensor_sharding import Sharding

# ---- A mesh of devices as users write it: named axes with their sizes, the last one innermost

MAX_AXES = 3
"""More axes have more shardings of a tensor than can be listed."""


MAX_DIGITS = 9
"""Digits of a number of devices."""


@dataclass(frozen=True)
class Mesh:
    """Named axes with their sizes, outermost first: neighbours along the last axis are neighbours in the network."""

    axes: tuple[tuple[str, int], ...]
    cut: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Axes that are cut into sub-axes, with the names of these: sub-axes may split different dimensions of a tensor."""

    def __post_init__(self) -> None:
        require(1 <= len(self.axes) <= MAX_AXES, "mesh", str(self), f"must have 1 to {MAX_AXES} axes")
        names = [name for name, _ in self.axes]
        for name, size in self.axes:
            require(names.count(name) == 1, "mesh", str(self), f"names the axis {name} twice")
            require(bool(re.fullmatch(r"[A-Za-z]\w*", name)), "mesh", name, "must be a name, such as x or tp")
            require(isinstance(size, int) and size >= 1, f"mesh.{name}", size, "must be a whole number of at least 1")

    @property
    def sizes(self) -> dict[str, int]:
        """The size of each axis."""
        return dict(self.axes)

    @property
    def names(self) -> tuple[str, ...]:
        """The axes that split something: those of more than one device."""
        return tuple(name for name, size in self.axes if size > 1)

    @property
    def devices(self) -> int:
        """How many devices there are."""
        return prod(size for _, size in self.axes)

    def axes_named(self, name: str) -> tuple[str, ...]:
        """Return the axes that a user calls *name*: one, or the sub-axes of one; none if there is no such axis."""
        return dict(self.cut).get(name, (name,) if name in self.sizes else ())

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)


def read_mesh(source: str | Mapping[str, int] | Iterable[tuple[str, int]]) -> Mesh:
    """Return the mesh that a text, a mapping or pairs describe.

    ``y=2*8`` is an axis of 16 devices that is cut into y_0 and y_1, which may split different dimensions.

    >>> read_mesh("x=8,y=16").devices, read_mesh("x=8,y=2*8").axes
    (128, (('x', 8), ('y_0', 2), ('y_1', 8)))
    """
    if isinstance(source, Mapping):
        return Mesh(tuple(source.items()))
    if not isinstance(source, str):
        return Mesh(tuple((name, size) for name, size in source))
    axes: list[tuple[str, int]] = []
    cut: list[tuple[str, tuple[str, ...]]] = []
    for part in source.split(","):
        name, _, size = (text.strip() for text in part.partition("="))
        factors = [text.strip() for text in size.split("*")]
        if not (
            name and all(factor.isascii() and factor.isdigit() and len(factor) <= MAX_DIGITS for factor in factors)
        ):
            raise SpecError("mesh", source, "write AXIS=DEVICES, such as x=8,y=16")
        names = (name,) if len(factors) == 1 else tuple(f"{name}_{index}" for index in range(len(factors)))
        axes += zip(names, map(int, factors), strict=True)
        cut += [(name, names)] if len(factors) > 1 else []
    return Mesh(tuple(axes), tuple(cut))


# ---- What automatic sharding found


@dataclass(frozen=True)
class TensorSharding:
    """The sharding of one tensor, and why."""

    part: str
    """The part of the program that has the tensor, such as a block."""
    tensor: str
    role: str
    """What it is in the program, such as a weight."""
    dims: tuple[str, ...]
    sharding: Sharding
    given: bool
    """Whether a user fixed it."""
    reason: str
    """The collectives that it costs, or why it needs none."""

    @property
    def entries(self) -> list[str]:
        """Its axes, an entry for each dimension, as `--annotate` takes them."""
        return ["+".join(self.sharding.axes(dim)) or "_" for dim in self.dims]


@dataclass(frozen=True)
class Sent:
    """Collectives of one tensor that are alike."""

    part: str
    """Its part of the program."""
    kind: typing.Annotated[
        str, one_of("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "collective_permute")
    ]
    """Its kind."""
    axes: tuple[str, ...]
    """The axes whose devices take part."""
    tensor: str
    """What is sent."""
    phase: typing.Annotated[str, one_of("forward", "backward")]
    """The pass."""
    calls: int
    """In a step: one for each repetition of its part."""
    bytes: float
    """Payload of a call on one device."""
    wire_bytes: float
    """What a device sends in a call."""
    cost: SecondsOrBytes
    """Of all calls: seconds, or bytes where no system is given."""
    overlapped: bool
    """Whether compute can go on meanwhile: it moves weights or their gradients."""
    why: str
    """Why it is there."""


@dataclass(frozen=True)
class ReshardAtUse:
    """A tensor that an operator must read in another sharding than it is kept in: a constraint at its use."""

    part: str
    operator: str
    tensor: str
    sharding: Sharding
    """The sharding that the operator reads."""


def step_cost(compute: float, exposed: float, hidden: float, overlap: float) -> float:
    """Return what a step costs of which compute hides the share *overlap* of *hidden* at best (see `solving`).

    >>> step_cost(10.0, 1.0, 4.0, 0.75), step_cost(2.0, 1.0, 8.0, 0.75)
    (12.0, 9.0)
    """
    return max(compute + exposed + (1 - overlap) * hidden, exposed + hidden)


@dataclass(frozen=True)
class Sharded:
    """Annotations of all tensors of a program, and what a step costs with them."""

    program: str
    mesh: Mesh
    objective: str
    mode: str
    unit: str
    """The unit of costs: seconds, or bytes."""
    value: float
    """The objective, as the planner prices these annotations: seconds, bytes on the wire, or bytes of memory."""
    searched_value: float
    """The same as the search added it up."""
    bound: float
    """No annotations have a smaller one, if operators read a tensor from where it is kept or from one copy of it."""
    exact: bool
    fits: bool
    limit_bytes: float | None
    memory_bytes: float
    compute: float
    """Of kernels, without the optimizer's."""
    update: float
    """Of the optimizer."""
    exposed: float
    hidden: float
    overlap: float
    operators: int
    annotations: tuple[TensorSharding, ...]
    collectives: tuple[Sent, ...]
    uses: tuple[ReshardAtUse, ...] = ()
    """What must be stated beside the annotations, so that operators are split as was chosen; mostly nothing."""
    warnings: tuple[str, ...] = ()
    design: Mapping[str, Any] = field(default_factory=dict)
    """The design that `cosmic evaluate` prices this as, where there is one."""

    @property
    def step(self) -> float:
        """What a step costs, whatever the objective is."""
        return step_cost(self.compute + self.update, self.exposed, self.hidden, self.overlap)

    @property
    def gap(self) -> float:
        """How far the value may be above the optimum, relative to it."""
        return max(0.0, self.value / self.bound - 1) if self.bound > 0 else 0.0 if self.value <= 0 else 1.0

    @property
    def wire_bytes(self) -> float:
        """Bytes that a device sends in a step."""
        return sum(collective.wire_bytes * collective.calls for collective in self.collectives)

    def sharding(self, tensor: str, part: str | None = None) -> Sharding:
        """Return the sharding of a tensor."""
        for annotation in self.annotations:
            if annotation.tensor == tensor and part in (None, annotation.part):
                return annotation.sharding
        raise KeyError(tensor)

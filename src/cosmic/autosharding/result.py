"""What automatic sharding found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cosmic.autosharding.mesh import Mesh
from cosmic.workload.sharding.annotation import Sharding


@dataclass(frozen=True)
class Annotated:
    """The sharding of one tensor, and why."""

    part: str
    tensor: str
    role: str
    dims: tuple[str, ...]
    sharding: Sharding
    given: bool
    """Whether a user fixed it."""
    reason: str

    @property
    def entries(self) -> list[str]:
        """Its axes, an entry for each dimension, as `--annotate` takes them."""
        return ["+".join(self.sharding.axes(dim)) or "_" for dim in self.dims]


@dataclass(frozen=True)
class Sent:
    """Collectives of one tensor that are alike."""

    part: str
    kind: str
    axes: tuple[str, ...]
    tensor: str
    phase: str
    calls: int
    """In a step: one for each repetition of its part."""
    bytes: float
    """Payload of a call on one device."""
    wire_bytes: float
    """What a device sends in a call."""
    cost: float
    """Of all calls: seconds, or bytes where no system is given."""
    overlapped: bool
    """Whether compute can go on meanwhile: it moves weights or their gradients."""
    why: str


@dataclass(frozen=True)
class Use:
    """A tensor that an operator must read in another sharding than it is kept in: a constraint at its use."""

    part: str
    operator: str
    tensor: str
    sharding: Sharding


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
    annotations: tuple[Annotated, ...]
    collectives: tuple[Sent, ...]
    uses: tuple[Use, ...] = ()
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
        return sum(each.wire_bytes * each.calls for each in self.collectives)

    def sharding(self, tensor: str, part: str | None = None) -> Sharding:
        """Return the sharding of a tensor."""
        for each in self.annotations:
            if each.tensor == tensor and part in (None, each.part):
                return each.sharding
        raise KeyError(tensor)

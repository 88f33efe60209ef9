"""How long each task of a pipeline schedule takes, and of what: the closed form's seconds, shared out over its tasks.

The closed form knows two kinds of stages: the one that bounds the step, which has the head, and the others, which have
layers only. A task is its compute, then what that waits for, each in one piece: within a task layers alternate, which
is not told. Beside it runs what hides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from cosmic.simulation.analytic import Anatomy
from cosmic.simulation.timeline import Class
from cosmic.step.communication import BLOCKING, Role, part_of
from cosmic.workload.schedule import TaskKind


class Piece(NamedTuple):
    """A part of a task."""

    track: str
    name: str
    """Empty for compute, which is called as its task is."""
    kind: Class
    seconds: float


@dataclass(frozen=True, slots=True)
class TaskTimes:
    """One task: pieces one after another, and what runs beside them."""

    pieces: tuple[Piece, ...] = ()
    beside: tuple[Piece, ...] = ()

    @property
    def seconds(self) -> float:
        """The whole task."""
        return sum(piece.seconds for piece in self.pieces)

    def share(self, of: float) -> TaskTimes:
        """Return so much of it."""
        pieces, beside = (
            tuple(piece._replace(seconds=piece.seconds * of) for piece in each) for each in (self.pieces, self.beside)
        )
        return replace(self, pieces=pieces, beside=beside)

    def with_more(self, pieces: Iterable[Piece], beside: Iterable[Piece] = ()) -> TaskTimes:
        """Return it with more to do; pieces that are alike become one."""
        return TaskTimes(_added((*self.pieces, *pieces)), _added((*self.beside, *beside)))


class Mark(NamedTuple):
    """What a task's time depends on."""

    kind: TaskKind
    bounds: bool
    """Whether it runs on the stage that bounds the step."""
    head: bool
    """Whether it runs the last part of the model."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a step is made of, task by task."""

    tasks: dict[Mark, TaskTimes]
    crossing: tuple[float, float]
    """From stage to stage: activations, and their gradients back."""
    reducing: float
    """Gradients, after the last backward pass."""
    reduced_beside: float
    """Gradients, behind the last backward pass and what follows it."""
    updating: float
    returning: float
    """Updated weights, to those that need them, after the update."""
    offloading: tuple[float, float]
    """Traffic with outer memory, beside the step and after it."""
    rates: dict[str, float]
    """By track: bytes a second that a device brings into collectives while they run."""


def step_times(found: Anatomy) -> StepTimes:
    """Return the tasks of the design whose anatomy is *found*."""
    batch, memory = found.profile.batch, found.profile.memory
    training = batch.base.workload.task == "training"
    count = float(found.profile.microbatches)
    virtual = float(batch["workload.virtual_stages"]) if training and batch.base.workload.pp > 1 else 1.0
    tasks = {}
    forward = _Pass(found, 0, count, decode=batch.base.workload.task == "decode")
    backward = _Pass(found, 1, count)
    for bounds in (False, True):
        for head in (False, True):
            tasks[Mark("F", bounds, head)] = forward.whole(virtual, bounds=bounds, head=head)
            if training:
                tasks[Mark("BW", bounds, head)] = both = backward.whole(virtual, bounds=bounds, head=head)
                tasks[Mark("W", bounds, head)] = later = backward.weights(virtual, head=head)
                tasks[Mark("B", bounds, head)] = both.with_more(
                    piece._replace(seconds=-piece.seconds) for piece in later.pieces
                )
    parts, communication = found.step.parts, found.communication
    after = parts["dp"] - communication.of("dp", "forward") - communication.of("dp", "backward")
    updated = communication.of("updated", "step")
    whole = communication.of("weights", "step") + updated
    in_order = batch.base.collective.scheduling != "lifo"
    offloaded = float(found.profile.network.offload_seconds(memory.offload_traffic))
    return StepTimes(
        tasks=tasks,
        crossing=(float(communication.of("pp", "forward")), float(communication.of("pp", "backward"))),
        reducing=max(0.0, float(after - updated * in_order)),
        reduced_beside=max(0.0, float(whole - after)),
        updating=float(parts["optimizer"]),
        returning=float(updated * in_order),
        offloading=(offloaded - float(parts["offload"]), float(parts["offload"])),
        rates=_rates(found),
    )


class _Pass:
    """The forward or the backward pass of one microbatch."""

    def __init__(self, found: Anatomy, place: int, count: float, *, decode: bool = False) -> None:
        self.found, self.place, self.count = found, place, count
        self.phase = ("forward", "backward")[place]
        self.decode = decode
        """When decoding, every stage is taken to be as slow as the one with the head."""
        head = 0.0 if decode else getattr(found.compute, f"head_{self.phase}")
        self.head_compute = float(head) / count
        self.compute = float(getattr(found.compute, self.phase) - head) / count
        self.recompute = float(found.compute.recompute) / count if place else 0.0
        self.head_waits, self.waits = self._waits()

    def _waits(self) -> tuple[dict[Role, float], dict[Role, float]]:
        """Return what the head and what the layers wait for, by axis.

        The closed form knows the head's as a sum: it is taken from the axes in their order.
        """
        communication = self.found.communication
        left = 0.0 if self.decode else float(communication.at_head(self.phase))
        head, layers = {}, {}
        for axis in BLOCKING:
            whole = float(communication.of(axis, self.phase))
            head[axis] = min(whole, left) / self.count
            layers[axis] = (whole - min(whole, left)) / self.count
            left -= min(whole, left)
        return head, layers

    def whole(self, virtual: float, *, bounds: bool, head: bool) -> TaskTimes:
        """Return a task: one of *virtual* parts of a stage, with the head or without."""
        again = Piece("compute", "recompute", "compute", self.recompute)
        layers = [Piece("compute", "", "compute", self.compute), again, *self._shown(self.waits)]
        found = TaskTimes(tuple(layers), tuple(self._beside(self.waits)))
        late = self._late(sum(piece.seconds for piece in layers), bounds=bounds)
        found = found.with_more([Piece("compute", f"host late, {self.phase}", "other", late)])
        fetched, ring = self._fetched(), self._ring()
        found = found.with_more([], [fetched[1], ring[1]])
        if bounds:
            found = TaskTimes((fetched[0], *found.pieces), found.beside).with_more([ring[0]])
        found = found.share(1 / virtual)
        if head:
            more = [Piece("compute", "", "compute", self.head_compute), *self._shown(self.head_waits)]
            found = found.with_more(more, self._beside(self.head_waits))
        return found

    def weights(self, virtual: float, *, head: bool) -> TaskTimes:
        """Return the part of a backward task that only makes the gradients of weights: half of its compute."""
        half = (self.compute / virtual + self.head_compute * head) / 2
        return TaskTimes((Piece("compute", "", "compute", half),))

    def _late(self, others: float, *, bounds: bool) -> float:
        """Return how late the host is; on the stages without a head it is another figure."""
        if bounds:
            return float(getattr(self.found.stage, f"delay_{self.phase}")) / self.count
        one, two, three = map(float, self.found.others)
        return max(0.0, (two + three if self.place else one) - others)

    def _shown(self, waits: dict[Role, float]) -> list[Piece]:
        return [Piece(axis, f"{axis}, {self.phase}", "exposed", seconds) for axis, seconds in waits.items()]

    def _beside(self, waits: dict[Role, float]) -> list[Piece]:
        """Return what travels beside compute of the axes that are waited for only in part."""
        exposed_share = self.found.profile.network.exposed_share
        return [
            Piece(axis, f"{axis}, {self.phase}", "hidden", seconds * (1 / exposed_share(axis) - 1))
            for axis, seconds in waits.items()
        ]

    def _fetched(self) -> tuple[Piece, Piece]:
        """Return the gathering of weights and the scattering of gradients within the pass: waited for, and beside."""
        communication = self.found.communication
        whole = float(communication.of("weights", self.phase)) / self.count
        cover = getattr(self.found.stage, self.phase)
        shown = float(communication.exposed("weights", self.phase, cover)) / self.count
        return self._both("weights", f"weights, {self.phase}", shown, whole - shown)

    def _ring(self) -> tuple[Piece, Piece]:
        """Return keys and values that are passed round: waited for, and beside."""
        communication = self.found.communication
        cover = self.found.compute.attention * (2 / 3 if self.place else 1 / 3)
        whole = float(communication.of("ring", self.phase)) / self.count
        shown = float(communication.beyond("ring", self.phase, cover)) / self.count
        return self._both("cp", f"keys and values, {self.phase}", shown, whole - shown)

    @staticmethod
    def _both(track: str, name: str, shown: float, beside: float) -> tuple[Piece, Piece]:
        return Piece(track, name, "exposed", shown), Piece(track, name, "hidden", beside)


def _added(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return pieces with those that are alike as one, at the place of the first, and none of no time."""
    found: dict[tuple[str, str, str], Piece] = {}
    for piece in pieces:
        known = found.get(piece[:3])
        found[piece[:3]] = piece if known is None else known._replace(seconds=known.seconds + piece.seconds)
    return tuple(piece for piece in found.values() if piece.seconds > 0)


def _rates(found: Anatomy) -> dict[str, float]:
    """Return the bytes a second that a device brings into the collectives of each track, on average."""
    sizes: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for use in found.profile.grouped:
        sends = float(use.calls) if use.role == "pp" else 1.0  # the closed form has the seconds of one send
        once = 0.0 if float(use.group) <= 1 else float(use.bytes * use.calls) / max(sends, 1.0)
        sizes[use.part] = sizes.get(use.part, 0.0) + once
    for (role, phase), value in found.communication.by_role.items():
        track = part_of(role, phase)
        seconds[track] = seconds.get(track, 0.0) + float(value) / found.profile.network.exposed_share(role)
    return {track: sizes.get(track, 0.0) / took for track, took in seconds.items() if took > 0}

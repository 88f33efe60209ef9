"""How long each task of a pipeline schedule takes, and of what: the closed form's seconds, shared out over its tasks.

Every part of the model (a stage, or a virtual stage) has the layers that it has. A task is its compute, then what that
waits for, each in one piece: within a task layers alternate, which is not told. Beside it runs what hides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from cosmic.numeric import sum_of
from cosmic.simulation.analytic import Anatomy, after_step, exchanged_s, transfer_s
from cosmic.simulation.timeline import Class
from cosmic.step.communication import Role, part_of
from cosmic.step.stage_time import StageTime, part_times
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


SHOWN: tuple[Role, ...] = ("tp", "cp", "ring", "ep", "dp", "weights")
"""What a pass may wait for, in the order in which it is drawn."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What a step is made of, task by task."""

    tasks: dict[tuple[TaskKind, int], TaskTimes]
    """By kind, and by the part of the model."""
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
    tasks: dict[tuple[TaskKind, int], TaskTimes] = {}
    for part, stage in enumerate(part_times(batch)):
        passes = _Passes(stage, float(found.profile.microbatches))
        tasks["F", part] = passes.whole("forward")
        if training:
            tasks["BW", part] = both = passes.whole("backward")
            tasks["W", part] = later = passes.weight_gradients()
            tasks["B", part] = both.with_more(piece._replace(seconds=-piece.seconds) for piece in later.pieces)
    reducing, returning = (float(each) for each in after_step(found.profile, found.stage))
    exchanged = float(exchanged_s(found.profile, found.stage))
    reducing += exchanged
    whole = (
        sum(float(found.stage.communication.get((role, "step"), 0.0)) for role in ("weights", "updated")) + exchanged
    )
    offloaded = float(found.profile.network.offload_seconds(memory.tier_traffic))
    beyond = float(found.step.parts["offload"]) - float(sum_of(found.stage.stalled.values(), 0.0))
    offloaded = max(offloaded, beyond)  # what layers wait for is part of their passes
    return StepTimes(
        tasks=tasks,
        crossing=(float(transfer_s(found.profile, "forward")), float(transfer_s(found.profile, "backward"))),
        reducing=reducing,
        reduced_beside=max(0.0, whole - reducing - returning),
        updating=float(found.step.parts["optimizer"]),
        returning=returning,
        offloading=(offloaded - beyond, beyond),
        rates=_rates(found),
    )


@dataclass(frozen=True, slots=True)
class _Passes:
    """Both passes of one microbatch through a part of the model."""

    stage: StageTime
    count: float
    """Microbatches in a step."""

    def whole(self, phase: str) -> TaskTimes:
        """Return a task: compute, what it waits for, and what runs beside it."""
        again = float(self.stage.compute.recompute) if phase == "backward" else 0.0
        compute = float(self.stage.compute.beside(phase)[2])
        pieces = [Piece("compute", "", "compute", compute - again), Piece("compute", "recompute", "compute", again)]
        beside = []
        for role in SHOWN:
            whole = float(self.stage.communication.get((role, phase), 0.0))
            shown = float(self.stage.exposed.get((role, phase), 0.0))
            track = part_of(role, phase)
            name = f"{'keys and values' if role == 'ring' else role}, {phase}"
            waited = Piece(track, name, "exposed", shown)
            pieces = [waited, *pieces] if role == "weights" else [*pieces, waited]
            beside.append(Piece(track, name, "hidden", whole - shown))
        pieces.append(Piece("compute", f"host late, {phase}", "other", float(self.stage.delay[phase])))
        return TaskTimes(_added(pieces), _added(beside)).share(1 / self.count)

    def weight_gradients(self) -> TaskTimes:
        """Return the part of a backward task that only makes the gradients of weights."""
        late = float(self.stage.delay["backward"]) * self.stage.weight_share
        compute = float(self.stage.weight_gradients_s) - late
        pieces = (Piece("compute", "", "compute", compute), Piece("compute", "host late, backward", "other", late))
        return TaskTimes(_added(pieces)).share(1 / self.count)


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
    for each in found.profile.traffic:
        track = part_of(each.role, each.phase)
        sizes[track] = sizes.get(track, 0.0) + float(each.bytes * each.calls)
        seconds[track] = seconds.get(track, 0.0) + float(each.seconds)
    return {track: sizes[track] / took for track, took in seconds.items() if took > 0}

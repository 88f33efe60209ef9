"""Steps whose operators and collectives take plain numbers of seconds, on the tiny design of `tests.step.tiny`."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from cosmic.design.batch import Batch
from cosmic.step.communication import Role
from cosmic.step.compute import Kernel, OperatorUse
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.memory import Footprint
from cosmic.step.profile import CollectiveCost, OperatorCost, memory_of, profile
from cosmic.workload.precision import recipe_of
from tests.step.tiny import batch

COLLECTIVE_LAUNCH_S = {"forward": 0.25, "backward": 0.125}
UPDATE_S = 3.0
"""Of one weight."""


def operator(
    kind: str,
    phase: Any,
    seconds: float,
    *,
    runs: float = 1.0,
    block: str = "layer",
    launch_s: float = 0.0,
    again: bool = False,
) -> OperatorCost:
    """Return an operator of 10 flop a run; *again*: every second run is recomputation."""
    use = OperatorUse(kind, kind, block, phase, 10.0, 1.0, runs, Kernel(), again)
    return OperatorCost(use, runs, seconds, launch_s)


def collective(
    role: Role, phase: str, seconds: float, *, block: str = "layer", calls: float = 1.0, again: bool = False
) -> CollectiveCost:
    """Return *calls* collectives that take so many seconds together."""
    return CollectiveCost(role, phase, "all_reduce", ("tp",), calls, 1.0, seconds, block, again)


def plain(
    operators: Iterable[OperatorCost] = (),
    traffic: Iterable[CollectiveCost] = (),
    *,
    states: float = 0.0,
    offloaded: float = 0.0,
    moved: float = 0.0,
    **changes: Any,
) -> Batch:
    """Return a tiny design whose layers, embedding and head have these operators and collectives.

    A device has *states* bytes of optimizer states and *offloaded* ones; *moved* bytes travel to outer memory.
    """
    made = batch(**changes)
    precision = made.base.workload.precision
    made.known[KernelCosts] = SimpleNamespace(
        collective_launch_s=COLLECTIVE_LAUNCH_S.__getitem__,
        update=lambda elements, *_: (UPDATE_S * elements, 0.0),
        recipe=recipe_of(precision, "training"),
    )
    made.known[memory_of] = Footprint({"optimizer": states}, {"optimizer": offloaded}, moved)
    unit = profile(made)
    vars(unit)["operators"] = tuple(operators)
    vars(unit)["traffic"] = tuple(traffic)
    return made

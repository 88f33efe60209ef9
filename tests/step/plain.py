"""Steps whose operators and collectives take plain numbers of seconds, on the tiny design of `tests.step.tiny`."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from cosmic.design.design_batch import Batch
from cosmic.step.communication import Role
from cosmic.step.device_memory import Footprint, memory_of
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.operator_work import KernelShape, OperatorUse
from cosmic.step.step_profile import CollectiveCost, OperatorCost, profile_step
from tests.step.tiny import batch

COLLECTIVE_LAUNCH_S = {"forward": 0.25, "backward": 0.125}


def operator(
    kind: str,
    phase: Any,
    seconds: float,
    *,
    runs: float = 1.0,
    block: str = "layer",
    launch_s: float = 0.0,
    again: float = 0.0,
) -> OperatorCost:
    """Return an operator of 10 flop a run; *again*: recomputed runs for each other one."""
    use = OperatorUse(kind, kind, block, phase, 10.0, 1.0, runs, KernelShape(), again)
    return OperatorCost(use, runs, seconds, launch_s)


def collective(
    role: Role, phase: str, seconds: float, *, block: str = "layer", calls: float = 1.0, again: float = 0.0
) -> CollectiveCost:
    """Return *calls* collectives that take so many seconds together."""
    return CollectiveCost(role, phase, "all_reduce", ("tp",), calls, 1.0, seconds, block, again)


def plain(
    operators: Iterable[OperatorCost] = (),
    traffic: Iterable[CollectiveCost] = (),
    *,
    update_s: float = 0.0,
    moved: float = 0.0,
    **changes: Any,
) -> Batch:
    """Return a tiny design whose layers, embedding and head have these operators and collectives.

    It takes *update_s* to update a weight; *moved* bytes travel to outer memory.
    """
    made = batch(**changes)
    made.known[KernelCosts] = SimpleNamespace(
        collective_launch_s=COLLECTIVE_LAUNCH_S.__getitem__, update=lambda elements, _: (update_s * elements, 0.0)
    )
    made.known[memory_of] = Footprint({}, tier_traffic=(moved,) * len(made.base.memory.tiers))
    unit = profile_step(made)
    vars(unit)["operators"] = tuple(operators)
    vars(unit)["traffic"] = tuple(traffic)
    return made

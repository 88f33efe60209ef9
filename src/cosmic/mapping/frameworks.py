"""What training frameworks can launch: the values of each switch of a mapping, and the rules between them.

The exporters in `cosmic.launching` say the same of one design, as warnings; a test draws mappings that a framework
allows and exports them without one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cosmic.design.workload import AXES, ContextParallel, Offloaded, Recompute, WeightSharding
from cosmic.errors import UnknownName

Placement = tuple[str, ...]
PIPELINE_OUTSIDE: Placement = AXES
REPLICAS_OUTSIDE: Placement = ("tp", "cp", "pp", "dp")
ANY = "any"


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """What a framework can launch."""

    schedules: tuple[str, ...]
    shardings: tuple[WeightSharding, ...]
    recomputes: tuple[Recompute, ...]
    cp_comm_types: tuple[ContextParallel, ...]
    placements: tuple[Placement, ...] = (PIPELINE_OUTSIDE,)
    tp_overlap: bool = False
    """Whether tensor-parallel communication can overlap compute."""
    ep_overlap: bool = False
    """Whether expert-parallel communication can overlap compute."""
    sequence_parallel: tuple[bool, ...] = (True,)
    stage_layers: bool = True
    """Whether the last pipeline stage can have fewer layers than the others."""
    offloads: tuple[tuple[Offloaded, ...], ...] = ()
    """What outer tiers of memory can hold; activations only without a pipeline."""
    rules: tuple[str, ...] = ()
    """What it demands of a mapping, besides what every mapping must meet."""
    expert_rules: tuple[str, ...] = ()
    """What it demands of a mapping of experts."""


OVERLAPPED_EXPERTS = (
    "not ep_overlap or ep > 1",
    'not ep_overlap or recompute != "full"',
    'not ep_overlap or pp == 1 or schedule in ["interleaved", "dualpipe"]',
)
"""Expert-parallel communication hides behind another microbatch, which the pipeline's schedule must have at hand."""

FRAMEWORKS = {
    "megatron": Framework(
        schedules=("1f1b", "interleaved"),
        shardings=("zero1", "zero3"),
        recomputes=("none", "selective", "full"),
        cp_comm_types=("ring", "all_gather", "ulysses"),
        placements=(PIPELINE_OUTSIDE, REPLICAS_OUTSIDE),
        tp_overlap=True,
        ep_overlap=True,
        sequence_parallel=(True, False),
        offloads=(("optimizer",), ("activations",)),
        rules=('weight_sharding != "zero3" or pp == 1', "not tp_overlap or sequence_parallel"),
        expert_rules=(*OVERLAPPED_EXPERTS, "tp == 1 or sequence_parallel"),
    ),
    "torchtitan": Framework(
        schedules=("1f1b", "interleaved", "zero_bubble", "dualpipe"),
        shardings=("zero3",),
        recomputes=("none", "alternate", "full"),
        cp_comm_types=("ring", "all_gather"),
        tp_overlap=True,
        expert_rules=("(dp * cp) % ep == 0", "etp == tp", "ep == 1 or ep >= cp"),
    ),
    "deepspeed": Framework(
        schedules=("1f1b",),
        shardings=("zero1", "zero2", "zero3"),
        recomputes=("none", "full"),
        cp_comm_types=("ulysses",),
        stage_layers=False,
        offloads=(("optimizer",),),
        rules=('pp == 1 or weight_sharding == "zero1"', 'tp == 1 or weight_sharding != "zero3"'),
        expert_rules=("dp % ep == 0", "etp in [1, tp]"),
    ),
}
FRAMEWORKS[ANY] = replace(
    FRAMEWORKS["megatron"],
    schedules=FRAMEWORKS["torchtitan"].schedules,
    rules=("not tp_overlap or sequence_parallel",),
)
"""By name; ``any`` is what at least one of them, or a researcher's branch of one, can launch."""


def framework_named(name: str) -> Framework:
    """Return a framework by its name."""
    if name not in FRAMEWORKS:
        raise UnknownName.among("--framework", name, "framework", FRAMEWORKS)
    return FRAMEWORKS[name]

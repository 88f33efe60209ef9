"""What of a mapping may be chosen: for one model on one machine, the values of each field and the rules between them.

Values that cannot exist for a model on its machine are left out, and so is what nobody would try: tensor parallelism
across hosts, context parallelism of short sequences, stages that are half empty. A switch without effect (a schedule
without a pipeline) has one value, so that no mapping is met twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import gcd, log2
from operator import mul
from typing import Any

from cosmic.arithmetic import divisors
from cosmic.design.model import Experts, Recommender, Transformer
from cosmic.design.point import DesignPoint
from cosmic.mapping.frameworks import PIPELINE_OUTSIDE, Framework

UNEVEN = 1.15
"""Layers that all stages together have room for, over those there are: 61 layers on 16 stages of 4 are fine."""
HOST = 8
"""Accelerators over which tensor parallelism may span at least, where the innermost dimension is smaller."""
WIDEST = 64
"""Most ways in which tensors are split."""
TOKENS_OF_A_RANK = 2048
"""Least tokens of a sequence that context parallelism leaves to a rank."""
TOKENS_OF_A_PASS = 16_384
"""Tokens up to which a microbatch grows, if it has several sequences; eight are tried in any case."""
FEW = 8
MOST_VIRTUAL = 12
"""Virtual stages of a stage that are tried, at most."""
USUAL_MODULES = ("core_attn",)
BUDGET = 0.95
"""Share of the memory that a mapping may fill: the rest is for what no model of memory knows."""
PASS_TOKENS = 8192
"""Tokens of one forward pass over prompts: the usual max_num_batched_tokens of serving engines."""
SERVED_MICRO_BATCH = {
    "decode": "max(1, global_batch // (dp * pp))",
    "prefill": f"max(1, min({PASS_TOKENS} // sequence, global_batch // dp))",
}
"""What one pass of a replica serves, by task, as an expression of a parameter set."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision: the fields of the workload that it sets, and the values that it may give them, simplest first."""

    fields: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]


def choices(base: DesignPoint, framework: Framework) -> list[Choice]:
    """Return what may be chosen for the task of *base*; dp follows from the other axes."""
    model = base.model
    if isinstance(model, Recommender):
        return [_one("micro_batch", _micro_batches(base))]
    experts, tensor = model.experts, _tensor(model, base)
    found = [_one("tp", tensor), _stages_and_placements(model, base, framework)]
    if experts is not None:
        found.append(_one("ep", divisors(gcd(experts.count, base.network.npus))))
    if base.workload.task != "training":
        return found
    found += [_one("cp", _context(base)), _one("cp_comm_type", framework.cp_comm_types)]
    if experts is not None:
        found.append(_one("etp", tuple(etp for etp in tensor if experts.ffn % etp == 0)))
        found.append(_one("ep_overlap", _switch(framework.ep_overlap)))
    return [
        *found,
        _one("schedule", framework.schedules),
        _one("virtual_stages", _virtual(model, base)),
        _one("micro_batch", _micro_batches(base)),
        _one("weight_sharding", framework.shardings),
        Choice(("recompute", "recompute_modules"), tuple(_recomputes(model, framework))),
        _one("sequence_parallel", framework.sequence_parallel),
        _one("tp_overlap", _switch(framework.tp_overlap)),
    ]


def rules(base: DesignPoint, framework: Framework) -> list[str]:
    """Return the rules between what may be chosen, as constraints of a parameter set."""
    model, workload = base.model, base.workload
    mesh = "dp * tp * cp * pp == npus"
    if isinstance(model, Recommender):
        return [mesh, "global_batch % (dp * micro_batch) == 0"]
    experts = [] if model.experts is None else _expert_rules(model.experts, trained=workload.task == "training")
    if workload.task != "training":
        return [mesh, "global_batch % dp == 0", *experts]
    layers, trips = model.layers + model.encoder_layers, "global_batch // (dp * micro_batch)"
    return [
        mesh,
        "global_batch % (dp * micro_batch) == 0",
        f"{trips} >= pp",
        "cp == 1 or sequence % (2 * cp * tp) == 0",
        "not sequence_parallel or sequence % (cp * tp) == 0",
        "tp > 1 or (sequence_parallel and not tp_overlap)",
        f'cp > 1 or cp_comm_type == "{framework.cp_comm_types[0]}"',
        f'cp_comm_type != "ulysses" or {model.heads} % (tp * cp) == 0',
        f'pp > 1 or schedule == "{framework.schedules[0]}"',
        '(schedule == "interleaved") == (virtual_stages > 1)',
        f"pp * virtual_stages <= {layers}",
        f"{layers} % (pp * virtual_stages) == 0 or virtual_stages in [1, 2, 4]",
        f'schedule != "interleaved" or {trips} % pp == 0',
        f'schedule != "dualpipe" or (pp % 2 == 0 and {trips} % 2 == 0 and {trips} >= 2 * pp)',
        f'dp * cp > 1 or weight_sharding == "{framework.shardings[0]}"',
        *framework.rules,
        *(framework.expert_rules if experts else ()),
        *experts,
    ]


def _expert_rules(experts: Experts, *, trained: bool) -> list[str]:
    if not trained:  # who serves splits experts over tp, as other layers
        return ["(dp * cp) % ep == 0"]
    return [
        "tp % etp == 0",
        "etp == 1 or etp == tp",
        "(tp * cp * dp) % (etp * ep) == 0",
        f"{experts.ffn} % etp == 0",
        "sequence_parallel or (etp * ep) % tp == 0",
    ]


# ------------------------------------------------------------------------------------------------- values


def _one(field: str, values: tuple[Any, ...]) -> Choice:
    return Choice((field,), tuple((value,) for value in values))


def _switch(possible: bool) -> tuple[bool, ...]:
    return (False, True) if possible else (False,)


def scale_up(base: DesignPoint) -> int:
    """Return the accelerators that one fast domain has: those of the innermost dimension, or a host of several."""
    sizes = accumulate((dim.npus for dim in base.network.dims), mul)
    return next((size for size in sizes if size >= HOST), base.network.npus)


def _tensor(model: Transformer, base: DesignPoint) -> tuple[int, ...]:
    shared = gcd(model.heads, model.ffn, base.network.npus)
    return tuple(tp for tp in divisors(shared) if tp <= min(scale_up(base), WIDEST))


def stages(model: Transformer, base: DesignPoint) -> tuple[int, ...]:
    """Return the numbers of stages that use every accelerator and leave none of them much emptier than the others."""
    layers = model.layers + model.encoder_layers
    return tuple(pp for pp in divisors(base.network.npus) if pp <= layers and -(-layers // pp) * pp <= UNEVEN * layers)


def _stages_and_placements(model: Transformer, base: DesignPoint, framework: Framework) -> Choice:
    """Return the stages, each with the orders of axes that differ, and what it may offload where there are tiers."""
    trained = base.workload.task == "training"
    places = framework.placements if trained else (PIPELINE_OUTSIDE,)
    values = [(pp, place) for pp in stages(model, base) for place in (places if pp > 1 else places[:1])]
    if not (base.memory.tiers and trained):
        return Choice(("pp", "placement"), tuple(values))
    away: list[tuple[str, ...]] = [(), *framework.offloads]
    spread = [(pp, place, each) for pp, place in values for each in away if pp == 1 or "activations" not in each]
    return Choice(("pp", "placement", "offload"), tuple(spread))


def _context(base: DesignPoint) -> tuple[int, ...]:
    sequence = base.workload.sequence
    most = max(1, sequence // TOKENS_OF_A_RANK)
    return tuple(cp for cp in divisors(gcd(sequence, base.network.npus)) if cp <= most)


def _virtual(model: Transformer, base: DesignPoint) -> tuple[int, ...]:
    layers = model.layers + model.encoder_layers
    even = {v for pp in stages(model, base) for v in range(2, MOST_VIRTUAL + 1) if pp > 1 and layers % (pp * v) == 0}
    return tuple(v for v in sorted({1, 2, 4} | even) if v == 1 or 2 * v <= layers)


def _micro_batches(base: DesignPoint) -> tuple[int, ...]:
    workload = base.workload
    most = min(workload.global_batch, max(FEW, TOKENS_OF_A_PASS // workload.sequence))
    if isinstance(base.model, Recommender):
        most = workload.global_batch
    return tuple(2**power for power in range(int(log2(most)) + 1))


def _recomputes(model: Transformer, framework: Framework) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the modes of recomputation, those that recompute least first; selective ones with their modules."""
    for mode in framework.recomputes:
        if mode == "selective":
            yield from (("selective", modules) for modules in _modules(model))
        else:
            yield mode, USUAL_MODULES


def _modules(model: Transformer) -> list[tuple[str, ...]]:
    """Return sets of modules that are worth recomputing: cheap ones with large outputs first."""
    if model.experts is None:
        return [("layernorm",), ("mlp",), ("layernorm", "mlp")]
    cheap = ("layernorm", *(("mla_up_proj",) if model.mla else ()), "moe_act")
    return [("moe_act",), cheap, ("moe",)]

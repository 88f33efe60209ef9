"""Tensor parallelism that does not divide a model: what is padded so that every rank holds as much.

Megatron-LM refuses heads and widths that tp does not divide. Others pad them: XLA every dimension that it splits
(GSPMD, arXiv 2105.04663, §3.1), NeuronX Distributed the heads of attention. Ranks then compute, keep and exchange what
no token needs. The vocabulary and groups of keys and values are padded, or copied, by all of them, whether this is
asked for or not: `cosmic.workload.sharding.tensor_sharding.local_size` rounds up.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from cosmic.base.numeric import Numeric
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer


def pads(point: DesignPoint) -> bool:
    """Return whether what tp does not divide is padded in designs like *point*."""
    return point.workload.uneven_tp == "pad" and isinstance(point.model, Transformer)


def rounded_up(size: Numeric, ways: Numeric) -> Numeric:
    """Return the least multiple of *ways* that holds *size*.

    >>> rounded_up(160, 64), rounded_up(160, 32)
    (192, 160)
    """
    return -(-size // ways) * ways


def padded_dimensions(model: Transformer, tp: Numeric, etp: Numeric) -> Mapping[str, Numeric]:
    """Return the sizes of dimensions after padding: of those that tp, or the experts' etp, may not divide.

    >>> wide = Transformer(layers=1, hidden=25600, heads=160, ffn=102400, vocab=51200)
    >>> {name: int(size) for name, size in padded_dimensions(wide, 64, 1).items()}
    {'heads': 192, 'kv_heads': 192, 'ffn': 102400, 'shared_ffn': 0}
    """
    experts = model.experts
    found = {
        **_heads(model, tp),
        "ffn": rounded_up(model.ffn, tp),
        "shared_ffn": rounded_up(experts.shared_ffn if experts else 0, tp),
    }
    if experts:
        found["expert_ffn"] = rounded_up(experts.ffn, etp)
    return found


def uneven_sizes(model: Transformer, tp: int, etp: int) -> list[str]:
    """Return what of a model must be padded for so many ranks, in words.

    >>> uneven_sizes(Transformer(layers=1, hidden=8, heads=8, ffn=12, vocab=10), 8, 1)
    ['feed-forward width of 12']
    """
    sizes = {f"{model.heads} heads": model.heads, f"feed-forward width of {model.ffn}": model.ffn}
    if model.sparse:
        sizes["groups of heads"] = model.sparse.o_groups
    found = [words for words, size in sizes.items() if size % tp]
    if model.experts and model.experts.ffn % etp:
        found.append(f"experts' width of {model.experts.ffn}")
    return found


def _heads(model: Transformer, tp: Numeric) -> dict[str, Numeric]:
    """Return the heads of attention after padding, and the groups that share keys and values.

    A rank's queries read the keys that it has. It has k = ceil(G / tp) of G groups, of H / G queries each; where there
    are fewer groups than ranks, floor(tp / G) ranks at least share one and its queries. Groups of a low-rank projection
    of the output (`model.sparse`) are padded whole. Heads that tp divides stay as they are.
    """
    heads = model.heads
    if model.sparse:
        groups = rounded_up(model.sparse.o_groups, tp)
        return {"heads": groups * (heads // model.sparse.o_groups), "o_groups": groups}
    if model.mla:
        return {"heads": rounded_up(heads, tp)}
    groups = model.kv_heads
    shared = heads // groups
    several = -(-groups // tp) * shared
    few = -(-shared // np.maximum(tp // groups, 1))
    each = np.where(np.asanyarray(groups >= tp), several, few)
    even = np.asanyarray(heads % tp == 0)
    found: Numeric = np.where(even, heads, each * tp)[()]
    return {"heads": found, "kv_heads": np.where(even, groups, rounded_up(groups, tp))[()]}

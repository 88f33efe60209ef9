"""What uneven routing makes of the sizes of a batch of designs (see `cosmic.workload.routing`)."""

from __future__ import annotations

import numpy as np

from cosmic.design.batch import Batch, has_gaps, known
from cosmic.design.combinations import Combinations
from cosmic.design.model import Transformer
from cosmic.numeric import Numeric
from cosmic.workload.blocks import dimensions
from cosmic.workload.routing import fullest_rank, pads_experts, routing_key


def routed_sizes(batch: Batch) -> dict[str, Numeric]:
    """Return the experts of a layer, copies included, and the share of the tokens of one on the fullest rank."""
    model, workload = batch.base.model, batch.base.workload
    if not isinstance(model, Transformer) or model.experts is None:
        return {}
    copies = batch["workload.num_redundant_experts"]
    ranks = Combinations(batch["workload.ep"], batch["workload.moe_routing_skew"], capacity_of(batch), copies)
    how = (pads_experts(model, workload), workload.enable_eplb)
    load, _ = ranks.look_up(fullest_rank, routing_key(model.experts, *how))
    held = model.experts.count + copies
    return {"experts": held, "share": dimensions(model)["share"] * (model.experts.count / held) * load}


def capacity_of(batch: Batch) -> Numeric:
    """Return the capacity factor of each design; 0 where none is stated."""
    stated = batch["workload.moe_expert_capacity_factor"]
    if not has_gaps(stated):
        return 0.0 if stated is None else stated
    numbers = known(stated)
    return np.where(np.isnan(numbers), 0.0, numbers)

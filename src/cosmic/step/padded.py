"""The dimensions of a model that are larger where tensor parallelism pads them, over all ranks of tp."""

from __future__ import annotations

from collections.abc import Mapping

from cosmic.design.batch import Batch
from cosmic.design.model import Model, Transformer
from cosmic.numeric import Numeric
from cosmic.workload.padding import padded_dimensions, pads
from cosmic.workload.sizes import sizes_of


def padded_sizes(batch: Batch, model: Model) -> Mapping[str, Numeric]:
    """Return the sizes of *model* that padding may change: what all accelerators together compute."""
    if not isinstance(model, Transformer) or not pads(batch.base):
        return {}
    sizes = sizes_of(batch)
    return padded_dimensions(model, sizes["tp"], sizes["etp"])

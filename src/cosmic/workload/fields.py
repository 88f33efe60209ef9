"""What rules of a valid mapping read of a batch."""

from __future__ import annotations

from cosmic.design.batch import Batch
from cosmic.design.model import Transformer
from cosmic.numeric import Numeric


def of_workload(batch: Batch, name: str) -> Numeric:
    """Return a field of the workload."""
    value: Numeric = batch[f"workload.{name}"]
    return value


def transformer_of(batch: Batch) -> Transformer | None:
    """Return the model; None if it is no transformer."""
    return batch.base.model if isinstance(batch.base.model, Transformer) else None

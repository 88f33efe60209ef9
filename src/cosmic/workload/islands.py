"""Islands that reduce gradients by themselves and exchange parameters every few steps: `workload.sync_period`."""

from __future__ import annotations

from cosmic.design.batch import Batch
from cosmic.design.workload import Workload
from cosmic.numeric import Numeric

INSIDE = {"dp": "idp", "edp": "iedp"}
"""The part of an axis of replicas inside an island: where islands exchange parameters now and then, weights are sharded
and gradients reduced there alone."""
OUTSIDE = {"dp": "odp", "edp": "oedp"}
"""The part across islands."""


def exchanges_apart(workload: Workload) -> bool:
    """Return whether islands reduce gradients by themselves, and exchange parameters every few steps."""
    return workload.task == "training" and workload.sync_period > 1


def islands_of(batch: Batch) -> Numeric:
    """Return the parts that the outermost network dimension joins: islands of NPUs."""
    islands: Numeric = batch[f"network.dims.{len(batch.base.network.dims) - 1}.npus"]
    return islands

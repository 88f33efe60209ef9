"""Whether islands can exchange parameters every few steps: the rule of `cosmic.workload.checks`, and its sentence."""

from __future__ import annotations

from cosmic.design.batch import Batch
from cosmic.design.model import Recommender, is_moe
from cosmic.design.point import DesignPoint
from cosmic.numeric import Condition
from cosmic.workload.islands import exchanges_apart, islands_of
from cosmic.workload.sizes import expert_degrees


def islands_apart(batch: Batch) -> Condition:
    """Return whether islands that exchange parameters now and then are replicas: only dp joins them."""
    workload, last = batch.base.workload, len(batch.base.network.dims) - 1
    if not exchanges_apart(workload):
        return workload.sync_compression == 1
    if last < 0 or isinstance(batch.base.model, Recommender):
        return False
    outside = workload.placement[workload.placement.index("dp") + 1 :]
    alone: Condition = True
    for axis in outside:
        alone = alone & (batch[f"workload.{axis}"] == 1)
    islands, dp = islands_of(batch), batch["workload.dp"]
    fits: Condition = alone & (dp % islands == 0)
    if not is_moe(batch.base.model):
        return fits
    degrees, ranks = expert_degrees(batch), batch["workload.tp"] * batch["workload.cp"] * dp
    whole: Condition = fits & (ranks % (degrees["etp"] * degrees["ep"] * islands) == 0)
    return whole


def islands_sentence(point: DesignPoint) -> str:
    """Return why islands cannot, and what to change."""
    w = point.workload
    if not exchanges_apart(w):
        return f"sync_compression {w.sync_compression:g} with sync_period {w.sync_period}: set sync_period above 1"
    if isinstance(point.model, Recommender) or not point.network.dims:
        return (
            f"sync_period {w.sync_period}: there are no replicas of a whole model that could exchange it, set it to 1"
        )
    islands = point.network.dims[-1].npus
    return (
        f"sync_period {w.sync_period}: the outermost network dimension joins {islands} islands, which dp {w.dp} must "
        "fill alone: choose a multiple of it as dp, put dp last in placement, and keep ep inside an island"
    )

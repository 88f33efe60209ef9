"""Rules of experts: their mesh lies inside that of a pipeline stage, etp × ep × edp = tp × cp × dp."""

from __future__ import annotations

import numpy as np

from cosmic.design.batch import Batch, has_gaps, known
from cosmic.design.model import Transformer, is_moe
from cosmic.design.point import DesignPoint
from cosmic.numeric import Condition, Numeric
from cosmic.workload.fields import of_workload as _w
from cosmic.workload.fields import transformer_of as _transformer
from cosmic.workload.padding import pads
from cosmic.workload.sizes import expert_degrees


def experts_fit(batch: Batch) -> Condition:
    """Return whether ep divides the experts."""
    model, ep = _transformer(batch), _w(batch, "ep")
    if model is None or model.experts is None:
        return ep == 1
    return (model.experts.count + _w(batch, "num_redundant_experts")) % ep == 0


def experts_sentence(point: DesignPoint) -> str:
    """Say why ep does not fit."""
    experts = point.model.experts if isinstance(point.model, Transformer) else None
    if experts is None:
        return f"ep {point.workload.ep} without experts: the model has none, set ep to 1"
    more = point.workload.num_redundant_experts
    said = f"{experts.count} experts" + (f" and {more} redundant ones" if more else "")
    return f"ep {point.workload.ep} does not divide the {said}: choose a divisor"


def _etp(batch: Batch) -> Numeric:
    return expert_degrees(batch)["etp"]


def shards_fit(batch: Batch) -> Condition:
    """Return whether etp divides tp and the width of experts."""
    model = _transformer(batch)
    if model is None or model.experts is None:
        return _states_no_etp(batch)
    within: Condition = _w(batch, "tp") % _etp(batch) == 0
    return within if pads(batch.base) else within & (model.experts.ffn % _etp(batch) == 0)


def _states_no_etp(batch: Batch) -> Condition:
    """Return whether designs without experts leave etp out, or give it as 1."""
    stated = batch["workload.etp"]
    if has_gaps(stated):
        numbers = known(stated)
        stated_as_1: Condition = np.isnan(numbers) | (numbers == 1)
    else:
        stated_as_1 = True if stated is None else stated == 1
    return stated_as_1


def shards_sentence(point: DesignPoint) -> str:
    """Say why etp does not fit."""
    w = point.workload
    experts = point.model.experts if isinstance(point.model, Transformer) else None
    if experts is None:
        return f"etp {w.etp} without experts: the model has none, leave etp out"
    if w.tp % w.expert_tensor:
        return f"etp {w.etp} does not divide tp {w.tp}: choose a divisor"
    stated = "" if w.etp else ", which is tp where ep leaves it,"
    short = f"etp {w.expert_tensor}{stated} does not divide the experts' width {experts.ffn}"
    return f"{short}: choose a divisor as etp, or set uneven_tp to pad"


def expert_ranks_fit(batch: Batch) -> Condition:
    """Return whether etp and ep divide a stage's ranks."""
    if not is_moe(batch.base.model):
        return True
    return (_w(batch, "tp") * _w(batch, "cp") * _w(batch, "dp")) % (_etp(batch) * _w(batch, "ep")) == 0


def expert_ranks_sentence(point: DesignPoint) -> str:
    """Say that etp and ep do not divide a stage's ranks."""
    w = point.workload
    etp = f"etp {w.etp} × " if w.etp else ""
    return f"{etp}ep {w.ep} does not divide tp × cp × dp = {w.tp * w.cp * w.dp}: choose a divisor"


def expert_tokens_differ(batch: Batch) -> Condition:
    """Return whether ranks of tp with the same tokens have different experts, or different parts of them."""
    workload = batch.base.workload
    if not is_moe(batch.base.model) or (workload.sequence_parallel and workload.task == "training"):
        return True
    return (_etp(batch) * _w(batch, "ep")) % _w(batch, "tp") == 0


def expert_tokens_sentence(point: DesignPoint) -> str:
    """Say that ranks of tp would do the same work."""
    w = point.workload
    other = "set sequence_parallel, or " if w.task == "training" else ""
    return (
        f"etp {w.expert_tensor} × ep {w.ep} does not divide by tp {w.tp}, so that ranks would do the same work: "
        f"{other}leave etp out"
    )

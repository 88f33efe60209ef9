"""What a deployment must meet, besides the rules of a mapping: each a test over many designs, and a sentence."""

from __future__ import annotations

from typing import Any

import numpy as np

from cosmic.design.batch import Batch, batch_of
from cosmic.design.point import DesignPoint
from cosmic.design.serving import Load
from cosmic.errors import require
from cosmic.numeric import Condition
from cosmic.serving.deployment import Deployment, deployment_of, mesh_npus, prefill_npus, ranks_of
from cosmic.workload.checks import RULES, Rule


def _of_network(batch: Batch) -> Any:
    """Return the accelerators of prefill pools that are part of the design's network."""
    layer = batch.base.serving
    elsewhere = layer is not None and layer.prefill is not None and layer.prefill.system is not None
    return 0 if elsewhere else prefill_npus(batch)


def _pools_add_up(batch: Batch) -> Condition:
    taken = np.asarray(mesh_npus(batch), dtype=float) + np.asarray(_of_network(batch), dtype=float)
    alone = np.asarray(prefill_npus(batch)) == 0  # the rule `ranks` is about one pool
    found: Condition = (taken == batch.npus) | alone
    return found


def _pools_sentence(point: DesignPoint) -> str:
    workload, pool = point.workload, point.serving.prefill if point.serving else None
    own = 0 if pool is None or pool.system is not None else pool.npus
    return (
        f"{workload.ranks} NPUs decode (dp {workload.dp} × tp {workload.tp} × cp {workload.cp} × pp {workload.pp}) and "
        f"{own} prefill, {workload.ranks + own} in all, of {point.network.npus} NPUs: make them equal"
    )


def _instances_are_whole(batch: Batch) -> Condition:
    found: Condition = batch["workload.dp"] % ranks_of(batch) == 0
    return found


def _instances_sentence(point: DesignPoint) -> str:
    ranks = int(ranks_of(Batch(point, {})))
    return f"dp {point.workload.dp} does not divide by the {ranks} ranks that share experts: choose a multiple"


def within_context(batch: Batch) -> Condition:
    """Return whether requests, prompt and answer, are as long as the model takes on average; of any class."""
    layer, context = batch.base.serving, getattr(batch.base.model, "context", None)
    if layer is None or context is None:
        return True
    if layer.load.classes:
        return bool(_longest(layer.load) <= context)
    tokens: Any = batch["serving.load.isl"] + batch["serving.load.osl"]
    found: Condition = np.asarray(tokens, dtype=float) <= context
    return found


def _longest(load: Load) -> float:
    return float(max(each.isl + each.osl for each in load.all_classes))


def _context_sentence(point: DesignPoint) -> str:
    longest = _longest(point.serving.load) if point.serving else 0
    context = getattr(point.model, "context", None) or 0
    return (
        f"requests have {longest:,.0f} tokens, prompt and answer; the context of {point.model.name or 'the model'} is "
        f"{context:,} tokens: make them shorter, or set model.context if yours takes more"
    )


def check_context(point: DesignPoint) -> None:
    """Refuse a load of requests that are longer than the model takes, whatever it runs on."""
    tokens = _longest(point.serving.load) if point.serving else 0
    require(bool(within_context(batch_of(point))), "serving.load", f"{tokens:,.0f} tokens", _context_sentence(point))


DEPLOYMENT_RULES = {
    "context": Rule(within_context, _context_sentence),
    "pools": Rule(_pools_add_up, _pools_sentence),
    "instances": Rule(_instances_are_whole, _instances_sentence),
}
"""Every such rule by its name."""
PREFILL = "prefill pool: "
"""Begins what a prefill pool breaks."""


def deployment_reasons(design: DesignPoint) -> tuple[str, ...]:
    """Return which rules of deployments a design breaks, a sentence each."""
    deployment = deployment_of(design)
    said = [rule.sentence(design) for rule in DEPLOYMENT_RULES.values() if not np.all(rule.holds(deployment.batch))]
    if deployment.prefill and not np.all(_instances_are_whole(deployment.prefill.batch)):
        said.append(PREFILL + _instances_sentence(deployment.prefill.design))
    return tuple(said)


def broken_rules(deployment: Deployment) -> dict[str, Any]:
    """Return which deployments break a rule, by its name: one answer, or one for each."""
    found = {name: np.logical_not(rule.holds(deployment.batch)) for name, rule in DEPLOYMENT_RULES.items()}
    if deployment.prefill is None:
        found["ranks"] = np.logical_not(RULES["ranks"].holds(deployment.batch))
    else:
        found[f"{PREFILL}instances"] = np.logical_not(_instances_are_whole(deployment.prefill.batch))
    return found

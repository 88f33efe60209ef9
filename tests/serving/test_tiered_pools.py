"""Pools on a network in tiers: each has the fabric of the network that it is part of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.design.serving_layer import Load, PrefillPool, Serving
from cosmic.search.mapping.design_completion import load_design
from cosmic.serving.closed_form import estimate_deployment
from cosmic.serving.deployment import deployment_of, deployments_of
from tests.leaves import LEAVES

OUTER = "network.dims.1"


def design(share: float, ports: int) -> DesignPoint:
    """Return two instances of 16 accelerators that decode, and one of 8 that prefills: 2 + 2 + 1 nodes."""
    stated = {"task": "decode", "precision": "fp8", "tp": 1, "dp": 40, "global_batch": 40, "sequence": 1000}
    point = load_design("llama3-70b@dgx-h200:40", stated)
    pools = Serving(load=Load(isl=500, osl=200, concurrency=16), prefill=PrefillPool(replicas=1, tp=8))
    mapped = replace(point, workload=replace(point.workload, tp=16, dp=2, global_batch=2), serving=pools)
    fabric = {f"{OUTER}.fabric.build": LEAVES, f"{OUTER}.fabric.radix": ports, f"{OUTER}.oversubscription": share}
    return mapped.changed(fabric)


def tpot_s(point: DesignPoint) -> float:
    return float(np.ravel(estimate_deployment(deployment_of(point)).tpot.mean_s)[0])


@pytest.mark.usefixtures("leaves")
def test_an_instance_pays_only_for_uplinks_that_it_uses() -> None:
    """Two nodes below one leaf of four ports never cross it; on leaves of one node each they do, at 16:1."""
    together, apart, whole = tpot_s(design(16.0, 4)), tpot_s(design(16.0, 2)), tpot_s(design(1.0, 2))
    assert together == whole
    assert apart > together


@pytest.mark.usefixtures("leaves")
def test_pools_keep_the_fabric_of_their_network() -> None:
    found = deployment_of(design(16.0, 4))
    assert found.pool.design.network.dims[1].npus == 4
    assert found.pool.design.network.dims[1].fabric.build == LEAVES
    assert found.prefill is not None
    assert [dim.npus for dim in found.prefill.design.network.dims] == [8]
    ports, share = f"{OUTER}.fabric.radix", f"{OUTER}.oversubscription"
    changes = [{ports: some, share: each} for some in (2, 4) for each in (1.0, 16.0)]
    for rows, each in deployments_of(batch_of_changes(design(1.0, 2), changes)):
        assert each.pool.batch[ports].tolist() == [changes[row][ports] for row in rows]

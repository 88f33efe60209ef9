"""Routing and all-to-alls over arrays: the same bits as one design at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosmic.design.design_batch import Batch, Names
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics

MESH = {"tp": 1, "cp": 1, "pp": 1, "dp": 16, "global_batch": 16, "micro_batch": 1, "sequence": 1024, "ep": 16}


@pytest.mark.parametrize("task", ["training", "prefill", "decode"])
def test_a_batch_has_the_bits_of_its_designs(task: str) -> None:
    served = task != "training"
    stated = {**MESH, "task": task, "enable_eplb": served, "weight_sharding": "none" if served else "zero3"}
    base = load_design("qwen3-30b-a3b@dgx-h200:16", stated, plain=True)
    columns: dict[str, Any] = {
        "workload.moe_routing_skew": np.array([0.0, 0.5, 1.0, 1.0]),
        "workload.num_redundant_experts": np.array([0, 16, 0, 32]) * served,
        "workload.ep": np.array([16, 8, 16, 8]),
        "collective.all_to_all": Names(("hierarchical", "flat"), np.array([0, 1, 1, 0])),
        "network.dims.1.fabric.routing": Names(("adaptive", "ecmp"), np.array([0, 1, 0, 1])),
    }
    for _ in range(3):  # as physics, and as a program
        found = evaluate_batch(Batch(base, columns))
    for row in range(4):
        changes = {path: column[row] for path, column in columns.items()}
        plain = {path: each.item() if hasattr(each, "item") else each for path, each in changes.items()}
        alone = evaluate(base.changed(plain))
        assert isinstance(alone, Metrics)
        assert found.columns["step_s"][row] == alone.step_s

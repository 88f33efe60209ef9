"""What tokens cost: the machine's dollars a second over its tokens a second, however pools share it."""

from __future__ import annotations

import pytest

from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics

LOAD = {"isl": 2000, "osl": 300, "rate": 20, "precision": "fp8", "tp": 1, "prefill.tp": 1}


@pytest.mark.parametrize("decoding", [4, 5, 6])
def test_two_pools_cost_what_their_machine_costs(decoding: int) -> None:
    point = load_design("llama3-70b@dgx-h200:24", {**LOAD, "dp": decoding, "prefill.replicas": 24 - decoding})
    metrics = evaluate(point)
    assert isinstance(metrics, Metrics)
    assert metrics.tokens_per_s == pytest.approx(20 * 300)  # all that is asked for comes out
    assert metrics.cost_usd_per_token is not None
    whole = evaluate(load_design("llama3-70b@dgx-h200:24", {**LOAD, "dp": 24, "prefill.replicas": 0}))
    assert isinstance(whole, Metrics)
    assert metrics.cost_usd_per_token == pytest.approx(whole.cost_usd_per_token)

"""Memory by tier, as a page has it."""

from __future__ import annotations

import pytest

from cosmic.evaluation import evaluate
from cosmic.report.container import plain_data
from cosmic.report.design_view import NamedDesign, design_without_timeline, memory_tiers_of
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics

LLAMA = "llama3-8b@dgx-h100:8"
HOST = {"name": "host", "capacity": "500 GB", "bandwidth": "10 GB/s"}


def metrics(**given: object) -> Metrics:
    found = evaluate(load_design(LLAMA, {"tp": 8, "pp": 1, "cp": 1, "memory.tiers": [HOST]} | given))
    assert isinstance(found, Metrics)
    return found


def test_each_tier_has_what_it_holds_and_what_crosses_its_link() -> None:
    point = load_design(LLAMA, {"tp": 8, "memory.tiers": [HOST], "memory.placement.optimizer": ["host"]})
    shown = plain_data(design_without_timeline(NamedDesign("best", "other", point), "analytic"))
    hbm, host = shown["tiers"]["rows"]
    assert sum(part["bytes"] for part in hbm["parts"]) == pytest.approx(hbm["used_bytes"])
    assert hbm["traffic_bytes"] == 0
    assert [part["label"] for part in host["parts"]] == ["optimizer states"]
    assert host["used_bytes"] == pytest.approx(8.03e9 * 12 / 8, rel=0.01)  # fp32 master copy and two moments
    assert host["traffic_bytes"] == pytest.approx(2 * host["used_bytes"])  # in, and out again
    assert host["capacity_bytes"] == 500e9
    seconds = [part["seconds"] for part in shown["parts"] if part["name"] == "offload"]
    assert seconds == [shown["tiers"]["exposed_s"]]


def test_a_design_without_outer_tiers_has_none() -> None:
    point = load_design(LLAMA, {"tp": 8})
    assert "tiers" not in plain_data(design_without_timeline(NamedDesign("best", "other", point), "analytic"))
    assert memory_tiers_of(metrics()) is None


def test_the_sentence_says_what_transfers_cost() -> None:
    slow = plain_data(memory_tiers_of(metrics(**{"memory.placement.optimizer": ["host"], "workload.global_batch": 8})))
    assert slow is not None
    assert slow["sentence"].startswith("Compute waits ")
    fast = {**HOST, "bandwidth": "10 TB/s"}
    hidden = memory_tiers_of(
        metrics(**{"memory.tiers": [fast], "memory.placement.activations": ["host"], "memory.prefetch": "step"})
    )
    assert hidden is not None
    assert hidden.sentence == "Compute hides all transfers between tiers."
    in_place = {**HOST, "bandwidth": "1 TB/s", "access": "load_store"}
    read = plain_data(memory_tiers_of(metrics(**{"memory.tiers": [in_place], "memory.placement.optimizer": ["host"]})))
    assert read is not None
    assert read["sentence"] == "Nothing is copied between tiers."

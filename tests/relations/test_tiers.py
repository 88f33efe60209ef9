"""What must hold of any design that places its state in tiers of memory."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cosmic.design.design_batch import batch_of, batch_of_changes
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate, evaluate_batch
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Metrics
from cosmic.step.device_memory import memory_of
from tests.relations.engine_agreement import small_design
from tests.relations.hardware_relations import more_memory, more_memory_bandwidth
from tests.relations.metamorphic import Changes
from tests.relations.random_designs import with_placement

APART = 0.15
"""By how much engines may disagree on one design: as much as without tiers."""


def design(place: int) -> DesignPoint:
    return with_placement(small_design(5, place), Random(f"t{place}"))


def changes_of(point: DesignPoint) -> list[Changes]:
    rng = Random(1)
    late = [f"memory.tiers.{place}.latency" for place, each in enumerate(point.memory.tiers) if each.latency_s]
    return [*more_memory_bandwidth(point, rng), *more_memory(point, rng), *({path: 0.0} for path in late)]


@pytest.mark.parametrize("place", range(14))
def test_the_bytes_of_a_class_are_those_of_all_its_tiers(place: int) -> None:
    memory = memory_of(batch_of(design(place)))
    assert memory.placed is not None
    for state, size in memory.placed.sizes.items():
        homes = [float(held) for (_, each), held in memory.placed.homes.items() if each == state]
        assert min(homes) >= 0
        assert sum(homes) == pytest.approx(float(size), rel=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("place", range(8))
def test_more_of_a_tier_is_never_slower_nor_less_feasible(place: int) -> None:
    point = design(place)
    before = evaluate(point)
    changes = changes_of(point)
    found = evaluate_batch(batch_of_changes(point, changes))
    if isinstance(before, Metrics):
        assert found.feasible.all(), [each for each, fits in zip(changes, found.feasible, strict=True) if not fits]
        assert (found.columns["step_s"] <= before.step_s * (1 + 1e-9)).all(), changes


@pytest.mark.parametrize("place", [0, 5, 21, 35, 47])
def test_a_batch_gives_each_design_what_it_has_alone(place: int) -> None:
    point = design(place)
    changes = changes_of(point)[:2]
    found = evaluate_batch(batch_of_changes(point, changes))
    for row, change in enumerate(changes):
        alone = evaluate(point.changed(change))
        assert isinstance(alone, Metrics) == bool(found.feasible[row])
        if isinstance(alone, Metrics):
            assert alone.step_s == found.columns["step_s"][row]


@pytest.mark.parametrize("place", [0, 1, 5, 7, 8, 37, 47])
def test_both_engines_agree_on_designs_with_tiers(place: int) -> None:
    point = design(place)
    closed = evaluate(point)
    if not isinstance(closed, Metrics):
        pytest.skip("it needs more memory than there is")
    assert sum(closed.breakdown.values()) == pytest.approx(closed.step_s, rel=1e-9)
    simulated = evaluate(point, "event")
    assert isinstance(simulated, Metrics)
    assert np.log(simulated.step_s / closed.step_s) == pytest.approx(0.0, abs=APART)


def test_with_one_buffer_both_engines_wait_until_a_layer_is_stored() -> None:
    ssd = {"name": "ssd", "capacity": "10 TB", "bandwidth": "6 GB/s"}
    given = {"tp": 8, "task": "prefill", "global_batch": 16, "micro_batch": 1, "sequence": 2048, "memory.tiers": [ssd]}
    given |= {"memory.placement.kv_cache": ["ssd"], "memory.resident_layers": 1}
    point = load_design("llama3-8b@dgx-h100:16", given)
    closed, simulated = evaluate(point), evaluate(point, "event")
    assert isinstance(closed, Metrics)
    assert isinstance(simulated, Metrics)
    assert simulated.step_s == pytest.approx(closed.step_s, rel=0.02)


HOST = {"name": "host", "capacity": "512 GB", "bandwidth": "25 GB/s"}
SHARDED: dict[str, object] = {
    "dp": 8,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "global_batch": 32,
    "micro_batch": 1,
    "sequence": 2048,
}
SHARDED |= {"weight_sharding": "zero3", "memory.placement.weights": ["host"]}


@pytest.mark.parametrize(
    ("design", "given"),
    [
        # shards are gathered when they have come: with one buffer, all is serial
        ("llama3-8b@dgx-h100:8", {**SHARDED, "task": "prefill", "memory.resident_layers": 1}),
        ("llama3-8b@dgx-h100:8", {**SHARDED, "recompute": "none", "memory.resident_layers": 1}),
        ("llama3-8b@dgx-h100:8", {**SHARDED, "task": "prefill", "memory.resident_layers": 2}),
        # keys and values of decoder layers leave by two buffers, while encoder layers have none to send
        ("t5-3b@dgx-h100:8", {"dp": 8, "task": "prefill", "global_batch": 64, "micro_batch": 1, "sequence": 512}
         | {"memory.placement.kv_cache": ["host"], "memory.tiers": [{**HOST, "bandwidth": "35 GB/s"}]}),
        # the update follows what passes fetch
        ("llama3-8b@dgx-h100:8", {**SHARDED, "weight_sharding": "none", "global_batch": 8, "memory.prefetch": "step"}
         | {"memory.capacity": "200 GB", "recompute": "none"}),
    ],
)  # fmt: skip
def test_both_engines_wait_for_the_same_transfers(design: str, given: dict[str, object]) -> None:
    point = load_design(design, {"memory.tiers": [HOST], **given})
    closed, simulated = evaluate(point), evaluate(point, "event")
    assert isinstance(closed, Metrics)
    assert isinstance(simulated, Metrics)
    assert closed.breakdown["offload"] > 0.1 * closed.step_s
    assert np.log(simulated.step_s / closed.step_s) == pytest.approx(0.0, abs=APART)


def test_a_stage_that_waits_for_its_input_has_filled_its_buffers() -> None:
    given = {"task": "prefill", "tp": 2, "pp": 4, "dp": 1, "cp": 1, "global_batch": 4, "micro_batch": 1}
    given |= {"sequence": 2048, "memory.tiers": [{**HOST, "bandwidth": "5 GB/s"}], "memory.placement.weights": ["host"]}
    found = {}
    for layers in (2, 4):
        point = load_design("llama3-8b@dgx-h100:8", {**given, "memory.resident_layers": layers})
        closed, simulated = evaluate(point), evaluate(point, "event")
        assert isinstance(closed, Metrics)
        assert isinstance(simulated, Metrics)
        assert simulated.step_s == pytest.approx(closed.step_s, rel=0.02)
        found[layers] = closed.breakdown["bubble"]
    layer_s = 218_112_000 / 2 * 2 / 5e9  # parameters of a layer in 16 bits, half of them on a GPU
    assert found[2] - found[4] == pytest.approx(3 * 2 * layer_s, rel=0.06)  # two layers more on three stages


def test_with_one_buffer_shards_come_are_gathered_and_used_in_turn() -> None:
    point = load_design("llama3-8b@dgx-h100:8", {**SHARDED, "task": "prefill", "memory.resident_layers": 1}
                        | {"memory.tiers": [HOST]})  # fmt: skip
    found = evaluate(point)
    assert isinstance(found, Metrics)
    exposed = evaluate(point.changed({"workload.dp_overlap": False, "memory.placement.weights": ("hbm",)}))
    assert isinstance(exposed, Metrics)
    gathers_s = exposed.breakdown["weights"]
    loads_s = 4 * 8.03e9 * 2 / 8 / 25e9  # four microbatches, an eighth of the weights each
    assert found.breakdown["offload"] == pytest.approx(loads_s + gathers_s - found.breakdown["weights"], rel=0.01)


def test_a_decoded_token_fetches_what_it_reads_of_an_encoder_decoder() -> None:
    """Of T5 3B, decoder layers but for the keys and values of the encoder: 6 of 8 matrices of 1024 x 4096."""
    given = {"task": "decode", "dp": 8, "global_batch": 8, "micro_batch": 1, "sequence": 512}
    given |= {"memory.tiers": [{**HOST, "bandwidth": "5 GB/s"}], "memory.placement.weights": ["host"]}
    point = load_design("t5-3b@dgx-h100:8", given)
    closed, simulated = evaluate(point), evaluate(point, "event")
    assert isinstance(closed, Metrics)
    assert isinstance(simulated, Metrics)
    layer = 6 * 1024 * 4096 + 2 * 1024 * 16384 + 3 * 1024
    both_ends = 2 * 32128 * 1024 + 1024
    assert closed.step_s == pytest.approx(2 * (24 * layer + both_ends) / 5e9, rel=1e-3)
    assert simulated.step_s == pytest.approx(closed.step_s, rel=1e-3)

"""Fields of the memory that have no effect are said to have none, and have none."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import stated_memory
from cosmic.design.memory_layer import STATES, Memory, Placement
from cosmic.evaluation import evaluate
from cosmic.search.advice.ineffective_fields import find_ineffective_fields
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from tests.commands import output
from tests.relations.random_designs import random_design, with_placement

LLAMA = "llama3-8b@dgx-h100:8"
TIERS = [
    {"name": "host", "capacity": "512 GB", "bandwidth": "50 GB/s", "processor_bandwidth": "40 GB/s"},
    {"name": "cxl", "capacity": "512 GB", "bandwidth": "50 GB/s", "latency": "1 us", "access": "load_store"},
    {"name": "ssd", "capacity": "4 TB", "bandwidth": "5 GB/s"},
]


def said(given: dict[str, Any]) -> dict[str, str]:
    stated = {f"workload.{key}" for key in given if "." not in key} | stated_memory(LLAMA, given)
    return find_ineffective_fields(load_design(LLAMA, given), stated)


@pytest.mark.parametrize(
    ("given", "path", "reason"),
    [
        ({"memory.placement.kv_cache": ["host"]}, "memory.placement.kv_cache", "the task is training"),
        ({"memory.placement.experts": ["host"]}, "memory.placement.experts", "the model has no experts"),
        (
            {"task": "decode", "memory.placement.optimizer": ["host"]},
            "memory.placement.optimizer",
            "the task is decode",
        ),
        ({"task": "decode", "optimizer_device": "cpu"}, "workload.optimizer_device", "the task is decode"),
        ({"task": "decode", "offload": ["weights", "optimizer"]}, "workload.offload.optimizer", "the task is decode"),
        (
            {"memory.placement.optimizer": ["host"], "offload": ["optimizer"]},
            "workload.offload.optimizer",
            "memory.placement.optimizer says where it is",
        ),
        (
            {"memory.placement.optimizer": ["host"], "memory.resident_layers": 3},
            "memory.resident_layers",
            "no state that layers use is copied from an outer tier",
        ),
        (
            {"memory.tiers": TIERS, "memory.placement.weights": ["host"], "memory.expansion": "parallel"},
            "memory.expansion",
            "no state is in a tier that kernels read in place",
        ),
        ({"memory.tiers": TIERS, "memory.placement.weights": ["cxl"]}, "memory.tiers.2", "nothing is placed in ssd"),
        (
            {"memory.tiers": TIERS, "memory.placement.weights": ["host"]},
            "memory.tiers.0.processor_bandwidth",
            "optimizer_device is gpu",
        ),
        ({"memory.expert_cache": 0.5}, "memory.expert_cache", "the model has no experts"),
    ],
)
def test_a_field_of_the_memory_without_effect_is_said_to_have_none(
    given: dict[str, Any], path: str, reason: str
) -> None:
    assert said({"tp": 8, **given})[path] == reason


@pytest.mark.parametrize(
    "given",
    [
        {"memory.placement.weights": ["host"], "memory.resident_layers": 3, "memory.prefetch": "layer"},
        {"task": "decode", "memory.placement.kv_cache": ["host"], "memory.resident_layers": 1},
        {"memory.placement.activations": ["host"], "offload_num_layers": 2},
        {"memory.tiers": TIERS[::2], "memory.placement.optimizer": ["ssd"], "optimizer_device": "cpu"},
    ],
)
def test_fields_with_an_effect_are_not_noted(given: dict[str, Any]) -> None:
    assert said({"tp": 8, **given}) == {}


def test_routing_skew_matters_where_experts_are_outside() -> None:
    mixture = "mixtral-8x7b@dgx-h100:8"
    given = {"tp": 8, "task": "decode", "moe_routing_skew": 1.0, "memory.placement.experts": ["host"]}
    point = load_design(mixture, {**given, "memory.expert_cache": 0.25, "global_batch": 8, "sequence": 1024})
    assert find_ineffective_fields(point, ["workload.moe_routing_skew"]) == {}
    even = replace(point, workload=replace(point.workload, moe_routing_skew=0.0))
    longer, found = evaluate(even), evaluate(point)
    assert isinstance(longer, Metrics)
    assert isinstance(found, Metrics)
    assert longer.step_s > found.step_s


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 7, 11, 13, 18, 22, 53, 177, 193])
def test_what_is_said_to_have_no_effect_has_none(seed: int) -> None:
    rng = Random(seed)
    point = with_placement(random_design(rng), rng)
    if rng.random() < 0.5:  # classes that this task or model may lack
        other = rng.choice(STATES)
        point = point.changed({f"memory.placement.{other}": (point.memory.tiers[-1].name,)})
    slots = [f"memory.{key}" for key in schema.slots(Memory) if key not in ("tiers", "placement")]
    slots += [f"memory.placement.{key}" for key in schema.slots(Placement)]
    for path in find_ineffective_fields(point, [*slots, "memory.tiers", "workload.optimizer_device"]):
        before, after = _outcome(point), _outcome(_without(point, path))
        assert after == (before if isinstance(before, Infeasible) else pytest.approx(before, rel=1e-12)), path


def _without(point: DesignPoint, path: str) -> DesignPoint:
    """Return the design with a field as if it were not stated; without the tier that *path* names."""
    layer, _, key = path.partition(".")
    if layer == "workload":
        return point.changed({path: "gpu"})
    memory = point.memory
    if key.startswith("tiers."):
        gone = memory.tiers[int(key.removeprefix("tiers."))]
        kept = {state: tuple(t for t in memory.placement.of(state) if t != gone.name) or ("hbm",) for state in STATES}
        tiers = tuple(each for each in memory.tiers if each != gone)
        return replace(point, memory=replace(memory, tiers=tiers, placement=Placement(**kept)))
    if key.startswith("placement."):
        state = key.removeprefix("placement.")
        return point.changed({path: schema.slots(Placement)[state].default})
    return point.changed({path: schema.slots(Memory)[key].default})


def _outcome(point: DesignPoint) -> Any:
    found = evaluate(point)
    if isinstance(found, Infeasible):
        return found
    return [found.step_s, found.throughput_per_s, found.mfu, *found.memory.values()]


def test_the_processor_changes_nothing_where_nothing_is_updated() -> None:
    given = {"tp": 8, "task": "decode", "offload": ["weights"], "memory.tiers": TIERS[:1]}
    plain, on_host = (load_design(LLAMA, {**given, "optimizer_device": each}) for each in ("gpu", "cpu"))
    assert _outcome(plain) == _outcome(on_host)


def test_two_tiers_of_one_name_are_refused() -> None:
    with pytest.raises(SpecError, match=r"memory\.tiers\.1\.name = 'host': names a tier that is already there"):
        load_design(LLAMA, {"tp": 8, "memory.tiers": [TIERS[0], TIERS[0]]})


@pytest.mark.long
def test_the_command_notes_it(capsys: pytest.CaptureFixture[str]) -> None:
    out = output(capsys, "evaluate", LLAMA, "--set", "tp=8", "--set", "memory.placement.kv_cache=[host]")
    assert "\nnote: memory.placement.kv_cache has no effect: the task is training\n" in out

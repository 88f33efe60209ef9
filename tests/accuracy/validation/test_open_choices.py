"""What a row leaves open is the fastest that fits, and a mapping that cannot fit is read anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cosmic.accuracy.measured_rows import CARRIED, Fields, read_rows
from cosmic.accuracy.rows.training_rows import (
    NEAR_BEST,
    RAN,
    SettledChoice,
    StatedMapping,
    needed_share,
    read_design,
    settle_choices,
)
from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import build_machine
from cosmic.design.model_layer import Transformer
from cosmic.design.workload_layer import Workload
from cosmic.search.mapping.mapping_search import step_seconds

MODEL = Transformer(layers=32, hidden=4096, heads=32, ffn=14336, gated=True, norm="rmsnorm", vocab=32000)
MESH = {"tp": 1, "pp": 1, "cp": 1, "dp": 8}


def design(accelerator: str = "H100", capacity: float | None = None, **settings: Any) -> DesignPoint:
    workload = Workload(**{"sequence": 4096, "global_batch": 64, "weight_sharding": "zero1", **MESH, **settings})
    point = build_machine(accelerator, workload.ranks).design(MODEL, workload)
    return point if capacity is None else replace(point, memory=replace(point.memory, capacity_bytes=capacity))


def settled(
    point: DesignPoint, *open_: str, recompute: bool = False, offloads: bool = False
) -> tuple[SettledChoice, str]:
    names = ("tp", "pp", "cp", "dp", "micro_batch", "virtual_stages", "schedule", "weight_sharding")
    held = {name: getattr(point.workload, name) for name in names if name not in open_}
    if "tp" in open_:
        held.pop("dp")
    fields = Fields({})
    found = settle_choices(
        fields, point, StatedMapping(held, frozenset(open_)), recompute_stated=recompute, offloads=offloads
    )
    return found, "; ".join(fields.assumed)


def seconds(point: DesignPoint) -> float:
    return float(step_seconds(batch_of(point))["seconds"][0])


def at_share(point: DesignPoint, share: float) -> DesignPoint:
    """Return *point* on accelerators of which it needs *share* of the memory."""
    needed = needed_share(point) * point.memory.capacity_bytes
    return replace(point, memory=replace(point.memory, capacity_bytes=needed / share))


def test_a_stated_mapping_that_fits_is_left_alone() -> None:
    point = at_share(design(), 0.99)
    assert settled(point) == (SettledChoice(point), "")


def likely(point: DesignPoint, fits: float) -> DesignPoint:
    """Return *point* where it must fit with this probability."""
    return replace(point, memory=replace(point.memory, fits=fits))


def test_a_mapping_that_ran_may_be_one_that_most_likely_does_not_fit() -> None:
    """What decides is whether it fits with 5 %: a run whose mapping is stated ran."""
    point = at_share(likely(design(), RAN), 0.99)
    assert needed_share(likely(point, 0.5)) > 1
    assert settled(point) == (SettledChoice(point), "")
    found, said = settled(at_share(point, 1.01))
    assert found.point != point
    assert "assumed, as it needs" in said


def test_a_row_is_read_with_the_probability_of_a_run_that_ran() -> None:
    row = next(row for row in read_rows(CARRIED / "training_published.csv")[1] if row["id"] == "korth-t5-22B-full")
    assert read_design(Fields(row)).memory.fits == RAN


def test_a_mapping_that_cannot_fit_recomputes_or_shards_whichever_is_faster() -> None:
    point = at_share(design(weight_sharding="none"), 1.5)
    found, said = settled(point)
    assert needed_share(found.point) <= 1
    assert "assumed, as it needs" in said
    sharded = replace(point, workload=replace(point.workload, weight_sharding="zero3"))
    again = replace(point, workload=replace(point.workload, recompute="full"))
    fitting = [each for each in (sharded, again) if needed_share(each) <= 1]
    assert fitting
    assert seconds(found.point) <= min(map(seconds, fitting))


def test_recomputation_that_is_stated_is_kept_where_anything_else_helps() -> None:
    point = at_share(design(weight_sharding="none"), 1.5)
    found, _ = settled(point, recompute=True)
    assert (found.point.workload.recompute, found.point.workload.weight_sharding) == ("none", "zero3")


def test_selective_says_not_what() -> None:
    point = at_share(design(recompute="selective", weight_sharding="zero3"), 1.3)
    found, said = settled(point, recompute=True)
    assert found.point.workload.recompute_modules != ("core_attn",) or found.point.workload.recompute != "selective"
    assert said.startswith("recompute: ")


def test_activations_are_offloaded_only_beside_a_cpu_or_by_frameworks_that_do() -> None:
    point = at_share(design(weight_sharding="zero3", recompute="full", micro_batch=8), 1.15)
    with pytest.raises(SpecError, match="does not fit, however it is read"):
        settled(point, recompute=True)
    found, said = settled(point, recompute=True, offloads=True)
    assert found.point.workload.offload == ("activations",)
    assert "offload: " in said


def test_a_superchip_offloads() -> None:
    point = at_share(design("GB200", weight_sharding="zero3", recompute="full", micro_batch=8), 1.15)
    assert settled(point, recompute=True)[0].point.workload.offload == ("activations",)


def test_a_pipeline_that_cannot_fit_has_other_microbatches() -> None:
    point = at_share(design(pp=4, dp=2, micro_batch=8, schedule="1f1b", global_batch=128), 1.5)
    found, said = settled(point, recompute=True)
    assert found.point.workload.micro_batch < 8
    assert found.point.workload.recompute == "none"
    assert said.startswith("mbs: ")


def test_an_open_microbatch_is_the_fastest_that_fits() -> None:
    point = design("H200", weight_sharding="zero3")
    found, said = settled(point, "micro_batch", recompute=True)
    tried = [replace(point, workload=replace(point.workload, micro_batch=size)) for size in (1, 2, 4, 8)]
    assert seconds(found.point) == min(seconds(each) for each in tried if needed_share(each) <= 1)
    assert "micro_batch" in said
    assert "the fastest that fits" in said
    assert 1 < found.most <= NEAR_BEST
    again, _ = settled(point, "micro_batch")  # recomputing the norms lets it have larger ones
    assert needed_share(again.point) <= 1
    assert seconds(again.point) < seconds(found.point)


def test_an_open_mesh_is_searched_and_its_switches_stay() -> None:
    point = design(tp_overlap=True, weight_sharding="zero1")
    found, _ = settled(point, "tp", "pp", "cp", "micro_batch", "virtual_stages")
    w = found.point.workload
    assert w.ranks == 8
    assert w.tp_overlap
    assert w.weight_sharding == "zero1"
    assert seconds(found.point) <= seconds(design(tp=8, dp=1))


def test_an_open_mesh_that_cannot_fit_is_refused() -> None:
    with pytest.raises(SpecError, match="not published, and none fits"):
        settled(design(capacity=2**30), "tp", "pp", "cp", "micro_batch", "virtual_stages")

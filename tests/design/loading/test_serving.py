"""Designs with a serving section: what files and settings say, and what follows from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_point import full_path
from cosmic.design.loading import design_tree, dump_design
from cosmic.design.plain_data import dump_yaml, parse_yaml
from cosmic.design.serving_layer import Load, RequestClass
from cosmic.search.advice.ineffective_fields import find_ineffective_fields
from cosmic.search.mapping.design_completion import complete_design, load_design

LOAD = {"isl": 1000, "osl": 100, "concurrency": 32}
EIGHT = "llama3-8b@dgx-h100:8"
MESH = {"tp": 2, "pp": 1}


def served(**settings: Any) -> Any:
    return load_design(EIGHT, {**LOAD, **MESH, **settings})


def test_a_load_makes_a_design_that_serves() -> None:
    point = served()
    assert point.serving is not None
    assert point.serving.load == Load(isl=1000, osl=100, concurrency=32)
    assert (point.workload.task, point.workload.sequence, point.workload.dp) == ("decode", 1, 4)


def test_a_design_without_a_load_is_what_it_was() -> None:
    assert load_design("gpt3-175b@cosmic-1024").identity == "a119c0b4b1546383"
    assert "serving" not in design_tree(load_design("gpt3-175b@cosmic-1024"))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"engine": "sglang", "max_num_batched_tokens": 4096, "kv_cache_dtype": "fp8", "memory_fraction": 0.9},
        {"prefill.replicas": 2, "prefill.tp": 1, "ttft_slo": "1 s"},
        {"prefill.replicas": 1, "prefill.system": "dgx-h200", "prefill.tp": 1},
    ],
)
def test_a_written_design_loads_as_itself(settings: dict[str, Any]) -> None:
    point = served(**settings)
    again = load_design(parse_yaml(dump_design(point), "design"))
    assert again == point
    assert again.identity == point.identity != served(osl=101).identity


def test_classes_of_requests_stand_in_place_of_lengths(tmp_path: Path) -> None:
    kinds = [{"name": "chat", "isl": 100, "osl": 10}, {"name": "code", "isl": 400, "osl": 40, "share": 2}]
    tree = {"model": "llama3-8b", "system": "dgx-h100:8", "serving": {"load": {"classes": kinds, "rate": 3}}}
    path = tmp_path / "design.yaml"
    path.write_text(dump_yaml(tree))
    point = load_design(path, MESH)
    assert point.serving is not None
    assert [each.name for each in point.serving.load.all_classes] == ["chat", "code"]
    assert point.serving.load.mean("isl") == 300
    assert load_design(parse_yaml(dump_design(point), "design")) == point


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rate": 3}, "serving.load.rate = 3.0: give either concurrency"),
        ({"task": "training"}, "workload.task = 'training': a design with a serving section serves"),
        ({"task": "prefill"}, "workload.task = 'prefill'"),
        ({"isl": 0}, "serving.load.isl = 0.0: must be at least 1 token"),
        ({"concurrency": 0}, "serving.load.concurrency = 0: must be at least 1"),
        ({"concurrency": -3}, "serving.load.concurrency = -3: must be at least 1"),
        ({"prefix_hit": 1}, "serving.load.prefix_hit = 1.0: must be from 0 to below 1"),
        ({"engine": "vlm"}, "serving.engine = 'vlm': no such engine; did you mean 'vllm'"),
        ({"serving.load.clases": []}, "serving.load.clases = .*did you mean 'classes'"),
        ({"max_num_seqs": 0}, "serving.max_num_seqs = 0: must be at least 1"),
        ({"memory_fraction": 2}, "serving.memory_fraction = 2.0: must be above 0"),
        ({"acceptance": 2}, "serving.acceptance = 2.0: must be from 0 to 1"),
        ({"prefill.tp": 0}, "serving.prefill.tp = 0: must be at least 1"),
        ({"prefill.replicas": -1}, "serving.prefill.replicas = -1: must not be negative"),
        ({"prefill.system": "dgx-h20"}, "serving.prefill.system = 'dgx-h20': no such system"),
        ({"prefill.system": "dgx-h200:8"}, "name it without a number"),
        ({"serving.load.classes": [{"isl": 1, "osl": 1}]}, "serving.load.isl = 1000.0: is of each class"),
        ({"ttft_slo": 3}, "serving.load.ttft_slo = 3"),
        ({"serving": 3}, "serving"),
    ],
)
def test_what_no_load_can_be_is_refused_at_its_place(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        served(**settings)


@pytest.mark.parametrize(
    ("load_of", "said"),
    [
        ({"osl": 3, "rate": 1}, "serving.load.isl = \\(missing\\): is required, or classes"),
        ({"isl": 3, "osl": 3}, "serving.load.concurrency = \\(missing\\): is required, or rate"),
        ({"classes": [], "rate": 1}, "serving.load.isl = \\(missing\\)"),
        ({"isl": 3, "osl": 3, "rate": 3, "rounds": 2}, "serving.load.rounds = 2: is of a closed loop"),
        ({"classes": [{"isl": 1, "osl": 1}, {"isl": 2, "osl": 2}], "rate": 1}, "must have different names"),
        ({"classes": [{"isl": 1, "osl": 1, "share": 0}], "rate": 1}, "serving.load.classes.0.share = 0.0"),
        ({"classes": [{"isl": 1}], "rate": 1}, "serving.load.classes.0.osl = \\(missing\\)"),
    ],
)
def test_what_a_file_gets_wrong_has_its_place(load_of: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        load_design({"model": "llama3-8b", "system": "dgx-h100:8", "serving": {"load": load_of}})


def test_a_mapping_that_nobody_states_is_searched_for_the_load() -> None:
    found = complete_design(EIGHT, LOAD)
    assert found.searched > 1
    assert set(found.suggested) == {"dp", "tp", "cp", "pp", "ep"}
    assert found.point.workload.ranks == 8
    pools = complete_design(EIGHT, {**LOAD, "prefill.replicas": 2})
    assert "prefill.tp" in pools.suggested
    assert pools.point.serving is not None
    assert pools.point.serving.prefill is not None
    assert pools.point.workload.ranks + pools.point.serving.prefill.npus == 8
    assert complete_design(EIGHT, {**LOAD, **MESH, "dp": 4, "ep": 1}).suggested == ()


def test_short_names_of_pools_and_classes_begin_with_them() -> None:
    assert full_path("prefill.tp") == "serving.prefill.tp"
    assert full_path("tp") == "workload.tp"
    assert full_path("isl") == "serving.load.isl"
    assert full_path("prefill.replicas") == "serving.prefill.replicas"
    with pytest.raises(SpecError, match=r"instances that prefill are prefill\.replicas"):
        full_path("replicas")  # it would be taken for whole instances
    with pytest.raises(SpecError, match=r"could be serving\.load\.classes"):
        full_path("share")


def test_a_load_decides_what_a_step_would_state() -> None:
    names = ("sequence", "global_batch", "micro_batch", "task", "recompute", "tp")
    found = find_ineffective_fields(served(), [f"workload.{name}" for name in names])
    assert found == {
        "workload.recompute": "the task is decode",
        **dict.fromkeys(
            [f"workload.{name}" for name in ("global_batch", "micro_batch", "sequence", "task")],
            "the load of requests decides it",
        ),
    }


def test_one_class_is_a_load() -> None:
    assert Load(isl=3, osl=2, rate=1).all_classes == (RequestClass(isl=3, osl=2),)

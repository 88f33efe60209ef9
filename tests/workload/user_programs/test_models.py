"""Programs as models: what they cost, and that they cost what the same model of the catalog does."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest

from cosmic.design import schema
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.loading import dump_design
from cosmic.design.model_layer import count_parameters
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.step.block_memory import ActivationPolicy, saved_bytes
from cosmic.step.step_profile import profile_step
from cosmic.workload.block_plans import plan_of
from cosmic.workload.mesh_sizes import sizes_of
from cosmic.workload.operator_graph import Operator, Tensor
from cosmic.workload.operator_kinds import moved_bytes, moved_elements, operator_flop, unsharded_elements
from cosmic.workload.precision import recipe_for
from cosmic.workload.user_programs.program_models import load_program, model_of
from cosmic.workload.user_programs.program_yaml import read_program

EXAMPLES = Path(__file__).parents[3] / "examples" / "programs"
MESH = {"tp": 8, "pp": 2, "cp": 1, "dp": 4, "global_batch": 64, "micro_batch": 4, "sequence_parallel": False}
PLAIN = {"schedule": "1f1b", "weight_sharding": "zero1", "recompute": "none", "tp_overlap": False, "virtual_stages": 1}
SIZES = {"layers": 24, "hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 50304, "gated": False, "rope": False}


def design(name: str, **changes: Any) -> DesignPoint:
    return load_design(f"{EXAMPLES / name}.yaml@dgx-h100:64", changes)


def sent(point: DesignPoint) -> list[tuple[Any, ...]]:
    """Return the collectives of a step that have more than one member, without names that programs choose."""
    uses = [use for use in profile_step(batch_of(point)).collectives if use.group > 1]
    return sorted((use.phase, use.kind, use.role, float(use.bytes), float(use.calls)) for use in uses)


def test_a_gpt_in_yaml_is_the_catalog_model_of_its_sizes() -> None:
    given = {"model": SIZES, "system": "dgx-h100:64", "workload": {"sequence": 2048}}
    mine, theirs = design("gpt", **MESH, **PLAIN), load_design(given, {**MESH, **PLAIN})
    assert count_parameters(mine.model) == count_parameters(theirs.model) == 1_414_205_440
    assert sent(mine) == sent(theirs)
    ours, catalog = evaluate(mine), evaluate(theirs)
    assert isinstance(ours, Metrics)
    assert isinstance(catalog, Metrics)
    assert ours.step_s == pytest.approx(catalog.step_s, rel=0.005)
    for part in ("weights", "gradients", "optimizer"):
        assert ours.memory[part] == catalog.memory[part]
    # a layer norm of the catalog keeps two statistics of a row, a norm of a program one
    assert ours.memory["activations"] == pytest.approx(catalog.memory["activations"], rel=0.001)


def test_resnet_50_has_the_parameters_and_products_of_the_paper() -> None:
    program = load_program(EXAMPLES / "resnet-50.yaml")
    assert count_parameters(design("resnet-50").model) == 25_557_032
    repeat = {name: part.repeat for part in program.parts for name in part.operators}
    products = sum(
        repeat[each.name]
        * float(operator_flop(each, unsharded_elements(program.sizes), program.sizes))
        / 2
        / program.sizes["batch"]
        for each in program.graph.operators
        if each.kind in ("convolution", "einsum")
    )
    assert products == pytest.approx(4.09e9, rel=0.005)


def test_a_convolution_has_two_flop_per_element_of_its_windows() -> None:
    program = load_program(EXAMPLES / "resnet-50.yaml")
    stem = program.graph.operators[0]
    by_hand = 2 * prod((256, 112, 112, 64)) * 7 * 7 * 3
    assert operator_flop(stem, unsharded_elements(program.sizes), program.sizes) == by_hand


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("resnet-50", {"pp": 4, "global_batch": 512}),
        ("vit", {"tp": 4}),
        ("moe", {"tp": 2, "pp": 2}),
        ("rnn", {"tp": 8}),
        ("dlrm", {}),
        ("gpt", {"tp": 8, "weight_sharding": "zero3"}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_both_engines_agree_on_every_example(name: str, changes: dict[str, Any]) -> None:
    point = design(name, **changes)
    ours, event = evaluate(point), evaluate(point, engine="event")
    assert isinstance(ours, Metrics)
    assert isinstance(event, Metrics)
    assert event.step_s == pytest.approx(ours.step_s, rel=0.06)


def test_experts_split_over_replicas_are_reached_by_all_to_alls() -> None:
    """128 experts with 16 slots of 2,048 elements for each of 64 groups; two devices share an expert's products."""
    found = [each for each in sent(design("moe", tp=2, pp=2)) if each[1] == "all_to_all"]
    local = 2 * 16 * 128 * 16 * 2048 / 16  # bytes: a group on each of 16 replicas
    assert [each[3] for each in found] == [local] * 4


def test_tables_of_a_dlrm_are_reached_by_all_to_alls() -> None:
    kinds = [each[:2] for each in sent(design("dlrm")) if each[1] == "all_to_all"]
    assert kinds == [("backward", "all_to_all"), ("forward", "all_to_all"), ("forward", "all_to_all")]


def test_a_recurrence_runs_a_kernel_at_each_step() -> None:
    uses = {
        each.use.name: each for each in profile_step(batch_of(design("rnn"))).operators if each.use.phase == "forward"
    }
    assert float(uses["from_h"].use.steps) == 256
    per_step = 2 * float(uses["from_h"].use.kernel.shape.m) * 4096 * 4096  # type: ignore[union-attr]
    assert float(uses["from_h"].use.flop) == 256 * per_step


def test_pictures_split_by_rows_exchange_boundary_rows() -> None:
    point = design("u-net", tp=4, pp=1, dp=16, micro_batch=1)
    rows = [each for each in sent(point) if each[1] == "collective_permute" and each[0] == "forward"]
    assert len(rows) == 20  # two for each of ten convolutions of three rows
    assert min(each[3] for each in rows) == 2 * 128 * 3  # a row of a picture of three colours, in bf16
    ours, event = evaluate(point), evaluate(point, engine="event")
    assert isinstance(ours, Metrics)
    assert isinstance(event, Metrics)
    assert event.step_s == pytest.approx(ours.step_s, rel=0.05)


def test_an_axis_that_no_annotation_names_is_infeasible() -> None:
    found = evaluate(design("resnet-50", tp=2, pp=1, dp=32, cp=1))
    assert isinstance(found, Infeasible)
    assert "no annotation of the program names tp" in found.reasons[0]


def test_a_program_decodes_nothing() -> None:
    found = evaluate(design("gpt", task="decode", tp=8, dp=8, pp=1, cp=1, global_batch=64))
    assert isinstance(found, Infeasible)
    assert any("KV cache" in reason for reason in found.reasons)


def test_annotations_can_be_set_beside_those_of_the_file() -> None:
    split = {"model.annotations": {"w_s1_first_a": ["_", "_", "_", "tp"]}, "tp": 2, "pp": 1, "cp": 1, "dp": 32}
    assert isinstance(evaluate(design("resnet-50", **split)), Metrics)


def test_a_design_with_a_program_says_all_of_it(tmp_path: Path) -> None:
    point = design("vit", tp=4, pp=1)
    file = tmp_path / "design.yaml"
    file.write_text(dump_design(point))
    assert load_design(file) == point


def test_a_program_is_searched_like_any_model() -> None:
    point = design("gpt", global_batch=128)
    assert point.workload.ranks == 64
    assert isinstance(evaluate(point), Metrics)


def test_sequence_and_batch_come_from_the_workload() -> None:
    short, long = (evaluate(design("gpt", **MESH, **PLAIN, sequence=size)) for size in (1024, 2048))
    assert isinstance(short, Metrics)
    assert isinstance(long, Metrics)
    assert long.memory["activations"] > 1.9 * short.memory["activations"]


def test_views_of_what_is_kept_are_kept_once() -> None:
    dims = {"batch": 4, "wide": 8, "groups": 2, "own": 3, "heads": 6, "out": 5}
    split, out = ["batch", "groups", "own"], ["groups", "own", "out"]
    operators = [
        {"name": "made", "einsum": ["x", "w"], "to": split, "weights": {"w": ["wide", "groups", "own"]}},
        {"name": "seen", "reshape": "made", "to": ["batch", "heads"]},
        {"name": "again", "reshape": "seen", "to": split},
        {"name": "one", "einsum": ["again", "u"], "to": ["batch", "out"], "weights": {"u": out}},
        {"name": "two", "einsum": ["made", "v"], "to": ["batch", "out"], "weights": {"v": out}},
        {"name": "y", "add": ["one", "two"]},
    ]
    tree = {"dims": dims, "inputs": {"x": ["batch", "wide"]}, "operators": operators}
    program = read_program({**tree, "annotations": {"w": ["_", "tp", "_"]}}, "views")
    axes = {"tp": 2, "dp": 1, "pp": 1, "cp": 1, "global_batch": 4, "micro_batch": 4}
    point = load_design({"model": schema.write_value(model_of(program)), "system": "dgx-h100:2"}, {**axes, **PLAIN})
    (block,) = plan_of(batch_of(point))
    kept = saved_bytes(block, ActivationPolicy(), sizes_of(batch_of(point)), recipe_for(point.workload))
    assert float(kept) == 2 * (4 * 2 * 3 / 2)  # bf16, half of the groups on each device; x is an input


def test_a_gather_reads_what_it_picks() -> None:
    values, index = Tensor("table", ("rows", "wide"), "weight"), Tensor("index", ("batch",), element_bytes=8)
    operator = Operator("y", "gather", (values, index), (Tensor("y", ("batch", "wide")),), whole=("rows",))
    local = unsharded_elements({"rows": 1000, "wide": 16, "batch": 4})
    assert moved_elements(operator, local) == 4 * 16 + 4 * 16 + 4
    assert moved_bytes(operator, local, 2) == 2 * (4 * 16 + 4 * 16) + 8 * 4

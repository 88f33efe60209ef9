"""What automatic sharding finds, against all shardings, against XLA, and against the planner of designs."""

from __future__ import annotations

from collections import Counter
from itertools import product as all_of
from math import inf
from pathlib import Path

import numpy as np
import pytest

import cosmic
from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of
from cosmic.design.plain_data import dump_yaml
from cosmic.search.sharding.automatic_sharding import shard
from cosmic.search.sharding.program_parts import (
    Part,
    count_shared_once,
    design_with,
    load_sharded_design,
    program_parts,
    strategy_tables,
)
from cosmic.search.sharding.sharding_costs import operator_splits, tensor_shardings
from cosmic.step.kernel_costs import KernelCosts
from cosmic.step.step_profile import profile_step
from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.sharding.resharding import reshard
from cosmic.workload.sharding.tensor_sharding import Sharding
from cosmic.workload.user_programs.program_graph import Program
from tests.search.sharding.programs import chain, drawn, product, transformer

BYTES = 2


def least_bytes(program: Program, axis: int) -> float:
    """Try every split of every operator and every sharding of every tensor; each resharding by itself."""
    axes, sizes = ("x",), {**program.sizes, "x": axis}
    part = Part("p", program.graph, training=False)
    tensors = list(part.graph.tensors.values())
    adds = {each.name for operator in part.graph.operators if operator.kind == "add" for each in operator.inputs}
    readers = Counter(tensor.name for operator in part.graph.operators for tensor in operator.inputs)
    states = {
        tensor.name: tensor_shardings(tensor, axes, sizes, pending=tensor.name in adds and readers[tensor.name] == 1)
        for tensor in tensors
    }
    ways: dict[object, float] = {}

    def between(tensor: Tensor, source: Sharding, target: Sharding) -> float:
        key = (tensor.dims, source, target)
        if key not in ways:
            ways[key] = reshard(tensor.dims, source, target, sizes)[1]
        return ways[key]

    best = inf
    for chosen in all_of(*(states[tensor.name] for tensor in tensors)):
        kept = {tensor.name: sharding for tensor, sharding in zip(tensors, chosen, strict=True)}
        total = 0.0
        for operator in part.graph.operators:
            total += min(
                sum(between(each, kept[each.name], split.reads(each, kept[each.name])) for each in operator.inputs)
                + sum(between(each, split.makes(each, kept[each.name]), kept[each.name]) for each in operator.outputs)
                + (1e9 if operator.kind == "einsum" and not any(split.split.values()) else 0.0)
                for split in operator_splits(operator, axes, sizes)
            )
            if total >= best:
                break
        best = min(best, total)
    return BYTES * best


@pytest.mark.parametrize("seed", range(12))
def test_small_programs_are_sharded_as_the_best_of_all_shardings(seed: int) -> None:
    program = drawn(seed)
    found = shard(program, "x=2", training=False)
    assert found.value == pytest.approx(least_bytes(program, 2))
    assert found.gap <= 1e-9


def test_a_small_batch_is_sharded_as_in_megatron() -> None:
    held = {"x": ["_", "_", "_"], "out": ["_", "_", "_"]}
    found = shard(transformer(1, 64), "tp=8", annotate=held)
    for weight, split in {"w_q": "heads: tp", "w_o": "heads: tp", "w_up": "ffn: tp", "w_down": "ffn: tp"}.items():
        assert str(found.sharding(weight)) == split
    sent = Counter((each.kind, each.phase) for each in found.collectives)
    assert sent == {("all_reduce", "forward"): 2, ("all_reduce", "backward"): 2}
    stream = 64 * 1024 * BYTES
    assert found.value == 4 * 2 * 7 / 8 * stream == pytest.approx(found.bound)


def test_a_large_batch_is_data_parallel_and_with_little_memory_fully_sharded() -> None:
    program = transformer(512, 1024)
    free = shard(program, "dp=8")
    assert str(free.sharding("x")) == "batch: dp"
    assert {each.tensor for each in free.collectives} == {
        "d_w_q", "d_w_k", "d_w_v", "d_w_o", "d_w_up", "d_w_down"
    }  # fmt: skip
    weights = 4 * 1024**2 + 2 * 1024 * 4096
    each = 2 + 2 + 4  # bf16 weights, gradients and two moments
    tight = shard(program, "dp=8", memory=free.memory_bytes - weights * each * 7 / 8)
    assert tight.fits
    assert tight.memory_bytes == pytest.approx(free.memory_bytes - weights * each * 7 / 8)
    assert all("dp" in tight.sharding(each).used for each in ("w_q", "w_k", "w_v", "w_o", "w_up", "w_down"))
    assert Counter(each.kind for each in tight.collectives) == {"all_gather": 12, "reduce_scatter": 6}
    assert free.value == 2 * 7 / 8 * weights * BYTES == pytest.approx(tight.value * 2 / 3)


def test_memory_that_suffices_for_some_weights_is_used_for_them() -> None:
    program = transformer(512, 1024)
    free = shard(program, "dp=8")
    half = shard(program, "dp=8", memory=free.memory_bytes - 30e6)
    assert half.fits
    split = [each for each in half.annotations if each.role == "weight" and each.sharding.used]
    assert 0 < len(split) < 6
    assert half.bound <= half.value
    nothing = shard(program, "dp=8", memory="1 MB")
    assert not nothing.fits


def test_the_least_memory_splits_all_that_can_be_split() -> None:
    found = shard(transformer(8, 64), "x=8", objective="memory")
    assert found.value == found.memory_bytes == pytest.approx(found.bound)
    assert all("x" in each.sharding.used for each in found.annotations if each.role == "weight")


def test_the_planner_gives_what_the_search_claims() -> None:
    for annotate in ({"A": ["_", "y"], "B": ["y", "x"]}, {"C": ["y", "x"], "A": ["x", "y"]}):
        found = shard(product(), "x=2,y=8", annotate=annotate, objective="bytes", training=False)
        assert found.value == pytest.approx(found.searched_value)
        assert found.value == pytest.approx(found.wire_bytes)


def test_deep_graphs_are_solved_exactly() -> None:
    found = shard(chain(20), "x=2,y=2")
    assert found.operators > 200
    assert found.gap <= 1e-6


def test_three_axes_have_a_bound_below_what_was_found() -> None:
    found = shard(chain(2), "x=2,y=2,z=2", training=False, annotate={"x0": ["x", "_"]})
    assert 0 <= found.bound <= found.value


def test_as_compiled_follows_annotations_by_the_rules_of_xla() -> None:
    held = {"w_q": "[_, tp, _]", "w_k": "[_, tp, _]", "w_v": "[_, tp, _]", "w_o": "[tp, _, _]"}
    held |= {"w_up": "[_, tp]", "w_down": "[tp, _]", "x": "[_, _, _]"}
    texts = [f"{name}: {entries}" for name, entries in held.items()]
    found = shard(transformer(8, 64), "tp=8", annotate=texts, mode="as_compiled", training=False)
    assert [each.kind for each in found.collectives] == ["all_reduce", "all_reduce"]
    assert found.mode == "as_compiled"


@pytest.mark.parametrize("mode", ["best", "as_compiled"])
def test_a_weight_of_two_parts_is_held_once(mode: str) -> None:
    """The head of GPT-3 125M is its embedding: 125,226,240 parameters of 2 bytes; with gradients and moments, 8."""
    forward, trained = (
        shard("gpt3-125m", "dp=1", batch=8, mode=mode, training=training)  # type: ignore[arg-type]
        for training in (False, True)
    )
    assert forward.memory_bytes == 2 * 125_226_240
    layer = trained.memory_bytes - 8 * 125_226_240  # what is left are activations
    doubled = shard("gpt3-125m", "dp=1", batch=16, mode=mode)  # type: ignore[arg-type]
    assert doubled.memory_bytes == 8 * 125_226_240 + 2 * layer


def test_a_weight_of_two_parts_is_updated_once() -> None:
    found = shard("gpt3-125m", "dp=1", system="dgx-h100", batch=8)
    kernels = KernelCosts(batch_of(load_sharded_design(found.design)))
    assert found.update == pytest.approx(float(kernels.update(125_226_240)[0]), rel=1e-9)


def test_the_part_that_is_repeated_most_counts_a_shared_weight() -> None:
    x, w, y = Tensor("x", ("a", "b")), Tensor("w", ("b", "c"), "weight"), Tensor("y", ("a", "c"))
    graph = Graph((Operator("y", "einsum", (x, w), (y,)),))
    parts = [Part(name, graph, True, repeats, {"w": "w"}) for name, repeats in (("one", 1), ("two", 3), ("three", 3))]
    found = count_shared_once(parts)
    assert [each.counted_elsewhere for each in found] == [{"w"}, frozenset(), {"w"}]


def test_compiled_memory_counts_shardings_that_no_search_tries() -> None:
    """Three axes that split one dimension in an order of their own: 1/8 of x and of y on each device, 2 bytes each."""
    x, w, y = Tensor("x", ("a", "b"), "input"), Tensor("w", ("b", "c"), "weight"), Tensor("y", ("a", "c"))
    program = Program("p", Graph((Operator("y", "einsum", (x, w), (y,)),)), {"a": 64, "b": 4, "c": 2})
    found = shard(program, "k=2,l=2,m=2", annotate={"x": ["m+k+l", "_"]}, mode="as_compiled")
    assert str(found.sharding("x")) == "a: m k l"
    assert found.memory_bytes == 2 * 64 * 4 / 8 + 8 * 4 * 2


@pytest.mark.parametrize(("limit", "fits"), [(3_700_000_000, False), (3_800_000_000, True)])
def test_least_memory_fits_if_it_is_within_the_limit(limit: float, fits: bool) -> None:
    """Half of 8 × 125,226,240 bytes of weights and their states, and of 6,528,991,232 bytes of activations."""
    found = shard("gpt3-125m", "dp=2", batch=8, objective="memory", memory=limit)
    assert found.memory_bytes == (8 * 125_226_240 + 6_528_991_232) / 2
    assert found.fits is fits


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "strategies").mkdir()
    monkeypatch.setenv("COSMIC_PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(("mesh", "batch"), [("dp=8", 8), pytest.param("x=2,y=4", 2, marks=pytest.mark.long)])
def test_a_design_with_the_strategy_has_the_claimed_seconds(mesh: str, batch: int, folder: Path) -> None:
    found = cosmic.model.shard("gpt3-125m", mesh, system="dgx-h100", batch=batch, sequence=1024)
    tables = strategy_tables(found, f"auto_{batch}")  # strategies are read once
    for name, table in tables.items():
        (folder / "strategies" / f"{name}.yaml").write_text(dump_yaml(table))
    point = cosmic.load_design(design_with(found, list(tables)))
    step = profile_step(batch_of(point), "first")
    compute = sum(float(each.seconds * each.runs) for each in step.operators)
    sent = [each for each in step.collectives if np.any(each.group > 1)]
    hidden = sum(float(each.calls * step.seconds(each)) for each in sent if each.role == "weights")
    exposed = sum(float(each.calls * step.seconds(each)) for each in sent if each.role != "weights")
    # A plan serves all sizes: it decides how sums and offsets are split at usual ones, and not at those of this design.
    off = 0.005 if batch == 2 else 1e-9
    assert compute == pytest.approx(found.compute, rel=off)
    assert exposed == pytest.approx(found.exposed, rel=off)
    assert hidden == pytest.approx(found.hidden, rel=off)
    assert isinstance(cosmic.evaluate(point), cosmic.design.Metrics)


def test_a_program_has_the_batch_and_the_sequence_that_are_given() -> None:
    small, large = (shard(transformer(8, 512), "dp=2,tp=4", batch=n, sequence=m) for n, m in ((16, 256), (8, 512)))
    stated = shard(transformer(16, 256), "dp=2,tp=4")
    assert small.memory_bytes != large.memory_bytes
    assert shard(transformer(8, 512), "dp=2,tp=4").memory_bytes == large.memory_bytes
    assert small.value == stated.value
    assert small.memory_bytes == stated.memory_bytes
    with pytest.raises(SpecError, match="batch = 8: dot has no dimension of this name"):
        shard(product(), "x=4", batch=8)
    with pytest.raises(SpecError, match="batch = 0: must be at least 1"):
        shard(transformer(8, 512), "dp=2,tp=4", batch=0)


def test_queries_of_a_program_see_half_of_the_keys() -> None:
    parts = program_parts(transformer(8, 4), training=False)
    assert parts.sizes["visible"] == 5 / 8  # 1, 2, 3 and 4 keys of 4
    assert program_parts(product(), training=False).sizes["visible"] == 1


def test_memory_decides_between_equals_alone() -> None:
    heads = [f"w_{name}: [_, y, _]" for name in "qkv"]
    free, megatron = (shard(transformer(8, 512), "x=2,y=4", system="dgx-h100", annotate=each) for each in ((), heads))
    assert free.value <= megatron.value * (1 + 1e-9)
    assert free.bound <= free.value


def test_the_first_dimension_may_be_left_open() -> None:
    found = shard(transformer(8, 512), "x=2,y=4", annotate=["w_up: [?, y]"])
    assert "y" in found.sharding("w_up").axes("ffn")

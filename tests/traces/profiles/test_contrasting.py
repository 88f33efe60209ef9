"""What differs between two traces, on small recorded ones whose times are worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.search.compare.predicted_step_trace import predict_side
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import compute_step_seconds
from cosmic.step.step_profile import profile_step
from cosmic.traces.profiles.trace_contrast import (
    TraceSide,
    classify_kernel,
    common_length,
    contrast_sides,
    critical_path,
    device_idle,
    identical_traces,
    side_of_traces,
    span_s,
    work_shape,
)
from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, TraceSet, template_of

GEMM = "gemm bf16 1 64 32 16"
ADD = "stream bf16 elementwise 200 100 50 50 1 128"


def rows(gemm_ns: int = 100, add_ns: int = 40, launch_ns: int = 10) -> list[dict[str, Any]]:
    """A launch, a GEMM, an addition that starts 5 ns after it, and an all-reduce beside the last 20 ns of that."""
    begun = launch_ns + 20
    added = begun + gemm_ns + 5
    host = {"id": 0, "type": NodeType.COMP, "name": "aten::mm", "on_cpu": 1, "stream": 1}
    gemm = {"id": 1, "type": NodeType.COMP, "name": "nvjet", "work": GEMM, "num_ops": 65536, "tensor_size": 7168}
    add = {"id": 2, "type": NodeType.COMP, "name": "add_kernel", "work": ADD, "num_ops": 50, "tensor_size": 300}
    reduce = {"id": 3, "type": NodeType.COMM_COLL, "name": "nccl", "comm_type": CollectiveType.ALL_REDUCE}
    return [
        host | {"start_ns": 0, "duration_ns": launch_ns},
        gemm | {"start_ns": begun, "duration_ns": gemm_ns, "stream": 7, "data": [0], "ctrl": [0]},
        add | {"start_ns": added, "duration_ns": add_ns, "stream": 7, "data": [0, 1]},
        reduce | {"start_ns": added + add_ns - 20, "duration_ns": 50, "stream": 8, "data": [1], "comm_size": 4096},
    ]


def traces(*ranks: Sequence[dict[str, Any]]) -> TraceSet:
    return TraceSet(tuple(RankTrace(template_of(each)) for each in ranks), "x")


def side(*ranks: Sequence[dict[str, Any]], steps: int = 1) -> TraceSide:
    return side_of_traces(traces(*ranks), steps=steps)


def ns(seconds: float | None) -> int:
    assert seconds is not None
    return round(seconds * 1e9)


def test_a_span_is_operators_less_overlap_and_idle_time() -> None:
    found = side(rows())
    # launch 0-10, GEMM 30-130, addition 135-175, all-reduce 155-205
    assert ns(found.span_s) == 205
    assert (ns(found.sum_s(communicated=False)), ns(found.sum_s(communicated=True))) == (140, 50)
    assert (ns(found.overlap_s), ns(found.idle.host_s), ns(found.idle.gaps_s)) == (20, 30, 5)


def test_the_critical_path_adds_up_to_the_span() -> None:
    found = critical_path(template_of(rows()))
    # The all-reduce waited for the GEMM, 25 ns after its end; that for the launch, 20 ns after its.
    assert [ns(each) for each in (found.communication_s, found.compute_s, found.host_s)] == [50, 100, 10]
    assert (ns(found.delay_s), found.nodes) == (45, 3)


def test_differences_of_operators_overlap_and_idle_time_explain_that_of_the_spans() -> None:
    found = contrast_sides(side(rows()), side(rows(gemm_ns=80, add_ns=70, launch_ns=50)))
    assert found.spans is not None
    assert ns(found.spans[1] - found.spans[0]) == 50  # 20 less, 30 more, and launched 40 later
    changes = {name: ns(b - a) for name, (a, b) in found.parts.items()}
    assert changes == {
        "GEMMs": -20,
        "memory operators": 30,
        "communication": 0,
        "overlap": 0,
        "idle: host": 40,
        "idle: gaps": 0,
    }
    assert ns(found.beside_operators_s) == 40
    assert [(row.name, ns(row.difference_s)) for row in found.rows] == [("add_kernel", 30), ("nvjet", -20), ("nccl", 0)]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 300), st.booleans()), max_size=12), st.integers(1, 3))
def test_parts_add_up_whatever_ran_when(kernels: list[tuple[int, int, bool]], steps: int) -> None:
    nodes = [
        {"id": at, "type": 7 if sends else 4, "start_ns": start, "duration_ns": took, "name": f"k{at}"}
        for at, (start, took, sends) in enumerate(kernels)
    ]
    found = contrast_sides(side(nodes, steps=steps), side(rows()))
    assert found.totals[0] == pytest.approx(sum(a for a, _ in found.parts.values()), abs=1e-15)
    if nodes:
        whole = span_s(template_of(nodes))
        busy = len({at for start, took, _ in kernels for at in range(start, start + took)})
        assert ns(device_idle(template_of(nodes)).total_s) == ns(whole) - busy


def test_rates_are_those_of_all_runs_of_an_operator() -> None:
    found = contrast_sides(side(rows()), side(rows(gemm_ns=50)), "kernel")
    gemm = next(row for row in found.rows if row.work == GEMM)
    assert gemm.a.flop_per_s == pytest.approx(65536 / 100e-9)
    assert gemm.b.flop_per_s == pytest.approx(65536 / 50e-9)
    assert gemm.a.bytes_per_s == pytest.approx(7168 / 100e-9)


def test_kernels_of_one_side_only_are_told() -> None:
    other = [*rows()[:2], rows()[2] | {"name": "triton_poi_fused_add"}, rows()[3]]
    found = contrast_sides(side(rows()), side(other))
    assert [row.name for row in found.only_in("a")] == ["add_kernel"]
    assert [row.name for row in found.only_in("b")] == ["triton_poi_fused_add"]
    assert (found.order is not None, found.order and found.order.same) == (True, 2)


def test_kernels_whose_work_one_side_does_not_know_meet_by_name() -> None:
    unknown = [{name: value for name, value in each.items() if name != "work"} for each in rows()]
    found = contrast_sides(side(rows()), side(unknown))
    assert (found.only_in("a"), found.only_in("b")) == ([], [])
    assert found.order is not None
    assert found.order.same == 3


def test_amounts_are_means_over_ranks_and_steps() -> None:
    found = side(rows(gemm_ns=100), rows(gemm_ns=300))
    gemm = next(each for what, each in found.operators.items() if what.work == GEMM)
    assert (gemm.count, ns(gemm.seconds)) == (1.0, 200)
    halved = side(rows(), steps=2)
    assert ns(halved.span_s * 2 if halved.span_s else None) == 205
    assert {each.count for each in halved.operators.values()} == {0.5}


def test_collectives_are_told_by_kind_bytes_and_size_of_their_group() -> None:
    found = side(rows(), rows())
    assert "all_reduce 4096 2" in {what.work for what in found.operators}


def test_identical_traces_are_told_from_those_with_another_dependency() -> None:
    assert identical_traces(traces(rows()), traces(rows()))
    other = [*rows()[:3], rows()[3] | {"data": [2]}]
    assert not identical_traces(traces(rows()), traces(other))
    assert not identical_traces(traces(rows()), traces(rows(), rows()))
    assert not identical_traces(traces(rows()), traces([*rows()[:2], rows()[2] | {"work": GEMM}, rows()[3]]))


def test_an_empty_trace_has_nothing_and_no_span() -> None:
    found = contrast_sides(side([]), side([]))
    assert (found.rows, found.spans, found.totals) == ((), None, (0, 0))


def test_a_trace_without_starts_is_compared_by_its_durations() -> None:
    plain = [{"id": 0, "type": 4, "name": "layer0.forward", "duration_us": 7}]
    plain += [{"id": 1, "type": 4, "name": "layer0.optimizer", "duration_us": 2}]
    found = side(plain)
    assert (found.kind, found.span_s) == ("generated", None)
    assert {what.of.text: ns(each.seconds) for what, each in found.operators.items()} == {
        "compute": 7000,
        "optimizer": 2000,
    }


def slow_common_length(a: str, b: str) -> int:
    """The longest subsequence of *a* that is one of *b*, by trying all."""

    def within(short: Sequence[str]) -> bool:
        left = iter(b)
        return all(each in left for each in short)

    return max(size for size in range(len(a) + 1) for each in combinations(a, size) if within(each))


@settings(max_examples=30)
@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_the_longest_common_subsequence_is_the_longest(a: str, b: str) -> None:
    assert common_length(a, b) == slow_common_length(a, b)


@pytest.mark.parametrize(
    ("name", "work", "operators", "expected"),
    [
        ("nvjet_sm90_tst", "", (), "GEMMs"),
        ("void cublasLt::splitKreduce_kernel", ADD, ("aten::mm",), "GEMMs"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_bprop", "", (), "attention: backward"),
        ("void cudnn::fusion::convert_dq_to_16bits", ADD, (), "attention: backward"),
        ("reduce_kernel", ADD, ("aten::sum", "autograd::engine::evaluate_function: AddmmBackward0"), "biases"),
        ("CatArrayBatchedCopy", ADD, ("aten::cat",), "layout"),
        ("k", ADD, ("aten::copy_", "aten::_to_copy", "aten::to"), "layout"),
        ("k", ADD, ("aten::add", "aten::layer_norm"), "adds"),
        ("cunn_SoftMaxForward", ADD, ("aten::_log_softmax",), "embedding and loss: loss"),
        ("multi_tensor_apply_kernel", "", (), "optimizer"),
        ("elementwise_kernel", ADD, ("aten::mul", "Optimizer.step#AdamW.step"), "optimizer"),
        ("Memcpy DtoH (Device -> Pinned)", "copy_d2h uint8 4", ("aten::item",), "copies"),
        ("unheard_of", "", (), "memory operators: other"),
        ("k", "made up", (), "memory operators: other"),
    ],
)
def test_classes_of_kernels(name: str, work: str, operators: tuple[str, ...], expected: str) -> None:
    assert classify_kernel(name, work, operators).text.endswith(expected)


# ---- designs


def test_the_parts_of_a_design_are_its_step() -> None:
    from cosmic.design.design_batch import batch_of  # noqa: PLC0415

    for source, changes in (
        ("gpt3-1.3b@dgx-h200:1", {"micro_batch": 1}),
        ("llama3-8b@dgx-h100:16", {"tp": 2, "pp": 2, "layers": 4, "global_batch": 32}),
    ):
        point = load_design(source, changes)
        found = predict_side(point)
        assert found.span_s == pytest.approx(float(compute_step_seconds(batch_of(point)).seconds))
        whole = contrast_sides(found, found)
        assert sum(a for a, _ in whole.parts.values()) == pytest.approx(found.span_s)
        assert found.overlap_s is not None
        assert found.overlap_s > -1e-3 * (found.span_s or 0.0)


def test_gemms_of_a_design_have_the_operations_and_seconds_of_its_profile() -> None:
    from cosmic.design.design_batch import batch_of  # noqa: PLC0415

    point = load_design("gpt3-1.3b@dgx-h200:1", {"micro_batch": 1})
    gemms = [cost for cost in profile_step(batch_of(point), "first").operators if cost.use.kind == "einsum"]
    found = [each for what, each in predict_side(point).operators.items() if what.of.group == "GEMMs"]
    assert sum(each.flop for each in found) == pytest.approx(sum(float(each.runs * each.use.flop) for each in gemms))
    assert sum(each.seconds for each in found) == pytest.approx(sum(float(each.runs * each.seconds) for each in gemms))


def test_a_recorded_gemm_meets_the_part_of_the_design_that_has_its_shape() -> None:
    point = load_design("gpt3-1.3b@dgx-h200:1", {"micro_batch": 1})
    design = predict_side(point)
    # 2,048 tokens, 2,048 hidden, 50,257 tokens of vocabulary; Q, K and V may be one GEMM; a gradient may be transposed
    works = {
        "gemm bf16 1 2048 6144 2048": "GEMMs: projections",
        "gemm bf16 1 6144 2048 2048": "GEMMs: projections",
        "gemm bf16 1 8192 2048 2048": "GEMMs: feed-forward",
        "gemm bf16 1 7 7 7": "GEMMs: other",
    }
    nodes = [
        {"id": at, "type": 4, "name": "nvjet", "work": work, "start_ns": at, "duration_ns": 1}
        for at, work in enumerate(works)
    ]
    found = contrast_sides(side(nodes), design, "kernel")
    classes = {row.work: row.of for row in found.rows if row.a.count}
    assert classes == {work_shape(work): part for work, part in works.items()}


def test_a_design_and_recorded_kernels_are_not_compared_by_name() -> None:
    design = predict_side(load_design("gpt3-1.3b@dgx-h200:1", {"micro_batch": 1}))
    with pytest.raises(SpecError, match="by class or kernel"):
        contrast_sides(side(rows()), design, "name")

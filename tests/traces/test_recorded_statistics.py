"""Where the time of a recorded rank went, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, template_of
from cosmic.traces.trace_statistics import coarse_kernel_class, recorded_statistics


def node(
    number: int, start: int, took: int, *data: int, on_cpu: int = 0, stream: int = 7, **more: Any
) -> dict[str, Any]:
    """Return a recorded node; times are nanoseconds."""
    row = {"id": number, "type": NodeType.COMP, "start_ns": start, "duration_ns": took, "on_cpu": on_cpu}
    return row | {"stream": 0 if on_cpu else stream, "data": data} | more


def step() -> RankTrace:
    """A launch, a GEMM, a kernel launched late, and a collective half of which the second kernel overlaps.

    host       |0 launch 100|           |200 launch 300|
    stream 7            |100  GEMM  200|       |310 add 410|
    stream 8                                         |360 all-reduce 460|
    """
    gemm, added = "gemm bf16 1 10 10 10", "stream bf16 elementwise 40 20 10 10 1 32"
    return RankTrace(
        template_of(
            [
                node(0, 0, 100, on_cpu=1, name="cudaLaunchKernel"),
                node(1, 100, 100, 0, name="nvjet", work=gemm, num_ops=2000, tensor_size=600),
                node(2, 200, 100, 0, on_cpu=1, name="cudaLaunchKernel"),
                node(3, 310, 100, 1, 2, name="add", work=added, num_ops=10, tensor_size=60),
                node(4, 360, 100, 2, stream=8, name="nccl", type=NodeType.COMM_COLL, comm_size=1000)
                | {"comm_type": CollectiveType.ALL_REDUCE},
            ]
        )
    )


def test_time_is_given_out_by_cause() -> None:
    found = recorded_statistics(step())
    assert found is not None
    nanoseconds = {
        "span_s": 460,
        "kernel_s": 200,
        "busy_s": 100 + 150,  # 100 to 200, 310 to 460
        "launch_bound_s": 100 + 100,  # until the first launch was done, and from 200 to the end of the second at 300
        "gaps_s": 10,  # from 300 to 310
        "communication_s": 100,
        "overlapped_s": 50,
        "exposed_s": 50,
        "host_s": 200,
    }
    assert {name: round(1e9 * getattr(found, name)) for name in nanoseconds} == nanoseconds
    assert (found.kernels, found.streams) == (2, 2)


def test_classes_and_kernels_state_what_they_reached() -> None:
    found = recorded_statistics(step())
    assert found is not None
    classes = {each.name: each for each in found.classes}
    assert set(classes) == {"GEMMs", "memory operators", "collectives"}
    assert classes["GEMMs"].flop_per_s == pytest.approx(2000 / 100e-9)
    assert classes["memory operators"].bytes_per_s == pytest.approx(60 / 100e-9)
    assert classes["collectives"].flop_per_s is None
    assert classes["collectives"].bytes_per_s == pytest.approx(1000 / 100e-9)
    assert found.flop_per_s == pytest.approx(2010 / 460e-9)
    assert [each.name for each in found.top] == ["nvjet", "add", "nccl"]


def test_a_trace_that_was_not_recorded_has_none() -> None:
    assert recorded_statistics(RankTrace(template_of([{"id": 0, "type": NodeType.COMP, "duration_us": 5}]))) is None


def test_a_kernel_whose_work_is_not_known_reaches_nothing_known() -> None:
    found = recorded_statistics(RankTrace(template_of([node(0, 0, 10, name="mystery")])))
    assert found is not None
    assert [(each.name, each.flop_per_s, each.bytes_per_s) for each in found.classes] == [
        ("memory operators", None, None)
    ]


@pytest.mark.parametrize(
    ("work", "name", "expected"),
    [
        ("attention bf16 1 1 1 8 8 8 8 1", "flash_fwd", "attention"),
        ("stream bf16 elementwise 8 8 8 8 1 32", "flash_bwd_dot_do_o", "attention"),
        ("stream fp32 optimizer 8 8 8 8 1 32", "multi_tensor_apply_kernel", "optimizer"),
        ("memset uint8 4", "Memset (Device)", "copies and fills"),
        ("copy_h2d uint8 4", "Memcpy HtoD", "copies and fills"),
        ("", "ampere_sgemm_128x64", "GEMMs"),
        ("", "cudnn::winograd_nonfused", "convolutions"),
        ("", "Memcpy DtoD (Device -> Device)", "copies and fills"),
        ("", "triton_poi_fused_add_0", "memory operators"),
    ],
)
def test_kernels_are_classed_by_their_work_or_else_by_their_name(work: str, name: str, expected: str) -> None:
    assert coarse_kernel_class(work, name) == expected

"""Kernels of CUDA graphs take the works of the same kernels in a recording without graphs."""

from __future__ import annotations

from cosmic.step.kernel_prices import KernelWork, parse_work
from cosmic.traces.profiles.operator_kernels import KernelLaunch, works_by_kernel

NVJET, ADD = "nvjet_sm90_tst_256x128", "vectorized_elementwise_kernel<8>"


def gemm(rows: int) -> KernelWork:
    """Return a GEMM of some rows."""
    return parse_work(f"gemm bf16 1 {rows} 8 8")


def test_kernels_of_a_graph_take_works_in_order() -> None:
    launch = KernelLaunch((132,), (384,))
    known = [(NVJET, launch, gemm(1)), (NVJET, launch, gemm(2)), (ADD, launch, None)]

    assert works_by_kernel([(NVJET, launch)] * 4, known) == [gemm(1), gemm(2), gemm(1), gemm(2)]
    assert works_by_kernel([(NVJET, launch)], known) == [gemm(1)]
    assert works_by_kernel([(NVJET, KernelLaunch((131,), (384,))), (ADD, launch)], known) == [None, None]


def test_memsets_of_a_graph_say_what_they_move() -> None:
    assert works_by_kernel([("Memset (Device)", KernelLaunch(bytes=8))], []) == [parse_work("memset uint8 8")]

"""Kernels of a recorded step are priced as physics and the calibrated models say, on any accelerator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.design.compute_layer import Compute
from cosmic.design.machine_layers import accelerator_layers
from cosmic.design.memory_layer import Memory
from cosmic.design.schema import get_field
from cosmic.step.gemm import Gemm, matrix_unit
from cosmic.step.kernel_launches import CONSTANTS as LAUNCHES
from cosmic.step.kernel_prices import (
    ISSUED_FLOP_PER_S,
    SIZES,
    KernelWork,
    RecordedKernels,
    kernel_seconds,
    parse_work,
    price_kernel,
    profile_constants,
)
from cosmic.step.kernel_prices import WALKS as ALL_WALKS
from cosmic.step.streaming import Stream
from tests.batches import check_all

H200 = accelerator_layers("h200-sxm-141gb", "accelerator")
START_S = profile_constants().start_s
WALK_COSTS = {walk.walk: walk for walk in profile_constants().walks}
MICRO = 1e-6
BUSY = ["gemm bf16 1 8192 8192 8192"] * 9 + ["stream bf16 elementwise 2000000 1000000 0 500000 0 0"]


def ideal(**given: Any) -> tuple[Compute, Memory]:
    """Return an accelerator of 1 TB/s without SMs, that loses nothing."""
    fields: dict[str, Any] = {
        "bf16_flop_per_s": 1e14,
        "fp32_flop_per_s": 1e13,
        "gemm_efficiency": 1.0,
        "memory_efficiency": 1.0,
    }
    return Compute(**(fields | {"launch_s": 0.0} | given)), Memory(capacity_bytes=1e12, bandwidth_bytes_per_s=1e12)


def micro(text: str, layers: tuple[Compute, Memory] = H200, idle: float = 0.0) -> float:
    """Return the microseconds of one kernel alone."""
    return float(kernel_seconds([parse_work(text)], *layers, idle=idle)[0]) / MICRO


def test_a_gemm_without_sms_is_a_roofline() -> None:
    # 2 x 1000^3 flop at 1e14 a second, or at 1e13 in single precision; or 2 x (2 x 1000 + 1000 x 1000) bytes at 1 TB/s
    assert micro("gemm bf16 1 1000 1000 1000", ideal()) == pytest.approx(20)
    assert micro("gemm fp32 1 1000 1000 1000", ideal()) == pytest.approx(200)
    assert micro("gemm bf16 1 1000 1000 1", ideal()) == pytest.approx(2.004)


def test_a_stream_takes_its_bytes_and_a_start() -> None:
    # 300 MB at 1 TB/s, without arithmetic
    seconds = micro("stream bf16 elementwise 200000000 100000000 0 0 0 0", ideal())

    assert seconds == pytest.approx(300 + START_S / MICRO)


def test_arithmetic_beside_memory_rounds_the_corner() -> None:
    # 100 us of bytes; 1e9 operations at 1e13 a second take as long: the cube root of 2 times longer than either
    seconds = micro("stream bf16 elementwise 100000000 0 1000000000 0 0 0", ideal())

    assert seconds == pytest.approx(100 * 2 ** (1 / 3) + START_S / MICRO)


def test_places_of_strided_elements_are_computed() -> None:
    # 1e7 elements x operations of the walk at 1e13 a second, with no bytes
    work = "stream bf16 {walk} 0 0 0 10000000 0 0"
    found = {walk: micro(work.format(walk=walk), ideal()) for walk in ("elementwise", "strided")}

    for walk, took in found.items():
        each = WALK_COSTS[walk]
        assert took == pytest.approx(each.operations + (START_S + each.wait_s) / MICRO)


def test_few_blocks_read_at_the_rate_of_few_sms() -> None:
    sizes = "stream bf16 elementwise 100000000 0 0 0 {blocks} 1024"
    few, many = micro(sizes.format(blocks=33)), micro(sizes.format(blocks=1000))
    start = START_S / MICRO

    assert (few - start) / (many - start) == pytest.approx(132 / (33 * 1.25))


def test_rows_of_a_softmax_wait_in_waves() -> None:
    wave = 132 * 2  # blocks of 1,024 threads
    one, four = (micro(f"stream bf16 softmax 0 0 0 0 {count * wave} 1024") for count in (1, 4))

    assert four - one == pytest.approx(3 * WALK_COSTS["softmax"].wait_s / MICRO)


def test_an_optimizer_runs_in_waves_of_two_blocks_an_sm() -> None:
    # 264 blocks of 65,536 weights fill an H200 once; the 265th begins a wave of its own
    walk = WALK_COSTS["optimizer"]
    weights = 65536
    full, more = (
        micro(f"stream bf16 optimizer {8 * n * weights} {6 * n * weights} 0 {n * weights} {n} 512") for n in (264, 265)
    )

    assert full == pytest.approx((START_S + 264 * weights * 14 / (4.8e12 * 0.9 * walk.pace)) / MICRO)
    assert more - full == pytest.approx(walk.element_wait_s * 128 / MICRO, rel=0.01)


def test_a_wave_of_chunks_takes_at_least_what_its_threads_wait() -> None:
    # Two full waves of 264 blocks and no bytes: 128 elements for each of 512 threads, twice
    took = micro(f"stream bf16 optimizer 0 0 0 {2 * 264 * 65536} {2 * 264} 512")

    assert took == pytest.approx((START_S + 2 * 128 * WALK_COSTS["optimizer"].element_wait_s) / MICRO)


def test_a_thread_follows_its_indices_one_after_another() -> None:
    # 1 block of 512 threads has 16 of 8,192 rows for each
    took = micro("stream bf16 gather 0 0 0 8192 1 512")

    assert took == pytest.approx((START_S + 16 * WALK_COSTS["gather"].element_wait_s) / MICRO)


def test_copies_and_memsets_move_their_bytes() -> None:
    start = START_S / MICRO

    assert micro("memset uint8 1000000", ideal()) == pytest.approx(1 + start)
    assert micro("copy_d2d uint8 1000000", ideal()) == pytest.approx(2 + start)
    assert micro("copy_h2d uint8 35000000", ideal()) == pytest.approx(1000 + 2 * start)


def test_the_backward_kernel_leaves_out_what_others_stream() -> None:
    whole = "attention_backward bf16 4 16 16 2048 2048 128 128 1"
    forward = micro(whole.replace("_backward", ""), idle=0.9)

    assert 2 < micro(whole, idle=0.9) / forward < 4


def test_attention_multiplies_at_the_rate_of_its_number_format() -> None:
    compute, memory = H200
    sizes = np.array([[33], [4], [4], [128], [1024], [128], [128], [0]], dtype=float)

    took = float(RecordedKernels(compute, memory).heavy("attention", "fp32", sizes, 1.0)[0])

    # 132 tiles on 132 SMs: 4 x 33 x 4 x 128 x 1024 x 128 = 8.858e9 FLOP at 0.704 of 58.29 TFLOP/s, and 2.2 us
    assert took == pytest.approx(8.858370048e9 / (0.704 * 58.29e12) + 2.2e-6)


@pytest.mark.parametrize("kind", ["attention", "attention_backward"])
def test_attention_in_single_precision_is_below_its_peak(kind: str) -> None:
    work = parse_work(f"{kind} fp32 16 8 8 196 196 64 64 0")

    assert work.flop / (micro(work.text) * MICRO) < 67e12


def test_few_queries_take_as_long_as_their_cache_is_read() -> None:
    # 32 x 8 x 4096 keys and values of 128 numbers are 537 MB, at 4.32 TB/s
    assert micro("attention bf16 32 32 8 1 4096 128 128 0") == pytest.approx(124, rel=0.05)


def test_overlapping_windows_are_read_once() -> None:
    # A 3 x 3 convolution moves its tensors, not the nine times larger matrix of windows
    took = micro("convolution bf16 1 802816 64 576 205852672", ideal(bf16_flop_per_s=1e18))

    assert took == pytest.approx(205.852672, rel=0.02)


def test_a_depthwise_convolution_runs_outside_the_matrix_units() -> None:
    # 96 channels of 10,000 places, any window: 960,000 elements of 600 operations at 1e13 a second take 57.6 us,
    # and so do the gradients of input and weight. 57.6 MB at 1 TB/s as well: the cube root of 2 times longer
    took = pytest.approx(57.6 * 2 ** (1 / 3) + START_S / MICRO)
    slow = ideal(bf16_flop_per_s=1e9)

    assert micro("convolution bf16 96 10000 1 49 57600000", slow) == took
    assert micro("convolution bf16 96 1 49 10000 57600000", slow) == took
    # Groups of 8 channels, and one group of few, are GEMMs: 2 x 10000 x 8 x 72 x 12 flop at 1e9 a second
    assert micro("convolution bf16 12 10000 8 72 100", slow) == pytest.approx(138_240, rel=0.4)
    assert micro("convolution bf16 1 10000 1 49 100", slow) == pytest.approx(980, rel=0.4)


def test_a_depthwise_convolution_takes_what_was_measured() -> None:
    # One H200: 149 us of cuDNN's kernel, 7 x 7, forward; 181 us of PyTorch's, a window of 4
    assert micro("convolution bf16 96 200704 1 49 77079744") == pytest.approx(149, rel=0.25)
    assert micro("convolution bf16 2048 8204 1 4 67174400") == pytest.approx(181, rel=0.25)


def test_a_kernel_of_a_design_and_the_same_kernel_recorded_have_one_price() -> None:
    compute, memory = H200
    unit = matrix_unit(lambda key: get_field(compute, key), memory.bandwidth_bytes_per_s)
    cool = replace(unit, sustained=1.0)  # what a step that hardly multiplies leaves of the power limit
    gap_s = LAUNCHES.fused_gap_s  # between kernels: part of a launch, not of a kernel's own time

    dense = price_kernel(Gemm(1, 4096, 3072, 1024), cool) - gap_s
    experts = price_kernel(Gemm(8, 4096 / 8 + 64, 3072, 1024), cool) - gap_s  # half of each one's last tile is empty

    assert micro("gemm bf16 1 4096 3072 1024", idle=0.99) == pytest.approx(float(dense) / MICRO)
    assert micro("grouped_gemm bf16 8 4096 3072 1024", idle=0.99) == pytest.approx(float(experts) / MICRO)


def test_a_shape_at_rates_of_another_kind_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="Stream are no rates of a Gemm"):
        price_kernel(Gemm(1, 1, 1, 1), Stream(1e12))


# ---- power


def test_products_that_fill_a_step_run_at_the_power_limit() -> None:
    price = RecordedKernels(*H200)

    # s = 0.798: with all else at 0.45 of the limit, half of the time leaves (1 - 0.225) / 0.5 = 1.55 of its power
    assert price.allowed(1.0) == pytest.approx(0.798)
    assert price.allowed(0.5) == pytest.approx(0.798 * 1.55**0.4)
    assert price.allowed(0.01) == 1.0


def test_pauses_make_products_faster_and_streams_no_slower() -> None:
    works = [parse_work(text) for text in BUSY]
    busy, idle = (kernel_seconds(works, *H200, idle=share) for share in (0.0, 0.6))

    assert busy[0] / idle[0] == pytest.approx(1 / 0.798, rel=0.03)
    assert busy[-1] == idle[-1]


def test_short_gemms_slow_down_as_long_ones_do() -> None:
    works = [parse_work(text) for text in ("gemm bf16 1 16384 8192 8192", "gemm bf16 1 4096 4096 4096")]
    busy, idle = (kernel_seconds(works, *H200, idle=share) for share in (0.0, 0.8))
    long, short = busy / idle

    assert short == pytest.approx(long, rel=0.03)


def test_a_power_cap_slows_products_down() -> None:
    compute, memory = H200
    works = [parse_work(text) for text in BUSY]
    capped = kernel_seconds(works, replace(compute, power_cap_w=350.0), memory)

    assert capped[0] > 1.2 * kernel_seconds(works, *H200)[0]


# ---- any of them


def test_works_that_are_not_known_have_no_price() -> None:
    found = kernel_seconds([None, parse_work("memset uint8 4"), None], *H200)

    assert np.isnan(found).tolist() == [True, False, True]
    assert len(kernel_seconds([], *H200)) == 0


def test_equal_works_have_equal_prices_in_their_places() -> None:
    texts = ["memset uint8 4", "gemm bf16 1 512 512 512", "memset uint8 4", "gemm bf16 1 512 512 512"]
    found = kernel_seconds([parse_work(text) for text in texts], *H200)

    assert found[0] == found[2] != found[1] == found[3]


def test_a_share_of_idle_time_outside_its_bounds_is_refused() -> None:
    for share in (-0.1, 1.0):
        with pytest.raises(SpecError, match=r"^idle"):
            kernel_seconds([], *H200, idle=share)


def test_every_walk_has_a_price() -> None:
    assert set(WALK_COSTS) == set(ALL_WALKS)


def any_works() -> list[KernelWork]:
    """Return works of every kind, walk and number format, large and empty."""
    found = []
    for kind, names in SIZES.items():
        for dtype in ("bf16", "fp16", "fp32", "tf32", "fp64", "fp8", "fp4", "int8"):
            for walk in ALL_WALKS if kind == "stream" else ("",):
                for size in (0, 1, 100):
                    found.append(KernelWork(kind, dtype, (size,) * len(names), walk))
    return found


@check_all("name", catalog_entries.entry_names("accelerators"), tests=2)
def test_every_accelerator_prices_every_work(name: str) -> None:
    found = kernel_seconds(any_works(), *accelerator_layers(name, "accelerator"))

    assert np.isfinite(found).all()
    assert (found >= 0).all()


@pytest.mark.parametrize(
    ("faster", "slower"), [("b200-sxm-180gb", "h200-sxm-141gb"), ("h100-sxm-80gb", "a100-sxm-80gb")]
)
@pytest.mark.parametrize(
    "text",
    [
        "gemm bf16 1 8192 8192 8192",
        "attention bf16 4 16 16 4096 4096 128 128 1",
        "stream bf16 elementwise 400000000 200000000 200000000 100000000 50000 128",
        "stream bf16 strided 400000000 200000000 200000000 100000000 50000 128",
    ],
)
def test_a_newer_accelerator_is_faster(faster: str, slower: str, text: str) -> None:
    assert micro(text, accelerator_layers(faster, "x")) < micro(text, accelerator_layers(slower, "x"))


def test_an_sm_with_few_lanes_of_single_precision_still_issues_as_much() -> None:
    a100 = accelerator_layers("a100-sxm-80gb", "x")
    took = micro("stream bf16 strided 0 0 0 100000000 50000 128", a100)

    assert took == pytest.approx(WALK_COSTS["strided"].operations * 1e8 / (108 * ISSUED_FLOP_PER_S) / MICRO, rel=0.01)


def test_half_the_work_takes_no_longer() -> None:
    for text in ("gemm bf16 1 {} 4096 4096", "stream bf16 elementwise {0} {0} {0} {0} 999 128", "copy_d2d uint8 {}"):
        half, whole = micro(text.format(4096)), micro(text.format(8192))
        assert half <= whole


def test_a_convolution_whose_windows_overlap_multiplies_slower_than_a_gemm() -> None:
    # A window of 1 x 1 reads what a GEMM reads. A larger one does not, and multiplies at a lower rate, less a little
    # that the chip then draws less power
    gemm = micro("gemm bf16 1 10000 1000 9000")
    operands = 2 * (10000 * 9000 + 1000 * 9000 + 10000 * 1000)
    assert micro(f"convolution bf16 1 10000 1000 9000 {operands}") == gemm
    overlapping = micro("convolution bf16 1 10000 1000 9000 1000000")
    assert overlapping / gemm == pytest.approx(1 / profile_constants().windowed, rel=0.1)
    assert profile_constants().windowed < 0.8

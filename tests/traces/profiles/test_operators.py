"""Shapes of operators and names of kernels say what each kernel computes; where they do not, nothing is made up."""

from __future__ import annotations

from typing import Any

import pytest

from cosmic.step.kernel_prices import KernelWork
from cosmic.traces.profiles.operator_kernels import KernelLaunch, operator_works
from cosmic.traces.profiles.profiled_operators import ProfiledOperator, ProfiledTensor

NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
ADD = "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, 3>"
STRIDED = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<direct_copy_kernel_cuda>>"


def bf16(*shape: int, at: int = 0, strides: tuple[int, ...] = ()) -> ProfiledTensor:
    """Return a tensor of 16 bits on a GPU."""
    return ProfiledTensor(shape, "bf16", strides, at, "cuda:0")


def texts(
    operator: ProfiledOperator | None, *names: str, launches: tuple[KernelLaunch | None, ...] = ()
) -> list[str | None]:
    """Return the works of kernels as text."""
    return [work.text if work else None for work in operator_works(operator, names, launches)]


# ---- products


@pytest.mark.parametrize(
    ("name", "inputs", "text"),
    [
        ("aten::mm", (bf16(8, 4), bf16(4, 6)), "gemm bf16 1 8 6 4"),
        ("aten::mm", (bf16(8, 4), bf16(4, 6), bf16(8, 6)), "gemm bf16 1 8 6 4"),
        ("aten::addmm", (bf16(6), bf16(8, 4), bf16(4, 6), 1, 1), "gemm bf16 1 8 6 4"),
        ("aten::bmm", (bf16(3, 8, 4), bf16(3, 4, 6)), "gemm bf16 3 8 6 4"),
        ("aten::baddbmm", (bf16(3, 8, 6), bf16(3, 8, 4), bf16(3, 4, 6)), "gemm bf16 3 8 6 4"),
        ("aten::linear", (bf16(2, 8, 4), bf16(6, 4), bf16(6)), "gemm bf16 1 16 6 4"),
        ("aten::matmul", (bf16(2, 5, 8, 4), bf16(2, 5, 4, 6)), "gemm bf16 10 8 6 4"),
        ("aten::mv", (bf16(8, 4), bf16(4)), "gemm bf16 1 8 1 4"),
        ("aten::_scaled_mm", (ProfiledTensor((8, 4), "fp8"), ProfiledTensor((4, 6), "fp8")), "gemm fp8 1 8 6 4"),
        ("aten::_grouped_mm", (bf16(64, 4), bf16(8, 4, 6)), "grouped_gemm bf16 8 64 6 4"),
    ],
)
def test_a_product_has_the_sizes_of_its_operands(name: str, inputs: tuple[Any, ...], text: str) -> None:
    assert texts(ProfiledOperator(name, inputs), NVJET) == [text]


def test_single_precision_is_rounded_where_the_kernel_says_so() -> None:
    operator = ProfiledOperator("aten::mm", (ProfiledTensor((8, 4), "fp32"), ProfiledTensor((4, 6), "fp32")))

    assert texts(operator, "cutlass_80_simt_sgemm_128x64_8x5_nn_align1") == ["gemm fp32 1 8 6 4"]
    assert texts(operator, "cutlass_80_tensorop_s1688gemm_128x64") == ["gemm tf32 1 8 6 4"]


def test_helpers_of_a_gemm_clear_and_add_up_split_sums() -> None:
    operator = ProfiledOperator("aten::mm", (bf16(2048, 32000), bf16(32000, 768)))
    split = "nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_splitK_NNN"
    reduce = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>"
    launches = (KernelLaunch(bytes=4), KernelLaunch((132, 1, 1), (384, 1, 1)), KernelLaunch((768, 1, 1), (512, 1, 1)))

    # 132 blocks of 192 x 192 are 3 times the 2048 x 768 results: 3 parts of 4 bytes are read, one of 2 is written
    assert texts(operator, "Memset (Device)", split, reduce, launches=launches) == [
        "memset uint8 4",
        "gemm bf16 1 2048 768 32000",
        f"stream bf16 elementwise {2048 * 768 * 12} {2048 * 768 * 2} 0 {2048 * 768} 768 512",
    ]


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("aten::_scaled_dot_product_flash_attention", (0.0, True, False)),
        ("aten::_scaled_dot_product_efficient_attention", (None, True, 0.0, True)),
        ("aten::_scaled_dot_product_cudnn_attention", (None, True, 0.0, True, False)),
        ("aten::_cudnn_attention_forward", (None, None, None, 2048, 2048, True, 0.0, True, False, None)),
    ],
)
def test_attention_of_any_backend_has_heads_before_tokens(name: str, inputs: tuple[Any, ...]) -> None:
    operator = ProfiledOperator(name, (bf16(2, 32, 2048, 128), bf16(2, 8, 2048, 128), bf16(2, 8, 2048, 64), *inputs))

    assert texts(operator, "flash_fwd_kernel") == ["attention bf16 2 32 8 2048 2048 128 64 1"]


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("aten::_flash_attention_forward", (None, None, 2048, 1024, 0.0, False, False)),
        ("aten::_efficient_attention_forward", (None, None, None, 2048, 1024, 0.0, 0)),
        ("flash_attn::_flash_attn_forward", (0.0, 1.0, False)),
    ],
)
def test_flash_attention_itself_has_tokens_before_heads(name: str, inputs: tuple[Any, ...]) -> None:
    operator = ProfiledOperator(name, (bf16(2, 2048, 32, 128), bf16(2, 1024, 8, 128), bf16(2, 1024, 8, 128), *inputs))

    assert texts(operator, "flash_fwd_kernel") == ["attention bf16 2 32 8 2048 1024 128 128 0"]


def test_kernels_around_backward_attention_stream() -> None:
    q, kv = bf16(1, 4, 64, 8), bf16(1, 2, 64, 8)
    operator = ProfiledOperator(
        "aten::_cudnn_attention_backward", (q, q, kv, kv, q, ProfiledTensor((1, 4, 64, 1), "fp32"))
    )
    rows = 4 * 64

    found = texts(
        operator,
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 128>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16",
        "void cudnn::fusion::convert_dq_to_16bits<true>",
        "void cudnn::fusion::fmha_reduce_head<true>",
    )

    assert found == [
        f"stream bf16 elementwise {rows * 8 * 4} {rows * 4 + rows * 8 * 4} {2 * rows * 8} {rows * 8} 0 0",
        "attention_backward bf16 1 4 2 64 64 8 8 0",
        f"stream bf16 elementwise {rows * 8 * 4} {rows * 8 * 2} {2 * rows * 8} {rows * 8} 0 0",
        f"stream bf16 elementwise {64 * 8 * 4 * 2} {64 * 8 * 2 * 2} {2 * 64 * 8 * 4} {64 * 8 * 4} 0 0",
    ]


def test_a_convolution_is_an_implicit_gemm() -> None:
    x, w = bf16(4, 16, 8, 8), bf16(32, 16, 3, 3)
    y = bf16(4, 32, 4, 4)
    moved = 2 * (4 * 16 * 64 + 32 * 16 * 9 + 4 * 32 * 16)

    # Without outputs, padding, strides and dilation give them
    for operator in (
        ProfiledOperator("aten::cudnn_convolution", (x, w), (y,)),
        ProfiledOperator("aten::cudnn_convolution", (x, w, (1, 1), (2, 2), (1, 1))),
        ProfiledOperator("aten::convolution", (x, w, None, (2, 2), (1, 1), (1, 1))),
    ):
        assert texts(operator, "sm90_xmma_fprop_implicit_gemm") == [f"convolution bf16 1 64 32 144 {moved}"]


@pytest.mark.parametrize("mask", [(True, True, False), None])
def test_a_backward_convolution_has_a_kernel_for_each_gradient(mask: Any) -> None:
    x, w, y = bf16(4, 16, 8, 8), bf16(32, 16, 1, 1), bf16(4, 32, 8, 8)
    operator = ProfiledOperator("aten::convolution_backward", (y, x, w, None, mask))
    moved = 2 * (4 * 16 * 64 + 32 * 16 + 4 * 32 * 64)
    dgrad, wgrad = f"convolution bf16 1 256 16 32 {moved}", f"convolution bf16 1 32 16 256 {moved}"

    assert texts(operator, "sm90_xmma_dgrad_gemm", "sm90_xmma_wgrad_gemm") == [dgrad, wgrad]
    assert texts(operator, "nvjet_sm90_tst_64x64_64x13_1x2_h_bz_splitK_NTT", NVJET) == [wgrad, dgrad]


def test_the_first_convolution_has_no_gradient_of_its_input() -> None:
    x, w, y = bf16(4, 3, 8, 8), bf16(32, 3, 1, 1), bf16(4, 32, 8, 8)
    operator = ProfiledOperator("aten::convolution_backward", (y, x, w, None, (False, True, False)))

    assert texts(operator, "cutlass_tensorop")[0] == f"convolution bf16 1 32 3 256 {2 * (768 + 96 + 8192)}"


def test_depthwise_convolutions_are_groups() -> None:
    x, w, y = bf16(2, 8, 4, 4), bf16(8, 1, 3, 3), bf16(2, 8, 4, 4)
    (text,) = texts(ProfiledOperator("aten::_conv_depthwise2d", (x, w), (y,)), "conv_depthwise2d_forward_kernel")

    assert text is not None
    assert text.startswith("convolution bf16 8 32 1 9 ")


# ---- streams


def test_an_addition_reads_two_tensors_and_writes_one() -> None:
    x, y, z = bf16(4, 1024, at=1), bf16(4, 1024, at=2), bf16(4, 1024, at=3)
    size = 4 * 1024 * 2
    launch = (KernelLaunch((4, 1, 1), (128, 1, 1)),)

    assert texts(ProfiledOperator("aten::add", (x, y, 1), (z,)), ADD, launches=launch) == [
        f"stream bf16 elementwise {2 * size} {size} {2 * 4096} 4096 4 128"
    ]


def stream(operator: ProfiledOperator, name: str, *, launch: KernelLaunch | None = None) -> KernelWork:
    """Return the work of a kernel that streams."""
    (work,) = operator_works(operator, [name], [launch])
    assert work is not None
    assert work.kind == "stream"
    return work


@pytest.mark.parametrize(
    ("operator", "read", "written"),
    [
        # What is written in place is read, unless it is only written
        (ProfiledOperator("aten::add_", (bf16(8, at=1), bf16(8, at=2)), (bf16(8, at=1),)), 32, 16),
        (
            ProfiledOperator("aten::copy_", (bf16(8, at=1), ProfiledTensor((8,), "fp32", id=2)), (bf16(8, at=1),)),
            32,
            16,
        ),
        (ProfiledOperator("aten::fill_", (bf16(8, at=1), 0), (bf16(8, at=1),)), 0, 16),
        # An output among the inputs is where the result goes
        (ProfiledOperator("aten::mul", (bf16(8, at=1), 2, bf16(8, at=3)), (bf16(8, at=3),)), 16, 16),
        # What is expanded is there once
        (
            ProfiledOperator("aten::mul", (bf16(8, 4, strides=(4, 1)), bf16(8, 4, strides=(0, 1))), (bf16(8, 4),)),
            72,
            64,
        ),
        # Tensors on the host are not in the memory of the GPU
        (ProfiledOperator("aten::add", (bf16(8), ProfiledTensor((), "fp64", (), 0, "cpu")), (bf16(8),)), 16, 16),
        # Lists count as their members
        (ProfiledOperator("aten::cat", ((bf16(8), bf16(4)), 0), (bf16(12),)), 24, 24),
        # Of a loss, a sector of 32 bytes for each row is read, and its index
        (ProfiledOperator("aten::nll_loss_forward", (bf16(4, 1000), ProfiledTensor((4,), "int64"))), 4 * 40, 0),
        # A few rows of a table, twice: read and written
        (
            ProfiledOperator("aten::embedding", (bf16(1000, 8), ProfiledTensor((4,), "int64")), (bf16(4, 8),)),
            64 + 32,
            64,
        ),
        (
            ProfiledOperator("aten::_embedding_bag", (bf16(1000, 8), ProfiledTensor((20,), "int64")), (bf16(4, 8),)),
            320 + 160,
            64,
        ),
        # Without outputs, they are as large as the largest input; sums have next to none
        (ProfiledOperator("aten::add", (bf16(8, 4), bf16(4))), 72, 64),
        (ProfiledOperator("aten::sum", (bf16(8, 4),)), 64, 0),
    ],
)
def test_bytes_are_those_worked_out_by_hand(operator: ProfiledOperator, read: int, written: int) -> None:
    work = stream(operator, ADD)

    assert (work["read"], work["written"]) == (read, written)


def test_a_norm_has_a_backward_kernel_for_its_input_and_one_for_its_weights() -> None:
    x = bf16(64, 128)
    operator = ProfiledOperator("aten::native_layer_norm_backward", (x, x, (128,), ProfiledTensor((64, 1), "fp32")))
    by_input = stream(operator, "layer_norm_grad_input_kernel_vectorized<c10::BFloat16>")
    by_weight = stream(operator, "GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16>")

    assert (by_input.walk, by_input["read"], by_input["written"]) == ("norm", 2 * x.bytes, x.bytes)
    assert (by_weight.walk, by_weight["read"], by_weight["written"]) == ("reduce", 2 * x.bytes, 0)


def test_an_optimizer_shares_its_bytes_among_kernels_by_their_blocks() -> None:
    weights = (bf16(300, 100), bf16(100))
    steps = (ProfiledTensor((), "fp32"), ProfiledTensor((), "fp32"))
    operator = ProfiledOperator("aten::_fused_adamw_", (weights, weights, weights, weights, (), steps, 0.001))
    name = "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>>"
    first, second = operator_works(operator, [name, name], [KernelLaunch((3,), (512,)), KernelLaunch((1,), (512,))])

    assert first is not None
    assert second is not None
    assert first.walk == "optimizer"
    assert first["read"] == 3 * second["read"]
    assert first["read"] + second["read"] == 4 * 2 * 30100  # weights, gradients and two moments
    assert first["written"] + second["written"] == 3 * 2 * 30100


def test_operators_on_lists_write_their_first_list() -> None:
    left, right = (
        (ProfiledTensor((8,), "fp32"), ProfiledTensor((4,), "fp32")),
        (ProfiledTensor((8,), "fp32"), ProfiledTensor((4,), "fp32")),
    )
    name = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>>"
    added = stream(ProfiledOperator("aten::_foreach_add_", (left, right)), name)
    copied = stream(ProfiledOperator("aten::_foreach_copy_", (left, right)), name)

    assert (added["read"], added["written"]) == (96, 48)
    assert (copied["read"], copied["written"]) == (48, 48)


def test_a_fused_kernel_touches_each_of_its_tensors_once() -> None:
    x, y, out = bf16(8, 64), bf16(512), bf16(8, 64)
    joined = stream(ProfiledOperator("triton_poi_fused_mul_silu_4", (x, y, out, 512)), "triton_poi_fused_mul_silu_4")
    in_place = stream(ProfiledOperator("triton_poi_fused_mul_silu_4", (x, y, 512)), "triton_poi_fused_mul_silu_4")
    summed = stream(ProfiledOperator("triton_red_fused_sum_3", (x, bf16(64), 64)), "triton_red_fused_sum_3")

    assert (joined.walk, joined["read"], joined["written"]) == ("fused", 2048, 1024)
    assert (in_place["read"], in_place["written"]) == (2048, 1024)
    assert (summed.walk, summed["read"], summed["written"]) == ("fused_sum", 1024, 128)


def test_a_fused_kernel_reads_the_rows_of_a_table_that_it_picks() -> None:
    index, table, out = ProfiledTensor((16,), "int64"), bf16(5000, 8), bf16(16, 8)
    name = "triton_red_fused__fused_rms_norm_embedding_0"

    assert stream(ProfiledOperator(name, (index, table, out)), name).bytes == 128 + 2 * 256


@pytest.mark.parametrize(
    ("name", "walk"),
    [
        (ADD, "elementwise"),
        (STRIDED, "strided"),
        ("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda>", "strided"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>", "norm"),
        ("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16>", "softmax"),
        ("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<float>>", "reduce"),
        ("void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)", "gather"),
        ("void at::native::indexFuncLargeIndex<c10::BFloat16, long, unsigned int>", "scatter"),
        ("void cub::detail::radix_sort::DeviceRadixSortOnesweepKernel<>", "sort"),
    ],
)
def test_a_kernel_walks_as_its_name_says(name: str, walk: str) -> None:
    assert stream(ProfiledOperator("aten::somewhat", (bf16(8),), (bf16(8),)), name).walk == walk


# ---- unknown


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        (None, ADD),
        (None, NVJET),
        (ProfiledOperator("aten::add"), ADD),
        (ProfiledOperator("aten::mm", (bf16(8, 4),)), NVJET),
        (ProfiledOperator("aten::add", (ProfiledTensor((8,)), ProfiledTensor((8,)))), ADD),
        (ProfiledOperator("CompiledFunction", (bf16(8, 4), bf16(4, 8))), NVJET),
        (ProfiledOperator("my::fused_mlp", (bf16(8, 4), bf16(4, 8))), "cutlass_80_tensorop_s16816gemm"),
        (ProfiledOperator("aten::_cudnn_attention_forward", (bf16(8, 4),)), "flash_fwd_kernel"),
        (ProfiledOperator("aten::convolution", (bf16(8, 4), bf16(4))), "implicit_gemm"),
        (ProfiledOperator("aten::convolution", (bf16(0, 0, 4, 4), bf16(1, 3, 1, 1))), "implicit_gemm"),
        (ProfiledOperator("record_param_comms", (bf16(8),)), "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
        (ProfiledOperator("aten::copy_"), "Memcpy HtoD (Pageable -> Device)"),
        (None, "Memset (Unknown)"),
        (ProfiledOperator("triton_tem_fused_flex_attention_backward_2", (bf16(1, 2, 8, 8),) * 4), "triton_tem_fused"),
    ],
)
def test_nothing_is_made_up_of_a_kernel_that_nothing_is_known_of(operator: ProfiledOperator | None, name: str) -> None:
    assert operator_works(operator, [name]) == [None]


def test_copies_need_no_operator() -> None:
    names = ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)", "Memcpy DtoD (Device -> Device)")

    assert texts(None, *names, launches=(KernelLaunch(bytes=7),) * 3) == [
        "copy_h2d uint8 7",
        "copy_d2h uint8 7",
        "copy_d2d uint8 7",
    ]
    assert texts(ProfiledOperator("aten::copy_", (bf16(8), bf16(8))), names[0]) == ["copy_h2d uint8 16"]

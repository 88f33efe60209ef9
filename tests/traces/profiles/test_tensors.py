"""Execution traces and Kineto traces say the same of an operator, and whatever they say is read or refused."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.traces.profiles.operator_kernels import operator_works
from cosmic.traces.profiles.profiled_operators import operator_of_execution_trace, operator_of_kineto

NVJET = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
KERNELS = (NVJET, "vectorized_elementwise_kernel<8>", "elementwise_kernel<128, 4>", "multi_tensor_apply_kernel")


def test_both_kinds_of_profile_say_the_same_of_an_operator() -> None:
    recorded = operator_of_execution_trace(
        "aten::addmm",
        {
            "values": [[1, 2, 0, 6, 2, "cuda:0"], [3, 4, 0, 32, 2, "cuda:0"], [5, 6, 0, 24, 2, "cuda:0"], 1, "<None>"],
            "shapes": [[6], [8, 4], [4, 6], [], []],
            "types": ["Tensor(c10::BFloat16)"] * 3 + ["Int", "None"],
            "strides": [[1], [4, 1], [1, 4], [], []],
        },
        {"values": [[7, 8, 0, 48, 2, "cuda:0"]], "shapes": [[8, 6]], "types": ["Tensor(c10::BFloat16)"]},
    )
    kineto = operator_of_kineto(
        "aten::addmm",
        {
            "Input Dims": [[6], [8, 4], [4, 6], [], []],
            "Input type": ["c10::BFloat16"] * 3 + ["Scalar", ""],
            "Input Strides": [[1], [4, 1], [1, 4], [], []],
            "Concrete Inputs": ["", "", "", "1", ""],
        },
    )

    for operator in (recorded, kineto):
        assert [work and work.text for work in operator_works(operator, [NVJET])] == ["gemm bf16 1 8 6 4"]
    assert recorded.inputs[3:] == kineto.inputs[3:] == (1, None)


def test_lists_of_tensors_and_numbers_are_read() -> None:
    operator = operator_of_execution_trace(
        "aten::cat",
        {
            "values": [[[1, 2, 0, 4, 4, "cuda:0"], [3, 4, 0, 2, 4, "cuda:0"]], [1, 2], [True, False]],
            "shapes": [[[4], [2]], [[]], [[], []]],
            "types": ["GenericList[Tensor(float),Tensor(float)]", "GenericList[Int]", "GenericList[Bool,Bool]"],
        },
        {"values": [[5, 0, 0, 0, 0, ""]], "shapes": [[]], "types": ["Tensor(nullptr (uninitialized))"]},
    )

    assert [each.shape for each in operator.tensors()] == [(4,), (2,)]
    assert operator.inputs[1:] == ((1, 2), (True, False))
    assert operator.outputs == (None,)


def test_scalars_of_kineto_are_numbers_truths_and_lists() -> None:
    said = ["True", "0.5", "3", "[1, 1]", "mean", ""]
    operator = operator_of_kineto("x", {"Input type": ["Scalar"] * 6, "Concrete Inputs": said, "Input Dims": [[]] * 6})

    assert operator.inputs == (True, 0.5, 3, (1, 1), "mean", None)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
TYPES = st.sampled_from(["Tensor(float)", "GenericList[Tensor(float),Int]", "Int", "Tensor(x)", 7, None])
NAMES = st.sampled_from(
    [
        "aten::mm",
        "aten::convolution_backward",
        "aten::_fused_adamw_",
        "aten::cat",
        "triton_poi_fused_add_0",
        "aten::index",
    ]
)


@settings(max_examples=40)
@given(NAMES, st.lists(ANY, max_size=4), st.lists(ANY, max_size=4), st.lists(TYPES, max_size=4), ANY)
def test_whatever_a_trace_says_is_read_or_refused(
    name: str, values: list[Any], shapes: list[Any], types: list[Any], other: Any
) -> None:
    side = {"values": values, "shapes": shapes, "types": types, "strides": other}
    event = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values, "Input Strides": other}
    for operator in (operator_of_execution_trace(name, side, {"values": other}), operator_of_kineto(name, event)):
        try:
            assert len(operator_works(operator, KERNELS)) == len(KERNELS)
        except SpecError as error:
            assert "\n" not in str(error)

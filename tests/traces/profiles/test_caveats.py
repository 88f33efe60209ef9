"""What a projection assumes is said."""

from __future__ import annotations

from cosmic.step.kernel_prices import parse_work
from cosmic.traces.profiles.trace_projection import machine_named, projection_caveats

BF16, FP8, STREAM = (
    parse_work(text) for text in ("gemm bf16 1 64 64 64", "gemm fp8 1 64 64 64", "stream bf16 elementwise 2 2 1 1 1 1")
)


def test_bf16_on_a_v100_is_said_to_take_the_rate_of_fp16() -> None:
    volta = machine_named("v100-sxm2-32gb", 1).point.compute
    assert [each.split(":")[0] for each in projection_caveats([BF16, None], volta, "h200-sxm-141gb")] == [
        "v100-sxm2-32gb has no bf16"
    ]
    assert list(projection_caveats([STREAM], volta, "h200-sxm-141gb")) == []  # moves memory only


def test_fp8_where_the_catalog_has_none_is_said_to_take_a_wider_format() -> None:
    ampere = machine_named("a100-sxm-80gb", 1).point.compute
    assert [each.split(":")[0] for each in projection_caveats([FP8], ampere, "")] == [
        "a100-sxm-80gb has no fp8 in the catalog"
    ]


def test_kernels_of_another_vendor_are_said_to_be_other_kernels_there() -> None:
    tpu = machine_named("tpu-v5e", 1).point.compute
    (said,) = projection_caveats([BF16], tpu, "h200-sxm-141gb")
    assert said.startswith("kernels of NVIDIA do not run on tpu-v5e of Google")
    assert list(projection_caveats([BF16], machine_named("b200", 1).point.compute, "h200-sxm-141gb")) == []

"""What a kernel computes is text on one line, which comes back as it was, or is refused in one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.step.kernel_prices import ELEMENT_BYTES, LARGEST, SIZES, WALKS, KernelWork, parse_work


@st.composite
def works(draw: st.DrawFn) -> KernelWork:
    """Return any work."""
    kind = draw(st.sampled_from(sorted(SIZES)))
    count = len(SIZES[kind])
    sizes = draw(st.lists(st.integers(0, LARGEST - 1), min_size=count, max_size=count))
    walk = draw(st.sampled_from(WALKS)) if kind == "stream" else ""
    return KernelWork(kind, draw(st.sampled_from(sorted(ELEMENT_BYTES))), tuple(sizes), walk)


@given(works())
def test_any_work_comes_back_from_its_text(work: KernelWork) -> None:
    assert parse_work(work.text) == work


@given(works())
def test_flop_and_bytes_are_never_negative(work: KernelWork) -> None:
    assert work.flop >= 0
    assert work.bytes >= 0


@given(st.text())
def test_any_text_is_a_work_or_refused(text: str) -> None:
    try:
        assert parse_work(text).text == text
    except SpecError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "flop", "moved"),
    [
        # 2 x 3 products of 2 x 5 x 4 x 6; each of 3 reads 5 x 6 and 6 x 4 and writes 5 x 4 numbers of 2 bytes
        ("gemm bf16 3 5 4 6", 720, 444),
        ("gemm fp32 3 5 4 6", 720, 888),
        # 10 rows in 2 groups: 2 weights of 6 x 4
        ("grouped_gemm bf16 2 10 4 6", 480, 2 * (60 + 48 + 40)),
        ("convolution bf16 1 5 4 6 1000", 240, 1000),
        # 2 batches x 4 heads x 3 queries x 5 keys, widths 8 and 16; 2 KV heads
        ("attention bf16 2 4 2 3 5 8 16 0", 2 * 4 * 3 * 5 * 2 * 24, 2 * 2 * (4 * 3 + 2 * 5) * 24),
        ("attention_backward bf16 2 4 2 3 5 8 16 0", 2 * 4 * 3 * 5 * 2 * 56, 4 * 2 * (4 * 3 + 2 * 5) * 24),
        # The last of 3 queries sees all of 5 keys, the first 3 of them: 3 + 4 + 5 pairs
        ("attention bf16 1 1 1 3 5 8 8 1", 12 * 32, 2 * (3 + 5) * 16),
        ("stream fp32 norm 100 50 7 9 1 128", 7, 150),
        ("copy_h2d uint8 4096", 0, 4096),
        ("memset uint8 8", 0, 8),
    ],
)
def test_flop_and_bytes_are_those_worked_out_by_hand(text: str, flop: float, moved: float) -> None:
    work = parse_work(text)

    assert work.flop == pytest.approx(flop)
    assert work.bytes == pytest.approx(moved)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gem bf16 1 2 3 4",
        "gemm bf17 1 2 3 4",
        "gemm bf16 1 2 3",
        "gemm bf16 1 2 3 4 5",
        "gemm bf16 1 2 3 -4",
        "gemm bf16 1 2 3 4.0",
        "gemm bf16 1 2 3 ²",
        "gemm  bf16 1 2 3 4",
        "gemm bf16 1 2 3 " + "9" * 30,
        "stream bf16 1 2 3 4 5 6",
        "stream bf16 sideways 1 2 3 4 5 6",
        "memset uint8 norm 4",
    ],
)
def test_other_text_is_refused_with_what_it_should_be(text: str) -> None:
    with pytest.raises(SpecError, match=r"^kernel"):
        parse_work(text)


def test_a_size_that_a_kind_does_not_have_is_refused() -> None:
    with pytest.raises(SpecError, match="a gemm has count, m, n, k"):
        parse_work("gemm bf16 1 2 3 4")["heads"]


@pytest.mark.parametrize("dtype", sorted(ELEMENT_BYTES))
def test_an_element_has_the_bits_of_its_name(dtype: str) -> None:
    """A number of tf32 is kept in 32 bits, and a truth value in a byte."""
    bits = 8 if dtype == "bool" else int(dtype.lstrip("abcdefghijklmnopqrstuvwxyz"))
    assert parse_work(f"gemm {dtype} 1 2 3 4").bytes == (2 * 4 + 4 * 3 + 2 * 3) * bits / 8

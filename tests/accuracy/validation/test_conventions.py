"""Measured steps from rates: operations are counted as the row says, or as its framework counts them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cosmic.accuracy.measured_rows import Fields
from cosmic.accuracy.rows.training_rows import Convention, convention_of, flop_per_token, measured_s, peak_of
from cosmic.base.errors import SpecError
from cosmic.design.design_point import DesignPoint
from cosmic.design.measured_hardware import build_machine
from cosmic.design.model_layer import Transformer, count_active_parameters
from cosmic.design.workload_layer import Workload

MODEL = Transformer(layers=4, hidden=1024, heads=8, ffn=4096, vocab=32000)
GEMMS = 6 * (4 * (4 * 1024**2 + 2 * 1024 * 4096) + 1024 * 32000)
"""Two operations forward and four backward for each weight: 12 h² a layer, and the head."""
CAUSAL = 6 * 4 * 2 * 1024 * (2048 + 1) / 2
"""Two products of 1,024 columns with the half of 2,048 keys that a query sees, three times, in four layers."""


def design(**settings: object) -> DesignPoint:
    workload = replace(Workload(sequence=2048, global_batch=32, dp=8), **settings)  # type: ignore[arg-type]
    return build_machine("H100", 8).design(MODEL, workload)


@pytest.mark.parametrize(
    ("text", "hardware", "attention"),
    [
        ("", False, "causal"),
        ("model", False, "causal"),
        ("model full", False, "full"),
        ("hardware none peak=989", True, "none"),
    ],
)
def test_a_column_says_how_operations_are_counted(text: str, hardware: bool, attention: str) -> None:
    assert convention_of(text, "causal") == Convention(hardware, attention)


def test_other_words_for_how_operations_are_counted_are_refused() -> None:
    with pytest.raises(SpecError, match="flops_kind = '6ND': must be of model, hardware, causal, full, none"):
        convention_of("6ND")


def test_operations_of_a_token_by_hand() -> None:
    point = design()
    assert flop_per_token(point, Convention(attention="causal")) == pytest.approx(GEMMS + CAUSAL, rel=1e-4)
    assert flop_per_token(point, Convention(attention="full")) == pytest.approx(GEMMS + 2 * CAUSAL, rel=1e-3)
    assert flop_per_token(point, Convention(attention="none")) == 6 * count_active_parameters(MODEL)


@pytest.mark.parametrize(
    ("recompute", "again"),
    [("none", 0.0), ("selective", 2 * CAUSAL / 3), ("full", (GEMMS + 2 * CAUSAL) / 3)],
)
def test_hardware_operations_count_what_is_made_again(recompute: str, again: float) -> None:
    found = flop_per_token(design(recompute=recompute), Convention(hardware=True))
    assert found == pytest.approx(GEMMS + 2 * CAUSAL + again, rel=1e-3)


TOKENS = 32 * 2048


@pytest.mark.parametrize(
    ("cells", "seconds"),
    [
        ({"iter_time_s": "2.5", "tokens_per_s_per_accel": "1"}, 2.5),
        ({"tokens_per_s_per_accel": "1024", "mfu": "0.5"}, TOKENS / 8 / 1024),
        ({"tflops_per_accel": "400", "mfu": "0.1"}, (GEMMS + 2 * CAUSAL) * TOKENS / 8 / 400e12),
        ({"mfu": "0.4"}, (GEMMS + 2 * CAUSAL) * TOKENS / 8 / (0.4 * 989.4e12)),
        ({"mfu": "40"}, (GEMMS + 2 * CAUSAL) * TOKENS / 8 / (0.4 * 989.4e12)),  # in per cent
        ({"mfu": "0.4", "flops_kind": "model peak=500"}, (GEMMS + 2 * CAUSAL) * TOKENS / 8 / 200e12),
        ({"mfu": "0.4", "flops_kind": "causal"}, (GEMMS + CAUSAL) * TOKENS / 8 / (0.4 * 989.4e12)),
    ],
)
def test_a_step_follows_from_the_first_that_is_given(cells: dict[str, str], seconds: float) -> None:
    assert measured_s(Fields(cells), design()) == pytest.approx(seconds, rel=1e-3)


def test_utilisation_of_hardware_counts_recomputation() -> None:
    expected = (GEMMS + 2 * CAUSAL) * 4 / 3 * TOKENS / 8 / (0.5 * 989.4e12)
    assert measured_s(Fields({"hfu": "0.5"}), design(recompute="full")) == pytest.approx(expected, rel=1e-3)


def test_utilisation_refers_to_the_format_of_gemms_where_the_accelerator_has_it() -> None:
    h100, a100 = build_machine("H100", 1).compute, build_machine("A100", 1).compute
    assert peak_of(h100, "fp8") == 1978.9e12
    assert peak_of(h100, "bf16") == peak_of(h100, "fp16") == 989.4e12
    assert peak_of(a100, "fp8") == 312e12


def test_without_time_and_rate_there_is_no_measurement() -> None:
    with pytest.raises(SpecError, match="neither a time nor a rate"):
        measured_s(Fields({}), design())

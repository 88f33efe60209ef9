"""Single kernels and collectives, on carried rows: the errors that are asked for."""

from __future__ import annotations

import pytest

from cosmic.accuracy.measured_rows import CARRIED, Verdict, read_rows
from cosmic.accuracy.rows.collective_rows import compare_rows as judge_collectives
from cosmic.accuracy.rows.kernel_rows import compare_rows
from cosmic.accuracy.validating import summarise_errors


def judged(name: str) -> list[Verdict]:
    kind, rows = read_rows(CARRIED / f"{name}.csv")
    return kind.compare_rows(rows)


def mean(verdicts: list[Verdict], start: str) -> float:
    found = summarise_errors(start, [verdict for verdict in verdicts if verdict.set.startswith(start)])
    assert found.predicted > 0
    return found.mean or 0.0


def test_own_gemms_are_within_what_is_asked() -> None:
    verdicts = judged("h200_gemm")
    assert mean(verdicts, "h200-gemm ≥ 10 GFLOP") <= 0.08
    assert mean(verdicts, "h200-gemm 1–10 GFLOP") <= 0.15


@pytest.mark.parametrize("hardware", ["a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"])
@pytest.mark.parametrize("number", ["bfloat16", "fp8"])
def test_large_gemms_are_within_ten_per_cent(hardware: str, number: str) -> None:
    verdicts = [verdict for verdict in judged("gemm") if verdict.set.endswith("≥ 10 GFLOP")]
    if hardware == "a100_sxm" and number == "fp8":
        assert not any(verdict.set.startswith("gemm a100_sxm fp8") for verdict in verdicts)  # it has none
    else:
        assert mean(verdicts, f"gemm {hardware} {number} ") <= 0.10


def test_collectives_inside_a_node_are_within_ten_per_cent_from_a_mebibyte_on() -> None:
    inside = [each for each in judged("collectives") if each.set.endswith("≥ 1 MiB") and "between" not in each.set]
    assert (summarise_errors("inside", inside).mean or 1) <= 0.10


def test_a_row_of_attention_has_a_forward_and_a_backward_verdict() -> None:
    verdicts = judged("h200_attention")
    assert len(verdicts) == 64
    assert {verdict.set for verdict in verdicts} == {"h200-attention fwd", "h200-attention bwd"}


def test_copies_from_and_to_the_host_are_no_operators_and_skipped() -> None:
    skipped = [verdict for verdict in judged("h200_memory_ops") if verdict.skipped]
    assert len(skipped) == 8
    assert all("no operator of a step" in verdict.skipped for verdict in skipped)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"gemm_dtype": "fp8", "m": "1", "n": "1", "k": "1", "latency": "1", "hardware": "abacus"}, "hardware"),
        ({"gemm_dtype": "fp3", "m": "1", "n": "1", "k": "1", "latency": "1", "hardware": "gb200"}, "dtype"),
        ({"dtype": "bf16", "m": "", "n": "1", "k": "1", "ms": "1"}, "m = "),
        ({"op": "sort", "rows": "1", "cols": "1", "dtype": "bf16", "bytes": "x", "ms": "1"}, "op = 'sort'"),
        ({"batch": "1", "heads": "x", "kv_heads": "1", "seq": "1", "head_dim": "1", "fwd_ms": "1"}, "heads"),
    ],
)
def test_a_kernel_that_is_not_known_is_skipped(row: dict[str, str], said: str) -> None:
    [verdict] = compare_rows([row])
    assert said in verdict.skipped


def test_a_cell_of_one_gemm_does_not_skip_the_others() -> None:
    row = {"dtype": "bf16", "m": "64", "n": "64", "k": "64", "ms": "1"}
    found = compare_rows([row, {**row, "k": "x"}, {**row, "n": "0.5"}])
    assert sorted(each.skipped for each in found) == [
        "",
        "k = 'x': must be a number",
        "n = '0.5': must be a whole number",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hardware": "abacus"}, "hardware = 'abacus'"),
        ({"collective": "gossip"}, "no such collective"),
        ({"size_bytes": "0"}, "the size is not given"),
        ({"time_us": "", "busbw_GBps": ""}, "neither a time nor a bandwidth"),
        ({"hardware": "l40s", "n_nodes": "4"}, "what joins its nodes is not known"),
        ({"n_ranks": "8", "n_nodes": "3"}, "must divide the 8 ranks"),
        ({"n_ranks": "8", "n_nodes": "16"}, "must divide the 8 ranks"),
    ],
)
def test_a_collective_that_is_not_known_is_skipped(changes: dict[str, str], said: str) -> None:
    row = {"hardware": "h100_sxm", "collective": "all_reduce", "n_ranks": "8", "n_nodes": "1"}
    row |= {"size_bytes": "1048576", "time_us": "50", "busbw_GBps": ""}
    [verdict] = judge_collectives([{**row, **changes}])
    assert said in verdict.skipped


def test_the_time_of_a_collective_follows_from_its_bandwidth() -> None:
    row = {"hardware": "h100_sxm", "collective": "all_reduce", "n_ranks": "8", "n_nodes": "1"}
    row |= {"size_bytes": "8000000000", "time_us": "", "busbw_GBps": "350"}
    [verdict] = judge_collectives([row])
    assert verdict.measured_s == pytest.approx(2 * 7 / 8 * 8e9 / 350e9)
    assert verdict.assumed == ("measured_s: from busbw_GBps",)

"""Measured serving: what its columns mean, and how far off predictions are."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean

import pytest

from cosmic.accuracy.measured_rows import CARRIED, Row, Verdict, read_rows
from cosmic.accuracy.rows import serving_rows
from cosmic.accuracy.rows.serving_recipes import Instances, Split
from cosmic.accuracy.rows.serving_rows import ServedPool, ServedPools, read_serving_row

WHOLE = Path(__file__).parents[4] / "shared" / "reference" / "inference" / "published.csv"


def rows(path: Path = CARRIED / "serving.csv") -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def changed(**cells: str) -> Row:
    """Return a row of Llama 70B on H200s with other cells."""
    known = {"id": "one", "backend": "vllm", "backend_version": "0.15", "model_path": "meta-llama/Llama-3.1-70B"}
    known |= {"system": "h200_sxm", "precision": "fp8", "mode": "agg", "isl": "1024", "osl": "1024", "tp_size": "8.0"}
    known |= {"concurrency": "64.0", "batch_size": "64.0", "pp_size": "1.0", "attention_dp_size": "1.0"}
    known |= {"moe_tp_size": "8.0", "moe_ep_size": "1.0", "silicon_ttft_ms": "194.9", "silicon_tpot_ms": "12.73"}
    return {**known, "silicon_data_source": "source_file=2026-04-06.csv", **cells}


def of_pools(**cells: str) -> Row:
    """Return a disaggregated row of DeepSeek on GB300s with other cells: one instance prefills, four decode."""
    known = {"backend": "trtllm", "backend_version": "0.8.1.post2", "model_path": "deepseek-ai/DeepSeek-V3"}
    known |= {"system": "gb300", "mode": "disagg", "concurrency": "24.0", "batch_size": "", "tp_size": ""}
    known |= {"prefill_num_workers": "1", "prefill_tp_size": "1", "prefill_attention_dp_size": "4"}
    known |= {"decode_num_workers": "4", "decode_tp_size": "8", "decode_attention_dp_size": "1"}
    known |= {"decode_batch_size": "6", "silicon_data_source": "db-dump/2026-04-27; measured=2026-02-07"}
    return changed(**known | cells)


def judged(**cells: str) -> list[Verdict]:
    return serving_rows.compare_rows([changed(**cells)])


def read(**cells: str) -> ServedPool:
    found = read_serving_row(changed(**cells))
    assert isinstance(found, ServedPool)
    return found


def read_pools(row: Row) -> ServedPools:
    found = read_serving_row(row)
    assert isinstance(found, ServedPools)
    return found


def mean_error(verdicts: list[Verdict], name: str) -> float:
    return fmean(abs(verdict.error) for verdict in verdicts if verdict.set.endswith(name) and verdict.error is not None)


# ---- accuracy


@pytest.mark.long
def test_carried_rows_are_predicted_as_well_as_claimed() -> None:
    verdicts = serving_rows.compare_rows(rows())
    assert fmean(not verdict.skipped for verdict in verdicts) > 0.95
    assert mean_error(verdicts, "tpot") < 0.2
    assert mean_error(verdicts, "ttft") < 0.3


@pytest.mark.long
def test_some_carried_rows_are_predicted_as_well_as_claimed() -> None:
    verdicts = serving_rows.compare_rows(rows()[::8])
    assert not any(verdict.skipped for verdict in verdicts)
    assert mean_error(verdicts, "tpot") < 0.2
    assert mean_error(verdicts, "ttft") < 0.3


@pytest.mark.long
@pytest.mark.skipif(not WHOLE.exists(), reason="the whole of the source is not here")
@pytest.mark.parametrize(("mode", "ttft", "tpot"), [("agg", 0.22, 0.12), ("disagg", 0.35, 0.2)])
def test_all_rows_are_predicted_as_well_as_claimed(mode: str, ttft: float, tpot: float) -> None:
    verdicts = serving_rows.compare_rows([row for row in rows(WHOLE) if row["mode"] == mode])
    assert not any(verdict.skipped for verdict in verdicts)
    assert mean_error(verdicts, "tpot") < tpot
    assert mean_error(verdicts, "ttft") < ttft


def test_a_row_has_two_verdicts() -> None:
    first, further = judged()
    assert (first.id, further.id) == ("one:ttft", "one:tpot")
    assert (first.set, further.set) == ("serving agg ttft", "serving agg tpot")
    assert (first.measured_s, further.measured_s) == pytest.approx((0.1949, 0.01273))


def test_columns_say_the_kind() -> None:
    kind, found = read_rows(CARRIED / "serving.csv")
    assert kind.module == "serving_rows"
    assert len(found) <= 300


# ---- mappings


@pytest.mark.parametrize(
    ("cells", "tp", "dp", "ep"),
    [
        ({"tp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8"}, 8, 1, 1),
        ({"tp_size": "1", "attention_dp_size": "64", "moe_tp_size": "8", "moe_ep_size": "8"}, 1, 8, 8),
        ({"tp_size": "4", "attention_dp_size": "4", "moe_tp_size": "1", "moe_ep_size": "16"}, 4, 1, 1),
        (
            {"tp_size": "4", "attention_dp_size": "4", "moe_tp_size": "1", "moe_ep_size": "16", "backend": "trtllm"},
            1,
            4,
            4,
        ),
        ({"tp_size": "2", "attention_dp_size": "2", "moe_ep_size": "4", "concurrency": "2048"}, 1, 2, 2),
        ({"tp_size": "1", "attention_dp_size": "8", "moe_tp_size": "1", "moe_ep_size": "8"}, 1, 8, 8),
        ({"tp_size": "2", "attention_dp_size": "", "moe_tp_size": "4", "moe_ep_size": "1"}, 2, 2, 2),
        ({"tp_size": "4", "attention_dp_size": "", "moe_tp_size": "2", "moe_ep_size": "2"}, 4, 1, 1),
    ],
)
def test_gpus_are_counted_once(cells: dict[str, str], tp: int, dp: int, ep: int) -> None:
    found = read(model_path="deepseek-ai/DeepSeek-R1", **cells).design
    assert (found.workload.tp, found.workload.dp, found.workload.ep) == (tp, dp, ep)
    assert found.network.npus == tp * dp


def test_a_batch_that_is_part_of_the_concurrency_is_one_of_several_deployments() -> None:
    found = read(attention_dp_size="", batch_size="16.0")
    assert found.concurrency == 16
    assert any("deployments: 4" in each for each in found.assumed)


def test_without_a_concurrency_the_batches_are_in_flight() -> None:
    found = read(concurrency="", attention_dp_size="", batch_size="28.0")
    assert found.concurrency == 28
    assert any("concurrency: 28 assumed" in each for each in found.assumed)
    split = read_pools(of_pools(concurrency="", decode_batch_size="12", decode_num_workers="5", decode_tp_size="4"))
    assert split.concurrency == 60
    ranked = {"decode_tp_size": "1", "decode_attention_dp_size": "32", "decode_num_workers": "1"}
    assert read_pools(of_pools(concurrency="", decode_batch_size="64", **ranked)).concurrency == 2048


def test_no_precision_is_16_bits_and_said_so() -> None:
    found = read(precision="")
    assert found.design.workload.precision == "bf16"
    assert "precision: bf16 assumed" in found.assumed


# ---- pools


def test_a_known_recipe_says_how_many_requests_decode_at_once() -> None:
    found = read_pools(of_pools())
    assert (found.split.prefill, found.split.decode) == (Instances(1, 1, 4), Instances(4, 8, 1))
    assert found.slots == 16  # four of a batch of four: a third of the 24 clients waits
    assert found.prefill.network.npus == 4
    assert found.decode.network.npus == 8


def test_without_a_recipe_a_limit_is_the_power_of_two_below() -> None:
    found = read_pools(of_pools(osl="8192", concurrency="28", decode_num_workers="7"))
    assert found.slots == 7 * 4
    assert any("batch: 4 assumed" in each for each in found.assumed)
    assert read_pools(of_pools(backend="sglang", concurrency="28", decode_num_workers="7")).slots == float("inf")


def test_an_aggregated_row_of_a_rack_is_a_disaggregated_run() -> None:
    cells = {"backend": "trtllm", "system": "gb200", "precision": "fp4", "model_path": "deepseek-ai/DeepSeek-R1"}
    day = "source_file=2026-04-06.csv; measured=2025-11-17T00:00:00.000Z"
    found = read_pools(
        changed(**cells, tp_size="40", moe_tp_size="40", isl="8192", concurrency="1075", silicon_data_source=day)
    )
    assert found.split == Split(prefill=Instances(6, 1, 4), decode=Instances(1, 1, 16), batch=64)
    assert found.npus == 40
    assert found.set == "serving agg"
    unknown = read_pools(changed(**cells, tp_size="40", moe_tp_size="40", isl="8192", concurrency="77"))
    assert unknown.npus == 40
    assert any("no recipe is known" in each for each in unknown.assumed)


def test_a_row_without_numbers_of_instances_gets_those_of_its_recipe() -> None:
    widths = {"prefill_num_workers": "", "decode_num_workers": "", "prefill_attention_dp_size": "1", "precision": "fp4"}
    widths |= {"prefill_tp_size": "4", "decode_tp_size": "32", "backend": "sglang", "system": "gb200", "isl": "8192"}
    found = read_pools(of_pools(**widths, concurrency="2048"))
    assert (found.split.prefill, found.split.decode) == (Instances(10, 4, 1), Instances(1, 1, 32))
    other = read_pools(of_pools(**widths, concurrency="99"))
    assert (other.split.prefill, other.split.decode) == (Instances(4, 4, 1), Instances(1, 1, 32))


def test_experts_are_held_twice_where_ranks_do_not_divide_them() -> None:
    ranks = {"decode_tp_size": "1", "decode_attention_dp_size": "48", "decode_num_workers": "1"}
    found = read_pools(of_pools(backend="sglang", concurrency="512", **ranks))
    assert found.decode.model.experts.count == 288  # type: ignore[union-attr]


# ---- recipes


def test_lengths_are_drawn_or_exact() -> None:
    assert read().spread == 0.2
    assert read(silicon_data_source="source_file=aic-auto-gap-analysis/data/x.csv").spread == 0


@pytest.mark.parametrize(
    ("cells", "drafts"),
    [
        ({"backend": "trtllm", "backend_version": "1.2.0rc6.post3"}, 3),
        ({"backend": "trtllm", "backend_version": "1.2.0rc6.post3", "tp_size": "1", "attention_dp_size": "8"}, 1),
        ({"backend": "trtllm", "backend_version": "1.2.0rc6.post2"}, 0),
        ({"backend": "trtllm", "backend_version": "1.1.0rc2.post2", "silicon_data_source": "measured=2026-01-14"}, 3),
        ({"backend": "trtllm", "backend_version": "1.1.0rc2.post2", "silicon_data_source": "measured=2025-12-15"}, 0),
        ({"backend": "trtllm", "backend_version": "1.2.0rc6.post3", "model_path": "meta-llama/Llama-3.1-70B"}, 0),
        ({"backend": "sglang", "backend_version": "0.5.9", "system": "b200_sxm", "isl": "8192", "concurrency": "8"}, 2),
        ({"backend": "sglang", "backend_version": "0.5.9", "system": "b200_sxm", "isl": "8192", "concurrency": "4"}, 0),
        ({"backend": "sglang", "backend_version": "0.5.9", "system": "b200_sxm", "concurrency": "512"}, 2),
    ],
)
def test_drafts_are_known_by_version_day_and_load(cells: dict[str, str], drafts: int) -> None:
    found = read(**{"model_path": "deepseek-ai/DeepSeek-R1", **cells})
    assert found.recipe.drafts == drafts
    assert found.drafting == (drafts > 0)
    assert any("drafted tokens" in each for each in found.assumed) == (drafts > 0)


@pytest.mark.parametrize(
    ("cells", "polling", "holding"),
    [
        ({"backend": "sglang", "system": "b200_sxm", "concurrency": "8"}, 10, 0),
        ({"backend": "sglang", "system": "b200_sxm", "concurrency": "16"}, 30, 0),
        ({"backend": "sglang"}, 0, 0),
        ({"backend": "trtllm", "model_path": "meta-llama/Llama-3.1-70B", "tp_size": "4"}, 0, 20),
        ({"backend": "trtllm", "model_path": "meta-llama/Llama-3.1-70B"}, 0, 0),
        ({"backend": "trtllm", "model_path": "meta-llama/Llama-3.1-70B", "tp_size": "4", "osl": "8192"}, 0, 0),
        (
            {"backend": "trtllm", "tp_size": "1", "attention_dp_size": "8", "moe_tp_size": "1", "moe_ep_size": "8"},
            0,
            60,
        ),
        ({"backend": "vllm", "tp_size": "4"}, 0, 0),
    ],
)
def test_recipes_hold_requests_back(cells: dict[str, str], polling: float, holding: float) -> None:
    found = read(**{"model_path": "deepseek-ai/DeepSeek-R1", **cells})
    assert (found.polling, found.holding) == (polling, holding)


@pytest.mark.parametrize(
    ("cells", "bits"),
    [
        ({"backend": "sglang", "model_path": "deepseek-ai/DeepSeek-R1"}, 2.0),
        ({"backend": "sglang", "model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm"}, None),
        ({"backend": "trtllm", "model_path": "openai/gpt-oss-120b"}, 2.0),
        ({"backend": "trtllm", "model_path": "openai/gpt-oss-120b", "system": "b200_sxm"}, None),
        ({"model_path": "MiniMaxAI/MiniMax-M2.5"}, 2.0),
        ({}, None),
    ],
)
def test_recipes_say_the_format_of_the_cache(cells: dict[str, str], bits: float | None) -> None:
    assert read(**cells).kv_element_bytes == bits


def test_the_largest_step_is_of_tokens_or_of_prompts() -> None:
    assert read().recipe.chunk(1024) == 8192
    minimax = read(model_path="MiniMaxAI/MiniMax-M2.5", system="b200_sxm")
    assert minimax.recipe.chunk(1024) == 2048
    assert read(model_path="openai/gpt-oss-120b", backend="trtllm", moe_tp_size="8").recipe.chunk(1024) == 20000


@pytest.mark.parametrize(
    ("cells", "cold_s"),
    [
        ({"precision": "fp4", "concurrency": "16", "silicon_data_source": "measured=2025-11-10"}, 3),
        ({"precision": "fp4", "concurrency": "17", "silicon_data_source": "measured=2025-11-10"}, 69),
        ({"precision": "fp8", "concurrency": "32", "silicon_data_source": "measured=2025-11-18"}, 0),
        ({"precision": "fp8", "concurrency": "33", "silicon_data_source": "measured=2025-11-18"}, 16),
        ({"precision": "fp4", "concurrency": "17", "silicon_data_source": "measured=2026-03-25"}, 0),
    ],
)
def test_a_burst_beyond_a_chunk_finds_a_cold_server(cells: dict[str, str], cold_s: float) -> None:
    found = read(backend="sglang", model_path="deepseek-ai/DeepSeek-R1", system="b200_sxm", **cells)
    assert found.cold_s == cold_s


def test_a_cold_server_adds_to_the_first_request_of_ten() -> None:
    cells = {"backend": "sglang", "model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm", "precision": "fp4"}
    cold = judged(**cells, silicon_data_source="measured=2025-11-10")
    warm = judged(**cells, silicon_data_source="measured=2026-03-25")
    assert cold[0].predicted_s == pytest.approx((warm[0].predicted_s or 0) + 6.9)
    assert cold[1].predicted_s == pytest.approx(warm[1].predicted_s)


def test_a_client_that_sends_all_at_once_waits_as_so_many_in_flight() -> None:
    """Ten requests for each of 32 that run, all at once, wait for 4.5 of their times, as 5.5 x 32 in flight do."""
    cells = {"model_path": "openai/gpt-oss-120b", "system": "h100_sxm", "precision": "fp4", "concurrency": "512"}
    found = read(**cells, silicon_data_source="source_file=2026-04-06.csv; measured=2025-12-08")
    assert (found.concurrency, found.seats) == (176, 32)
    assert read(**cells, silicon_data_source="measured=2026-03-27").concurrency == 512


def test_recipes_say_how_much_memory_is_used() -> None:
    assert read().recipe.memory_fraction == 0.9
    assert read(model_path="zhipuai/GLM-5", backend="sglang").recipe.memory_fraction == 0.85
    exact = {"silicon_data_source": "source_file=aic-auto-gap-analysis/data/x.csv"}
    assert read(**exact, backend="sglang").recipe.memory_fraction == 0.88


# ---- refusals


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"mode": "both"}, "must be agg or disagg"),
        ({"mode": "disagg"}, "is not given"),
        ({"backend": "other"}, "engine"),
        ({"model_path": "nobody/Nothing-7B"}, "model"),
        ({"system": "abacus"}, "system"),
        ({"concurrency": "", "batch_size": ""}, "is not given"),
        ({"precision": "fp2"}, "no such precision"),
        ({"isl": "many"}, "must be a number"),
        ({"isl": "0.5"}, "must be a whole number"),
        ({"osl": "1e-9"}, "must be a whole number"),
        ({"concurrency": "1.5"}, "must be a whole number"),
        ({"tp_size": "3", "moe_tp_size": "3"}, "does not divide"),
        ({"pp_size": "2"}, "stages"),
        ({"silicon_tpot_ms": ""}, "is not given"),
    ],
)
def test_what_is_not_understood_is_skipped_with_its_reason(cells: dict[str, str], reason: str) -> None:
    verdicts = judged(**cells)
    assert len(verdicts) == 2
    assert all(reason in verdict.skipped for verdict in verdicts), verdicts[0].skipped

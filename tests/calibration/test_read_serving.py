"""Rows of aiconfigurator: what their columns mean, and how their engines were set."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from read_serving import FILES, Setting, columns_of, recipe_of, split_of, unknown_keys, with_columns

from cosmic.accuracy.measured_rows import CARRIED, Row, Verdict
from cosmic.accuracy.rows import serving_rows
from cosmic.accuracy.rows.serving_rows import Instances, ServedPool, ServedPools, read_serving_row
from cosmic.base.errors import SpecError
from tests.batches import check_all

WHOLE = Path(__file__).parents[3] / "shared" / "reference" / "inference" / "published.csv"


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


def filled(row: Row) -> Row:
    """Return a row with the columns that are read from it."""
    return {**row, **columns_of(row)}


def judged(**cells: str) -> list[Verdict]:
    return serving_rows.compare_rows([filled(changed(**cells))])


def read(**cells: str) -> ServedPool:
    found = read_serving_row(filled(changed(**cells)))
    assert isinstance(found, ServedPool)
    return found


def read_pools(row: Row) -> ServedPools:
    found = read_serving_row(filled(row))
    assert isinstance(found, ServedPools)
    return found


def mean_error(verdicts: list[Verdict], name: str) -> float:
    return fmean(abs(verdict.error) for verdict in verdicts if verdict.set.endswith(name) and verdict.error is not None)


@check_all("name", FILES)
def test_the_columns_of_the_package_are_what_its_rows_say(name: str) -> None:
    table = (CARRIED / name).read_text()
    assert with_columns(table) == table


@pytest.mark.long
@pytest.mark.skipif(not WHOLE.exists(), reason="the whole of the source is not here")
@pytest.mark.parametrize(("mode", "ttft", "tpot"), [("agg", 0.22, 0.12), ("disagg", 0.35, 0.2)])
def test_all_rows_are_predicted_as_well_as_claimed(mode: str, ttft: float, tpot: float) -> None:
    with WHOLE.open() as file:
        rows = [filled(row) for row in csv.DictReader(file) if row["mode"] == mode]
    verdicts = serving_rows.compare_rows(rows)
    assert not any(verdict.skipped for verdict in verdicts)
    assert mean_error(verdicts, "tpot") < tpot
    assert mean_error(verdicts, "ttft") < ttft


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
    assert (found.prefills, found.decodes) == (Instances(1, 1, 4), Instances(4, 8, 1))
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
    assert (found.prefills, found.decodes, found.slots) == (Instances(6, 1, 4), Instances(1, 1, 16), 64 * 16)
    assert found.npus == 40
    assert found.set == "serving agg"
    unknown = read_pools(changed(**cells, tp_size="40", moe_tp_size="40", isl="8192", concurrency="77"))
    assert unknown.npus == 40
    assert any("no recipe is known" in each for each in unknown.assumed)


def test_a_row_without_numbers_of_instances_gets_those_of_its_recipe() -> None:
    widths = {"prefill_num_workers": "", "decode_num_workers": "", "prefill_attention_dp_size": "1", "precision": "fp4"}
    widths |= {"prefill_tp_size": "4", "decode_tp_size": "32", "backend": "sglang", "system": "gb200", "isl": "8192"}
    found = read_pools(of_pools(**widths, concurrency="2048"))
    assert (found.prefills, found.decodes) == (Instances(10, 4, 1), Instances(1, 1, 32))
    other = read_pools(of_pools(**widths, concurrency="99"))
    assert (other.prefills, other.decodes) == (Instances(4, 4, 1), Instances(1, 1, 32))


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
    assert (found.recipe.poll_steps, found.recipe.hold_steps) == (polling, holding)


@pytest.mark.parametrize(
    ("cells", "bits"),
    [
        ({"backend": "sglang", "model_path": "deepseek-ai/DeepSeek-R1"}, 16),
        ({"backend": "sglang", "model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm"}, None),
        ({"backend": "trtllm", "model_path": "openai/gpt-oss-120b"}, 16),
        ({"backend": "trtllm", "model_path": "openai/gpt-oss-120b", "system": "b200_sxm"}, None),
        ({"model_path": "MiniMaxAI/MiniMax-M2.5"}, 16),
        ({}, None),
    ],
)
def test_recipes_say_the_format_of_the_cache(cells: dict[str, str], bits: int | None) -> None:
    assert read(**cells).recipe.kv_bits == bits


def test_the_largest_step_is_of_tokens_or_of_prompts() -> None:
    assert read().recipe.chunk_tokens == 8192
    minimax = read(model_path="MiniMaxAI/MiniMax-M2.5", system="b200_sxm")
    assert minimax.recipe.chunk_tokens == 2048
    assert read(model_path="openai/gpt-oss-120b", backend="trtllm", moe_tp_size="8").recipe.chunk_tokens == 20000


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
    assert found.recipe.cold_s == cold_s


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


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"mode": "disagg"}, "is not given"),
        ({"model_path": "nobody/Nothing-7B"}, "model"),
        ({"system": "abacus"}, "system"),
        ({"concurrency": "", "batch_size": ""}, "is not given"),
        ({"concurrency": "1.5"}, "must be a whole number"),
        ({"pp_size": "2"}, "stages"),
    ],
)
def test_what_is_not_understood_is_refused(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        columns_of(changed(**cells))


# ---- recipes

ROW = Setting(
    engine="trtllm",
    version="0.8.1.post2",
    model="deepseek-v3",
    system="gb200",
    precision="fp4",
    isl=1024,
    osl=1024,
    concurrency=4301,
    source="db-dump/2026-04-27; measured=2026-03-23T00:00:00.000Z",
)


def test_every_key_of_the_file_is_read() -> None:
    assert unknown_keys() == set()


def test_a_row_says_its_day_client_and_file() -> None:
    assert (ROW.day, ROW.client, ROW.file) == ("2026-03-23", "drawn", "db")
    other = replace(ROW, source="source_file=aic-auto-gap-analysis/x.csv")
    assert (other.day, other.client, other.file) == ("", "exact", "csv")


def test_splits_of_one_load_are_told_apart_by_their_gpus() -> None:
    narrow = split_of(ROW, npus=12)
    wide = split_of(ROW, npus=24)
    assert narrow is not None
    assert wide is not None
    assert (narrow.decode, narrow.batch) == (Instances(1, 1, 8), 512)
    assert (wide.decode, wide.batch) == (Instances(1, 1, 16), 256)
    assert split_of(ROW, decode=(1, 16)) == wide
    assert split_of(ROW, npus=13) is None
    assert split_of(replace(ROW, concurrency=4302)) is None


def test_a_split_is_of_its_time() -> None:
    early = replace(ROW, concurrency=1075, source="measured=2025-11-17")
    assert split_of(early, npus=20) is not None
    assert split_of(replace(early, source="measured=2026-11-17"), npus=20) is None
    assert split_of(replace(early, source=""), npus=20) is None  # without a day nothing dated fits


def test_later_entries_override() -> None:
    assert recipe_of(replace(ROW, split=True)).chunk(1024) == 8192
    assert recipe_of(replace(ROW, split=True, osl=8192)).chunk(1024) == 16384
    assert recipe_of(replace(ROW, split=True, isl=8192)).chunk(8192) == 8448

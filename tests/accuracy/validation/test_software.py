"""What the software of a row does follows from its own words, its mapping and its accelerator."""

from __future__ import annotations

from dataclasses import fields as fields_of

import pytest

from cosmic.accuracy.measured_rows import Fields
from cosmic.accuracy.rows.training_software import Software, date_of, framework_of, software_of
from cosmic.design import catalog_entries
from cosmic.design.workload_layer import Workload
from tests.batches import check_all

TABLE = catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / "software.yaml")
H100, A100, B200 = "h100-sxm-80gb", "a100-sxm-80gb", "b200-sxm-180gb"


@pytest.mark.parametrize(
    ("cells", "framework"),
    [
        ({"framework": "TorchTitan", "source": "NeMo"}, "torchtitan"),  # the column comes first
        ({"source": "NVIDIA Megatron-Bridge performance summary 26.08 NeMo Container"}, "megatron-bridge"),
        ({"source": "NVIDIA NeMo performance summary 24.07", "notes": "888 is the MLPerf submission"}, "nemo"),
        ({"source": "MLPerf Training v5.1 result logs", "source_loc": "nemo/config.sh"}, "mlperf"),
        ({"source": "vTrain", "notes": "Megatron-DeepSpeed; 4xHDR"}, "megatron-deepspeed"),
        ({"url": "https://github.com/pytorch/torchtitan"}, "torchtitan"),  # the longest word of a column
        ({"source": "a README", "model": "OPT-175B"}, "metaseq"),
        ({"source": "Optimus", "model": "GPT"}, "unknown"),  # no word within a word
        ({"accel": "TPU-v5p"}, "maxtext"),
        ({"tp": "8", "pp": "1"}, "megatron-lm"),
        ({"tp": "1", "pp": "1", "zero_stage": "3"}, "pytorch"),
        ({"zero_stage": "2.0"}, "deepspeed"),
        ({"schedule": "1F1B-interleaved"}, "megatron-lm"),
        ({}, "unknown"),
    ],
)
def test_words_name_a_framework_and_else_the_mapping_does(cells: dict[str, str], framework: str) -> None:
    assert framework_of(Fields(cells)) == framework


@pytest.mark.parametrize(
    ("cells", "date"),
    [
        ({"software_date": "2022-03", "source": "24.07"}, "2024-07"),  # a release is the most telling
        ({"software_date": "2022-03", "source": "of 2025"}, "2022-03"),
        ({"source": "container 26.04.01"}, "2026-04"),
        ({"notes": "mean time-to-train 24.07 min"}, "2023-06"),
        ({"url": "https://arxiv.org/abs/2205.05198"}, "2022-05"),
        ({"source": "llama3_h100_202412.md"}, "2024-12"),
        ({"source": "benchmarks of 2025-06"}, "2025-06"),
        ({"source": "MLPerf Training v5.1"}, "2025-11"),
        ({"source": "MLPerf Training v4.0"}, "2024-06"),
        ({"source": "a simulator (MICRO 24)"}, "2023-06"),  # a paper measures what was there a year before
        ({"source": "a simulator, SC'23"}, "2022-06"),
        ({"source": "a report, 2023"}, "2023-06"),
        ({"source": "a batch of 2048"}, "2023-06"),  # no year: a year after the accelerator's
        ({"source": "of 2019"}, "2022-01"),  # not before the accelerator
    ],
)
def test_releases_archives_and_years_date_a_run(cells: dict[str, str], date: str) -> None:
    assert date_of(Fields(cells), 2022) == date


def of(framework: str, date: str, accelerator: str = H100) -> Software:
    return software_of(Fields({"framework": framework, "software_date": date}), accelerator)


def test_a_framework_does_what_it_did_at_the_time() -> None:
    early, later = of("Megatron-LM", "2021-04", A100).settings, of("Megatron-LM", "2024-09").settings
    assert (early["attention"], early["dropout"], early["dp_overlap"]) == ("unfused", True, False)
    assert (early["sequence_parallel"], later["sequence_parallel"]) == (False, True)
    assert (later["attention"], later["dropout"], later["dp_overlap"]) == ("fused", False, True)
    assert of("Megatron-LM", "2024-03").settings["attention"] == "flash2"
    assert [of("LLM Foundry", date).settings["attention"] for date in ("2023-06", "2024-06")] == ["flash1", "flash2"]
    assert [of("TorchTitan", date).settings["loss"] for date in ("2024-12", "2025-06")] == ["retained", "eager"]
    assert [of("TorchTitan", date).microbatches for date in ("2024-12", "2025-06")] == ["stages", "single"]


def test_what_frameworks_share_is_said_once_and_their_own_comes_later() -> None:
    nemo, bridge = of("NeMo", "2025-06"), of("Megatron-Bridge", "2025-06")
    assert nemo.settings["tp_overlap"]
    assert bridge.settings["tp_overlap"]
    assert nemo.settings["recompute_to_end"]  # Megatron-LM's
    assert "etp" not in nemo.settings
    assert (bridge.settings["etp"], bridge.settings["grad_reduce_in_fp32"]) == (1, False)
    assert (nemo.counts, bridge.counts, of("Megatron-LM", "2025-06").counts) == ("full", "causal", "causal")


def test_a_vendor_s_practice_is_its_own() -> None:
    assert of("MLPerf", "2025-11", B200).precision == "fp4"
    assert of("MLPerf", "2025-11", "mi355x").precision == "fp8"
    assert of("MLPerf", "2026-06", "mi355x").precision == "fp4"


def test_before_its_first_entry_a_framework_does_the_same() -> None:
    assert of("LLM Foundry", "2021-01", A100).settings["attention"] == "flash1"


def test_an_unknown_framework_has_the_attention_of_its_time() -> None:
    found = [software_of(Fields({"software_date": date}), A100).settings for date in ("2021-01", "2023-01", "2025-01")]
    assert [each["attention"] for each in found] == ["unfused", "flash1", "fused"]


@check_all("name", sorted(TABLE))
def test_every_claim_is_dated_sourced_and_a_field_of_a_workload_or_of_software(name: str) -> None:
    known = {each.name for each in (*fields_of(Workload), *fields_of(Software))} | {"since", "source", "vendors"}
    entry = TABLE[name]
    assert entry["words"]
    assert set(entry) <= {"words", "models", "like", "practice"}
    assert entry.get("like", name) in TABLE
    dates = [step["since"] for step in entry["practice"]]
    assert dates == sorted(dates)
    for step in entry["practice"]:
        assert step["source"]
        assert set(step) <= known
        Workload(sequence=1, global_batch=1, **of(name, step["since"]).settings)

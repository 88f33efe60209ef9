"""What the software of a row does follows from its own words, its mapping and its accelerator."""

from __future__ import annotations

from dataclasses import fields as fields_of

import pytest

from cosmic.accuracy.measured_rows import Fields
from cosmic.accuracy.rows.training_software import Software, settings_of, software_of
from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.design.workload_layer import Workload
from tests.batches import check_all

TABLE = catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / "software.yaml")
H100, A100, B200 = "h100-sxm-80gb", "a100-sxm-80gb", "b200-sxm-180gb"


@pytest.mark.parametrize(
    ("cells", "framework"),
    [
        ({"framework": "TorchTitan", "tp": "8"}, "torchtitan"),  # the column comes first
        ({"tp": "8", "pp": "1"}, "megatron-lm"),
        ({"tp": "1", "pp": "1", "zero_stage": "3"}, "pytorch"),
        ({"zero_stage": "2.0"}, "deepspeed"),
        ({"schedule": "1F1B-interleaved"}, "megatron-lm"),
        ({}, "unknown"),
    ],
)
def test_a_framework_that_is_not_named_follows_from_the_mapping(cells: dict[str, str], framework: str) -> None:
    assert software_of(Fields(cells), H100).framework == framework


def test_a_framework_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SpecError, match="framework = 'megatrom'"):
        software_of(Fields({"framework": "megatrom"}), H100)


@pytest.mark.parametrize(
    ("cells", "date"),
    [({"software_date": "2024-03"}, "2024-03"), ({}, "2023-06"), ({"software_date": "2019-06"}, "2022-01")],
)
def test_a_date_is_that_of_the_row_but_not_before_the_accelerator(cells: dict[str, str], date: str) -> None:
    assert software_of(Fields(cells), H100).date == date


def of(framework: str, date: str, accelerator: str = H100) -> Software:
    return software_of(Fields({"framework": framework, "software_date": date}), accelerator)


def loss_when_compiled(date: str) -> str:
    fields = Fields({"framework": "TorchTitan", "software_date": date, "execution": "compiled", "accel": "H100"})
    return str(settings_of(fields, software_of(fields, H100))["loss"])


def test_a_framework_does_what_it_did_at_the_time() -> None:
    early, later = of("Megatron-LM", "2021-04", A100).settings, of("Megatron-LM", "2024-09").settings
    assert (early["attention"], early["dropout"], early["dp_overlap"]) == ("unfused", True, False)
    assert (early["sequence_parallel"], later["sequence_parallel"]) == (False, True)
    assert (later["attention"], later["dropout"], later["dp_overlap"]) == ("fused", False, True)
    assert of("Megatron-LM", "2024-03").settings["attention"] == "flash2"
    assert [of("llm-foundry", date).settings["attention"] for date in ("2023-06", "2024-06")] == ["flash1", "flash2"]
    assert [of("TorchTitan", date).settings["loss"] for date in ("2024-12", "2025-06")] == ["retained", "retained"]
    assert [loss_when_compiled(date) for date in ("2024-12", "2025-06")] == ["retained", "eager"]
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
    assert of("llm-foundry", "2021-01", A100).settings["attention"] == "flash1"


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

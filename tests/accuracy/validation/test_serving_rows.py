"""Measured serving: what its columns mean, and how far off predictions are."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import fmean

import pytest

from cosmic.accuracy.measured_rows import CARRIED, Row, Verdict, read_rows
from cosmic.accuracy.rows import serving_rows
from cosmic.accuracy.rows.serving_rows import Instances, ServedPool, ServedPools, read_serving_row
from cosmic.base.errors import SpecError


def rows(path: Path = CARRIED / "serving.csv") -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def changed(**cells: str) -> Row:
    """Return a row of Llama 70B on H200s with other cells."""
    known = {"id": "one", "backend": "vllm", "backend_version": "0.15", "model_path": "llama3-70b"}
    known |= {"system": "h200_sxm", "precision": "fp8", "mode": "agg", "isl": "1024", "osl": "1024", "tp": "8"}
    known |= {"clients": "64", "concurrency": "64.0", "spread": "0.2", "chunk_tokens": "8192"}
    known |= {"silicon_ttft_ms": "194.9", "silicon_tpot_ms": "12.73"}
    return {**known, **cells}


def judged(**cells: str) -> list[Verdict]:
    return serving_rows.compare_rows([changed(**cells)])


def mean_error(verdicts: list[Verdict], name: str) -> float:
    return fmean(abs(verdict.error) for verdict in verdicts if verdict.set.endswith(name) and verdict.error is not None)


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


def test_a_row_has_two_verdicts() -> None:
    first, further = judged()
    assert (first.id, further.id) == ("one:ttft", "one:tpot")
    assert (first.set, further.set) == ("serving agg ttft", "serving agg tpot")
    assert (first.measured_s, further.measured_s) == pytest.approx((0.1949, 0.01273))


def test_columns_say_the_kind() -> None:
    kind, found = read_rows(CARRIED / "serving.csv")
    assert kind.module == "serving_rows"
    assert len(found) <= 300


def test_columns_say_how_an_instance_was_mapped_and_set() -> None:
    settings = {"kv_bits": "16", "max_running": "32", "drafts": "2", "eager": "true", "cold_s": "3", "dp": "2"}
    found = read_serving_row(changed(**settings, assumed="a | b"))
    assert isinstance(found, ServedPool)
    assert (found.design.workload.tp, found.design.workload.cache_dtype, found.seats) == (8, "bf16", 64)
    assert (found.recipe.drafts, found.recipe.eager, found.recipe.cold_s) == (2, True, 3)
    assert (found.concurrency, found.npus, found.assumed) == (64, 16, ("a", "b"))


def test_columns_say_the_instances_of_two_pools() -> None:
    found = read_serving_row(changed(prefill="1 tp4", decode="4 tp8", slots="4", mode="disagg"))
    assert isinstance(found, ServedPools)
    assert (found.prefills, found.decodes, found.slots, found.npus) == (Instances(1, 4), Instances(4, 8), 16, 36)
    assert (found.prefill.network.npus, found.decode.network.npus) == (4, 8)


def test_no_precision_is_16_bits_and_said_so() -> None:
    found = read_serving_row(changed(precision=""))
    assert isinstance(found, ServedPool)
    assert found.design.workload.precision == "bf16"
    assert found.assumed == ("precision: bf16 assumed",)


@pytest.mark.parametrize("text", ["tp8", "4 pp8", "4 tp", ""])
def test_instances_that_are_not_understood_are_refused(text: str) -> None:
    with pytest.raises(SpecError):
        Instances.read(text)


def test_instances_are_written_as_they_are_read() -> None:
    for each in (Instances(4, 8), Instances(1, 1, 32), Instances(2, 4, 2)):
        assert Instances.read(str(each)) == each


# ---- refusals


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"mode": "both"}, "must be agg or disagg"),
        ({"backend": "other"}, "engine"),
        ({"model_path": "nobody/Nothing-7B"}, "model"),
        ({"system": "abacus"}, "accel"),
        ({"clients": "", "concurrency": ""}, "is not given"),
        ({"precision": "fp2"}, "no such precision"),
        ({"isl": "many"}, "must be a number"),
        ({"isl": "0.5"}, "must be a whole number"),
        ({"osl": "1e-9"}, "must be a whole number"),
        ({"clients": "", "concurrency": "1.5"}, "must be a whole number"),
        ({"tp": "3"}, "does not divide"),
        ({"tp": "", "tp_size": "8"}, "says nothing of one instance"),
        ({"silicon_tpot_ms": ""}, "is not given"),
    ],
)
def test_what_is_not_understood_is_skipped_with_its_reason(cells: dict[str, str], reason: str) -> None:
    verdicts = judged(**cells)
    assert len(verdicts) == 2
    assert all(reason in verdict.skipped for verdict in verdicts), verdicts[0].skipped

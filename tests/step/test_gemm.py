"""Matrix products: worked by hand, laws that hold of every shape, and what was measured on seven accelerators."""

from __future__ import annotations

import csv
import gzip
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cosmic.accuracy.measured_rows import carried_files, read_rows
from cosmic.design import catalog_entries, schema
from cosmic.design.design_batch import first_known
from cosmic.design.machine_layers import accelerator_layers
from cosmic.step.gemm import FORMATS, ChipLoad, MatrixUnit, gemm_seconds, matrix_unit
from tests.batches import check_all

CALIBRATION = Path(__file__).parents[2] / "calibration"
GAP_S = 17.6e-6
"""What eager execution adds to each of our own products, from one event to the next (the catalog's note)."""

FAST = MatrixUnit(flop_per_s=1e12, bytes_per_s=1e30, sms=10, tiles=((64, 64),))
LOOP_S = 2 * 64 * 64 * 1000 / 1e11
"""A tile of 64 x 64 x 1000 on one of ten SMs."""


def close(found: Any, wanted: float) -> bool:
    return float(found) == pytest.approx(wanted, rel=1e-9)


# ---- by hand


@pytest.mark.parametrize(("rows", "waves"), [(1, 1), (64, 1), (640, 1), (641, 2), (1280, 2), (1281, 3)])
def test_a_wave_takes_as_long_for_one_tile_as_for_all_units(rows: int, waves: int) -> None:
    assert close(gemm_seconds(1, rows, 64, 1000, FAST), waves * LOOP_S)


def test_every_wave_pays_the_ramp_and_the_kernel_its_launch() -> None:
    unit = replace(FAST, ramp_s=3e-6, launch_s=5e-6)
    assert close(gemm_seconds(1, 1280, 64, 1000, unit), 2 * (LOOP_S + 3e-6) + 5e-6)


def test_the_best_of_the_tiles_counts() -> None:
    both = replace(FAST, tiles=((64, 64), (128, 128)), ramp_s=1e-3)
    assert close(gemm_seconds(1, 1280, 128, 1000, both), 4 * LOOP_S + 1e-3)  # one wave of large tiles, not 4 small
    assert close(gemm_seconds(1, 64, 64, 1000, both), LOOP_S + 1e-3)


def test_idle_units_share_a_sum_where_it_is_long() -> None:
    unit = replace(FAST, bytes_per_s=1e12, operand_bytes=0.0, result_bytes=0.0, split_k=4, ramp_s=1e-6)
    merge = 1e-6 + 16 * 64 * 64 * 10 / 1e12
    assert close(gemm_seconds(1, 128, 64, 1000, unit), 1e-6 + LOOP_S / 4 + merge)  # two tiles: 5 SMs for each, of 4
    assert close(gemm_seconds(1, 320, 64, 1000, unit), 1e-6 + LOOP_S / 2 + merge)
    assert close(gemm_seconds(1, 384, 64, 1000, unit), 1e-6 + LOOP_S)  # six tiles leave no unit a partner
    short = gemm_seconds(1, 64, 64, 1, unit)
    assert close(short, 1e-6 + LOOP_S / 1000)


def test_products_alike_fill_waves_together() -> None:
    assert close(gemm_seconds(10, 64, 64, 1000, FAST), LOOP_S)
    assert close(gemm_seconds(11, 64, 64, 1000, FAST), 2 * LOOP_S)


def test_a_long_product_comes_down_to_the_sustained_rate() -> None:
    unit = replace(FAST, sustained=0.8, burst_s=LOOP_S)
    assert close(gemm_seconds(1, 640, 64, 1000, unit), LOOP_S * (1 + 0.25 / 2))
    forever = gemm_seconds(1, 640, 64, 1e12, unit)
    assert close(forever, LOOP_S * 1e9 / 0.8)


def test_a_product_that_memory_bounds_takes_the_time_of_its_bytes() -> None:
    unit = MatrixUnit(flop_per_s=1e30, bytes_per_s=1e12, operand_bytes=1.0, sms=10)
    assert close(gemm_seconds(3, 16, 1000, 500, unit), 3 * (16 * 500 + 500 * 1000 + 2 * 16 * 1000) / 1e12)


def test_eight_bits_pay_for_the_cast() -> None:
    fields = {"bf16": 1e15, "fp8": 2e15, "fp8_efficiency": 0.5, "memory_efficiency": 1.0, "sms": 0, "launch": 1e-6}
    fields |= {"fp8_cast": 7e-6, "sustained_efficiency": 1.0, "burst": 0.0, "tile_ramp": 0.0}
    unit = matrix_unit(fields.get, 1e12, "fp8")
    work, cast = 2 * 4096 * 8192 * 8192 / 1e15, 4096 * 8192 * 5 / (0.5 * 1e12)
    assert close(gemm_seconds(1, 4096, 8192, 8192, unit), work + cast + 8e-6)


# ---- laws


def test_the_defaults_are_a_plain_roofline() -> None:
    unit = MatrixUnit(flop_per_s=1e15, bytes_per_s=1e12)
    assert close(gemm_seconds(1, 4096, 4096, 4096, unit), 2 * 4096**3 / 1e15)
    assert close(gemm_seconds(1, 1, 4096, 4096, unit), 2 * (4096 + 4096**2 + 4096) / 1e12)


def test_idealised_accelerators_stay_a_plain_roofline() -> None:
    unit = unit_of("cosmic-10tf", "bf16")
    assert close(gemm_seconds(2, 1000, 1000, 1000, unit), 2 * 2e9 / 10e12)
    assert close(gemm_seconds(1, 1, 1000, 1000, unit), 2 * (1000 + 1e6 + 1000) / 50e9)


@check_all("number", FORMATS)
@check_all("name", ["a100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x", "tpu-v5p"])
def test_more_work_never_takes_less_time(name: str, number: str) -> None:
    unit = unit_of(name, number)
    random = np.random.default_rng(7)
    sizes = np.exp(random.uniform(0, np.log(40_000), (4, 2000)))
    sizes[0] = np.ceil(sizes[0] / 1000)
    before = seconds(sizes, unit)
    for axis in range(4):
        more = sizes.copy()
        more[axis] *= random.uniform(1, 2, 2000)
        assert np.all(seconds(more, unit) >= before * (1 - 1e-12))


def seconds(sizes: npt.NDArray[np.float64], unit: MatrixUnit) -> Any:
    count, m, n, k = sizes
    return gemm_seconds(count, m, n, k, unit)


def test_no_product_is_faster_than_peak_and_bandwidth_allow() -> None:
    random = np.random.default_rng(8)
    m, n, k = np.exp(random.uniform(0, np.log(40_000), (3, 5000)))
    for name in catalog_entries.entry_names("accelerators"):
        compute, memory = accelerator_layers(name, "accelerator")
        least = np.maximum(2 * m * n * k / compute.bf16_flop_per_s, 2 * n * k / memory.bandwidth_bytes_per_s)
        assert np.all(gemm_seconds(1, m, n, k, unit_of(name, "bf16")) >= least * (1 - 1e-12))


def test_a_batch_of_accelerators_gives_what_each_gives() -> None:
    names = ["h100-sxm-80gb", "cosmic-10tf", "b200-sxm-180gb", "tpu-v4", "a100-sxm-40gb"]
    layers = [accelerator_layers(name, "accelerator") for name in names]
    bandwidth = np.array([memory.bandwidth_bytes_per_s for _, memory in layers])

    def column(key: str) -> Any:
        values = [schema.get_field(compute, key) for compute, _ in layers]
        return np.array(values, dtype=object if None in values else None)

    for number in FORMATS:
        together = gemm_seconds(4, 100.5, 4096, 14336, matrix_unit(column, bandwidth, number, load="repeated"))
        alone = [float(gemm_seconds(4, 100.5, 4096, 14336, unit_of(name, number))) for name in names]
        assert np.asarray(together).tolist() == pytest.approx(alone, rel=1e-12)


def test_what_is_known_first_counts() -> None:
    column = np.array([None, 3.0], dtype=object)
    assert first_known(column, np.array([1.0, 2.0])).tolist() == [1.0, 3.0]
    assert first_known(None, column, 5.0).tolist() == [5.0, 3.0]
    assert first_known(4.0, column) == 4.0


# ---- measured

Rows = npt.NDArray[np.float64]


@cache
def measured() -> dict[tuple[str, str, str], Rows]:
    """The carried products: m, n, k and seconds by accelerator, format and source."""
    sets: dict[tuple[str, str, str], list[tuple[float, ...]]] = {}
    with gzip.open(CALIBRATION / "data" / "gemm_measured.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            sizes = (float(row["m"]), float(row["n"]), float(row["k"]))
            key = (row["accelerator"], row["format"], row["source"])
            sets.setdefault(key, []).append((*sizes, 1e-6 * float(row["us"])))
    for own in read_rows(carried_files()[0].parent / "h200_gemm.csv")[1]:
        sizes = (float(own["m"]), float(own["n"]), float(own["k"]))
        sets.setdefault(("h200-sxm-141gb", "bf16", "own"), []).append((*sizes, 1e-3 * float(own["ms"])))
    return {key: np.array(rows) for key, rows in sets.items()}


def unit_of(name: str, number: str, *, load: ChipLoad = "repeated") -> MatrixUnit:
    compute, memory = accelerator_layers(name, "accelerator")
    field: Callable[[str], Any] = lambda key: schema.get_field(compute, key)  # noqa: E731  a short word for a long call
    return matrix_unit(field, memory.bandwidth_bytes_per_s, number, load=load)


def errors(key: tuple[str, str, str], *, load: ChipLoad) -> tuple[Rows, Rows]:
    """Return the flop and the relative error, in percent, of each product of a set."""
    name, number, source = key
    m, n, k, taken = measured()[key].T
    found = gemm_seconds(1, m, n, k, unit_of(name, number, load=load)) + (GAP_S if source == "own" else 0.0)
    return 2 * m * n * k, 100 * (found / taken - 1)


AICONFIGURATOR = sorted(key for key in measured() if key[2] == "aiconfigurator")


def test_the_carried_products_are_all_there() -> None:
    assert len(AICONFIGURATOR) == 23
    assert sum(map(len, measured().values())) == 8913 + 293


@check_all("key", AICONFIGURATOR)
def test_large_products_are_off_by_a_tenth_at_most(key: tuple[str, str, str]) -> None:
    work, error = errors(key, load="alone")
    assert np.abs(error[work >= 1e10]).mean() < 8


@check_all("key", AICONFIGURATOR)
def test_decoding_is_off_by_an_eighth_at_most(key: tuple[str, str, str]) -> None:
    rows = measured()[key]
    _, error = errors(key, load="alone")
    assert np.abs(error[rows[:, 0] <= 256]).mean() < 12


@pytest.mark.parametrize("name", ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb"])
def test_even_as_part_of_a_steady_load_large_products_are_off_by_a_tenth_at_most(name: str) -> None:
    for number in ("bf16", "fp8"):
        key = (name, number, "aiconfigurator")
        if key in measured():
            work, error = errors(key, load="repeated")
            assert np.abs(error[work >= 1e10]).mean() < 10


def test_our_own_products_on_the_h200_are_met() -> None:
    work, error = errors(("h200-sxm-141gb", "bf16", "own"), load="repeated")
    assert np.abs(error[work >= 1e10]).mean() < 8
    assert np.abs(error[(work >= 1e9) & (work < 1e10)]).mean() < 15


def test_the_model_extrapolates_to_products_ten_times_as_large_as_those_fitted() -> None:
    script = fitting()
    name = "h100-sxm-80gb"
    known = script.stated(name)
    sets = {key: rows for key, rows in measured().items() if key[0] == name}
    small = {key: rows[np.prod(rows[:, :3], axis=1) < 1e12] for key, rows in sets.items()}
    fields = known | script.fit(small, known)
    for key, rows in sets.items():
        large = rows[np.prod(rows[:, :3], axis=1) >= 1e12]
        assert np.abs(script.errors(key, large, fields)).mean() < 0.15


def test_the_catalog_holds_what_the_script_finds() -> None:
    script = fitting()
    name = "a100-sxm-80gb"
    compute, _ = accelerator_layers(name, "accelerator")
    found = script.fit({key: rows for key, rows in measured().items() if key[0] == name}, script.stated(name))
    assert compute.provenance == "calibrated"
    for key, value in found.items():
        assert schema.get_field(compute, key) == pytest.approx(value, rel=0.05)


def test_accelerators_that_nobody_measured_say_that_they_are_estimates() -> None:
    calibrated = {key[0] for key in measured()}
    for name in catalog_entries.entry_names("accelerators"):
        compute, _ = accelerator_layers(name, "accelerator")
        assert (compute.provenance == "calibrated") == (name in calibrated)


def fitting() -> Any:
    """The script that fits, as a module; it needs SciPy."""
    pytest.importorskip("scipy")
    spec = importlib.util.spec_from_file_location("fit_gemm", CALIBRATION / "fit_gemm.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

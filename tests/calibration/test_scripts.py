"""Calibration: scripts read what there is, find parameters that are known, and write nothing but what they fitted."""

from __future__ import annotations

import csv
import gzip
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import expected_errors
import fit_collectives
import fit_gemm
import fit_kernels
import fit_runs
import fit_serving
import numpy as np
import pytest
import read_serving
import yaml
from run_parameters import QUANTITIES, Floats, Values, start, write

from cosmic.accuracy.measured_rows import CARRIED, carried_files, read_rows
from cosmic.accuracy.validating import MeasuredStep
from cosmic.design import catalog_entries
from cosmic.design.measured_hardware import AICONFIGURATOR
from cosmic.design.prediction_accuracy import learned_errors, pair_errors
from cosmic.search.mapping.design_completion import load_design

DATA = Path(fit_gemm.__file__).parent / "data"
H200 = "h200-sxm-141gb"


def table(name: str) -> list[dict[str, str]]:
    """Return the rows of a compressed file."""
    with gzip.open(DATA / name, "rt", newline="") as file:
        return list(csv.DictReader(file))


def copied(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> Path:
    """Return a folder of accelerators that scripts write to instead of the catalog's."""
    for name in names:
        shutil.copy(fit_gemm.CATALOG / f"{name}.yaml", folder)
    monkeypatch.setattr(fit_gemm, "CATALOG", folder)
    return folder


def entry(path: Path) -> dict[str, Any]:
    """Return a catalog file."""
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


# ---- data


def test_no_file_is_kept_both_here_and_in_the_package() -> None:
    assert not {path.name for path in DATA.iterdir()} & {path.name for path in carried_files()}


def test_collectives_of_the_package_are_a_tenth_of_the_whole() -> None:
    keys = ("source", "hardware", "n_ranks", "n_nodes", "size_bytes", "time_us")
    whole = {tuple(row[key] for key in keys) for row in table("collectives.csv.gz")}
    part = read_rows(CARRIED / "collectives.csv")[1]
    assert all(tuple(row[key] for key in keys) in whole for row in part)
    assert 9 < len(table("collectives.csv.gz")) / len(part) < 11


def test_samples_of_serving_of_the_package_are_a_fifth_of_the_whole() -> None:
    whole, part = table("serving.csv.gz"), published("serving.csv")
    assert all(row in whole for row in part)
    assert 4.9 < len(whole) / len(part) < 5.1
    pools, some = table("serving_pools.csv.gz"), published("serving_pools.csv")
    assert all(row in pools for row in some)


def published(name: str) -> list[dict[str, str]]:
    """Return rows of serving as they were published, without the columns that were read from theirs."""
    rows = read_rows(CARRIED / name)[1]
    return [{key: cell for key, cell in row.items() if key not in read_serving.READ} for row in rows]


def test_gemms_of_the_package_are_a_thirtieth_of_the_whole() -> None:
    columns = fit_gemm.COLUMNS[:-1]
    whole: dict[tuple[str, ...], list[float]] = {}
    for row in table("gemm_measured.csv.gz"):
        whole.setdefault(tuple(row[key] for key in columns), []).append(float(row["us"]))
    part = fit_gemm.collected(CARRIED / "gemm.csv")
    for row in part:
        known = whole[tuple(row[key] for key in columns)]
        assert min(abs(float(row["us"]) / us - 1) for us in known) < 1e-4
    assert 29 < sum(map(len, whole.values())) / len(part) < 31


def test_gemms_are_those_collected_and_our_own() -> None:
    sets = fit_gemm.measured()
    assert len(sets[H200, "bf16", fit_gemm.OWN]) == len(read_rows(CARRIED / "h200_gemm.csv")[1]) == 293
    assert {name for name, *_ in sets} == set(AICONFIGURATOR.values())
    assert all((rows > 0).all() for rows in sets.values())


def test_a_carried_copy_has_the_same_bytes_for_the_same_rows(tmp_path: Path) -> None:
    rows = fit_gemm.collected(CARRIED / "gemm.csv")
    first, second = tmp_path / "first.csv.gz", tmp_path / "second.csv.gz"
    fit_gemm.carry(rows, first)
    fit_gemm.carry(rows, second)
    assert first.read_bytes() == second.read_bytes()
    again = fit_gemm.measured(first)
    assert sum(len(found) for (*_, source), found in again.items() if source != fit_gemm.OWN) == len(rows)


# ---- GEMMs


def test_writing_an_entry_leaves_other_keys_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied(monkeypatch, tmp_path, H200) / f"{H200}.yaml"
    before = entry(path)
    fit_gemm.write_entry(H200, {"gemm_efficiency": "0.5", "launch": "3 us"}, {"gemm": "tried"})
    after = entry(path)
    assert after["compute"] == before["compute"] | {"gemm_efficiency": 0.5, "launch": "3 us"}
    others = {key: text for key, text in before["calibration"].items() if not key.startswith("gemm")}
    assert others
    assert after["calibration"] == others | {"gemm": "tried"}
    assert {**after, "compute": 0, "calibration": 0} == {**before, "compute": 0, "calibration": 0}


def test_writing_an_entry_twice_is_writing_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = copied(monkeypatch, tmp_path, H200) / f"{H200}.yaml"
    fit_gemm.write_entry(H200, {"launch": "3 us"}, {"gemm": "tried"})
    once = path.read_text()
    fit_gemm.write_entry(H200, {"launch": "3 us"}, {"gemm": "tried"})
    assert path.read_text() == once


def test_parameters_of_gemms_are_found_in_times_made_with_them() -> None:
    key = ("a100-sxm-80gb", "bf16", "aiconfigurator")
    known = fit_gemm.stated(key[0])
    start = {name: fit_gemm.SPANS[name][0] for name in fit_gemm.free({key: np.ones((1, 4))})}
    true = {**known, **start, "gemm_efficiency": 0.7, "operand_efficiency": 0.6, "launch": 5e-6}
    rows = fit_gemm.measured()[key].copy()
    rows[:, 3] = fit_gemm.predicted(key, rows, true)
    found = fit_gemm.fit({key: rows}, known)
    assert np.abs(fit_gemm.errors(key, rows, {**known, **found})).max() < 0.03
    assert found["gemm_efficiency"] == pytest.approx(0.7, rel=0.03)
    assert found["operand_efficiency"] == pytest.approx(0.6, rel=0.03)


def test_an_accelerator_nobody_measured_takes_its_relatives_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copied(monkeypatch, tmp_path, "h100-pcie-80gb", "mi300x")
    taken = {"gemm_efficiency": 0.5, "launch": 3e-6, "gap": 1.0, "fp4_ramp": 1e-6}
    for name in ("h100-pcie-80gb", "mi300x"):
        fit_gemm.estimate(name, "h100-sxm-80gb", taken)
        found = entry(folder / f"{name}.yaml")["compute"]
        assert found["provenance"] == "estimate"
        assert found["launch"] == "3 us"
        assert not {"gap", "fp4_ramp"} & set(found)
    assert entry(folder / "h100-pcie-80gb.yaml")["compute"]["gemm_efficiency"] == 0.5
    assert entry(folder / "mi300x.yaml")["compute"]["gemm_efficiency"] != 0.5


# ---- collectives


def test_parameters_of_links_are_found_in_times_made_with_them() -> None:
    link = fit_collectives.FITTED["pcie5"]
    rows = fit_collectives.measured(link)
    true = {name: fit_collectives.START[name] for name in link.free} | {"efficiency": 0.6, "overhead_s": 9e-6}
    made = replace(rows, seconds=fit_collectives.predicted(fit_collectives.dimension(link, true), rows))
    found = fit_collectives.fit(link, made, {name: fit_collectives.START[name] for name in link.free})
    assert found["efficiency"] == pytest.approx(0.6, rel=0.02)
    assert found["overhead_s"] == pytest.approx(9e-6, rel=0.05)


def test_what_was_fitted_of_a_link_replaces_what_was_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copy(fit_collectives.LINKS / "nvlink4.yaml", tmp_path))
    monkeypatch.setattr(fit_collectives, "LINKS", tmp_path)
    before = entry(path)
    values = {name: 2.0 * fit_collectives.START[name] for name in fit_collectives.ADDING}
    fit_collectives.write("nvlink4", fit_collectives.FITTED["nvlink4"], values, {"from_1_mib": "none"})
    after = entry(path)
    assert after["latency"] == "1 us"
    assert after["transport"].keys() == before["transport"].keys()
    assert after["residuals"] == {"from_1_mib": "none"}
    changed = {"latency", "transport", "residuals"}
    assert all(after[key] == before[key] for key in before.keys() - changed)


# ---- kernels


def test_kernels_are_fitted_and_checked_in_one_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: dict[str, Mapping[str, str]] = {}
    monkeypatch.setattr(fit_kernels, "write_entry", lambda name, fields, *_: written.update({name: fields}))
    offsets: dict[str, float] = {}
    monkeypatch.setattr(fit_kernels, "write_offsets", offsets.update)
    fit_kernels.main()
    assert {"memory_efficiency", "attention_ramp"} <= written[H200].keys()
    assert 0.6 < float(written[H200]["attention_efficiency"]) < 0.8
    assert offsets == {"attention_forward": 29e-6, "attention_backward": 82e-6, "streaming": 9.9e-6}
    shown = capsys.readouterr().out
    assert all(
        title in shown for title in ("attention", "streaming kernels", "fused AdamW", "decode", "training steps")
    )


def test_every_accelerator_whose_sms_are_known_is_of_one_family() -> None:
    known = [name for names, _ in fit_kernels.FAMILIES.values() for name in names]
    assert sorted(known) == sorted(fit_gemm.SMS)
    assert set(known) <= set(catalog_entries.entry_names("accelerators"))


# ---- whole runs


def simple_runs(sizes: Mapping[str, int]) -> fit_runs.Runs:
    """Return runs of made-up sources that all depend on two quantities alike."""
    point = load_design("llama3-8b@dgx-h100:16", {"tp": 8, "pp": 1, "cp": 1})
    steps = [MeasuredStep(f"{name}-{place}", name, point, 1.0) for name, size in sizes.items() for place in range(size)]
    return fit_runs.gather(steps)


def test_runs_depend_on_what_their_accelerator_and_links_are() -> None:
    point = load_design("llama3-8b@dgx-h100:16", {"tp": 8, "pp": 1, "cp": 1})
    runs = fit_runs.gather([MeasuredStep("a", "a", point, 1.0)])
    used = {
        name: {runs.names[place] for place in np.flatnonzero(row)}
        for name, row in zip(QUANTITIES, runs.uses[0], strict=True)
    }
    assert used["steady"] == {"steady", "steady Hopper", "steady h100-sxm-80gb"}
    assert used["link"] == {"link"}
    assert used["host"] == {"host new"}
    logs, slopes = fit_runs.predict(runs, start(runs.names).numbers[None])
    assert logs.shape == (1, 1)
    slope = dict(zip(QUANTITIES, slopes[0, 0], strict=True))
    assert slope["steady"] > 0  # the more is lost, the longer a step
    assert slope["narrow"] == 0  # no GEMM has 8 bits
    assert slope["slack"] > 0


def test_a_fit_finds_what_runs_were_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log seconds that are linear in the parameters; a third source is off by its own reasons."""
    runs = simple_runs({"a": 20, "b": 20, "odd": 1})
    truth = start(runs.names).numbers + np.where(np.array(runs.names) == "slack", 0.3, 0.0)
    quantities = np.einsum("rqp,sp->srq", runs.uses, truth[None])
    measured = np.exp(0.5 * quantities.sum(axis=2)[0] + np.where(runs.sources == "odd", 2.0, 0.0))
    steps = tuple(replace(each, measured_s=float(s)) for each, s in zip(runs.steps, measured, strict=True))
    runs = replace(runs, steps=steps)

    def linear(given: fit_runs.Runs, tried: Floats) -> tuple[Floats, Floats]:
        found = np.einsum("rqp,sp->srq", given.uses, tried)
        return 0.5 * found.sum(axis=2), np.full_like(found, 0.5)

    monkeypatch.setattr(fit_runs, "predict", linear)
    *_, found = fit_runs.fit(runs, 4)
    seen = runs.sources != "odd"
    assert np.abs(found.error[seen]).max() < 0.03
    assert np.abs(found.left_out[seen]).max() < 0.06
    assert found.left_out[~seen][0] < -1.5
    assert set(found.without) == {"a", "b", "odd"}
    least, most = found.spread("slack")
    assert least <= most


def test_few_runs_leave_a_parameter_near_its_prior() -> None:
    """A run that takes twice as long as predicted moves a parameter by less than its spread; many agree on more."""
    mean, spread = np.zeros(1), np.full(1, 0.3)
    slope = np.full((1, 1), 0.1)  # a tenth of the step depends on it
    found = fit_runs.improve(np.array([-0.7]), slope, np.ones(1), np.zeros(1), (mean, spread))
    assert 0 < found[0] < 0.3
    many = fit_runs.improve(np.full(100, -0.03), np.full((100, 1), 0.1), np.full(100, 0.1), np.zeros(1), (mean, spread))
    assert found[0] < many[0] < 0.31


def test_a_large_source_weighs_as_the_root_of_its_runs() -> None:
    sources = np.array(["a"] * 100 + ["b"])
    found = fit_runs.weights(sources, np.ones(101, dtype=bool), np.zeros(101, dtype=bool))
    assert found[:100].sum() == pytest.approx(10)
    assert found[100] == 1
    assert fit_runs.weights(sources, sources == "b", sources == "b")[:100].sum() == 0
    assert fit_runs.weights(sources, sources == "b", sources == "b")[100] == fit_runs.OF_COLLECTED


def test_an_accelerator_without_runs_is_as_its_architecture() -> None:
    names = ("steady", "steady Hopper", "steady h100-sxm-80gb")
    found = Values(names, np.array([np.log(0.1), np.log(2.0), np.log(1.5)]))
    assert found.of("h100-sxm-80gb")["steady"] == pytest.approx(np.exp(-0.3))
    assert found.of("h800-sxm-80gb")["steady"] == pytest.approx(np.exp(-0.2))
    assert found.of("tpu-v4")["steady"] == pytest.approx(np.exp(-0.1))
    assert "host" not in found.of(H200) | found.of("tpu-v4")


def test_what_runs_determine_is_written_where_it_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = fit_gemm.CATALOG.parent
    for name in ("accelerators", "systems/dgx-h100.yaml", "constants/overlap.yaml", "links/infiniband-ndr.yaml"):
        target = tmp_path / name
        (target if name == "accelerators" else target.parent).mkdir(exist_ok=True)
        if target.suffix:
            shutil.copy(root / name, target)
    folder = copied(monkeypatch, tmp_path / "accelerators", H200)
    before = entry(tmp_path / "systems" / "dgx-h100.yaml")
    lost = {"dp": 0.25, "tp": 0.4, "ep": 0.3, "link": 0.8, "steady": 0.9, "narrow": 0.85}
    values = {name: np.log(-np.log(share)) for name, share in lost.items()} | {"slack": np.log(0.03)}
    write(Values(tuple(values), np.array(list(values.values()))), folder)
    overlap = entry(tmp_path / "constants" / "overlap.yaml")
    assert (overlap["tp"]["value"], overlap["ep"]["value"]) == (0.4, 0.3)
    compute = entry(folder / f"{H200}.yaml")["compute"]
    assert (compute["straggler_slack"], compute["steady_efficiency"]) == (0.03, 0.9)
    assert entry(tmp_path / "links" / "infiniband-ndr.yaml")["transport"]["efficiency"] == 0.8
    after = entry(tmp_path / "systems" / "dgx-h100.yaml")
    assert after["collective"].pop("overlap_efficiency") == 0.25
    before["collective"].pop("overlap_efficiency")
    assert after == before


def test_what_is_learned_of_errors_is_written_as_the_catalog_reads_it() -> None:
    known = learned_errors()
    pairs: dict[str, dict[str, Any]] = {
        name: {"pairs": each.pairs, "sources": each.sources, "sizes": list(each.sizes)}
        for name, each in pair_errors().items()
    }
    tree = yaml.safe_load(expected_errors.text_of(known, pairs))
    assert tree["measured"][0]["source"] == known.known[0].source
    assert tree["scale"].keys() == known.coefficients.keys()
    assert tree["pairs"].keys() == pairs.keys()


# ---- serving


def _some(folder: Path) -> fit_serving.Data:
    path = folder / "some.csv"
    lines = (CARRIED / "serving.csv").read_text().splitlines()
    path.write_text("\n".join(lines[:1] + lines[1::36]) + "\n")
    return fit_serving.gather(path)


@pytest.mark.long
def test_engines_are_fitted_without_some_samples(tmp_path: Path) -> None:
    data = _some(tmp_path)
    unseen = fit_serving.left_out(data, np.arange(len(data.rows)) % 2)
    assert np.isfinite(unseen).all()


def test_samples_are_gathered_and_predicted_together(tmp_path: Path) -> None:
    data = _some(tmp_path)
    assert 5 <= len(data.rows) <= 10
    first, further = fit_serving.errors(fit_serving.start(), data)
    assert first.shape == further.shape == data.ttft_s.shape
    assert np.isfinite(first).all()
    assert np.isfinite(further).all()
    shown = fit_serving.table("engine", (first, further), data.column(lambda row: row.engine))
    assert shown.splitlines()[-1].startswith("all")


def test_what_was_fitted_of_an_engine_replaces_what_was_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(fit_serving.CATALOG / "engines", tmp_path / "engines")
    shutil.copy(fit_serving.CATALOG / "serving_recipes.yaml", tmp_path)
    monkeypatch.setattr(fit_serving, "CATALOG", tmp_path)
    path = tmp_path / "engines" / "sglang.yaml"
    before = entry(path)
    fitted, recipes = fit_serving.as_text(fit_serving.start())
    fit_serving.write("sglang", fitted["sglang"], {"ttft": "none"})
    fit_serving.write_recipes(recipes)
    after = entry(path)
    assert after["engine"].keys() == before["engine"].keys()
    assert (after["engine"]["frontend"], after["engine"]["prefill_first"]) == ("20 ms", True)
    assert after["residuals"] == {"ttft": "none"}
    assert all(after[key] == before[key] for key in before.keys() - {"engine", "residuals"})
    assert entry(tmp_path / "serving_recipes.yaml")["recipes"] == {"acceptance": 0.65, "polled": 0.35, "held": 0.5}


def test_offsets_of_measurements_are_written_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(shutil.copy(fit_gemm.OFFSETS, tmp_path))
    monkeypatch.setattr(fit_gemm, "OFFSETS", path)
    before = entry(path)["offsets"]
    fit_gemm.write_offsets({"gemm": 2e-05})
    assert entry(path)["offsets"] == before | {"gemm": "20 us"}

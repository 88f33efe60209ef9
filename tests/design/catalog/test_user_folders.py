"""Entries of a user's own: found by name wherever the catalog's are, and checked as input is."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries
from cosmic.design.loading import dump_design
from cosmic.design.systems import read_system
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.space.space_files import load_space
from cosmic.simulate.metrics import Metrics

TERN = "title: Tern\nsource: ours\ncompute: {bf16: 500 TFLOP/s}\nmemory: {capacity: 96 GB, bandwidth: 4 TB/s}\n"
POD = """
title: A pod
source: ours
accelerator: tern
npus: 64
network:
  dims:
    - {topology: ring, npus: 8, bandwidth: 200 GB/s, latency: 1 us}
    - {topology: switch, npus: rest, bandwidth: 50 GB/s, latency: 3 us}
"""
BETWEEN = "title: Between\nsource: ours\nannotations: [{tensors: [residual], dims: {hidden: [tp]}}]\n"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of entries that `COSMIC_PATH` lists."""
    for kind, name, text in (("accelerators", "tern", TERN), ("systems", "pod", POD), ("strategies", "mine", BETWEEN)):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"{name}.yaml").write_text(text)
    monkeypatch.setenv("COSMIC_PATH", str(tmp_path))
    return tmp_path


def test_entries_of_a_user_stand_beside_the_catalog_s(mine: Path) -> None:
    assert "tern" in catalog_entries.entry_names("accelerators")
    assert "h100-sxm-80gb" in catalog_entries.entry_names("accelerators")
    assert list(catalog_entries.entry_names("systems")) == sorted(catalog_entries.entry_names("systems"))
    point = load_design("llama3-8b@pod:32")
    assert (point.compute.accelerator, point.network.npus) == ("tern", 32)
    assert isinstance(evaluate(point), Metrics)
    assert load_design(mine_file(mine, dump_design(point)), plain=True) == point


def mine_file(folder: Path, text: str) -> Path:
    path = folder / "design.yaml"
    path.write_text(text)
    return path


def test_an_entry_with_a_name_that_is_not_printable_is_refused(mine: Path) -> None:
    (mine / "accelerators" / "tern\x1b[2J.yaml").write_text(TERN)
    with pytest.raises(SpecError, match=r"^COSMIC_PATH accelerators = 'tern\\x1b\[2J': must be printable"):
        catalog_entries.entry_names("accelerators")


def test_without_the_folder_they_are_gone(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "tern" in catalog_entries.entry_names("accelerators")
    monkeypatch.delenv("COSMIC_PATH")
    assert "tern" not in catalog_entries.entry_names("accelerators")


def test_a_search_chooses_among_a_user_s_accelerators(mine: Path) -> None:
    space = load_space({"base": "llama3-8b@pod:8", "parameters": {"compute.accelerator": ["tern", "h100-sxm-80gb"]}})
    assert space.valid == 2


def test_an_entry_cannot_replace_one_of_the_catalog(mine: Path) -> None:
    (mine / "accelerators" / "h100-sxm-80gb.yaml").write_text(TERN)
    catalog_entries._entry_files.cache_clear()
    with pytest.raises(SpecError, match=r"^accelerators = 'h100-sxm-80gb': exists already: rename .*$"):
        catalog_entries.entry_names("accelerators")
    catalog_entries._entry_files.cache_clear()


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("source: ours", "systems/bad.yaml accelerator = None: must name an accelerator of the catalog"),
        ("{accelerator: tern, npus: 8, network: 5}", "systems/bad.yaml network = 5: must hold a list dims"),
        (
            "{accelerator: tern, npus: 8, network: {dims: 5}}",
            "systems/bad.yaml network.dims = 5: must be a list of dimensions, innermost first",
        ),
        (
            "{accelerator: tern, npus: 8, network: {dims: [{npus: all}]}}",
            "systems/bad.yaml network.dims.0.npus = 'all': must be a whole number of at least 2, or rest",
        ),
    ],
)
def test_a_system_that_says_too_little_is_one_sentence(mine: Path, text: str, rule: str) -> None:
    (mine / "systems" / "bad.yaml").write_text(text)
    catalog_entries._entry_files.cache_clear()
    with pytest.raises(SpecError) as caught:
        read_system("bad:8")
    assert str(caught.value) == rule


def test_a_user_s_strategy_splits_what_the_switches_leave(mine: Path) -> None:
    settings = {"workload.tp": 8, "workload.sequence_parallel": False}
    plain = evaluate(load_design("llama3-8b@pod:64", settings, plain=True))
    split = evaluate(load_design("llama3-8b@pod:64", {**settings, "workload.strategies": ["mine"]}, plain=True))
    assert isinstance(plain, Metrics)
    assert isinstance(split, Metrics)
    assert split.memory["activations"] < plain.memory["activations"]
    assert split.breakdown["tp"] > plain.breakdown["tp"]


def test_a_strategy_that_is_nowhere_is_named_where_it_stands(mine: Path) -> None:
    with pytest.raises(SpecError, match=r"^workload.strategies.0 = 'mien': no such strategy; did you mean 'mine'\?$"):
        load_design("llama3-8b@pod:64", {"workload.strategies": ["mien"]}, plain=True)

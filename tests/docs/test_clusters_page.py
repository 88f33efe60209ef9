"""The page of clusters says what the code computes: its rows of published figures, and some of its networks."""

from __future__ import annotations

import sys
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "case-studies" / "clusters.md").read_text(encoding="utf-8")
FOLDER = ROOT / "examples" / "case_studies"


@pytest.fixture(scope="module")
def program() -> SimpleNamespace:
    sys.path.insert(0, str(FOLDER))  # the programs of a page import one another
    try:
        return SimpleNamespace(**run_path(str(FOLDER / "clusters.py")), **networks())
    finally:
        sys.path.remove(str(FOLDER))


def networks() -> dict[str, object]:
    found = run_path(str(FOLDER / "clusters_networks.py"))
    return {"built": found["built"]}


def lines_with(*cells: str) -> list[str]:
    return [line for line in PAGE.splitlines() if line.startswith(f"| {' | '.join(cells)} |")]


def test_goodput_on_the_page_is_what_the_closed_form_gives(program: SimpleNamespace) -> None:
    for row in program.published_goodput():
        published = ("≥ " if row.relation == "at least" else "") + program.figure(row, row.published)
        assert lines_with(row.title, row.quantity, published, program.figure(row, row.ours)), row.name


def test_public_clusters_on_the_page_are_what_the_catalog_gives(program: SimpleNamespace) -> None:
    for row in program.public_clusters():
        power, dollars = (row.published_power_w, row.power_w), (row.published_usd, row.usd)
        assert lines_with(row.name, f"{row.npus:,}", *map(program.million, (*power, *dollars))), row.name


@pytest.mark.long
def test_rows_of_pathways_on_the_page_are_what_the_model_gives(program: SimpleNamespace) -> None:
    for row in program.published_islands():
        amounts = (program.amount(row.published, row.unit), program.amount(row.ours, row.unit))
        assert lines_with(row.name, *amounts, f"{row.ratio:.2f}"), row.name


@pytest.mark.long
def test_a_network_on_the_page_is_what_is_counted(program: SimpleNamespace) -> None:
    for name in ("rail-optimised 1:1", "fat tree 4:1"):
        found = program.built(name, 512)
        counts = (f"{found.switches:,}", f"{found.optics:,}", f"{found.cables:,}")
        steps = (f"{found.dense_s:.2f}", f"{found.experts_s:.2f}")
        assert lines_with("512", name, *counts, f"{found.usd / 1e6:.2f}", f"{found.watts / 1e3:,.0f}", *steps), name


def test_sizes_grow_to_a_million_and_each_has_a_row(program: SimpleNamespace) -> None:
    first = program.scaled_up([16_384, 1_048_576])
    for row in first:
        cells = (f"{row.npus:,}", f"{row.global_batch:,}", f"{row.step_s:.2f}", program.percent(row.mfu))
        assert lines_with(*cells, program.percent(row.restarted), program.percent(row.replaced))

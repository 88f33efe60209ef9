"""`--prices`: quotes in every command that prices a design; and machines that are not on sale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import run

DESIGN = "llama3-8b@dgx-h100:16"
MESH = ("--set", "tp=1", "--set", "pp=1", "--set", "cp=1", "--set", "micro_batch=1")


@pytest.fixture
def quotes(tmp_path: Path) -> str:
    path = tmp_path / "quotes.yaml"
    path.write_text("accelerators: {h100-sxm-80gb: 25 kUSD}\nswitches: {quantum-2: 30 kUSD}\n")
    return str(path)


COST = 16 * 25_000 + 2 * 76_000 + 30_000 + 16 * (240 + 2 * 500)
"""16 GPUs, the hosts of two nodes, a switch with 16 links."""
LISTED = COST + 16 * 3_000 + 10_000


def test_evaluate_prices_a_design_by_quotes(capsys: pytest.CaptureFixture[str], quotes: str) -> None:
    found = json.loads(run(capsys, "evaluate", DESIGN, *MESH, "--prices", quotes, "--json")[1])
    assert found["cost_usd"] == COST
    assert json.loads(run(capsys, "evaluate", DESIGN, *MESH, "--json")[1])["cost_usd"] == LISTED


def test_a_sweep_prices_each_accelerator_by_its_own_quote(capsys: pytest.CaptureFixture[str], quotes: str) -> None:
    vary = "compute.accelerator=h100-sxm-80gb,h200-sxm-141gb"
    rows = json.loads(run(capsys, "design", "sweep", DESIGN, *MESH, "--vary", vary, "--prices", quotes, "--json")[1])
    assert [row["cost_usd"] for row in rows] == [COST, COST + 16 * 7_000]


def test_a_difference_prices_each_design_by_its_own_quotes(capsys: pytest.CaptureFixture[str], quotes: str) -> None:
    found = json.loads(
        run(capsys, "design", "diff", DESIGN, "llama3-8b@dgx-h200:16", *MESH, "--prices", quotes, "--json")[1]
    )
    h200 = 2 * 350_000 + 30_000 + 16 * 1_240
    assert (found["metrics"]["cost_usd"]["a"], found["metrics"]["cost_usd"]["b"]) == (COST, h200)


def test_a_search_keeps_its_quotes(capsys: pytest.CaptureFixture[str], quotes: str, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    words = ("search", DESIGN, *MESH, "--prices", quotes, "-n", "2", "--out", str(folder), "--json")
    status, out, error = run(capsys, *words)
    assert status == 0, error
    assert json.loads(out)["best"]["metrics"]["cost_usd"] == COST
    assert '"30000 USD"' in (folder / "study.json").read_text()


def test_quotes_are_refused_where_they_could_not_be_used(
    capsys: pytest.CaptureFixture[str], quotes: str, tmp_path: Path
) -> None:
    for words in (("cosmic-1024-full-stack",), (DESIGN, "--stacks", "compute")):
        status, _, error = run(capsys, "search", *words, "--prices", quotes, "--out", str(tmp_path / "none"))
        assert status == 2
        assert "--prices = " in error


def test_unusable_quotes_are_refused_in_a_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "quotes.yaml"
    path.write_text("switch: {quantum-2: 30 kUSD}\n")
    status, _, error = run(capsys, "evaluate", DESIGN, "--prices", str(path))
    assert (status, error.count("\n")) == (2, 1)
    assert "prices.switch = " in error
    assert run(capsys, "evaluate", DESIGN, "--prices", str(tmp_path / "none.yaml"))[0] == 2


def test_a_machine_that_is_not_on_sale_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("evaluate", DESIGN, *MESH, "--set", "compute.accelerator=mi300x")
    said = "not on sale: dgx-h100 is sold with h100-sxm-80gb, and not with mi300x; its host is priced as it is"
    assert f"note: {said}\n" in run(capsys, *words)[1]
    assert json.loads(run(capsys, *words, "--json")[1])["notes"] == [said]
    assert json.loads(run(capsys, "evaluate", DESIGN, *MESH, "--json")[1])["notes"] == []

"""`cosmic size`: tables, pages, designs to go on with, and one sentence for what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosmic.search.mapping.design_completion import load_design
from tests.commands import run

SMALL = ("size", "llama3-8b", "--tokens", "1T", "--accelerators", "16", "--systems", "dgx-h100,dgx-h200")


@pytest.mark.long
def test_it_prints_a_row_for_each_system_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, said = run(capsys, *SMALL)
    assert status == 0
    lines = printed.splitlines()
    assert lines[0] == "llama3-8b on 1 T tokens within 16 accelerators"
    assert [line.split()[:2] for line in lines[2:4]] == [["dgx-h200", "16"], ["dgx-h100", "16"]]
    assert any(line.startswith("16 h200-sxm-141gb in dgx-h200: trained in ") for line in lines)
    assert any(line.startswith("next best: 16 in dgx-h100, 1.") for line in lines)
    assert any(line.startswith("tokens ") and "+10.0 %" in line for line in lines)
    assert "global batch 512, near the usual one of the model; --set global_batch=N states another" in printed + said
    assert "gone through: 2 systems, 4 sizes, " in printed + said


def test_a_batch_that_is_stated_is_the_batch(capsys: pytest.CaptureFixture[str]) -> None:
    _, printed, said = run(capsys, *SMALL, "--no-sensitivity", "--set", "global_batch=256")
    assert "global batch 256\n" in printed + said


@pytest.mark.long
def test_json_says_the_same_and_more(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, _ = run(capsys, *SMALL, "--no-sensitivity", "--json")
    found = json.loads(printed)
    assert status == 0
    assert found["question"] == {
        "model": "llama3-8b",
        "tokens": 1e12,
        "budget_usd": None,
        "power_w": None,
        "accelerators": 16,
        "deadline_days": None,
        "objective": "train_days",
    }
    assert [row["bound_by"] for row in found["rows"]] == ["accelerators"] * 2
    assert {(each["system"], each["accelerators"]) for each in found["tried"]} == {
        (system, npus) for system in ("dgx-h100", "dgx-h200") for npus in (16, 8)
    }


def test_the_best_design_can_be_gone_on_with_and_the_page_has_every_part(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    design, page = tmp_path / "best.yaml", tmp_path / "page.html"
    status, printed, said = run(capsys, *SMALL, "--out", str(design), "--report", str(page))
    assert status == 0
    assert f"cosmic evaluate {design}" in printed + said
    assert load_design(str(design)).run.tokens == 1e12
    text = page.read_text(encoding="utf-8")
    for heading in ("Answer", "Every system", "The trade-off", "Money and power, by part", "Failures", "What moves"):
        assert heading in text
    assert "<script" not in text
    assert "http://" not in text.replace("http://www.w3.org", "")


@pytest.mark.long
def test_quotes_change_what_a_budget_buys(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    quotes = tmp_path / "quotes.yaml"
    quotes.write_text("accelerators: {h100-sxm-80gb: 14 kUSD}\n")
    asked = ("size", "llama3-8b", "--tokens", "1T", "--budget", "1.3 M USD", "--systems", "dgx-h100")
    rest = ("--no-sensitivity", "--json")
    listed = json.loads(run(capsys, *asked, *rest)[1])["rows"][0]
    quoted = json.loads(run(capsys, *asked, "--prices", str(quotes), *rest)[1])["rows"][0]
    # a node of 8 is 300,000 dollars at list prices, 188,000 at the quote, and the network 1,240 for a link and a switch
    assert (listed["accelerators"], quoted["accelerators"]) == (32, 48)


def test_a_system_without_an_answer_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed, said = run(
        capsys, "size", "llama3-8b", "--tokens", "1T", "--budget", "1 kUSD", "--systems", "dgx-h100"
    )
    assert status == 1
    assert "dgx-h100: one node of 8 does not fit: budget" in printed + said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--tokens", "many"), "--tokens = 'many': write a number of tokens, such as 15T"),
        (("--tokens", "nan", "--power", "1 MW"), "--tokens = nan: must be above 0"),
        (("--tokens", "-1", "--power", "1 MW"), "--tokens = -1.0: must be above 0"),
        (("--tokens", "1T"), "say what may be spent: --budget, --power, --accelerators or --deadline"),
        (("--tokens", "1T", "--power", "25 apples"), "--power = '25 apples'"),
        (("--tokens", "1T", "--power", "inf"), "--power = inf: must be above 0 and finite"),
        (("--tokens", "1T", "--power", "1 MW", "--set", "system=dgx-b200"), "'dgx-b200': name systems with --systems"),
        (("--tokens", "1T", "--power", "1 MW", "--set", "tp=none"), "workload.tp = 'none': must be a whole number"),
        (("--tokens", "1T", "--budget", "10 MW"), "--budget = '10 MW'"),
        (("--tokens", "1T", "--deadline", "soon"), "--deadline = 'soon'"),
        (("--tokens", "1T", "--accelerators", "0"), "--accelerators = 0: must be above 0"),
        (("--tokens", "1T", "--power", "1 MW", "--systems", "dgx-h999"), "'dgx-h999': no such system"),
        (("--tokens", "1T", "--power", "1 MW", "--systems", ","), "'': no such system"),
        (("--tokens", "1T", "--power", "1 MW", "--objective", "beauty"), "--objective = 'beauty': must be one of"),
        (("--tokens", "1T", "--power", "1 MW", "--objective", "cost_usd"), "one node costs least"),
        (("--tokens", "1T", "--power", "1 MW", "--set", "tpx=3"), "'tpx': no such field"),
        (("--tokens", "1T", "--power", "1 MW", "--prices", "none.yaml"), "none.yaml"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    status, printed, said = run(capsys, "size", "llama3-8b", *words)
    assert status == 2
    assert not printed
    assert sentence in said
    assert len(said.strip().splitlines()) == 1


def test_an_unknown_model_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, said = run(capsys, "size", "llama9", "--tokens", "1T", "--power", "1 MW")
    assert status == 2
    assert "no such model" in said

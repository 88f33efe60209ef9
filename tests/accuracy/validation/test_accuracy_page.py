"""The page: a section for each kind of rows, and the same numbers as the validation."""

from __future__ import annotations

from pathlib import Path

from cosmic.accuracy.measured_rows import Verdict
from cosmic.accuracy.validating import assess_verdicts
from cosmic.report.accuracy_page import accuracy_page
from cosmic.report.page import Figure, Heading, Table, to_markdown


def verdicts() -> list[Verdict]:
    run = {"accel": "a100", "url": "https://example.org", "source": "x"}
    return [
        Verdict(
            id="korth-t5-22B-full",
            set="korthikanti",
            kind="training runs",
            row=run,
            measured_s=1.42,
            predicted_s=1.3,
            flop=1e15,
            peak_bytes_measured=2.0,
            peak_bytes_predicted=1.9,
        ),
        Verdict(
            id="b",
            set="mosaic",
            kind="training runs",
            row=run,
            measured_s=2.0,
            predicted_s=2.5,
            flop=2e15,
            left_out=0.4,
        ),
        Verdict(id="c", set="mosaic", kind="training runs", row=run, skipped="no such model"),
        Verdict(id="d", set="h200-attention fwd", kind="attention", row={}, measured_s=1e-4, predicted_s=1.1e-4),
    ]


def test_sections_tables_and_figures_are_those_of_the_rows() -> None:
    page = accuracy_page(assess_verdicts(verdicts()))
    headings = [part.text for part in page.parts if isinstance(part, Heading)]
    assert headings[:3] == ["Training runs", "Ranges", "Other models"]
    assert "Attention and memory-bound operators" in headings
    assert "Serving" not in headings
    assert [part.name for part in page.parts if isinstance(part, Figure)] == ["runs-a100", "kernels"]
    tables = [part for part in page.parts if isinstance(part, Table)]
    assert tables[0].columns[:5] == ("left out", "number", "mean", "median", "worst")
    assert tables[0].rows[0][:3] == ["all runs", 1, "40.0 %"]
    runs = tables[1]
    assert runs.rows[1][:6] == ["mosaic", 2, 1, "40.0 %", "40.0 %", "25.0 %"]
    ranges, beside = tables[2], tables[3]
    assert ranges.rows[-1][0] == "all runs"
    assert beside.columns[2:] == ("COSMIC, left out", "COSMIC", "Calculon", "constant efficiency")
    assert beside.rows[0][4] == "1.7 %"  # Calculon's own prediction of that run


def test_the_page_is_written_with_its_figures(tmp_path: Path) -> None:
    path = to_markdown(accuracy_page(assess_verdicts(verdicts())), tmp_path)
    assert path.name == "accuracy.md"
    assert (tmp_path / "accuracy-runs-a100.svg").exists()
    assert "no such model" in path.read_text()

"""The page: a section for each kind of rows, and the same numbers as the validation."""

from __future__ import annotations

from pathlib import Path

from cosmic.accuracy.measured_rows import MemoryFigure, Verdict
from cosmic.accuracy.validating import assess_verdicts
from cosmic.design.prediction_accuracy import Range
from cosmic.report.accuracy_page import accuracy_page
from cosmic.report.page import Figure, Heading, Table, Text, to_markdown


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
            memory=MemoryFigure("allocated", 2.0, Range(1.7, 1.8, 1.9, 2.1, 2.2)),
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
        *(
            Verdict(id=name, set="ao", kind="memory of training runs", row=run, memory=figure, ran=ran, fits=fits)
            for name, figure, ran, fits in (
                ("e", MemoryFigure("device", 2.0, Range(1.0, 1.2, 1.4, 1.6, 1.8)), True, 0.97),
                ("f", None, False, 0.96),
                ("g", None, False, 0.1),
            )
        ),
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


def test_memory_has_errors_of_its_figures_and_the_outcomes_of_runs() -> None:
    parts = accuracy_page(assess_verdicts(verdicts())).parts
    at = parts.index(Heading("Peak memory"))
    table, outcomes = parts[at + 1 : at + 3]
    assert isinstance(table, Table)
    assert table.columns == ("set", "rows", "predicted", "mean", "median", "worst", "bias", "in P5–P95")
    assert [row[0] for row in table.rows] == ["korthikanti", "ao", "all"]
    assert table.rows[0][3:] == ["5.0 %", "5.0 %", "5.0 %", "-5.0 %", "100.0 %"]
    assert table.rows[2][1:4] == [2, 2, "17.5 %"]
    assert table.rows[2][-1] == "50.0 %"
    assert isinstance(outcomes, Text)
    assert outcomes.text == (
        "2 of 3 runs that ran or ran out of memory are on the right side of 50 %; "
        "of 2 said to fit with 95 % or more, 1 ran."
    )


def test_the_page_is_written_with_its_figures(tmp_path: Path) -> None:
    path = to_markdown(accuracy_page(assess_verdicts(verdicts())), tmp_path)
    assert path.name == "accuracy.md"
    assert (tmp_path / "accuracy-runs-a100.svg").exists()
    assert "no such model" in path.read_text()

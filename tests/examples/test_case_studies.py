"""Every page of a case study is what its program computes, with figures and with numbers that make sense."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from cosmic.report.charts.drawing import Axis
from cosmic.report.charts.plots import Bar, BarGroup, bars
from cosmic.report.page import Figure, Page, Text, to_markdown

FOLDER = Path(__file__).parents[2] / "examples" / "case_studies"
PROGRAMS = (
    *("agents", "as_built", "astra_sim_2", "clusters", "comet", "cubicml", "full_stack", "gspmd"),
    *("llama3_70b", "made_to_measure", "scenarios", "se_moe"),
)
PAGES = FOLDER.parents[1] / "docs" / "case-studies"
WITHOUT_FIGURES = {"gspmd"}
"""Pages of tables alone."""


def rows_of(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first columns are *heading*."""
    lines = text[text.index(heading) :].splitlines()[2:]
    table = lines[: next((place for place, line in enumerate(lines) if not line.startswith("|")), len(lines))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def check_full_stack(text: str) -> None:
    """The full stack is never worse than one layer, and parallelisations are as far apart as we say elsewhere."""
    gains = [float(cell.removesuffix(" x")) for row in rows_of(text, "| Case | Base exposed") for cell in row[3:]]
    assert len(gains) >= 16
    assert min(gains) >= 1.0
    assert max(gains) > 10
    spreads = {row[0]: float(row[5].removesuffix(" x")) for row in rows_of(text, "| System | Valid")}
    assert spreads["GPT3-175B, 1,024 NPUs"] == pytest.approx(52, abs=8)  # the paper's figure 4 has 64.5


def check_agents(text: str) -> None:
    """No regret is negative, and every winner is what its search said."""
    rows = rows_of(text, "| Agent | Median regret")
    assert {"random", "genetic", "ant_colony"} <= {row[0] for row in rows}
    assert all(0 <= float(row[1].rstrip("%")) <= float(row[2].rstrip("%")) for row in rows)
    good, total = re.findall(r"(\d+) of (\d+) winners", text)[0]
    assert good == total


def check_clusters(text: str) -> None:
    """Thinner networks are cheaper and never faster, and no system is beyond its limit."""
    rows = {row[1]: row for row in rows_of(text, "| H100 | network | switches")}
    dollars, steps = ({name: float(row[place]) for name, row in rows.items()} for place in (5, 7))
    assert dollars["rail-optimised 4:1"] < dollars["rail-optimised 2:1"] < dollars["rail-optimised 1:1"]
    assert steps["rail-optimised 4:1"] >= steps["rail-optimised 1:1"]
    bought = rows_of(text, "| system | accelerators | days")
    assert all(float(row[5].replace(",", "")) <= 200 for row in bought)
    shares = [float(row[4].removesuffix(" %")) for row in rows_of(text, "| H100 | global batch")]
    assert shares == sorted(shares, reverse=True)


def check_made_to_measure(text: str) -> None:
    """No step gets longer with synthesis, every schedule is valid, and experts gain most from it with a slow NIC."""
    rows = rows_of(text, "| case | condition | textbook | which")
    gains = {(row[0], row[1]): float(row[-1].removesuffix(" x")) for row in rows}
    assert len(gains) >= 4
    assert min(gains.values()) >= 1.0
    assert max(gains, key=lambda key: gains[key]) == ("DeepSeek-V3", "a NIC at a quarter")
    assert max(gains.values()) > 1.3  # 2.1 in units of 8 nodes; a quick look has 4
    good, total = re.findall(r"(\d+) of (\d+) schedules pass", text)[0]
    assert good == total
    assert all(float(row[5].removesuffix(" x")) >= 1.0 for row in rows_of(text, "| budget | for | NVLink"))


def check_comet(text: str) -> None:
    """The published footprints are reproduced, padding only adds to them, and more memory is never slower."""
    rows = rows_of(text, "| mapping | 2P/MP")
    gigabytes = [[float(cell.replace(",", "")) for cell in row[1:4]] for row in rows]
    assert [row[0] for row in gigabytes] == [2030, 1022, 518, 266, 140, 77, 45, 30, 22, 18, 16]
    assert all(formula <= even + 0.5 and even <= padded for formula, even, padded in gigabytes)
    assert [even for _, even, _ in gigabytes[:10]] == [formula for formula, _, _ in gigabytes[:10]]
    steps = {row[0]: float(row[-2]) for row in rows_of(text, "| cluster | mapping | step, s") if row[-2] != "-"}
    assert steps["dgx-b200"] < steps["dgx-h100"] < steps["dgx-a100"]
    assert steps["dgx-a100 + 512 GB at 500 GB/s"] < steps["dgx-a100"]
    sparse = rows_of(text, "| A100 | batch | step, ms")
    assert all(10 * float(row[5]) < float(row[6].replace(",", "")) for row in sparse)


def check_astra_sim_2(text: str) -> None:
    """Levelling is never slower, switches help, and the engines agree."""
    rows = rows_of(text, "| network | chunks |")
    by_order = {(row[0], row[1]): float(row[2]) for row in rows}
    assert all(by_order[name, "levelled"] <= by_order[name, "in order"] for name, _ in by_order)
    pools = rows_of(text, "| memory | step, s |")
    steps = [float(row[1]) for row in pools]
    assert steps == sorted(steps, reverse=True)
    assert [float(row[2]) for row in pools] == pytest.approx(steps, rel=0.05)


def check_se_moe(text: str) -> None:
    """Stages are faster than flat messages on rails, by about what SE-MoE publishes, and copies level every load."""
    gains = [float(row[5].strip("+ %")) for row in rows_of(text, "| NICs of a node |")]
    assert all(10 < gain < 25 for gain in gains)
    loads = [[float(cell) for cell in row] for row in rows_of(text, "| skew | by number")]
    assert all(row[1] >= row[2] >= row[3] >= row[4] >= 1.0 for row in loads)


def check_cubicml(text: str) -> None:
    """Surrogates need ten times fewer evaluations than chance, and rank what they have not seen."""
    for row in rows_of(text, "| Case | Designs | fit"):
        assert float(row[5].replace(",", "")) >= 10 * float(row[6].replace(",", ""))  # of designs that fit
        came, seeds = row[8].split(" of ")
        assert came == seeds
    taus = [(int(row[1]), float(row[2])) for row in rows_of(text, "| Case | Trials it learned from")]
    assert all(tau > 0.8 for count, tau in taus if count >= 240)
    taught = [(row[0], row[1], float(row[3])) for row in rows_of(text, "| Case | Taught by")]
    alone = {case: count for case, name, count in taught if name == "nothing"}
    assert all(count <= alone[case] for case, name, count in taught if "reversed" not in name)


CHECKS: dict[str, Callable[[str], None]] = {
    "full_stack": check_full_stack,
    "agents": check_agents,
    "astra_sim_2": check_astra_sim_2,
    "comet": check_comet,
    "cubicml": check_cubicml,
    "clusters": check_clusters,
    "made_to_measure": check_made_to_measure,
    "se_moe": check_se_moe,
}
"""What else must hold of a page, by the name of its program."""


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_number_and_figure_of_a_page_is_what_the_code_gives(program: str) -> None:
    command = [sys.executable, str(FOLDER / f"{program}.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_page_has_all_its_figures_and_sane_numbers(program: str) -> None:
    text = (PAGES / f"{program.replace('_', '-')}.md").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert f"python examples/case_studies/{program}.py" in text
    figures = re.findall(r"^!\[.+\]\((.+\.svg)\)$", text, flags=re.MULTILINE)
    assert figures or program in WITHOUT_FIGURES
    assert all((PAGES / figure).read_text(encoding="utf-8").startswith("<svg") for figure in figures)
    assert not re.search(r"\b(nan|inf|None)\b", text), "a number is missing"
    if program in CHECKS:
        CHECKS[program](text)


def test_every_page_has_a_program_that_checks_it() -> None:
    assert {path.stem.replace("-", "_") for path in PAGES.glob("*.md")} - {"README"} == {*PROGRAMS}


def common() -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        return import_module("common")
    finally:
        sys.path.remove(str(FOLDER))


def page(value: str, height: float) -> Page:
    chart = bars([BarGroup("a", [Bar("b", height)])], x=Axis("seconds", "s"), title="A chart")
    return Page("A page", [Text(f"A step takes {value} s."), Figure(chart, "chart", "A figure.")], "page")


def test_one_number_in_the_text_is_found(tmp_path: Path) -> None:
    stale = common().stale
    to_markdown(page("2.5", 1.0), tmp_path)
    assert stale(page("2.5", 1.0), tmp_path) == []
    (found,) = stale(page("2.6", 1.0), tmp_path)
    assert found == "page.md:3: the page says 'A step takes 2.5 s.', the code 'A step takes 2.6 s.'"


def test_another_figure_a_forgotten_one_and_a_missing_page_are_found(tmp_path: Path) -> None:
    stale = common().stale
    to_markdown(page("2.5", 1.0), tmp_path)
    assert stale(page("2.5", 3.0), tmp_path) == ["page-chart.svg: is another figure"]
    (tmp_path / "page-old.svg").write_text("<svg/>")
    assert stale(page("2.5", 1.0), tmp_path) == ["page-old.svg: is no figure of the page any more"]
    assert stale(page("2.5", 1.0), tmp_path / "nowhere")

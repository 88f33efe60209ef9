"""How far the engines are apart: the numbers by hand, and the table of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosmic.search.mapping.design_completion import load_design
from tests.relations.engine_agreement import (
    BEGIN,
    CLASSES,
    END,
    OVERLAPS,
    EngineComparison,
    agreement_table,
    by_class,
    classes_of,
    compare_engines,
    measure_agreement,
    renew_table,
    small_design,
)
from tests.relations.metamorphic import MOST_RANKS, MOST_TASKS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "event-engine.md"
REFRESH = "run `python benchmarks/engines.py -n 1000 --page`"


def test_distances_are_sorted_without_their_sign() -> None:
    """Apart by 0, 1, 2, 5 and -10 %: the median is 2 %; the 90th percentile is 0.6 of the way from 5 to 10 %."""
    rows = [EngineComparison(place, ratio, {}) for place, ratio in enumerate((1.05, 1.0, 0.9, 1.02, 1.01))]
    found = measure_agreement(rows)
    assert (found.designs, found.median, found.worst) == (5, 0.02, -0.1)
    assert found.high == pytest.approx(0.05 + 0.6 * 0.05)


def test_each_value_of_a_class_has_its_row() -> None:
    rows = [
        EngineComparison(0, 1.1, {"task": "decode"}),
        EngineComparison(1, 1.0, {"task": "training", "schedule": "1f1b"}),
    ]
    found = {(name, value): each.designs for name, value, each in by_class(rows)}
    assert found == {("all", ""): 2, ("task", "decode"): 1, ("task", "training"): 1, ("schedule", "1f1b"): 1}
    assert agreement_table(rows).splitlines()[2:] == [
        "| all designs |  | 2 | 5.0 % | 9.0 % | +10 % |",
        "| task | decode | 1 | 10 % | 10 % | +10 % |",
        "|  | training | 1 | 0 % | 0 % | +0 % |",
        "| `schedule` | 1f1b | 1 | 0 % | 0 % | +0 % |",
    ]


def test_a_design_is_of_its_classes() -> None:
    point = load_design(
        "deepseek-v3@dgx-h100:16",
        {"pp": 2, "tp": 1, "cp": 1, "ep": 4, "schedule": "zero_bubble", "dp_overlap": False},
        plain=True,
    )
    found = classes_of(point)
    assert found.items() >= {"family": "mla", "schedule": "zero_bubble", "pp": "2 to 4", "ep_overlap": "off"}.items()
    assert found["dp_overlap"] == "off"
    assert "tp_overlap" not in found  # no ranks to overlap
    assert set(found) <= {*CLASSES, *OVERLAPS}


def test_designs_are_small_and_their_own() -> None:
    points = [small_design(0, place) for place in range(6)]
    assert len({point.identity for point in points}) == 6
    assert small_design(0, 3) == points[3]
    for point in points:
        count = point.workload.global_batch // (point.workload.dp * point.workload.micro_batch)
        assert point.workload.ranks <= MOST_RANKS
        assert count * point.workload.pp <= MOST_TASKS


def test_both_engines_are_compared() -> None:
    point = load_design(
        "gpt3-13b@dgx-h100:8", {"tp": 1, "cp": 1, "pp": 1, "global_batch": 8, "sequence": 2048}, plain=True
    )
    found = compare_engines(point, 5)
    assert found is not None
    assert found.place == 5
    assert 0.5 < found.ratio < 2


def test_the_page_has_a_current_table() -> None:
    """Its numbers come from a long run; here, that it has every class, over 1,000 designs."""
    page = PAGE.read_text(encoding="utf-8")
    table = page.partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    assert table[:2] == agreement_table([EngineComparison(0, 1.0, {})]).splitlines()[:2], REFRESH
    assert table[2].startswith("| all designs |  | 1,000 |"), REFRESH
    labels = {line.split("|")[1].strip() for line in table[3:]} - {""}
    assert labels == {"task", "family", *(f"`{name}`" for name in (*CLASSES[2:], *OVERLAPS))}, REFRESH
    assert renew_table(page, [EngineComparison(0, 1.0, {})]).count(BEGIN) == 1

"""How far the two engines are apart, by what sets designs apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from cosmic.design.design_point import DesignPoint
from tests.relations.metamorphic import answer_by_events, answer_in_closed_form, is_small
from tests.relations.random_designs import MODELS, random_design

SIZES = (1, 2, 4, 8, 8, 16, 16, 32, 64)
"""Accelerators of designs that the event engine plays at once."""
BEGIN, END = "<!-- benchmarks/engines.py --page writes from here -->", "<!-- to here -->"
CLASSES = ("task", "family", "schedule", "pp", "execution", "weight_sharding", "recompute", "offload")
OVERLAPS = ("dp_overlap", "tp_overlap", "ep_overlap")
FAMILY = {name: family for family, names in MODELS.items() for name in names}


@dataclass(frozen=True, slots=True)
class EngineComparison:
    """One design as both engines see it."""

    place: int
    """Of the design among those of its seed."""
    ratio: float
    """Seconds of the event engine over those of the closed form."""
    classes: Mapping[str, str]
    """What sets it apart: the value of each class."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the engines are apart over some designs: |ratio - 1|."""

    designs: int
    median: float
    high: float
    """The 90th percentile."""
    worst: float
    """With its sign: positive where the event engine takes longer."""


def small_design(seed: int, index: int) -> DesignPoint:
    """Return design number *index* of a *seed*: a random one that the event engine plays at once."""
    rng = Random(f"{seed} {index}")
    while True:
        point = random_design(rng, accelerators=rng.choice(SIZES))
        if is_small(point):
            return point


def compare_engines(point: DesignPoint, index: int = 0) -> EngineComparison | None:
    """Return both engines' seconds of a design as a ratio; None where it cannot run."""
    first, second = answer_in_closed_form(point, [{}])[0], answer_by_events(point, [{}])[0]
    if first is None or second is None:
        return None
    return EngineComparison(index, second["step_s"] / first["step_s"], classes_of(point))


def classes_of(point: DesignPoint) -> dict[str, str]:
    """Return what sets a design apart, by the name of the class."""
    workload = point.workload
    classes = {"task": workload.task, "family": FAMILY.get(point.model.name, "other")}
    if workload.task == "training":
        classes |= {"schedule": workload.schedule if workload.pp > 1 else "one stage"}
        classes |= {"weight_sharding": workload.weight_sharding, "recompute": workload.recompute}
    stages = "1" if workload.pp == 1 else "2 to 4" if workload.pp <= 4 else "more"
    classes |= {"pp": stages, "execution": workload.execution}
    for key in OVERLAPS:
        if getattr(workload, key.removesuffix("_overlap")) > 1:
            classes[key] = "on" if getattr(workload, key) else "off"
    return classes | {"offload": "some" if workload.offload else "nothing"}


def measure_agreement(rows: Sequence[EngineComparison]) -> Agreement:
    """Return how far the engines are apart over *rows*.

    >>> measure_agreement([EngineComparison(0, 0.9, {}), EngineComparison(1, 1.0, {}), EngineComparison(2, 1.02, {})])
    Agreement(designs=3, median=0.02, high=0.084, worst=-0.1)
    """
    differences: npt.NDArray[np.float64] = np.array([row.ratio - 1 for row in rows])
    size = np.abs(differences)
    worst = float(differences[size.argmax()])
    rounded = (round(float(statistic), 6) for statistic in (np.median(size), np.percentile(size, 90), worst))
    return Agreement(len(rows), *rounded)


def by_class(rows: Sequence[EngineComparison]) -> Iterator[tuple[str, str, Agreement]]:
    """Yield each class, each of its values, and how far the engines are apart over those designs; all of them first."""
    yield "all", "", measure_agreement(rows)
    for name in (*CLASSES, *OVERLAPS):
        for value in sorted({row.classes[name] for row in rows if name in row.classes}):
            yield name, value, measure_agreement([row for row in rows if row.classes.get(name) == value])


def agreement_table(rows: Sequence[EngineComparison]) -> str:
    """Return how far the engines are apart, as a table of a page."""
    lines = ["| | | designs | median | 90th percentile | worst |", "|---|---|---|---|---|---|"]
    previous = ""
    for name, value, agreement in by_class(rows):
        shown = "" if name == previous else _label(name)
        previous = name
        figures = (
            f"{_percent(agreement.median)} | {_percent(agreement.high)} | {_percent(agreement.worst, signed=True)}"
        )
        lines.append(f"| {shown} | {value} | {agreement.designs:,} | {figures} |")
    return "\n".join(lines)


def renew_table(page: str, rows: Sequence[EngineComparison]) -> str:
    """Return a page with its generated table renewed.

    >>> renew_table(f"before {BEGIN} old {END} after", [EngineComparison(0, 1.0, {})]).splitlines()[4]
    '| all designs |  | 1 | 0 % | 0 % | +0 % |'
    """
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{agreement_table(rows)}\n\n{END}{after}"


def _label(name: str) -> str:
    return "all designs" if name == "all" else name if name in ("task", "family") else f"`{name}`"


def _percent(share: float, *, signed: bool = False) -> str:
    """Return a share as a percentage with two digits.

    >>> _percent(0.0234), _percent(0.123, signed=True), _percent(0.00004)
    ('2.3 %', '+12 %', '0 %')
    """
    percent = 100 * share
    digits = 0 if abs(percent) >= 10 or abs(percent) < 0.005 else 1 if abs(percent) >= 1 else 2
    return f"{percent:{'+' if signed else ''}.{digits}f} %"

"""Figure 4 of the paper as eight panels: how far the best and the worst design are apart, by what is opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from common import Effort, every
from full_stack_paper import PAPER_SPREAD
from full_stack_search import LAYERS, MODELS, SYSTEMS, Compared, opened

from cosmic import load_space
from cosmic.pages import Axis, Figure, Heading, Part, Series, Table, Text, lines
from cosmic.space import ParameterSet, make_problem

SYSTEM_2 = next(each for each in SYSTEMS if each.npus == 1024)
DRAWN = 4000
"""Designs that are drawn, uniformly, where there are too many to go through."""


@dataclass(frozen=True)
class Panel:
    """A panel: what varies, and the steps of all feasible designs, ascending."""

    letter: str
    title: str
    how: str
    steps: Sequence[float]

    @property
    def spread(self) -> float:
        """The worst step over the best."""
        return self.steps[-1] / self.steps[0]


def panels(main: Sequence[Compared], effort: Effort) -> list[Part]:
    """Return the panels, a table of them first."""
    found = [*_workloads(main), *_others(effort)]
    if len(found) < 8:  # a quick look leaves out models
        return []
    said = f"""
    The caption of the paper's figure 4 has a factor of {PAPER_SPREAD}. It is read here as panel (a) of eight: the best
    against the worst parallelisation of GPT3-175B, workload-only, on System 2, which is taken to be the one of 1,024
    NPUs. Ours is {found[0].spread:.1f}. The paper's panels themselves were not at hand: (b) to (h) are not its, but
    what the same comparison gives for the other models, and for what else may be opened around GPT3-175B on that
    system.
    """
    rows = [
        [
            f"({each.letter})",
            each.title,
            each.how,
            _seconds(each.steps[0]),
            _seconds(each.steps[-1]),
            f"{each.spread:.1f} x",
        ]
        for each in found
    ]
    columns = ["Panel", "Varies", "Designs", "Best step", "Worst step", "Worst / best"]
    table = Table(columns, rows, f"Best against worst. The paper's (a): {PAPER_SPREAD} x.")
    return [Heading("Figure 4: best against worst, in eight panels"), Text(said), table, *map(_figure, found)]


def _workloads(main: Sequence[Compared]) -> list[Panel]:
    """Return (a) to (d): every parallelisation of each model."""
    first = {each.case.name: each for each in reversed(main)}
    cases = [first[case.name] for case in (SYSTEM_2, *MODELS) if case.name in first]
    return [
        Panel(letter, f"parallelisation, {each.case.model}", f"all {len(each.mappings.steps)}", each.mappings.steps)
        for letter, each in zip("abcd", cases, strict=False)
    ]


def _others(effort: Effort) -> list[Panel]:
    """Return (e) to (h): other layers of GPT3-175B opened."""
    found = every(opened(SYSTEM_2, ["collective"]), objectives=["step_s"])
    step = found.trials.results.columns["step_s"]
    all_of_them = np.sort(step[~np.isnan(step)]).tolist()
    drawn = [
        ("f", "network", opened(SYSTEM_2, ["network"])),
        ("g", "full stack", opened(SYSTEM_2, LAYERS)),
        ("h", "full stack, compute and memory", load_space("cosmic-1024-compute-memory")),
    ]
    whole = [Panel("e", "collectives", f"all {len(all_of_them):,}", all_of_them)]
    return whole + [_drawn(letter, title, space, effort.trials(DRAWN)) for letter, title, space in drawn]


def _drawn(letter: str, title: str, space: ParameterSet, n: int) -> Panel:
    results = make_problem(space, ["step_s"]).evaluate(space.sample(n, np.random.default_rng(4)))
    step = np.sort(results.columns["step_s"][results.feasible])
    return Panel(letter, title, f"{len(step):,} that run, of {n:,} drawn", step.tolist())


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def _figure(panel: Panel) -> Figure:
    kept = np.unique(np.linspace(0, len(panel.steps) - 1, 200).astype(int))
    points = [(float(place + 1) / len(panel.steps), panel.steps[place] / panel.steps[0]) for place in kept.tolist()]
    x, y = Axis("share of the designs that run"), Axis("step over the best step", "", log=True)
    title = f"({panel.letter}) {panel.title}: {panel.spread:.1f} x"
    chart = lines([Series(panel.title, points)], x=x, y=y, title=title)
    return Figure(chart, f"panel-{panel.letter}", f"({panel.letter}) {panel.title}, {panel.how}, sorted.")

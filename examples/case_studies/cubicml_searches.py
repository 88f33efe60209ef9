"""The searches of `cubicml.py`: each space is evaluated in full once, and searched with what that found.

Searches are functions of their seeds, so that their courses are kept (`cubicml_courses.json`): the check of the page
runs those of one seed again, and those of all seeds if it is asked to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
from cubicml_spaces import Whole, language, recommender, whole

from cosmic import search
from cosmic.plugins import CheckedAgent, Ensemble, Floats, encode_coordinates, make_targets, start_agent
from cosmic.space import ParameterSet
from cosmic.study import (
    LEARNED_TRIALS,
    Ledger,
    Lessons,
    Options,
    arithmetic_of,
    explore_batches,
    identify_sources,
    kendall_tau,
    losses,
    make_inputs,
    read_lessons,
    task_of,
    top_recall,
    with_problem,
)

NEAR = 0.01
TRIALS = LEARNED_TRIALS
"""What a search that learns may evaluate if nothing else is said."""
SOURCE_TRIALS = 300
SEEDS = tuple(range(200, 210))
"""Seeds of the page. Everything was chosen with others, 100 to 109."""
KEPT = Path(__file__).with_name("cubicml_courses.json")
JUDGED = 1000
TOP = 10
FIRST = TRIALS // 15 + 1
"""Evaluations of the first batch, the base design included."""
Kept = Mapping[str, Sequence[Mapping[str, Any]]]
"""Courses of a case that were kept, by what the search was taught."""


@dataclass(frozen=True)
class Case:
    """A space that is searched, and others, of other models on other clusters, that were searched before."""

    name: str
    short: str
    target: Callable[[], ParameterSet]
    sources: dict[str, Callable[[], ParameterSet]]
    reversed: bool = False
    """Whether it is also taught by what its first source ranks worst, as if that was best."""


CASES = (
    Case(
        "DLRM 73B on 256 H100",
        "dlrm",
        lambda: recommender("dlrm-73b", "dgx-h100:256", 131_072),
        {"DLRM Criteo on 128 A100": lambda: recommender("dlrm-criteo", "dgx-a100:128", 65_536)},
    ),
    Case(
        "LLaMA-3 405B on 1,024 H100",
        "llama3-405b",
        lambda: language("llama3-405b", "dgx-h100:1024", 126, 16, 1024),
        {
            "LLaMA-3 70B on 256 A100": lambda: language("llama3-70b", "dgx-a100:256", 80, 4, 512),
            "GPT-3 175B on 512 H100, 2,048 tokens": lambda: language("gpt3-175b", "dgx-h100:512", 96, 8, 1024, 2048),
        },
        reversed=True,
    ),
)


@dataclass(frozen=True)
class Course:
    """One search: when its best improved, by which regret, and whether it dropped what it was taught."""

    counts: tuple[int, ...]
    regrets: tuple[float, ...]
    dropped: bool

    @property
    def near(self) -> int | None:
        """Evaluations to within `NEAR` of the optimum; None if it never came so near."""
        return next((at for at, regret in zip(self.counts, self.regrets, strict=True) if regret <= NEAR), None)

    def at(self, count: int) -> float:
        """Return the regret after so many evaluations; infinite before the first design that can run."""
        pairs = zip(self.counts[::-1], self.regrets[::-1], strict=True)
        return next((regret for at, regret in pairs if at <= count), np.inf)


@dataclass(frozen=True)
class Result:
    """All searches of one case."""

    case: Case
    every: Whole
    """Every design of the space, evaluated."""
    losses: Floats
    designs: int
    runs: int
    good: int
    """How many designs are within `NEAR` of the optimum."""
    chance: int
    """The median number of evaluations of random search among designs that fit into memory."""
    blind: int
    """The same among all designs."""
    first: int
    """Evaluations of the first batch."""
    kinds: dict[str, str]
    courses: dict[str, list[Course]]

    def median(self, how: str) -> float | None:
        """Return the median number of evaluations to within `NEAR`; None if half of the searches never came there."""
        middle = float(np.median([each.near or np.inf for each in self.courses[how]]))
        return middle if np.isfinite(middle) else None

    def reached(self, how: str) -> int:
        """Return how many searches came within `NEAR`."""
        return sum(each.near is not None for each in self.courses[how])


def result_of(case: Case, folder: Path, seeds: Sequence[int], kept: Kept | None = None) -> Result:
    """Return what searches of a case find with *seeds*, from scratch and taught; *kept* ones of other seeds follow."""
    every = whole(case.target())
    found = every.trials.results
    value = losses(every.problem.objectives, found.columns)[:, 0]
    optimum = float(np.nanmin(value))
    good, designs, runs = (
        int((value <= optimum * (1 + NEAR)).sum()),
        int(found.counted.sum()),
        int(found.feasible.sum()),
    )
    kinds, courses = {}, {}
    for how, (name, lessons) in _lessons(case, every, folder).items():
        new = [_course(every, optimum, seed, lessons) for seed in seeds]
        kinds[how], courses[how] = name, new if kept is None else _joined(new, _read(kept, how), f"{case.name}, {how}")
    chances = at_random(runs, good), at_random(designs, good)
    return Result(case, every, value, designs, runs, good, *chances, FIRST, kinds, courses)


def _joined(new: list[Course], kept: list[Course], where: str) -> list[Course]:
    """Return *kept* courses, of which the first were run again: they must be the same."""
    if kept[: len(new)] != new:
        raise SystemExit(f"{where}: a search is not what was kept of it: write the page anew")
    return kept


def _lessons(case: Case, every: Whole, folder: Path) -> dict[str, tuple[str, Lessons]]:
    """Return what searches of a case are taught, by short names, with what that is called."""
    found = {"scratch": ("nothing", Lessons())}
    for place, (name, source) in enumerate(case.sources.items()):
        study = folder / f"{case.short}-{place}"
        search(source(), agent="genetic", trials=SOURCE_TRIALS, seed=7, out=study)
        found[study.name] = name, read_lessons(every.problem, identify_sources([study]))
    if case.reversed:
        name, lessons = found[f"{case.short}-0"]
        found["reversed"] = f"{name}, reversed", _reversed(lessons)
    return found


def _reversed(lessons: Lessons) -> Lessons:
    """Return *lessons* that rank designs the other way round: a source that is as bad as one can be."""
    prior = lessons.prior
    return lessons if prior is None else replace(lessons, prior=lambda rows: -prior(rows))


def keep(results: Sequence[Result]) -> None:
    """Keep the courses of all searches."""
    content = {
        each.case.short: {how: [asdict(course) for course in courses] for how, courses in each.courses.items()}
        for each in results
    }
    KEPT.write_text(json.dumps({"seeds": list(SEEDS), "cases": content}, indent=1) + "\n", encoding="utf-8")


def read_kept() -> dict[str, Kept]:
    """Return the courses that were kept, by case; those of other seeds are none."""
    content = json.loads(KEPT.read_text(encoding="utf-8"))
    if content["seeds"] != list(SEEDS):
        raise SystemExit(f"{KEPT.name} has other seeds: write the page anew")
    found: dict[str, Kept] = content["cases"]
    return found


def _read(kept: Kept, how: str) -> list[Course]:
    return [Course(tuple(each["counts"]), tuple(each["regrets"]), bool(each["dropped"])) for each in kept.get(how, ())]


def at_random(designs: int, good: int) -> int:
    """Return after how many designs, drawn without repetition, one of the *good* ones is among them in half the cases.

    >>> at_random(4, 1), at_random(10, 3)  # after 2 of 10: 1 - (7 / 10) (6 / 9) = 0.53
    (2, 2)
    """
    least, most = 1, designs - good + 1
    while least < most:
        middle = (least + most) // 2
        # none is among the first k: C(designs - k, good) / C(designs, good)
        least, most = (least, middle) if 2 * comb(designs - middle, good) <= comb(designs, good) else (middle + 1, most)
    return least


def _course(every: Whole, optimum: float, seed: int, lessons: Lessons) -> Course:
    """Return one search, as `cosmic search --agent surrogate` does it where an evaluation is expensive."""
    problem = every.problem
    inputs = with_problem(make_inputs(problem.space, Options(agent="surrogate", trials=TRIALS, seed=seed)), problem)
    agent = start_agent("surrogate", task_of(problem, inputs.pace, lessons, expensive=True), inputs.rng())
    ledger = Ledger(problem)
    for _ in explore_batches(
        inputs, ledger, every.ledger.recall, agent=CheckedAgent("surrogate", agent, problem.space)
    ):
        if ledger.best <= optimum * (1 + NEAR):
            break
    counts, values = ledger.trials.curve(problem)
    regrets = (np.asarray(values) / optimum - 1).round(6).tolist()
    dropped = any("dropped" in note for note in agent.learned.notes)  # type: ignore[attr-defined]  # it has it
    return Course(tuple(counts.tolist()), tuple(regrets), dropped)


def ranked(result: Result, learnt: Sequence[int]) -> list[tuple[int, float, float]]:
    """Return for models of so many trials Kendall's tau and the recall of the best on designs that they did not see."""
    problem = result.every.problem
    coded, worked_out = encode_coordinates(problem.space), arithmetic_of(problem, with_memory=True)
    rng = np.random.default_rng(11)
    places = rng.permutation(np.flatnonzero(np.isfinite(result.losses)))[: max(learnt) + JUDGED]
    rows = result.every.trials.rows[places]
    features = coded(rows) if worked_out is None else np.concatenate([coded(rows), worked_out(rows)], axis=1)
    value, found = result.losses[places], []
    for count in learnt:
        model = Ensemble("surrogate", 5, np.random.default_rng(1))
        model.learn(features[:count], make_targets(value[:count, None], rng), np.ones(count, dtype=bool))
        predicted, achieved = model.predict(features[-JUDGED:])[0], value[-JUDGED:]
        found.append((count, kendall_tau(predicted, achieved), top_recall(predicted, achieved, TOP)))
    return found

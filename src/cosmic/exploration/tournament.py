"""Tournaments: agents on one problem with one budget and several seeds each; every winner is evaluated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosmic.errors import require
from cosmic.evaluation import Metrics, evaluate
from cosmic.exploration.agent import parse_agent
from cosmic.exploration.comparison import Course, behind, course_of, value_of
from cosmic.exploration.inputs import MOST_TRIALS, TRIALS, Options, make_inputs
from cosmic.exploration.objectives import loss, losses
from cosmic.exploration.problem import Problem
from cosmic.exploration.searching import Found, PoolOptions, run
from cosmic.psa.space import ParameterSet

LISTED = 20_000
"""Spaces up to this size are enumerated, so that regret is against the true optimum."""
MOST_SEEDS = 1000
SAME = 1e-9
"""Relative tolerance for a winner that is evaluated alone: sums over one design round otherwise than over a batch."""


@dataclass(frozen=True)
class Entry:
    """One search of the tournament."""

    course: Course
    elapsed_s: float
    point: dict[str, Any] | None
    """The winner, as files write it; None where nothing could run."""
    checked: bool
    """Whether the winner, evaluated alone, has the loss that the search reported."""
    row: tuple[int, ...] | None = None
    """The winner as the set indexes it."""


@dataclass(frozen=True)
class Standing:
    """The searches of one agent, over all seeds."""

    agent: str
    entries: tuple[Entry, ...]
    target: float
    """The least known loss of the problem."""

    @property
    def regrets(self) -> list[float]:
        """The regret of each search: its best loss above the target, as a share of the target."""
        return [behind(entry.course.best, self.target) for entry in self.entries]

    def row(self, objective: str) -> dict[str, Any]:
        """Return the agent's row of the leaderboard."""
        found = sorted(self.regrets)
        near = [entry.course.near(self.target) for entry in self.entries]
        reached = [count for count in near if count is not None]
        bests = [entry.course.best for entry in self.entries]
        return {
            "agent": self.agent,
            "median": value_of(objective, float(np.median(bests))),
            "best": value_of(objective, min(bests)),
            "regret_mean": float(np.mean(found)),
            "regret_median": float(np.median(found)),
            "regret_worst": found[-1],
            "within_2_percent": sum(regret <= 0.02 for regret in found),
            "seeds": len(found),
            "trials_to_5_percent": float(np.median(reached)) if 2 * len(reached) > len(near) else None,
            "elapsed_s": float(np.mean([entry.elapsed_s for entry in self.entries])),
            "checked": all(entry.checked for entry in self.entries),
        }


@dataclass(frozen=True)
class Leaderboard:
    """The result of a tournament, the best agent first."""

    objective: str
    trials: int
    optimum: str
    """What regret is relative to: the ``exhaustive`` optimum, a ``proven`` one, or the best that any ``found``."""
    standings: tuple[Standing, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each agent."""
        return [standing.row(self.objective) for standing in self.standings]


def hold_tournament(  # noqa: PLR0913  one option each
    space: ParameterSet,
    names: Sequence[str],
    *,
    seeds: int = 5,
    options: Options,
    workers: int = 1,
    watch: Callable[[str, int], None] | None = None,
    prove: Callable[[Problem], float | None] | None = None,
) -> Leaderboard:
    """Return the leaderboard of the agents *names* with the same budget; *options* hold all but agent and seed.

    A name may have settings, as in ``genetic(population=64)``: the same agent with others is another rival.
    *prove* gives the least loss of a set that is too large to go through, or None; regret is then against it.
    """
    require(bool(names), "agents", list(names), "name at least one")
    rivals = {name: parse_agent(name) for name in names}
    twice = [name for place, name in enumerate(names) if name in names[:place]]
    require(not twice, "agents", ", ".join(twice), "is named twice")
    require(seeds >= 1, "seeds", seeds, "give at least one")
    trials = TRIALS if options.trials is None else options.trials
    whole = len(names) * seeds * trials
    rule = f"at most {MOST_TRIALS:,} trials are run in all: fewer agents, seeds or trials"
    require(whole <= MOST_TRIALS, "agents × seeds × trials", whole, rule)
    require(seeds <= MOST_SEEDS, "seeds", seeds, f"give at most {MOST_SEEDS:,}")
    pool = PoolOptions(workers)
    entries: dict[str, list[Entry]] = {name: [] for name in names}
    for seed in range(seeds):
        for name in names:
            if watch is not None:
                watch(name, seed)
            agent, settings = rivals[name]
            chosen = replace(options, agent=agent, settings=settings, seed=seed, trials=trials)
            inputs = make_inputs(space, chosen)
            entries[name].append(_entry(run(inputs, pool)))
    problem = inputs.problem  # the same for all
    listed = problem.space.valid <= LISTED and problem.engine == "analytic"
    known = [entry.course.best for each in entries.values() for entry in each]
    proven = None if listed or prove is None or problem.engine != "analytic" else prove(problem)
    target = optimum(problem) if listed else min(known) if proven is None else min(proven, *known)
    against = "exhaustive" if listed else "found" if proven is None else "proven"
    standings = [Standing(name, tuple(each), target) for name, each in entries.items()]
    standings.sort(key=lambda standing: float(np.mean(standing.regrets)))
    objective = problem.objectives[0]
    return Leaderboard(objective, trials, against, tuple(standings))


def optimum(problem: Problem) -> float:
    """Return the least loss over all valid points of a small set."""
    rows = np.array(list(problem.space.enumerate()))
    found = losses(problem.objectives[:1], problem.evaluate(rows).columns)
    return float(np.nanmin(found, initial=np.inf))


def _entry(found: Found) -> Entry:
    inputs, problem, trials = found.inputs, found.problem, found.trials
    course = course_of(f"{inputs.agent}-{inputs.seed}", inputs.agent, inputs.seed, problem, trials)
    place = trials.best(problem)
    if place is None:
        return Entry(course, found.elapsed_s, None, checked=True)
    row = trials.row(place)
    if problem.space.workloads or problem.brought is not None:
        again = float(losses(problem.objectives[:1], problem.evaluate(row[None, :]).columns)[0, 0])
    else:
        outcome = evaluate(problem.space.point(row), problem.engine)
        achieved = getattr(outcome, problem.objectives[0]) if isinstance(outcome, Metrics) else np.nan
        again = float(loss(problem.objectives[0], np.array([achieved]))[0])
    same = bool(np.isclose(again, course.best, SAME, 0))
    return Entry(course, found.elapsed_s, problem.space.labels(row), same, tuple(row.tolist()))

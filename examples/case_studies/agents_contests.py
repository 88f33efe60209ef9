"""The contests behind `agents.py`: which agents meet on which spaces, and how far each stays behind the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec

import numpy as np
from common import Effort, two_at_a_time

from cosmic.exploration.comparison import Course
from cosmic.exploration.inputs import Options
from cosmic.exploration.tournament import Standing, hold_tournament
from cosmic.psa.files import load_space
from cosmic.psa.space import ParameterSet

CHEAP = ("random", "genetic", "ant_colony", "annealing", "policy")
"""Agents that take no longer to propose than we take to evaluate."""
NEEDS = {"tpe": "optuna", "surrogate": "sklearn", "bayesian": "sklearn"}
"""Agents that model what they were told, and the package that each needs."""
OBJECTIVE = "perf_per_bandwidth"
SEEDS = 3


# --------------------------------------------------------------------------------------------------- contests


@dataclass(frozen=True)
class Contest:
    """A space, and with how many evaluations it is searched."""

    name: str
    npus: int
    stacks: tuple[str, ...]
    """The layers that are open; all of them where none is named."""
    trials: int
    agents: tuple[str, ...] = (*CHEAP, *NEEDS)

    @property
    def space(self) -> ParameterSet:
        """What is searched."""
        whole = load_space(f"cosmic-{self.npus}-full-stack")
        return whole.restrict(self.stacks) if self.stacks else whole


CHARTED = Contest("Workload, 2,048 NPUs", 2048, ("workload",), 60)
LISTED = (
    Contest("Workload, 512 NPUs", 512, ("workload",), 60),
    Contest("Workload, 1,024 NPUs", 1024, ("workload",), 60),
    CHARTED,
    Contest("Collectives, 2,048 NPUs", 2048, ("collective",), 100),
)
"""Spaces that are small enough to be listed."""
SHORT = Contest("Full stack, 2,048 NPUs, few evaluations", 2048, (), 300)
LONG = Contest("Full stack, 2,048 NPUs, many evaluations", 2048, (), 4000, CHEAP)
REFERENCE = Contest("Full stack, 2,048 NPUs, reference", 2048, (), 15_000, ("genetic",))
"""What regret on the full stack is against, where any of the others does not find better."""


# ---------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Outcome:
    """What each agent achieved in a contest."""

    contest: Contest
    standings: tuple[Standing, ...]

    @cached_property
    def ranked(self) -> list[Standing]:
        """The standings, the least median regret first."""
        return sorted(self.standings, key=median_regret)

    @property
    def alike(self) -> list[Standing]:
        """Those that the seeds do not tell from the first: their median is within the range of its seeds."""
        first, *others = self.ranked
        return [each for each in others if median_regret(each) <= max(first.regrets)]

    @property
    def overlapping(self) -> list[Standing]:
        """Those of which some seed, though not the median, is within the range of the first one's seeds."""
        rest = self.ranked[1 + len(self.alike) :]
        return [each for each in rest if min(each.regrets) <= max(self.ranked[0].regrets)]

    def of(self, agent: str) -> Standing:
        """Return the standing of *agent*."""
        return next(each for each in self.standings if each.agent == agent)


@dataclass(frozen=True)
class Season:
    """The outcomes of all contests."""

    listed: tuple[Outcome, ...]
    short: Outcome
    long: Outcome
    reference: Outcome
    absent: Mapping[str, str]
    """The agents that took no part, and why."""

    @property
    def all(self) -> tuple[Outcome, ...]:
        """Every outcome."""
        return (*self.listed, self.short, self.long, self.reference)


def median_regret(standing: Standing) -> float:
    """Return by how much the loss of an agent's best design exceeds the optimum's, in the median over seeds."""
    return float(np.median(standing.regrets))


def seconds_each(standing: Standing) -> float:
    """Return the seconds that an evaluation took, with the thought before it."""
    return sum(each.elapsed_s for each in standing.entries) / sum(each.course.evaluated for each in standing.entries)


def so_far(course: Course, counts: Sequence[int]) -> list[float]:
    """Return the least loss after so many evaluations; infinite while nothing was found that can run."""
    places = np.searchsorted(course.evaluations, counts, side="right") - 1
    return [float(course.losses[place]) if place >= 0 else np.inf for place in places]


def first_at(course: Course, level: float) -> int | None:
    """Return after how many evaluations a search was at *level*."""
    places = np.flatnonzero(course.losses <= level * (1 + 1e-12))
    return int(course.evaluations[places[0]]) if len(places) else None


# ------------------------------------------------------------------------------------------------------- play


def hold_all(effort: Effort) -> Season:
    """Return the outcomes of all contests, with the part of their budgets and agents that there is time for."""
    absent = left_out(effort)
    agents = [name for name in (*CHEAP, *NEEDS) if name not in absent]
    wanted = ((CHARTED,) if effort.quick else LISTED, (SHORT, LONG, REFERENCE))
    small, wide = ([scaled(contest, effort, agents) for contest in contests] for contests in wanted)
    found = hold([*small, *wide], effort.seeds(SEEDS))
    short, long, reference = against_best(found[len(small) :])
    return Season(tuple(found[: len(small)]), short, long, reference, absent)


def left_out(effort: Effort) -> dict[str, str]:
    """Return the agents that take no part, and why: for a quick look all but three, and those that lack a package."""
    waived = {agent: "a quick look" for agent in (*CHEAP[3:], *NEEDS) if effort.quick}
    return waived | {agent: f"no package {name}" for agent, name in NEEDS.items() if find_spec(name) is None}


def scaled(contest: Contest, effort: Effort, agents: Sequence[str]) -> Contest:
    """Return a contest with a part of its budget, for *agents* alone."""
    chosen = tuple(name for name in contest.agents if name in agents)
    return replace(contest, trials=min(contest.trials, effort.trials(contest.trials)), agents=chosen)


def hold(contests: Sequence[Contest], seeds: int) -> list[Outcome]:
    """Return the outcome of each contest."""
    tasks = [(contest, agent, seeds) for contest in contests for agent in contest.agents]
    tasks.sort(key=lambda task: task[1] not in NEEDS)  # the slow ones first, so that none is left over in the end
    results = dict(zip(tasks, two_at_a_time(meet, tasks), strict=True))
    return [Outcome(contest, tuple(results[contest, agent, seeds] for agent in contest.agents)) for contest in contests]


def meet(contest: Contest, agent: str, seeds: int) -> Standing:
    """Return how one agent does: in spaces that can be listed, against the true optimum."""
    options = Options(trials=contest.trials, objectives=[OBJECTIVE])
    board = hold_tournament(contest.space, [agent], seeds=seeds, options=options)
    return board.standings[0]


def against_best(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return outcomes of one space with all regrets against the best that any search of it found."""
    known = min(entry.course.best for each in outcomes for standing in each.standings for entry in standing.entries)
    return [
        replace(each, standings=tuple(replace(standing, target=known) for standing in each.standings))
        for each in outcomes
    ]


# ------------------------------------------------------------------------------------------------------ price


@dataclass(frozen=True)
class Price:
    """What a model of the space costs and saves."""

    agent: str
    level: float
    """The regret at which it ends."""
    own: int
    """Evaluations that it took."""
    other: int | None
    """Evaluations after which the genetic algorithm is as good; None where it never is."""
    pays_s: float | None
    """How long an evaluation must take for it to pay."""


def price_of(agent: Standing, genetic: Standing) -> Price:
    """Return from which time of an evaluation on *agent* is done sooner than the genetic algorithm.

    Both reach the loss that *agent* ends with, in the median: it with few evaluations and much thought, the other the
    other way round. Their times are equal where an evaluation takes the difference in thought for each evaluation
    saved.
    """
    level = float(np.median([entry.course.best for entry in agent.entries]))
    own = round(float(np.median([first_at(entry.course, level) or entry.course.evaluated for entry in agent.entries])))
    reached = [first_at(entry.course, level) for entry in genetic.entries]
    counts = [count for count in reached if count is not None]
    if 2 * len(counts) <= len(reached):
        return Price(agent.agent, level / agent.target - 1, own, None, None)
    other = round(float(np.median(counts)))
    thought = seconds_each(agent) * own - seconds_each(genetic) * other
    pays = max(0.0, thought / (other - own)) if other > own else None
    return Price(agent.agent, level / agent.target - 1, own, other, pays)

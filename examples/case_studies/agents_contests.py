"""The contests behind `agents.py`: which agents search which spaces, and the regret of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec

import numpy as np
from common import Effort

from cosmic import load_space
from cosmic.space import ParameterSet, certify
from cosmic.study import Course, Standing, tournament

CHEAP = ("random", "genetic", "ant_colony", "annealing", "policy")
"""Agents whose proposals take no longer than an evaluation."""
NEEDS = {"tpe": "optuna", "surrogate": "sklearn", "bayesian": "sklearn"}
"""Agents that learn a model of the space, and the package that each needs."""
OBJECTIVE = "perf_per_bandwidth"
SEEDS = 3


# --------------------------------------------------------------------------------------------------- contests


@dataclass(frozen=True)
class Contest:
    """A space and the number of evaluations."""

    name: str
    npus: int
    stacks: tuple[str, ...]
    """The layers to search; empty for all."""
    trials: int
    agents: tuple[str, ...] = (*CHEAP, *NEEDS)

    @property
    def space(self) -> ParameterSet:
        """The space to search."""
        whole = load_space(f"cosmic-{self.npus}-full-stack")
        return whole.restrict(self.stacks) if self.stacks else whole


CHARTED = Contest("Workload, 2,048 NPUs", 2048, ("workload",), 60)
LISTED = (
    Contest("Workload, 512 NPUs", 512, ("workload",), 60),
    Contest("Workload, 1,024 NPUs", 1024, ("workload",), 60),
    CHARTED,
    Contest("Collectives, 2,048 NPUs", 2048, ("collective",), 100),
)
"""Spaces that are small enough for an exhaustive search."""
SHORT = Contest("Full stack, 2,048 NPUs, few evaluations", 2048, (), 300)
LONG = Contest("Full stack, 2,048 NPUs, many evaluations", 2048, (), 4000, CHEAP)
REFERENCE = Contest("Full stack, 2,048 NPUs, reference", 2048, (), 15_000, ("genetic",))
"""How near to the proven optimum a longer search comes."""


# ---------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Outcome:
    """The results of all agents in a contest."""

    contest: Contest
    standings: tuple[Standing, ...]

    @cached_property
    def ranked(self) -> list[Standing]:
        """The standings, the least median regret first."""
        return sorted(self.standings, key=median_regret)

    @property
    def alike(self) -> list[Standing]:
        """Agents that the seeds cannot distinguish from the first: their median is within the range of its seeds."""
        first, *others = self.ranked
        return [each for each in others if median_regret(each) <= max(first.regrets)]

    @property
    def overlapping(self) -> list[Standing]:
        """Agents with some seed, though not the median, within the range of the first one's seeds."""
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
    """The agents that are left out, and why."""

    @property
    def all(self) -> tuple[Outcome, ...]:
        """Every outcome."""
        return (*self.listed, self.short, self.long, self.reference)


def median_regret(standing: Standing) -> float:
    """Return the relative excess of an agent's best loss over the optimum, median over seeds."""
    return float(np.median(standing.regrets))


def seconds_each(standing: Standing) -> float:
    """Return the seconds for each evaluation, including the time to propose it."""
    return sum(each.elapsed_s for each in standing.entries) / sum(each.course.evaluated for each in standing.entries)


def so_far(course: Course, counts: Sequence[int]) -> list[float]:
    """Return the least loss after each number of evaluations; infinite until a feasible design was found."""
    places = np.searchsorted(course.evaluations, counts, side="right") - 1
    return [float(course.losses[place]) if place >= 0 else np.inf for place in places]


def first_at(course: Course, level: float) -> int | None:
    """Return the number of evaluations after which a search reached *level*."""
    places = np.flatnonzero(course.losses <= level * (1 + 1e-12))
    return int(course.evaluations[places[0]]) if len(places) else None


# --------------------------------------------------------------------------------------------------- contests


def hold_all(effort: Effort) -> Season:
    """Return the outcomes of all contests, with budgets and agents reduced to the effort."""
    absent = left_out(effort)
    agents = [name for name in (*CHEAP, *NEEDS) if name not in absent]
    wanted = ((CHARTED,) if effort.quick else LISTED, (SHORT, LONG, REFERENCE))
    small, wide = ([scaled(contest, effort, agents) for contest in contests] for contests in wanted)
    found = hold([*small, *wide], effort.seeds(SEEDS))
    short, long, reference = against_optimum(found[len(small) :])
    return Season(tuple(found[: len(small)]), short, long, reference, absent)


def left_out(effort: Effort) -> dict[str, str]:
    """Return the agents to leave out, and why: for a quick look all but three, and those without their package."""
    waived = {agent: "a quick look" for agent in (*CHEAP[3:], *NEEDS) if effort.quick}
    return waived | {agent: f"no package {name}" for agent, name in NEEDS.items() if find_spec(name) is None}


def scaled(contest: Contest, effort: Effort, agents: Sequence[str]) -> Contest:
    """Return a contest with its budget reduced to the effort, for *agents* only."""
    chosen = tuple(name for name in contest.agents if name in agents)
    return replace(contest, trials=min(contest.trials, effort.trials(contest.trials)), agents=chosen)


def hold(contests: Sequence[Contest], seeds: int) -> list[Outcome]:
    """Return the outcome of each contest."""
    return [Outcome(contest, tuple(meet(contest, agent, seeds) for agent in contest.agents)) for contest in contests]


def meet(contest: Contest, agent: str, seeds: int) -> Standing:
    """Return the result of one agent: in small spaces, against the true optimum."""
    board = tournament(contest.space, agents=[agent], trials=contest.trials, seeds=seeds, objectives=[OBJECTIVE])
    return board.standings[0]


def against_optimum(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return outcomes of one space with regret against its proven optimum."""
    proven = float(certify(outcomes[0].contest.space, [OBJECTIVE]).losses[0, 0])
    return [
        replace(each, standings=tuple(replace(standing, target=proven) for standing in each.standings))
        for each in outcomes
    ]


# ------------------------------------------------------------------------------------------------- break-even


@dataclass(frozen=True)
class BreakEven:
    """The evaluations that a model of the space saves, and when that pays."""

    agent: str
    level: float
    """The regret at which it ends."""
    own: int
    """Its number of evaluations."""
    other: int | None
    """Evaluations after which the genetic algorithm is as good; None if it never is."""
    pays_s: float | None
    """The time of an evaluation from which the agent is faster."""


def break_even(agent: Standing, genetic: Standing) -> BreakEven:
    """Return the time of an evaluation from which *agent* is faster than the genetic algorithm.

    Both reach the median loss that *agent* ends with: *agent* with few evaluations and slow proposals, the genetic
    algorithm with many and fast ones. Their times are equal where an evaluation takes the additional time of proposals
    divided by the evaluations saved.
    """
    level = float(np.median([entry.course.best for entry in agent.entries]))
    own = round(float(np.median([first_at(entry.course, level) or entry.course.evaluated for entry in agent.entries])))
    reached = [first_at(entry.course, level) for entry in genetic.entries]
    counts = [count for count in reached if count is not None]
    if 2 * len(counts) <= len(reached):
        return BreakEven(agent.agent, level / agent.target - 1, own, None, None)
    other = round(float(np.median(counts)))
    proposals_s = seconds_each(agent) * own - seconds_each(genetic) * other
    pays = max(0.0, proposals_s / (other - own)) if other > own else None
    return BreakEven(agent.agent, level / agent.target - 1, own, other, pays)

"""Which agent to search with: the same budget for each, against the optimum where all designs can be listed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec

import numpy as np
from common import Effort, write_page

from cosmic.evaluation import evaluate
from cosmic.exploration.comparison import NEAR, Course
from cosmic.exploration.tournament import Standing, hold_tournament
from cosmic.loading.designs import load_design
from cosmic.psa.files import load_space
from cosmic.reporting.charts import Axis, Series, lines
from cosmic.reporting.page import Figure, Heading, Part, Table, Text

CHEAP = ("random", "genetic", "ant_colony", "annealing", "policy")
"""Agents that take no longer to propose than we take to evaluate."""
NEEDS = {"tpe": "optuna", "surrogate": "sklearn", "bayesian": "sklearn"}
"""Agents that model what they were told, and the package that each needs."""
FEW = ("random", "genetic", "ant_colony", "bayesian")
"""As many as a chart has room for."""
SEEDS = 3
QUICK = 0.2
"""Below this effort few agents meet on few problems."""
PLAYED = 32
"""The batch with which a design is played: the time of that grows with it."""
OBJECTIVE = "perf_per_bandwidth"


@dataclass(frozen=True)
class Contest:
    """A space, and with how many evaluations it is searched."""

    name: str
    npus: int
    stacks: tuple[str, ...]
    trials: int
    agents: tuple[str, ...] = (*CHEAP, *NEEDS)

    @property
    def space(self) -> str:
        """The catalog's name of the space."""
        return f"cosmic-{self.npus}-full-stack"

    @property
    def size(self) -> int:
        """How many designs there are."""
        space = load_space(self.space)
        return (space.restrict(self.stacks) if self.stacks else space).valid


LISTED = [
    *(Contest(f"Workload, {npus:,} NPUs", npus, ("workload",), 60) for npus in (512, 1024, 2048)),
    Contest("Collectives, 2,048 NPUs", 2048, ("collective",), 100),
]
SHORT = Contest("Full stack, 2,048 NPUs, few evaluations", 2048, (), 300)
LONG = Contest("Full stack, 2,048 NPUs, many evaluations", 2048, (), 4000, CHEAP)
REFERENCE = Contest("Full stack, 2,048 NPUs, reference", 2048, (), 15_000, ("genetic",))
"""What regret on the full stack is against, where any of the others does not find better."""


def meet(contest: Contest, agent: str, seeds: int) -> Standing:
    """Return how one agent does: in spaces that can be listed, against the true optimum."""
    space = load_space(contest.space)
    board = hold_tournament(space, [agent], seeds=seeds, trials=contest.trials, stacks=contest.stacks)
    return board.standings[0]


def hold(contests: Sequence[Contest], seeds: int) -> dict[str, list[Standing]]:
    """Return the standings of each contest, two searches at a time."""
    pairs = [(contest, agent) for contest in contests for agent in contest.agents]
    pairs.sort(key=lambda pair: pair[1] not in NEEDS)  # the slow ones first, so that none is left over in the end
    with ProcessPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(meet, *zip(*pairs, strict=True), [seeds] * len(pairs)))
    results = dict(zip(pairs, found, strict=True))
    return {contest.name: [results[contest, agent] for agent in contest.agents] for contest in contests}


def against_best(standings: dict[str, list[Standing]]) -> dict[str, list[Standing]]:
    """Return the standings with those of the full stack against the best that any search of it found."""
    wide = [contest.name for contest in (SHORT, LONG, REFERENCE) if contest.name in standings]
    known = min(entry.course.best for name in wide for each in standings[name] for entry in each.entries)
    return standings | {name: [replace(each, target=known) for each in standings[name]] for name in wide}


# ------------------------------------------------------------------------------------------------------ curves


def so_far(course: Course, counts: Sequence[int]) -> list[float]:
    """Return the least loss after so many evaluations; infinite while nothing was found that can run."""
    places = np.searchsorted(course.evaluations, counts, side="right") - 1
    return [float(course.losses[place]) if place >= 0 else np.inf for place in places]


def curve(standing: Standing, first: int) -> Series:
    """Return the median over seeds of how many times the optimum's loss the best so far has, and its range.

    It begins after *first* evaluations: before, the curves are chance, and so high that the rest is flat.
    """
    last = max(entry.course.evaluated for entry in standing.entries)
    counts = sorted({round(count) for count in np.geomspace(min(first, last), last, 60)})
    table = np.array([so_far(entry.course, counts) for entry in standing.entries]) / standing.target
    middle, low, high = np.median(table, axis=0), table.min(axis=0), table.max(axis=0)
    known = np.isfinite(middle)
    points = [(float(count), float(value)) for count, value, ok in zip(counts, middle, known, strict=True) if ok]
    edges = zip(counts, low, high, np.isfinite(high), strict=True)
    band = [(float(count), float(least), float(most)) for count, least, most, ok in edges if ok]
    return Series(standing.agent, points, steps=True, band=band)


def chart(standings: Iterable[Standing], title: str, first: int) -> str:
    """Return the courses of some agents from *first* evaluations on."""
    y = Axis("loss over the least known", "", log=True, better="lower")
    return lines([curve(each, first) for each in standings], x=Axis("evaluations", "", log=True), y=y, title=title)


# ------------------------------------------------------------------------------------------------------- words


def percent(share: float) -> str:
    """Return a regret: one digit more where it is small."""
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def best_agents(standings: Sequence[Standing]) -> str:
    """Return the agents with the least median regret."""
    medians = {each.agent: float(np.median(each.regrets)) for each in standings}
    least = min(medians.values())
    names = [f"`{name}`" for name, regret in medians.items() if regret <= least + 1e-9]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def regret_of(standings: Sequence[Standing], agent: str) -> float:
    """Return the median regret of *agent*."""
    return next(float(np.median(each.regrets)) for each in standings if each.agent == agent)


def leaderboard(standings: Sequence[Standing], caption: str) -> Table:
    """Return what each agent achieved in one contest, the best first."""
    columns = ["Agent", "Median regret", "Worst regret", "Evaluations to 5 %", "Seconds a search"]
    rows = []
    for each in sorted(standings, key=lambda one: float(np.median(one.regrets))):
        row = each.row(OBJECTIVE)
        near = row["trials_to_5_percent"]
        rows.append(
            [
                each.agent,
                percent(row["regret_median"]),
                percent(row["regret_worst"]),
                None if near is None else round(near),
                f"{row['elapsed_s']:.1f}",
            ]
        )
    return Table(columns, rows, caption)


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


def played_s(batch: int) -> float:
    """Return how long the event engine takes for one design."""
    design = load_design("gpt3-175b@cosmic-512", {"workload.global_batch": batch})
    began = time.perf_counter()
    evaluate(design, "event")
    return time.perf_counter() - began


def first_at(course: Course, level: float) -> int | None:
    """Return after how many evaluations a search was at *level*."""
    places = np.flatnonzero(course.losses <= level * (1 + 1e-12))
    return int(course.evaluations[places[0]]) if len(places) else None


def seconds_each(standing: Standing) -> float:
    """Return the seconds that an evaluation took, with the thought before it."""
    return sum(each.elapsed_s for each in standing.entries) / sum(each.course.evaluated for each in standing.entries)


# -------------------------------------------------------------------------------------------------------- page


def answer(found: dict[str, list[Standing]], listed: Sequence[Contest]) -> list[Part]:
    """Return the question and its answer."""
    short, wide = found[SHORT.name], found[LONG.name]
    regrets = [float(np.median(each.regrets)) for contest in listed for each in found[contest.name]]
    few, many = best_agents(short), best_agents(wide)
    said = f"""
    Which agent should search, and for how long? Each was given the same evaluations on the same spaces, with
    {len(short[0].entries)} seeds; regret is by how much the loss of its best design exceeds the optimum's.

    Where a layer is small enough to be listed, no agent is needed, and with a fraction of the list all come within
    {percent(max(regrets))} in the median. On the full stack it depends on what an evaluation costs. With
    {SHORT.trials} evaluations {few} leads, at {percent(regret_of(short, few.strip("`").partition("`")[0]))}; with
    {LONG.trials:,}, {many}. The closed form evaluates thousands of designs a second, and then the time goes into more
    evaluations rather than into thought.
    """
    return [Text(said)]


def small(found: dict[str, list[Standing]], listed: Sequence[Contest]) -> list[Part]:
    """Return the contests whose optimum is known."""
    heads = [f"{contest.name} ({contest.trials} of {contest.size:,})" for contest in listed]
    table: dict[str, list[str]] = {}
    for contest in listed:
        for each in found[contest.name]:
            row = each.row(OBJECTIVE)
            near = row["trials_to_5_percent"]
            after = "–" if near is None else f"{near:.0f}"
            texts = (percent(row["regret_median"]), percent(row["regret_worst"]), after)
            table.setdefault(each.agent, []).append(" / ".join(texts))
    said = f"""
    {len(listed)} spaces of a single layer, of which every design was evaluated: regret is against the true optimum. The
    first evaluation is the base design, as in every search whose space holds it; at 1,024 NPUs, and among collectives,
    that design is within {NEAR:.0%} of the optimum already.
    """
    last = listed[-2] if len(listed) > 1 else listed[-1]
    figure = Figure(
        chart([each for each in found[last.name] if each.agent in FEW], f"{last.name}: best so far", 5),
        "workload",
        "Four of the agents: median over seeds, shaded from best to worst seed; 1 is the exhaustive optimum.",
    )
    caption = (
        f"Median regret / worst regret / median evaluations to within {NEAR:.0%}; a dash where most seeds never were."
    )
    rows = [[agent, *cells] for agent, cells in table.items()]
    return [Heading("One layer: the optimum is known"), Text(said), Table(["Agent", *heads], rows, caption), figure]


def wide(found: dict[str, list[Standing]]) -> list[Part]:
    """Return the contests on the full stack."""
    short, long = found[SHORT.name], found[LONG.name]
    best = max(entry.course.evaluated for each in found[REFERENCE.name] for entry in each.entries)
    modelled = [each for each in short if each.agent in ("genetic", *NEEDS)]
    said = f"""
    {SHORT.space} has {SHORT.size:.3g} designs, so that regret is against the best that any search on this page found,
    those of the genetic algorithm with {best:,} evaluations among them. First with few evaluations for all, then with
    many for the agents that propose quickly.
    """
    return [
        Heading("The full stack: the best known"),
        Text(said),
        leaderboard(short, f"{SHORT.name}: {SHORT.trials} each."),
        Figure(
            chart(
                modelled, f"Full stack, {SHORT.trials} evaluations: agents with a model, and a genetic algorithm", 20
            ),
            "few",
            "Median over seeds, shaded from the best to the worst seed; 1 is the best known design.",
        ),
        leaderboard(long, f"{LONG.name}: {LONG.trials:,} each."),
        Figure(
            chart(long, f"Full stack, {LONG.trials:,} evaluations: agents that propose quickly", 100),
            "many",
            "Median over seeds, shaded from the best to the worst seed; 1 is the best known design.",
        ),
    ]


def when(found: dict[str, list[Standing]]) -> list[Part]:
    """Return from which price of an evaluation on a model pays."""
    genetic = next(each for each in found[LONG.name] if each.agent == "genetic")
    prices = [price_of(each, genetic) for each in found[SHORT.name] if each.agent in NEEDS]
    columns = ["Agent", "Ends at regret", "Evaluations", "genetic needs", "Pays if an evaluation takes more than"]
    rows = [
        [
            each.agent,
            percent(each.level),
            each.own,
            f"over {LONG.trials:,}" if each.other is None else f"{each.other:,}",
            "–" if each.pays_s is None else f"{1000 * each.pays_s:.0f} ms",
        ]
        for each in prices
    ]
    ours = seconds_each(next(each for each in found[LONG.name] if each.agent == "random"))
    said = f"""
    An agent with a model reaches a given regret with fewer evaluations, and thinks longer for each. Where an evaluation
    takes long enough, that pays: the table says from where on, by the evaluations and seconds of this page (two
    searches ran at a time). Here random search takes {1000 * ours:.2f} ms a design, all told, since the closed form
    evaluates thousands at once. The event engine takes {played_s(PLAYED):.1f} s for the base design of 512 NPUs with a
    batch of {PLAYED}, and longer for its whole batch: for a search of played designs, a model pays by far.
    """
    return [
        Heading("When a model of the space pays"),
        Text(said),
        Table(columns, rows, "Against the genetic algorithm."),
    ]


def learned(found: dict[str, list[Standing]], listed: Sequence[Contest]) -> list[Part]:
    """Return what to take away."""
    short, long = found[SHORT.name], found[LONG.name]
    gap = {name: regret_of(long, name) for name in ("random", "genetic", "ant_colony")}
    layer = [regret_of(found[contest.name], "random") for contest in listed]
    checked = [entry.checked for each in found.values() for standing in each for entry in standing.entries]
    unsure = max(short, key=lambda each: max(each.regrets) - min(each.regrets))
    said = f"""
    1. List what can be listed. A single layer has hundreds to thousands of designs, which are evaluated sooner than an
    agent is chosen; random search with a part of the list stays up to {percent(max(layer))} behind in the median.

    2. On the full stack structure pays: with {LONG.trials:,} evaluations random search is {percent(gap["random"])}
    behind, the genetic algorithm {percent(gap["genetic"])}, the ant colony {percent(gap["ant_colony"])}. The
    constraints are no part of that difference: no agent here ever proposes a design that breaks one.

    3. With a cheap simulator take {best_agents(long)} and more evaluations; with a dear one {best_agents(short)}. All
    ran with their defaults.

    4. One seed says little. `{unsure.agent}` ended between {percent(min(unsure.regrets))} and
    {percent(max(unsure.regrets))} with {SHORT.trials} evaluations, so that agents must be compared over several.

    5. {sum(checked)} of {len(checked)} winners, evaluated again by themselves, were as good as their search had said.
    """
    return [Heading("What was learned"), Text(said)]


def differences(found: dict[str, list[Standing]]) -> list[Part]:
    """Return what the original did otherwise."""
    space = load_space("cosmic-1024-full-stack")
    order = sorted(found[SHORT.name], key=lambda each: float(np.median(each.regrets)))
    place = 1 + next(place for place, each in enumerate(order) if each.agent == "ant_colony")
    said = f"""
    The final runs of the original use a genetic algorithm and Bayesian optimisation, for up to 48 hours each
    (experiment files of arXiv 2505.15020). What each of its agents achieved could not be read, so that no numbers stand
    beside ours. Three things differ by construction.

    1. Its ant colony is absent from the final runs: in its code the best choice is reinforced by a negative amount,
    which drives the colony away from it. Reinforced by a positive one it is number {place} of {len(order)} here with
    {SHORT.trials} evaluations.

    2. Its agents draw or breed values one by one, and what breaks a constraint is thrown away. Of the values of the
    1,024-NPU space {space.valid / space.raw:.1%} satisfy the constraints; here every agent proposes only such designs.
    So random search is a stronger baseline here.

    3. It simulates every point of Bayesian optimisation twice, and repeated points of all agents again. Here no design
    is evaluated twice, and repeated ones do not count.
    """
    return [Heading("Where this differs from the original, and why"), Text(said)]


def scaled(contest: Contest, effort: Effort, agents: Sequence[str]) -> Contest:
    """Return a contest with the part of its budget and of its agents that there is time for."""
    chosen = tuple(name for name in contest.agents if name in agents)
    return replace(contest, trials=min(contest.trials, effort.trials(contest.trials)), agents=chosen)


def available(agent: str) -> bool:
    """Return whether the package that an agent needs is installed."""
    return agent not in NEEDS or find_spec(NEEDS[agent]) is not None


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    quick = effort.share < QUICK
    agents = CHEAP[:3] if quick else tuple(name for name in (*CHEAP, *NEEDS) if available(name))
    listed = [scaled(each, effort, agents) for each in (LISTED[2:3] if quick else LISTED)]
    full = [scaled(contest, effort, agents) for contest in (SHORT, LONG, REFERENCE)]
    found = against_best(hold([*listed, *full], effort.seeds(SEEDS)))
    parts = [
        answer(found, listed),
        small(found, listed),
        wide(found),
        when(found),
        learned(found, listed),
        differences(found),
    ]
    return [part for each in parts for part in each]


if __name__ == "__main__":
    write_page("Agents on the same budget", "agents", make)

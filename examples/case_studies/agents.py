"""Which agent to search with: the same budget for each, against the optimum where the space can be listed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np
from agents_contests import (
    CHARTED,
    NEEDS,
    OBJECTIVE,
    Outcome,
    Season,
    break_even,
    hold_all,
    median_regret,
    seconds_each,
    so_far,
)
from common import Effort, listing, write_page

from cosmic import evaluate, load_design, load_space
from cosmic.pages import Axis, Figure, Heading, Items, Part, Series, Table, Text, lines, quantity
from cosmic.study import NEAR, Standing

FEW = ("random", "genetic", "ant_colony", "bayesian")
"""As many as a chart has room for."""
SIMULATED = 32
"""The batch of the design that the event engine simulates: its time grows with the batch."""
SHADED = "Median over seeds, shaded from the best to the worst seed"

TIMED = ("Seconds a search", "Pays if an evaluation takes more than")
"""Columns that a clock fills."""


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    season = hold_all(effort)
    return [
        *answer(season),
        *one_layer(season.listed),
        *full_stack(season),
        *when_it_pays(season),
        *learned(season),
        *differences(season.short),
    ]


def answer(season: Season) -> list[Part]:
    """Return the question and its answer."""
    short, long = season.short, season.long
    worst = max(median_regret(each) for outcome in season.listed for each in outcome.standings)
    said = f"""
    Which agent should search, and for how long? Each had the same number of evaluations on the same spaces, with
    {seeds(short)}, to maximise `{OBJECTIVE}`; regret is the relative excess of its best design's loss over the
    optimum.{left_out(season)}

    Where a layer is small enough to be listed, no agent is needed: with a fraction of the list all have a median regret
    of at most {shown(worst)}. On the full stack it depends on what an evaluation costs. With
    {short.contest.trials:,} evaluations {lead(short)}. With {long.contest.trials:,} {lead(long)}. The closed form
    evaluates thousands of designs a second, so that more evaluations pay more than a better model.
    """
    return [Text(said)]


def one_layer(listed: Sequence[Outcome]) -> list[Part]:
    """Return the contests whose optimum is known."""
    contests = [outcome.contest for outcome in listed]
    heads = [f"{contest.name} ({contest.trials} of {contest.space.valid:,})" for contest in contests]
    agents = [each.agent for each in listed[0].standings]
    rows = [[agent, *(in_short(outcome.of(agent)) for outcome in listed)] for agent in agents]
    easy = [
        outcome.contest.name
        for outcome in listed
        if all(entry.course.near(each.target) == 1 for each in outcome.standings for entry in each.entries)
    ]
    already = f" That design is already within {NEAR:.0%} of the optimum in {'; '.join(easy)}." if easy else ""
    said = f"""
    {len(listed)} spaces of a single layer, evaluated exhaustively: regret is against the true optimum. The first
    evaluation is the base design, as in every search whose space contains it.{already}
    """
    charted = next(outcome for outcome in listed if outcome.contest.name == CHARTED.name)
    few = [each for each in charted.standings if each.agent in FEW]
    caption = f"Median regret / worst regret / median evaluations to within {NEAR:.0%}; a dash if most never got there."
    return [
        Heading("One layer: the optimum is known"),
        Text(said),
        Table(["Agent", *heads], rows, caption),
        Figure(
            chart(few, f"{charted.contest.name}: best so far", 5),
            "workload",
            f"{listing(each.agent for each in few)}. {SHADED}; 1 is the exhaustive optimum.",
        ),
    ]


def full_stack(season: Season) -> list[Part]:
    """Return the contests on the full stack."""
    short, long, reference = season.short, season.long, season.reference
    space = short.contest.space
    modelled = [each for each in short.standings if each.agent in ("genetic", *NEEDS)]
    few, many = f"{short.contest.trials:,} evaluations", f"{long.contest.trials:,} evaluations"
    said = f"""
    `{space.name}` has {space.valid:.3g} designs; regret is against its proven optimum (`cosmic space certify`). First with
    few evaluations for all, then with many for the agents that propose quickly. The genetic algorithm with
    {reference.contest.trials:,} evaluations has a regret of {median_regret(reference.standings[0]):.1%}.
    """
    caption = f"{SHADED}; 1 is the proven optimum."
    return [
        Heading("The full stack: against the proven optimum"),
        Text(said),
        leaderboard(short),
        Figure(chart(modelled, f"Full stack, {few}: agents with a model, and a genetic algorithm", 20), "few", caption),
        leaderboard(long),
        Figure(chart(long.standings, f"Full stack, {many}: agents that propose quickly", 100), "many", caption),
    ]


def when_it_pays(season: Season) -> list[Part]:
    """Return the time of an evaluation from which a model of the space pays."""
    short, long = season.short, season.long
    found = [break_even(each, long.of("genetic")) for each in short.standings if each.agent in NEEDS]
    columns = ["Agent", "Ends at regret", "Evaluations", "genetic needs", TIMED[1]]
    rows = [
        [
            each.agent,
            shown(each.level),
            each.own,
            f"over {long.contest.trials:,}" if each.other is None else f"{each.other:,}",
            "–" if each.pays_s is None else quantity(each.pays_s, "s", 1),
        ]
        for each in found
    ]
    said = f"""
    An agent with a model reaches a given regret with fewer evaluations, and spends more time on each proposal. That
    pays where evaluations are slow: the table gives the break-even time, from the evaluations and seconds of this page
    (two searches ran at a time; times are rounded to one digit, since they differ from run to run). Here random search
    takes {quantity(seconds_each(long.of("random")), "s", 1)} a design in all, since the closed form evaluates thousands
    at once. The event engine takes {quantity(simulated_s(SIMULATED), "s", 1)} for the base design of 512 NPUs with a
    batch of {SIMULATED}, and longer for its whole batch: for a search with the event engine, a model pays by far.
    """
    table = [Table(columns, rows, "Against the genetic algorithm.")] if found else []
    return [Heading("When a model of the space pays"), Text(said), *table]


def simulated_s(batch: int) -> float:
    """Return the seconds that the event engine takes for one design."""
    design = load_design("gpt3-175b@cosmic-512", {"global_batch": batch})
    began = time.perf_counter()
    evaluate(design, engine="event")
    return time.perf_counter() - began


def learned(season: Season) -> list[Part]:
    """Return what to take away."""
    short, long = season.short, season.long
    gap = {name: shown(median_regret(long.of(name))) for name in ("random", "genetic", "ant_colony")}
    layer = max(median_regret(outcome.of("random")) for outcome in season.listed)
    unsure = max(short.standings, key=lambda each: max(each.regrets) - min(each.regrets))
    checked = [entry.checked for outcome in season.all for each in outcome.standings for entry in each.entries]
    items = [
        f"""Search small spaces exhaustively. A single layer has hundreds to thousands of designs, which are evaluated
        in no time; random search of a part of them has a median regret of up to {shown(layer)}.""",
        f"""On the full stack an agent pays: with {long.contest.trials:,} evaluations random search has a regret of
        {gap["random"]}, the genetic algorithm {gap["genetic"]}, the ant colony {gap["ant_colony"]}. Constraints do not
        explain the difference: no agent here ever proposes an invalid design.""",
        f"""With cheap evaluations use {choice(long)} and more of them; with expensive ones {choice(short)}. All agents
        ran with their defaults.""",
        f"""One seed says little. `{unsure.agent}` ended between {shown(min(unsure.regrets))} and
        {shown(max(unsure.regrets))} with {short.contest.trials:,} evaluations, so that agents must be compared over
        several seeds.""",
        f"""{sum(checked)} of {len(checked)} winners, evaluated again on their own, were as good as their search had
        reported.""",
    ]
    return [Heading("What was learned"), Items(items)]


def differences(short: Outcome) -> list[Part]:
    """Return how the original study differs."""
    space = load_space("cosmic-1024-full-stack")
    place = 1 + [each.agent for each in short.ranked].index("ant_colony")
    said = """
    The final runs of the original use a genetic algorithm and Bayesian optimisation, for up to 48 hours each
    (experiment files of arXiv 2505.15020). The results of each agent are not published there, so that no numbers can be
    compared. Three things differ by construction.
    """
    items = [
        f"""Its ant colony is absent from the final runs: in its code the best choice is reinforced by a negative
        amount, which drives the colony away from it. With a positive amount it ranks {place} of
        {len(short.ranked)} here with {short.contest.trials:,} evaluations.""",
        f"""Its agents choose values one by one, and invalid designs are discarded. Of the combinations of the
        {space.base.network.npus:,}-NPU space {space.valid / space.raw:.1%} satisfy the constraints; here every agent
        proposes only such designs. So random search is a stronger baseline here.""",
        """It simulates every point of Bayesian optimisation twice, and repeated points of all agents again. Here no
        design is evaluated twice, and repeated proposals do not count.""",
    ]
    return [Heading("Where this differs from the original, and why"), Text(said), Items(items)]


# ----------------------------------------------------------------------------------------- tables and figures


def leaderboard(outcome: Outcome) -> Table:
    """Return the results of one contest, the best agent first."""
    columns = ["Agent", "Median regret", "Worst regret", f"Evaluations to {NEAR:.0%}", TIMED[0]]
    rows = []
    for each in outcome.ranked:
        row = each.row(OBJECTIVE)
        regrets = [shown(row["regret_median"]), shown(row["regret_worst"])]
        near = row["trials_to_5_percent"]
        seconds = float(f"{row['elapsed_s']:.1g}")
        rows.append([each.agent, *regrets, None if near is None else round(near), f"{seconds:g}"])
    return Table(columns, rows, f"{outcome.contest.name}: {outcome.contest.trials:,} each, {seeds(outcome)}.")


def in_short(standing: Standing) -> str:
    """Return the result of an agent for one cell of a table."""
    row = standing.row(OBJECTIVE)
    near = row["trials_to_5_percent"]
    texts = shown(row["regret_median"]), shown(row["regret_worst"]), "–" if near is None else f"{near:.0f}"
    return " / ".join(texts)


def chart(standings: Iterable[Standing], title: str, first: int) -> str:
    """Return the convergence of some agents from *first* evaluations on."""
    y = Axis("loss over the least known", "", log=True, better="lower")
    return lines([curve(each, first) for each in standings], x=Axis("evaluations", "", log=True), y=y, title=title)


def curve(standing: Standing, first: int) -> Series:
    """Return the best loss so far over the optimum's: the median over seeds, and its range.

    It starts after *first* evaluations: before, the curves are noise, and so high that the rest looks flat.
    """
    last = max(entry.course.evaluated for entry in standing.entries)
    counts = sorted({round(count) for count in np.geomspace(min(first, last), last, 60)})
    table = np.array([so_far(entry.course, counts) for entry in standing.entries]) / standing.target
    middle, low, high = np.median(table, axis=0), table.min(axis=0), table.max(axis=0)
    points = [(float(n), float(value)) for n, value in zip(counts, middle, strict=True) if np.isfinite(value)]
    edges = zip(counts, low, high, strict=True)
    band = [(float(n), float(least), float(most)) for n, least, most in edges if np.isfinite(most)]
    return Series(standing.agent, points, steps=True, band=band)


# ------------------------------------------------------------------------------------------------------ words


def lead(outcome: Outcome) -> str:
    """Return which agent leads a contest, and which ones these seeds cannot distinguish from it."""
    first, alike, overlapping = outcome.ranked[0], outcome.alike, outcome.overlapping
    kind = ", an agent with a model," if first.agent in NEEDS else ""
    said = f"`{first.agent}`{kind} has the least median regret, {shown(median_regret(first))}"
    if alike:
        names = listing(f"`{each.agent}` ({shown(median_regret(each))})" for each in alike)
        said += f", but {seeds(outcome)} cannot separate it from {names}: their medians are within its worst seed"
    if overlapping:
        too = " either" if alike else ""
        said += f". Single seeds of {listing(quoted(overlapping))} are no worse than its worst seed{too}"
    return said


def choice(outcome: Outcome) -> str:
    """Return which agents to use: the first, or any that the seeds cannot distinguish from it."""
    names = listing(quoted([outcome.ranked[0], *outcome.alike]), "or")
    return f"{names} ({seeds(outcome)} cannot separate them)" if outcome.alike else names


def left_out(season: Season) -> str:
    """Return which agents are left out, and why."""
    absent = [f"`{agent}` ({reason})" for agent, reason in season.absent.items()]
    return f" Left out: {listing(absent)}." if absent else ""


def quoted(standings: Iterable[Standing]) -> list[str]:
    """Return the names of agents as code."""
    return [f"`{each.agent}`" for each in standings]


def seeds(outcome: Outcome) -> str:
    """Return the number of seeds in words."""
    count = len(outcome.standings[0].entries)
    return "one seed" if count == 1 else f"{count} seeds"


def shown(share: float) -> str:
    """Return a regret as a percentage, with one more digit where it is small."""
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


if __name__ == "__main__":
    write_page("Agents on the same budget", "agents", make, TIMED)

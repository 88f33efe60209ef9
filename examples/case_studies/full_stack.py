"""Workload, collectives and network searched together, or one layer at a time: the question of the COSMIC paper.

Three searches of one layer each, one of the layers in turn, and one of the full stack, for four models, three systems
and two rewards. Then tests of the reasons why the numbers differ from the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from common import Effort, listing, metrics_of, span, write_page
from full_stack_designs import designs
from full_stack_panels import panels
from full_stack_paper import PAPER, PAPER_GAIN, PAPER_SPREAD, VARIANTS, differences, microbatch_matters
from full_stack_search import (
    LAYERS,
    MODELS,
    REWARDS,
    SYSTEMS,
    Budget,
    Case,
    Compared,
    budget_of,
    compare,
    exposed,
)

from cosmic import load_space
from cosmic.design import BYTES_PER_S, DesignPoint, format_quantity
from cosmic.pages import Axis, Bar, BarGroup, Figure, Heading, Items, Part, Series, Table, Text, bars, lines

AHEAD = 1.05
"""From this factor on the full stack counts as ahead of the layers in turn."""
CLOSE = 1.1
"""Up to this factor a step counts as close to the best."""


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    cases = SYSTEMS[1:] if effort.quick else [*SYSTEMS, *MODELS]
    variants = VARIANTS[:1] if effort.quick else VARIANTS
    budget = budget_of(effort)
    found = [compare(case, reward, budget) for case in (*cases, *variants) for reward in REWARDS]
    main, others = found[: len(cases) * len(REWARDS)], found[len(cases) * len(REWARDS) :]
    return [
        *answer(main),
        *gains(main, budget),
        *spreads(main),
        *panels(main, effort),
        *designs(main),
        *learned(main),
        *differences(main, others),
    ]


def answer(main: Sequence[Compared]) -> list[Part]:
    """Return the question and its answer."""
    every = [each.gain(layer) for each in main for layer in LAYERS]
    gpt3 = [each.gain(layer) for each in main if each.case in SYSTEMS for layer in LAYERS]
    turns = [each.gain("in turn") for each in main]
    said = f"""
    How much is lost when the layers of a training system are tuned one at a time, with the others unchanged? The COSMIC
    paper ({PAPER}) searches parallelism, collectives and network together and reports {span(PAPER_GAIN)} times the
    reward of searches of a single layer.

    Here, over {len({each.case.model for each in main})} models, {len({each.case.npus for each in main})} systems and
    {len(REWARDS)} rewards, the full stack achieves {span(every)} times the reward of one layer, and {span(gpt3)} times
    for GPT3-175B alone: much the same range, but it starts lower. Much of that does not need a joint search, though:
    searching the layers in turn, each around the best of the one before, comes within a factor of {max(turns):.2f} of
    the full stack everywhere.

    The range depends on a condition: as in the original, the microbatch is not searched. It is 1 sequence here, and
    with ZeRO-3 each microbatch gathers all weights. {microbatch_matters()}
    """
    return [Text(said)]


# ------------------------------------------------------------------------------------------------------ gains


def gains(main: Sequence[Compared], budget: Budget) -> list[Part]:
    """Return the result of each search."""
    spaces = listing(dict.fromkeys(f"`{each.case.space}`" for each in main))
    seeds = "and one seed" if budget.seeds == 1 else f"for each of {budget.seeds} seeds, the best of which counts"
    said = f"""
    Every search starts from the paper's design of the system and uses its published ranges (the spaces {spaces} of the
    catalog). The rewards are steps a second for each byte/s that an NPU can inject (`perf_per_bandwidth`), and for each
    dollar of the network (`perf_per_network_cost`).

    Workload-only and collective-only searches are exhaustive. The others use the genetic algorithm: network-only with
    {budget.network:,} evaluations and one seed, the full stack with {budget.full:,} evaluations {seeds}. The layers in
    turn (workload, then network, then collectives) have the budgets of the single searches. The result of the genetic
    algorithm is a lower bound of the optimum: `agents.md` says how close it comes.

    In the original's network-only search the collective algorithms follow the topology: ring for a ring, direct for
    fully connected, halving-doubling for a switch. This page does the same, with `derived` algorithms in the parameter
    set; with the base design's algorithms that search would be at a disadvantage. Its winners, and those of the layers
    in turn, are points of the full stack too, which counts the best of them all.
    """
    return [
        Heading("What the full stack gains"),
        Text(said),
        gain_table(main),
        *(gain_figure(main, reward) for reward in REWARDS),
        Text(base_designs(main)),
    ]


def gain_table(main: Sequence[Compared]) -> Table:
    """Return the gain of the full stack over every other search."""
    columns = ["Case", "Base exposed", "Reward", "over workload", "over collectives", "over network", "over in turn"]
    rows = [
        [
            each.case.name,
            f"{exposed(each.case.base):.0%}",
            f"per {REWARDS[each.reward]}",
            *(f"{each.gain(name):.2f} x" for name in (*LAYERS, "in turn")),
        ]
        for each in main
    ]
    caption = f"""Reward of the full stack over that of each other search, and the share of exposed communication in the
    base design's step. The paper's range: {span(PAPER_GAIN)}."""
    return Table(columns, rows, " ".join(caption.split()))


def gain_figure(main: Sequence[Compared], reward: str) -> Figure:
    """Return the gain of each search over the base design."""
    shown = {"workload": "workload only", "collective": "collectives only", "network": "network only"}
    shown |= {"in turn": "layers in turn", "full": "full stack"}
    groups = [
        BarGroup(each.case.name, [Bar(words, each.over_base(name)) for name, words in shown.items()])
        for each in main
        if each.reward == reward
    ]
    axis = Axis("reward over that of the base design", "", log=True, better="higher")
    title = f"Performance per {REWARDS[reward]}: gain of each search over the base design"
    caption = f"Best design of each search, in multiples of the base design's performance per {REWARDS[reward]}."
    return Figure(bars(groups, x=axis, title=title), f"gains-per-{REWARDS[reward].replace(' ', '-')}", caption)


def base_designs(main: Sequence[Compared]) -> str:
    """Return the peculiarities of the base designs."""
    cases = {each.case.name: each.case for each in main}
    grid = bandwidth_grid(main[0].case)
    off = {case.npus: off_grid(case) for case in cases.values()}
    told = "; ".join(f"{npus:,} NPUs have {listing(values)}" for npus, values in off.items() if values)
    return f"""The base mappings, made for GPT3-175B, are feasible in all {len(cases)} cases: they divide the heads,
    layers and tokens of the smaller models too. The base networks are not all on the grid of the search, which goes
    from {format_quantity(grid[0], BYTES_PER_S)} to {format_quantity(grid[-1], BYTES_PER_S)} in steps of
    {format_quantity(grid[1] - grid[0], BYTES_PER_S)}: {told}. So the searches that keep the network keep bandwidths that the full
    stack cannot choose."""


def bandwidth_grid(case: Case) -> list[float]:
    """Return the bandwidths that a dimension may have in a search, in bytes/s."""
    parameter = next(each for each in load_space(case.space).parameters if each.name == "network.dims.0.bandwidth")
    return [value for (value,) in parameter.values]


def off_grid(case: Case) -> list[str]:
    """Return the bandwidths of the base network that no search can choose."""
    given = [dim.bandwidth_bytes_per_s for dim in case.base.network.dims]
    return [format_quantity(value, BYTES_PER_S) for value in given if value not in bandwidth_grid(case)]


# ----------------------------------------------------------------------------------------------------- spread


def spreads(main: Sequence[Compared]) -> list[Part]:
    """Return the spread of step times over the mappings of one system."""
    systems = [each for each in main if each.case in SYSTEMS and each.reward == main[0].reward]
    near = [
        f"{np.mean(np.array(each.mappings.steps) <= CLOSE * each.mappings.steps[0]):.0%} at {each.case.npus:,} NPUs"
        for each in systems
    ]
    worst = [f"{largest_part(each.mappings.worst)} at {each.case.npus:,} NPUs" for each in systems]
    said = f"""
    The step of every mapping of GPT3-175B on the base network. The caption of the paper's figure 4 has a
    factor of {PAPER_SPREAD}, which is read here as the worst over the best of these at 1,024 NPUs. Within
    {CLOSE - 1:.0%} of the best step are {", ".join(near)}. The largest share of the worst step: {", ".join(worst)}.
    """
    return [
        Heading("How much the mapping alone decides"),
        Text(said),
        spread_table(systems),
        spread_figure(systems),
    ]


def spread_table(systems: Sequence[Compared]) -> Table:
    """Return the best and the worst mapping of each system."""
    columns = ["System", "Valid", "Feasible", "Best", "Worst", "Worst / best", "Best mapping", "Worst mapping"]
    rows = [
        [
            each.case.name,
            each.mappings.tried,
            len(each.mappings.steps),
            f"{each.mappings.steps[0]:.1f} s",
            f"{each.mappings.steps[-1]:,.0f} s",
            f"{each.mappings.spread:.1f} x",
            degrees(each.mappings.best),
            degrees(each.mappings.worst),
        ]
        for each in systems
    ]
    return Table(columns, rows, "Workload-only, exhaustive, by the time of a step.")


def spread_figure(systems: Sequence[Compared]) -> Figure:
    """Return the steps of all mappings, sorted."""
    curves = []
    for each in systems:
        steps = each.mappings.steps
        points = [((place + 1) / len(steps), step / steps[0]) for place, step in enumerate(steps)]
        curves.append(Series(f"{each.case.npus:,} NPUs", points))
    x, y = Axis("share of the feasible mappings"), Axis("step over the best step", "", log=True)
    caption = "Every feasible mapping, sorted: its step over the best step of the system."
    return Figure(lines(curves, x=x, y=y, title="Mappings from best to worst"), "spread", caption)


def degrees(design: DesignPoint) -> str:
    """Return the mapping of a design in one line."""
    w = design.workload
    sharding = "" if w.weight_sharding == "none" else f", {w.weight_sharding}"
    return f"dp {w.dp}, tp {w.tp}, cp {w.cp}, pp {w.pp}{sharding}"


def largest_part(design: DesignPoint) -> str:
    """Return the largest entry of a design's breakdown, and its share."""
    parts = metrics_of(design).breakdown
    name = max(parts, key=lambda each: parts[each])
    return f"{name}, {parts[name] / sum(parts.values()):.0%}"


# ---------------------------------------------------------------------------------------------------- learned


def learned(main: Sequence[Compared]) -> list[Part]:
    """Return what to take away."""
    most = max(exposed(each.case.base) for each in main)
    ahead = "; ".join(dict.fromkeys(each.case.name for each in main if each.gain("in turn") > AHEAD))
    by_reward = [
        f"{span(each.gain('workload') for each in main if each.reward == reward)} times per {words}"
        for reward, words in REWARDS.items()
    ]
    items = [
        f"""One layer gains little where another is the bottleneck: collectives alone achieve
        {span(each.over_base("collective") for each in main)} times the base design's reward, the full stack
        {span(each.over_base("full") for each in main)} times.""",
        f"""The gain is largest where the base has much exposed communication, up to {most:.0%} of its step, mostly the
        weights that ZeRO-3 gathers for every microbatch. The remedy is a mapping with fewer microbatches and a network
        that is fast where that traffic runs; a search of one layer has only one of the two.""",
        f"""Most of the gain comes from searching every layer, less from searching them jointly: the full stack achieves
        {span(each.gain("in turn") for each in main)} times the reward of the layers in turn. It is more than
        {AHEAD - 1:.0%} ahead for: {ahead or "none"}. There the fastest mapping on the given network is not the best one
        for a cheaper network.""",
        f"""The result for one layer depends on the reward: the gain over the workload alone is
        {listing(by_reward)}, for the same fastest mapping.""",
        """Both rewards favour slow, cheap networks wherever compute dominates. For a short step, add a constraint such
        as `step_s <= 400 s`, or a second objective.""",
    ]
    return [Heading("What was learned"), Items(items)]


if __name__ == "__main__":
    write_page("Full stack against one layer at a time", "full-stack", make)

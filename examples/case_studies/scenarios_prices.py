"""Bandwidth or dollars: what changes if the reward counts the price of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from common import Effort, Section, find, front_of, percent
from scenarios_designs import (
    DOLLARS,
    LARGEST,
    MODELS,
    REWARD,
    TIME,
    Design,
    best_of,
    budget,
    dollars,
    full_stack,
    improved,
    seconds,
)

from cosmic.cluster import tier_rates
from cosmic.pages import Axis, Figure, Mark, Part, Table, Text, scatter
from cosmic.space import Results

CALLED = {TIME: "shortest step", REWARD: "per bandwidth", DOLLARS: "per dollar"}
"""The label of the best design by each objective."""
NEAR = 1.1
"""Designs are drawn up to this factor over the shortest step."""


@dataclass(frozen=True)
class Bought:
    """The best design by each objective, and the price and time of all trials."""

    best: Mapping[str, Design]
    dots: Sequence[tuple[float, float]]


def buy(effort: Effort) -> Bought:
    """Return the best designs by time, by bandwidth and by dollars, among the trials of all searches."""
    space = full_stack(1024, {"model": MODELS[LARGEST]}, "network cost")
    trials = budget(effort, 3000)
    found = {name: find(space, trials, objectives=[name]) for name in CALLED}
    searches = [*found.values(), find(space, 2 * trials, objectives=[TIME, "network_usd"])]
    rows = np.concatenate([each.trials.rows for each in searches])
    results = Results.join(each.trials.results for each in searches)
    best = {
        name: improved(each.problem, best_of(each.problem, rows, results), trials // 100)
        for name, each in found.items()
    }
    usd, step = results.columns["network_usd"], results.columns[TIME]
    near = results.feasible & (step <= NEAR * np.nanmin(step))
    return Bought(best, list(zip(usd[near].tolist(), step[near].tolist(), strict=True)))


def network_cost(effort: Effort) -> Section:
    """Return what changes when dollars count instead of bandwidth."""
    bought = buy(effort)
    wide, cheap = bought.best[REWARD], bought.best[DOLLARS]
    less, longer = 1 - cheap.network_usd / wide.network_usd, cheap.step_s / wide.step_s - 1
    return Section(
        "Bandwidth or dollars",
        "What changes if the network is paid for in dollars?",
        f"The network gets {percent(less, 0)} cheaper and a step {percent(longer)} longer.",
        body(bought),
    )


def body(bought: Bought) -> list[Part]:
    """Return the prices, the designs, and the front of price and time."""
    inner, outer = (tier_rates("price")[tier] for tier in ("chiplet", "pod"))
    front = front_of(bought.dots)
    return [
        Text(
            f"""{LARGEST} is trained on 1,024 NPUs. The price of a GB/s depends on the tier and the components: a link
            is {inner.link:g} USD on a chiplet and {outer.link:g} USD in a pod, where a switch port adds
            {outer.switch_port:g} USD and a NIC {outer.nic:g} USD (`catalog/prices.yaml`). The paper's two rewards
            differ in this."""
        ),
        Table(
            ["objective", "mapping", "network", "GB/s", "step", "price"],
            [
                [name, *each.cells, seconds(each.step_s), dollars(each.network_usd)]
                for name, each in bought.best.items()
            ],
            "The best designs by time, by performance per bandwidth, and by performance per dollar of network.",
        ),
        Figure(
            scatter(
                bought.dots,
                x=Axis("price of the network", "USD", log=True, better="lower"),
                y=Axis("step", "s", better="lower"),
                title="Time of a step and price of the network",
                front=front,
                marks=[Mark(CALLED[name], each.network_usd, each.step_s) for name, each in bought.best.items()],
            ),
            "cost",
            f"Trials that take at most {percent(NEAR - 1, 0)} more than the shortest step.",
        ),
        Text(said(bought.best, front)),
    ]


def said(best: Mapping[str, Design], front: Sequence[tuple[float, float]]) -> str:
    """Return what each reward prefers, and what the front shows."""
    fast, wide, cheap = (best[name] for name in (TIME, REWARD, DOLLARS))
    (least_usd, longest_s), (most_usd, shortest_s) = front[0], front[-1]
    return f"""Performance per bandwidth counts every GB/s the same: it pays {dollars(wide.network_usd)} for
        {wide.network}, and its step is {percent(1 - wide.step_s / cheap.step_s)} shorter than with {cheap.network} at
        {dollars(cheap.network_usd)}, which performance per dollar prefers. For the same bandwidth per NPU, rings and
        fully connected dimensions cost the same; switches and NICs are expensive. The shortest step is
        {percent(1 - fast.step_s / cheap.step_s)} shorter than that and costs {fast.network_usd / cheap.network_usd:.1f}
        times as much. The front has {len(front)} designs, from {dollars(least_usd)} and {seconds(longest_s)} to
        {dollars(most_usd)} and {seconds(shortest_s)}: NPUs of 10 TFLOP/s compute for most of the step, so that a more
        expensive network saves little time."""

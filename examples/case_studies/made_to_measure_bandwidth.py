"""Bandwidth to measure: the money, or the GB/s, of the network as it is built, spread as models need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common import Effort, percent
from made_to_measure_cluster import EXPERTS, HEALTHY, LONG_CONTEXT, SLOW_NIC, SMALL_BATCH, Case, Condition
from made_to_measure_cluster import synthesized_step as made
from made_to_measure_cluster import textbook_step as taught
from made_to_measure_steps import seconds

from cosmic.cluster import network_usd
from cosmic.design import DesignPoint
from cosmic.network import Provisioned, WeightedDesign, provision_designs
from cosmic.pages import Axis, Bar, BarGroup, Figure, Heading, Part, Table, Text, bars

GIGA = 1e9
BOTH = "both models"
SAME_USD, SAME_RATE = "the same dollars", "the same GB/s"
PORT = "25 GB/s"
"""An NVLink of an H100, or half of an NDR port."""


@dataclass(frozen=True)
class Bought:
    """Bandwidth for one case, or for several, on one budget."""

    name: str
    budget: str
    found: Provisioned

    @property
    def rates(self) -> str:
        """GB/s of NVLink and rails."""
        return " / ".join(f"{dim.bandwidth_bytes_per_s / GIGA:.0f}" for dim in self.found.dims)

    @property
    def money(self) -> str:
        """Millions of dollars for NVLink and rails."""
        return " / ".join(f"{dim.cost_usd / 1e6:.2f}" for dim in self.found.dims)

    @property
    def shadow(self) -> str:
        """What more of the budget is worth."""
        price = next(price for price in self.found.prices if price.limit.budget)
        if self.budget == SAME_USD:
            return f"{price.per_unit * 1e6 * 1e3:.0f} ms for 1 M USD"
        return f"{price.per_unit * GIGA * 1e3:.2f} ms for 1 GB/s"


def usd(point: DesignPoint) -> float:
    """Return what the network of a design costs, as built."""
    dims = point.network.dims
    rates = [dim.bandwidth_bytes_per_s for dim in dims]
    return float(network_usd([dim.topology for dim in dims], [dim.npus for dim in dims], rates))


def weighted(cases: Sequence[Case]) -> list[WeightedDesign]:
    """Return designs that count so that each has a step of 1 on the network as built."""
    points = [case.point for case in cases]
    steps = [taught(point, HEALTHY, ("auto",)).step_s for point in points]
    return [
        WeightedDesign(case.name, point, 1.0 if len(points) == 1 else steps[0] / step)
        for case, point, step in zip(cases, points, steps, strict=True)
    ]


def bought(cases: tuple[Case, ...], budget: str) -> Bought:
    """Return the best bandwidth for some cases; several count the same as built."""
    designs = weighted(cases)
    stated = f"{usd(designs[0].point)!r} USD" if budget == SAME_USD else None
    found = provision_designs(designs, stated, port=PORT if len(cases) > 1 else None)
    return Bought(cases[0].name if len(cases) == 1 else BOTH, budget, found)


def all_bought(effort: Effort) -> list[Bought]:
    """Return what is bought for each case and for both models, on both budgets."""
    if effort.quick:
        small, experts = SMALL_BATCH.smaller(), EXPERTS.smaller()
        return [bought(cases, SAME_USD) for cases in ((experts,), (small, experts))]
    every = ((SMALL_BATCH,), (LONG_CONTEXT,), (EXPERTS,), (SMALL_BATCH, EXPERTS))
    return [bought(cases, budget) for budget in (SAME_USD, SAME_RATE) for cases in every]


# ------------------------------------------------------------------------------------------------ both tools


@dataclass(frozen=True)
class Four:
    """A case under a condition: textbook and synthesised collectives, on the network as built and as provisioned."""

    case: Case
    condition: str
    rates: str
    plain_s: float
    synthesized_s: float
    provisioned_s: float
    both_s: float

    @property
    def gain(self) -> float:
        """What both tools gain together."""
        return self.plain_s / self.both_s


def four_of(case: Case, condition: Condition, rates: tuple[float, ...]) -> Four:
    """Return all four steps; *rates* are those that were bought."""
    point = case.point
    new = point.changed({f"network.dims.{place}.bandwidth": rate for place, rate in enumerate(rates)})
    return Four(
        case,
        condition.name,
        " / ".join(f"{rate / GIGA:.0f}" for rate in rates),
        taught(point, condition).step_s,
        made(point, condition).step_s,
        taught(new, condition).step_s,
        made(new, condition).step_s,
    )


def all_four(effort: Effort, found: Sequence[Bought]) -> list[Four]:
    """Return both models with a slow NIC, and healthy, on what the same dollars buy for both."""
    both = next(each for each in found if (each.name, each.budget) == (BOTH, SAME_USD))
    rates = tuple(dim.bandwidth_bytes_per_s for dim in both.found.dims)
    if effort.quick:
        return [four_of(EXPERTS.smaller(), HEALTHY.smaller(), rates)]
    return [four_of(case, condition, rates) for case in (SMALL_BATCH, EXPERTS) for condition in (HEALTHY, SLOW_NIC)]


# ------------------------------------------------------------------------------------------------ the page


def section(found: Sequence[Bought], four: Sequence[Four]) -> list[Part]:
    """Return the section on bandwidth, and on both tools together."""
    first = found[0].found
    nvlink, rails = first.dims
    before = [1e-6 * dim.cost_usd * dim.base_bytes_per_s / dim.bandwidth_bytes_per_s for dim in first.dims]
    return [
        Heading("Bandwidth to measure"),
        Text(
            f"""The catalog's network has {nvlink.base_bytes_per_s / GIGA:.0f} GB/s of NVLink and
            {rails.base_bytes_per_s / GIGA:.0f} GB/s of rails for every GPU, and costs
            {first.base_cost_usd / 1e6:.1f} M USD for 1,024 by the prices of COSMIC's paper (`catalog/prices.yaml`).
            `cosmic network provision` spreads the same dollars, or the same GB/s, so that steps are shortest, with the
            library's choice of algorithms; {BOTH} count the same: a percent of one step is worth a percent of the
            other. Nobody sells NVLink by the GB/s: read it as what a fabric for these models should be like."""
        ),
        Table(
            ["budget", "for", "NVLink / rails, GB/s", "M USD", "steps", "gain", "more is worth"],
            [
                [
                    each.budget,
                    each.name,
                    each.rates,
                    each.money,
                    "; ".join(f"{seconds(load.base_time_s)} → {seconds(load.time_s)}" for load in each.found.loads),
                    f"{each.found.gain:.3f} x",
                    each.shadow,
                ]
                for each in found
            ],
            "The best bandwidth for each case alone and for both models, healthy, at the same mapping.",
        ),
        Figure(
            bars(
                [
                    BarGroup(
                        f"{each.name}, {each.budget}",
                        [
                            Bar("NVLink", each.found.dims[0].cost_usd / 1e6, before[0]),
                            Bar("rails", each.found.dims[1].cost_usd / 1e6, before[1]),
                        ],
                    )
                    for each in found
                ],
                x=Axis("price", "M USD"),
                title="Where the money goes",
                reference="as built",
            ),
            "money",
            "What NVLink and rails cost; the marks are the network as it is built.",
        ),
        Text(said(found)),
        Heading("Both together"),
        Table(
            ["case", "condition", "textbook, as built", "synthesised", "provisioned", "both", "gain"],
            [
                [
                    each.case.name,
                    each.condition,
                    *map(seconds, (each.plain_s, each.synthesized_s, each.provisioned_s, each.both_s)),
                    f"{each.gain:.3f} x",
                ]
                for each in four
            ],
            "Steps with the best textbook and with synthesised collectives, as built and with what the same dollars "
            f"buy for {BOTH}: {four[0].rates} GB/s.",
        ),
        Text(said_of_four(four)),
    ]


def said(found: Sequence[Bought]) -> str:
    """Return where the money goes, and why."""
    alone = [each for each in found if each.budget == SAME_USD and each.name != BOTH]
    both = next(each for each in found if (each.name, each.budget) == (BOTH, SAME_USD))
    least, most = (pick(alone, key=lambda each: each.found.gain) for pick in (min, max))
    rails = most.found.dims[1]
    text = f"""For the same dollars, {most.name} gains most, {percent(most.found.gain - 1)}: its rails become
        {rails.bandwidth_bytes_per_s / rails.base_bytes_per_s:.1f} times as fast, for {rails.busiest}, and NVLink pays
        for it."""
    if least is not most:
        text += f""" {least.name} gains {percent(least.found.gain - 1, 2)}: for it the network is already about as it
        should be. One fabric for both models gains {percent(both.found.gain - 1)}: {_changes(both.found)}."""
    whole = both.found.ports
    if whole is not None:
        counts = " and ".join(map(str, whole.ports))
        text += f""" In whole ports of {PORT} that is {counts} ports a GPU, {percent(whole.gap)} above the best
        bandwidth, for {whole.cost_usd / 1e6:.1f} M USD."""
    wide = [each for each in found if each.budget == SAME_RATE and each.name == BOTH]
    for each in wide:
        text += f""" By GB/s, where a rail costs as much as NVLink, rails get
        {each.rates.rpartition("/")[2].strip()} GB/s and both gain {percent(each.found.gain - 1)}, but that network
        costs {percent(each.found.cost_usd / each.found.base_cost_usd - 1, 0)} more dollars: it matters in which unit a
        budget is stated."""
    return text


def _changes(found: Provisioned) -> str:
    """Return what becomes of each step."""
    changes = [(each.name, each.time_s / each.base_time_s - 1) for each in found.loads]
    return " and ".join(
        f"a step of {name} gets {percent(abs(change))} {'longer' if change > 0 else 'shorter'}"
        for name, change in changes
    )


def said_of_four(four: Sequence[Four]) -> str:
    """Return what both tools gain together."""
    most = max(four, key=lambda each: each.gain)
    return f"""Together they gain most for {most.case.name}, {most.condition}: {seconds(most.plain_s)} as built with the
        textbook, {seconds(most.both_s)} with both, {most.gain:.2f} x. Synthesis alone gains
        {most.plain_s / most.synthesized_s:.2f} x and bandwidth alone {most.plain_s / most.provisioned_s:.2f} x."""

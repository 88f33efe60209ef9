"""Clusters, published and ours: goodput, price and power, islands, networks, and what a budget holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clusters_networks import BASE, Built, Scaled, all_built, scaled_up
from clusters_networks import section as networks
from common import Effort, percent, span, write_page
from pathways import PathwaysRow as Islands
from pathways import published_rows as published_islands
from published_goodput import PublishedRow as Goodput
from published_goodput import published_rows as published_goodput

from cosmic import size
from cosmic.cluster import ClusterRow, Sizing, public_clusters
from cosmic.pages import (
    SIZING_COLUMNS,
    Axis,
    Bar,
    BarGroup,
    Figure,
    Heading,
    Items,
    Part,
    Table,
    Text,
    bars,
    sizing_cells,
)

MODEL, TOKENS, BUDGET_USD, POWER_W = "llama3-405b", 15e12, 200e6, 25e6
SYSTEMS = ("dgx-h100", "dgx-h200", "dgx-b200", "dgx-b300", "gb200-nvl72", "gb300-nvl72")
SCALES = (16_384, 32_768, 65_536, 131_072, 262_144, 524_288, 1_048_576)
BUDGETS: dict[str, dict[str, Any]] = {"200 M USD": {"budget": BUDGET_USD}, "25 MW": {"power": POWER_W}}


@dataclass(frozen=True)
class Story:
    """Everything that the page shows."""

    goodput: Sequence[Goodput]
    clusters: Sequence[ClusterRow]
    islands: Sequence[Islands]
    networks: Sequence[Built]
    bought: dict[str, Sizing]
    scales: Sequence[Scaled]

    @property
    def evidence(self) -> list[Goodput]:
        """Rows of goodput for which nothing was fitted."""
        return [row for row in self.goodput if "fitted" not in row.bases]

    @property
    def missed(self) -> list[Islands]:
        """Rows of Pathways that are further off than they should be."""
        return [row for row in self.islands if not row.holds]


def told(effort: Effort) -> Story:
    """Return the contents of the page."""
    systems = SYSTEMS[:1] if effort.quick else SYSTEMS
    return Story(
        published_goodput(),
        public_clusters(),
        published_islands(),
        all_built(effort),
        {name: size(MODEL, tokens=TOKENS, systems=systems, **limit) for name, limit in BUDGETS.items()},
        scaled_up(SCALES[:2] if effort.quick else SCALES),
    )


def make(effort: Effort) -> list[Part]:
    """Return the page."""
    story = told(effort)
    return [
        *answer(story),
        *goodput_section(story),
        *cluster_section(story.clusters),
        *island_section(story),
        *networks(story.networks),
        *bought_section(story.bought),
        *scale_section(story.scales),
        *learned(story),
        *LIMITS,
    ]


def answer(story: Story) -> list[Part]:
    """Return the question and its answer."""
    off = [abs(row.difference) for row in story.evidence if row.relation == "about"]
    power = [row.power_ratio for row in story.clusters if row.power_ratio is not None]
    dollars = [row.usd_ratio for row in story.clusters if row.usd_ratio is not None]
    return [
        Text(
            f"""How near is what COSMIC says of whole clusters to what others published? Goodput of runs for which no
            input was fitted is off by {span((100 * each for each in off), ".1f")} points. Prices are
            {span(dollars)} times what is published, and rated power {span(power)} times: machines in Linpack draw less
            than they are rated for. Of {len(story.islands)} figures of Pathways {len(story.missed)} are further off
            than they should be; each is below with its reason."""
        )
    ]


# ---------------------------------------------------------------------------------------------------- sections


def goodput_section(story: Story) -> list[Part]:
    """Return goodput, published and ours."""
    rows = [
        (
            row.title,
            row.quantity,
            ("≥ " if row.relation == "at least" else "") + figure(row, row.published),
            figure(row, row.ours),
            ", ".join(sorted(row.bases)),
            f"{row.source} ({row.grade})",
        )
        for row in story.goodput
    ]
    shares = [row for row in story.goodput if row.quantity == "effective share"]
    groups = [
        BarGroup(row.title.partition(",")[0], [Bar("published", 100 * row.published), Bar("ours", 100 * row.ours)])
        for row in shares
    ]
    return [
        Heading("Goodput"),
        Text(
            """The share of the time that counts, by our closed form from what each source says of failures, detection,
            restarts and checkpoints. Inputs are published, derived from what is, assumed, or fitted; a row with a
            fitted input comes out by construction and is no evidence. A ≥ marks a source that says more than that, and
            names no figure. `examples/case_studies/published_goodput.yaml` has every input."""
        ),
        Table(("run", "quantity", "published", "ours", "inputs", "source"), rows, "Goodput, published and ours."),
        Text("What is stated does not settle these rows; each has one input that was fitted:"),
        Items(
            [
                f"{row.title}: {each.name.replace('_', ' ')} of {each.value}, {each.source.rstrip('.')}."
                for row in story.goodput
                for each in row.inputs
                if each.basis == "fitted"
            ]
        ),
        Figure(bars(groups, x=Axis("time that counts (%)"), title="Goodput, published and ours"), "goodput"),
    ]


def figure(row: Goodput, value: float) -> str:
    """Return a number of a row of goodput."""
    return f"{value:.0f}" if row.quantity.startswith("healthy") else percent(value)


def cluster_section(found: Sequence[ClusterRow]) -> list[Part]:
    """Return public clusters."""
    rows = [
        (
            row.name,
            row.npus,
            million(row.published_power_w),
            million(row.power_w),
            million(row.published_usd),
            million(row.usd),
            "–" if row.published_switches is None else row.published_switches,
            row.switches,
            f"{row.source} ({row.grade}). {row.remark}".strip(),
        )
        for row in found
    ]
    columns = ("cluster", "accelerators", "MW", "ours", "M USD", "ours", "switches", "ours", "source")
    return [
        Heading("Public clusters"),
        Text(
            """Power is rated, at the meter where that is what was published. Prices are the catalog's: list prices and
            estimates. A dash is a figure that nobody published."""
        ),
        Table(columns, rows, "Each published figure has ours to its right."),
    ]


def million(value: float | None) -> str:
    """Return a number in millions; a dash where it is not known."""
    return "–" if value is None else f"{value / 1e6:,.2f}"


def island_section(story: Story) -> list[Part]:
    """Return what Pathways states."""
    rows = [
        (row.name, amount(row.published, row.unit), amount(row.ours, row.unit), f"{row.ratio:.2f}", verdict(row))
        for row in story.islands
    ]
    assumed = list(dict.fromkeys(row.assumed for row in story.islands))
    return [
        Heading("Islands and pipelines"),
        Text(f"{story.islands[0].source}. What is not published is assumed once for all rows of a kind:"),
        Items([f"{each[0].upper()}{each[1:].rstrip('.')}." for each in assumed]),
        Table(("row", "published", "ours", "ratio", "as near as it should be"), rows, "Pathways' figures, and ours."),
    ]


def verdict(row: Islands) -> str:
    """Return whether a row is as near as it should be, and why not; of what the model was fitted to, that."""
    if row.fitted:
        return "no evidence: fitted to it"
    return f"yes, within {row.within:.0%}" if row.holds else f"no: {row.missed}"


def amount(value: float, unit: str) -> str:
    """Return a number of Pathways.

    >>> amount(0.0023, "s"), amount(4.57e11, "bytes"), amount(618000, "tokens/s"), amount(0.972, "")
    ('2.3 ms', '457 GB', '618 k tokens/s', '0.972')
    """
    scales = {"s": (1e-3, "ms"), "bytes": (1e9, "GB"), "tokens/s": (1e3, "k tokens/s")}
    if unit not in scales:
        return f"{value:.3f}"
    scale, name = scales[unit]
    return f"{value / scale:,.4g} {name}"


def bought_section(bought: dict[str, Sizing]) -> list[Part]:
    """Return what a budget and a power limit hold."""
    parts: list[Part] = [
        Heading("200 M USD, or 25 MW"),
        Text(
            """LLaMA-3 405B on 15 T tokens. For each system the best number of whole nodes, each with the best
            mapping of a quick search (`cosmic size`)."""
        ),
    ]
    for limit, found in bought.items():
        rows = [sizing_cells(row)[: len(SIZING_COLUMNS)] for row in found.assess(sensitivity=False).rows]
        parts.append(Table(SIZING_COLUMNS, rows, f"What {limit} holds."))
    return parts


def scale_section(rows: Sequence[Scaled]) -> list[Part]:
    """Return one design at growing sizes."""
    cells = [
        (
            row.npus,
            row.global_batch,
            f"{row.step_s:.2f}",
            percent(row.mfu),
            percent(row.restarted),
            percent(row.replaced),
        )
        for row in rows
    ]
    columns = ("H100", "global batch", "step, s", "MFU", "goodput: restart", "goodput: replica")
    return [
        Heading("To a million accelerators"),
        Text(
            """LLaMA-3 405B on H100 with tp 8 and pp 16, its replicas and its batch growing with the cluster (weak
            scaling). The mapping is plain and held, with full recomputation, so that only the size changes. No
            published run is as large as the last rows: they show that the model goes on, not that it is right.
            `benchmarks/cluster_questions.py` has the time that one evaluation takes."""
        ),
        Table(columns, cells, "One design at growing sizes."),
    ]


def learned(story: Story) -> list[Part]:
    """Return what was learned."""
    first, last = story.scales[0], story.scales[-1]
    best = {limit: found.rows[0].best for limit, found in story.bought.items()}
    held = " and ".join(
        f"{limit} hold {each.accelerators:,} {each.point.compute.accelerator}" for limit, each in best.items()
    )
    same = len({each.point.compute.accelerator for each in best.values()}) == 1
    winner = "One system is best under either limit" if same else "The limit decides which system is best"
    most = max(each.npus for each in story.networks)
    usd = {each.name: each.usd / most for each in story.networks if each.npus == most}
    return [
        Heading("What was learned"),
        Items(
            [
                f"""Goodput falls with size: {percent(first.restarted)} at {first.npus:,} H100 and
                {percent(last.restarted)} at {last.npus:,}, if a failure stops all of them; {percent(last.replaced)} if
                it stops one replica. MFU falls much less, from {percent(first.mfu)} to {percent(last.mfu)}.""",
                f"{winner}: {held}.",
                f"""For {most:,} H100 a network between nodes takes {usd[BASE]:,.0f} USD a GPU at 1:1,
                {usd["rail-only"]:,.0f} rail-only and {usd["rail-optimised 4:1"]:,.0f} at 4:1. Mappings that know the
                network lose little by that; a mapping that sends experts far loses much in a fat tree.""",
                """Counts of switches are those that are published. Dollars are as good as quotes: use your own.""",
            ]
        ),
    ]


LIMITS: list[Part] = [
    Heading("Limits"),
    Text(
        """Rated power is an upper bound. Prices of the catalog are list prices and estimates, without storage,
        buildings and staff. Where no rate of failures is published for an accelerator, goodput and days stay unknown,
        and the system is not sized. Near a limit every number of whole nodes is tried that
        could be the best, at most 22 of a system; more where far smaller clusters are hardly slower. Networks are timed
        without congestion between jobs; `cosmic cluster fleet` has that."""
    ),
]


if __name__ == "__main__":
    write_page("Clusters, published and ours", "clusters", make)

"""The answer to what to buy, as one page: a verdict, the rows, the trade-off, what moves the answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cosmic.design.batch import batch_of
from cosmic.files import write_text
from cosmic.goodput.designs import goodput_of_designs
from cosmic.pricing.clusters import cluster_cost
from cosmic.publishing.sizing_words import (
    EFFECT_COLUMNS,
    MAPPING_COLUMNS,
    MILLION,
    PAGE_COLUMNS,
    counted_in_words,
    effect_cells,
    mapping_cells,
    question_in_words,
    row_cells,
    verdict,
)
from cosmic.reporting.charts import Axis, Bar, Group, Series, bars, lines
from cosmic.reporting.page import Figure, Heading, Page, Part, Table, Text, to_html
from cosmic.sizing.risk import Risk
from cosmic.sizing.sensitivity import Effect
from cosmic.sizing.sizing import Row, Sizing

LOST = {
    "checkpoint_share": "waiting for checkpoints",
    "lost_share": "work done again",
    "detection_share": "noticing failures",
    "restart_share": "restarting",
    "stall_share": "stalled replicas",
    "repair_share": "waiting for repairs",
    "slow_share": "slow nodes",
}


def write_sizing(found: Sizing, risks: Sequence[Risk | None], effects: Sequence[Effect], path: Path) -> Path:
    """Write the answer as one HTML file."""
    write_text(path, to_html(sizing_page(found, risks, effects)), "--report")
    return path


def sizing_page(found: Sizing, risks: Sequence[Risk | None], effects: Sequence[Effect]) -> Page:
    """Return the answer as a page."""
    parts: list[Part] = [Text(f"{question_in_words(found)}.")]
    if found.best is None:
        parts.append(Text("No system can be sized."))
    else:
        parts += [Heading("Answer"), Text("\n\n".join(f"{_sentence(line)}." for line in verdict(found)))]
        rows = [row_cells(row, risk)[: len(PAGE_COLUMNS)] for row, risk in zip(found.rows, risks, strict=True)]
        parts += [
            Heading("Every system"),
            Table(PAGE_COLUMNS, rows, "P5 to P95 covers chance of failures and the error of predicted steps."),
            Table(MAPPING_COLUMNS, [mapping_cells(row) for row in found.rows], "How each is run."),
            *_trade_off(found),
            *_money(found.best),
            *_lost(found.best),
        ]
    if effects:
        text = "What a tenth more of each input does to the best row; prices move the number that fits."
        parts += [Heading("What moves the answer"), Text(text), Table(EFFECT_COLUMNS, list(map(effect_cells, effects)))]
    if found.refused:
        parts += [Heading("Systems without an answer"), Table(("system", "why"), list(found.refused.items()))]
    parts += [Heading("How"), Text(f"{counted_in_words(found)}.")]
    return Page("What to buy", parts, name="size")


def _sentence(line: str) -> str:
    return line[:1].upper() + line[1:]


def _trade_off(found: Sizing) -> list[Part]:
    """Return days against dollars: every size that was tried."""
    series = []
    for system in dict.fromkeys(each.system for each in found.tried):
        points = [
            (each.metrics.cost_usd / MILLION, each.metrics.train_days)
            for each in found.tried
            if each.system == system and each.metrics.cost_usd is not None and each.metrics.train_days is not None
        ]
        if points:
            series.append(Series(system, points))
    if not series:
        return []
    axes = Axis("to buy", "M USD"), Axis("time to train", "days", log=True, better="lower")
    chart = lines(series, x=axes[0], y=axes[1], title="Days to train by what the cluster costs")
    return [Heading("The trade-off"), Figure(chart, "trade-off", "Each point is a size with its best mapping.")]


def _money(row: Row) -> list[Part]:
    """Return what the best cluster costs and draws, by part."""
    cost = cluster_cost(batch_of(row.best.point))
    dollars = (
        ("accelerators", cost.accelerators_usd),
        ("hosts", cost.hosts_usd),
        ("network", cost.network_usd),
        ("other", cost.other_usd),
    )
    watts = (("accelerators", cost.accelerators_w), ("hosts", cost.hosts_w), ("network", cost.network_w))
    rated = float(cost.power_w) / float(cost.pue)
    shown = [*watts, ("cooling and losses", float(cost.power_w) - rated)]
    return [
        Heading("Money and power, by part"),
        Figure(
            bars(
                [Group("to buy", [Bar(name, float(value) / MILLION) for name, value in dollars if value])],
                x=Axis("M USD"),
                title=f"What {row.best.accelerators:,} accelerators in {row.best.system} cost",
            ),
            "money",
        ),
        Figure(
            bars(
                [Group("power", [Bar(name, float(value) / MILLION) for name, value in shown if value])],
                x=Axis("MW"),
                title="What they draw, all at rated power",
            ),
            "power",
        ),
    ]


def _lost(row: Row) -> list[Part]:
    """Return where the time of the run goes that does not count."""
    metrics, point = row.best.metrics, row.best.point
    length = point.run.tokens
    share = goodput_of_designs(batch_of(point), None if length is None else length / metrics.throughput_per_s)
    if share is None:
        return []
    rows = [(said, f"{100 * float(getattr(share, name)):.2f} %") for name, said in LOST.items()]
    kept = f"{100 * float(share.effective_share):.1f} %"
    hours, minutes = float(share.mtbf_s) / 3600, float(share.interval_s) / 60
    text = (
        f"{kept} of the time counts. Something fails every {hours:.3g} h; the state is kept every {minutes:.3g} min "
        f"({point.run.checkpoint.replace('_', ' ')} checkpoints)."
    )
    return [Heading("Failures"), Text(text), Table(("lost to", "share of the time"), rows)]

"""The answer to what to buy: cells of tables and sentences for the terminal, and one page.

The page has a verdict, the rows, the trade-off, and what moves the answer.
"""

from __future__ import annotations

from cosmic.cluster.cluster_cost import cluster_cost
from cosmic.cluster.goodput import goodput_of_designs
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import full_path
from cosmic.report.charts.drawing import Axis, Series, quantity
from cosmic.report.charts.plots import Bar, BarGroup, bars, lines
from cosmic.report.page import Figure, Heading, Page, Part, Table, Text
from cosmic.search.cluster_sizing import Effect, Row, Sizing, Tried
from cosmic.search.design_wording import mapping_in_words

MILLION = 1e6
MWH = 3.6e9
SMALLEST_CHANGE = 0.0005
"""That is shown."""
SIZING_COLUMNS = (
    "system",
    "accelerators",
    "days",
    "P5–P95",
    "goodput",
    "to buy, M USD",
    "run, M USD",
    "MW",
    "bound by",
    "MWh",
    "MFU",
    "mapping",
)
PAGE_COLUMNS = SIZING_COLUMNS[:9]
"""Those for which a page has room; it has a second table."""
MAPPING_COLUMNS = ("system", "MWh", "MFU", "global batch", "mapping", "checkpoints")
EFFECT_COLUMNS = ("input", "accelerators", "days", "cost of the run", "to buy", "power")


def question_in_words(sizing: Sizing) -> str:
    """Return what was asked."""
    asked = sizing.question
    limits = [
        quantity(asked.budget_usd, "USD", 4) if asked.budget_usd is not None else "",
        quantity(asked.power_w, "W", 4) if asked.power_w is not None else "",
        f"{asked.accelerators:,} accelerators" if asked.accelerators is not None else "",
        f"{asked.deadline_days:,.4g} days" if asked.deadline_days is not None else "",
    ]
    return f"{asked.model} on {quantity(asked.tokens, digits=4)} tokens within {' and '.join(filter(None, limits))}"


def row_cells(row: Row) -> list[str]:
    """Return a row of the table."""
    metrics, risk = row.best.metrics, row.risk
    spread = "–"
    if risk is not None:
        least, most = min(risk.failures.p05, risk.steps.p05), max(risk.failures.p95, risk.steps.p95)
        spread = f"{_short_number(least)}–{_short_number(most)}"
    return [
        row.best.system,
        f"{row.best.accelerators:,}",
        _cell_in_unit(metrics.train_days, 1),
        spread,
        "–" if metrics.goodput is None else f"{100 * metrics.goodput:.1f} %",
        _cell_in_unit(metrics.cost_usd, MILLION),
        _cell_in_unit(metrics.train_usd, MILLION),
        _cell_in_unit(metrics.power_w, MILLION),
        row.bound_by or "–",
        _cell_in_unit(metrics.train_energy_j, MWH),
        f"{100 * metrics.mfu:.0f} %",
        mapping_in_words(row.best.point),
    ]


def mapping_cells(row: Row) -> list[str]:
    """Return how a row is run."""
    point = row.best.point
    return [
        row.best.system,
        _cell_in_unit(row.best.metrics.train_energy_j, MWH),
        f"{100 * row.best.metrics.mfu:.0f} %",
        f"{point.workload.global_batch:,}",
        mapping_in_words(point),
        point.run.checkpoint.replace("_", " "),
    ]


def _short_number(value: float) -> str:
    """Return a number to a tenth, or with three digits where it is small.

    >>> _short_number(1234.5), _short_number(23.26), _short_number(1.238)
    ('1,234', '23.3', '1.24')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _cell_in_unit(value: float | None, unit: float) -> str:
    return "–" if value is None else _short_number(value / unit)


def effect_cells(effect: Effect) -> list[str]:
    """Return a row of the table of sensitivities."""
    shares = (effect.train_days, effect.train_usd, effect.cost_usd, effect.power_w)
    return [effect.input, f"{effect.accelerators:,}", *map(_signed_percent, shares)]


def _signed_percent(share: float | None) -> str:
    """Return by how much something changes.

    >>> _signed_percent(0.1), _signed_percent(-0.0004), _signed_percent(None)
    ('+10.0 %', '0', '–')
    """
    if share is None:
        return "–"
    return "0" if abs(share) < SMALLEST_CHANGE else f"{100 * share:+.1f} %"


def sizing_verdict(sizing: Sizing) -> list[str]:
    """Return the answer in a sentence or two."""
    assert sizing.best is not None  # noqa: S101  there is a row
    best = sizing.best.best
    days, metrics = best.metrics.train_days, best.metrics
    if days is None:
        return []
    sentence = f"{best.accelerators:,} {best.point.compute.accelerator} in {best.system}: trained in {_short_number(days)} days"
    if metrics.goodput is not None:
        sentence += f", of which {100 * (1 - metrics.goodput):.1f} % is lost to failures and checkpoints"
    next_best = [_describe_next_best(best, row.best) for row in sizing.rows[1:2]]
    return [sentence, *sizing.answer.assumptions, *next_best]


def _describe_next_best(best: Tried, runner_up: Tried) -> str:
    """Return what the second best takes, over the best."""
    ours, theirs = best.metrics, runner_up.metrics
    ratios = []
    if ours.train_days and theirs.train_days:
        ratios.append(f"{theirs.train_days / ours.train_days:.2f}× as long")
    if ours.cost_usd and theirs.cost_usd:
        ratios.append(f"for {theirs.cost_usd / ours.cost_usd:.2f}× the price")
    return f"next best: {runner_up.accelerators:,} in {runner_up.system}, {' '.join(ratios)}".rstrip(", ")


def batch_in_words(sizing: Sizing) -> str:
    """Return the global batches of all rows, and how to state one."""
    batches = sorted({row.best.point.workload.global_batch for row in sizing.rows})
    if not batches:
        return ""
    batch_text = f"global batch {batches[0]:,}" + (f" to {batches[-1]:,}" if len(batches) > 1 else "")
    overridden = {full_path(path) for path in sizing.question.overrides}
    if "workload.global_batch" in overridden:
        return batch_text
    return f"{batch_text}, near the usual one of the model; --set global_batch=N states another"


def counted_in_words(sizing: Sizing) -> str:
    """Return what was gone through."""
    counted = sizing.counted
    return (
        f"gone through: {_count_things(counted.systems, 'system')}, {_count_things(counted.sizes, 'size')}, "
        f"{_count_things(counted.mappings, 'mapping')}, {_count_things(counted.designs, 'run')}; "
        "prices are the catalog's estimates unless --prices gives quotes"
    )


def _count_things(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


LOST_LABELS = {
    "checkpoint_share": "waiting for checkpoints",
    "lost_share": "work done again",
    "detection_share": "noticing failures",
    "restart_share": "restarting",
    "stall_share": "stalled replicas",
    "repair_share": "waiting for repairs",
    "slow_share": "slow nodes",
}


def sizing_page(sizing: Sizing) -> Page:
    """Return the answer as a page."""
    parts: list[Part] = [Text(f"{question_in_words(sizing)}.")]
    if sizing.best is None:
        parts.append(Text("No system can be sized."))
    else:
        parts += [
            Heading("Answer"),
            Text("\n\n".join(f"{line[:1].upper()}{line[1:]}." for line in sizing_verdict(sizing))),
        ]
        rows = [row_cells(row)[: len(PAGE_COLUMNS)] for row in sizing.rows]
        parts += [
            Heading("Every system"),
            Table(PAGE_COLUMNS, rows, "P5 to P95 covers chance of failures and the error of predicted steps."),
            Table(MAPPING_COLUMNS, [mapping_cells(row) for row in sizing.rows], "How each is run."),
            *_trade_off_parts(sizing),
            *_cost_parts(sizing.best),
            *_lost_time_parts(sizing.best),
        ]
    if sizing.effects:
        text = "What a tenth more of each input does to the best row; prices move the number that fits."
        parts += [
            Heading("What moves the answer"),
            Text(text),
            Table(EFFECT_COLUMNS, list(map(effect_cells, sizing.effects))),
        ]
    if sizing.refused:
        parts += [Heading("Systems without an answer"), Table(("system", "why"), list(sizing.refused.items()))]
    parts += [Heading("How"), Text(f"{counted_in_words(sizing)}.")]
    return Page("What to buy", parts, name="size")


def _trade_off_parts(sizing: Sizing) -> list[Part]:
    """Return days against dollars: every size that was tried."""
    series = []
    for system in dict.fromkeys(each.system for each in sizing.tried):
        points = [
            (each.metrics.cost_usd / MILLION, each.metrics.train_days)
            for each in sizing.tried
            if each.system == system and each.metrics.cost_usd is not None and each.metrics.train_days is not None
        ]
        if points:
            series.append(Series(system, points))
    if not series:
        return []
    axes = Axis("to buy", "M USD"), Axis("time to train", "days", log=True, better="lower")
    chart = lines(series, x=axes[0], y=axes[1], title="Days to train by what the cluster costs")
    return [Heading("The trade-off"), Figure(chart, "trade-off", "Each point is a size with its best mapping.")]


def _cost_parts(row: Row) -> list[Part]:
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
                [BarGroup("to buy", [Bar(name, float(value) / MILLION) for name, value in dollars if value])],
                x=Axis("M USD"),
                title=f"What {row.best.accelerators:,} accelerators in {row.best.system} cost",
            ),
            "money",
        ),
        Figure(
            bars(
                [BarGroup("power", [Bar(name, float(value) / MILLION) for name, value in shown if value])],
                x=Axis("MW"),
                title="What they draw, all at rated power",
            ),
            "power",
        ),
    ]


def _lost_time_parts(row: Row) -> list[Part]:
    """Return where the time of the run goes that does not count."""
    metrics, point = row.best.metrics, row.best.point
    length = point.run.tokens
    share = goodput_of_designs(batch_of(point), None if length is None else length / metrics.throughput_per_s)
    if share is None:
        return []
    rows = [(label, f"{100 * float(getattr(share, name)):.2f} %") for name, label in LOST_LABELS.items()]
    effective = f"{100 * float(share.effective_share):.1f} %"
    hours, minutes = float(share.mtbf_s) / 3600, float(share.interval_s) / 60
    text = (
        f"{effective} of the time counts. Something fails every {hours:.3g} h; the state is kept every {minutes:.3g} min "
        f"({point.run.checkpoint.replace('_', ' ')} checkpoints)."
    )
    return [Heading("Failures"), Text(text), Table(("lost to", "share of the time"), rows)]

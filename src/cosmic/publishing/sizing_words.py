"""The answer to what to buy, in words: cells of tables and sentences, for the terminal and for the page."""

from __future__ import annotations

from cosmic.design.paths import full_path
from cosmic.reporting.scales import quantity
from cosmic.reporting.words import mapping_in_words
from cosmic.sizing.risk import Risk
from cosmic.sizing.sensitivity import Effect
from cosmic.sizing.sizing import Row, Sizing, Tried

MILLION = 1e6
MWH = 3.6e9
SMALLEST_CHANGE = 0.0005
"""That is shown."""
COLUMNS = (
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
PAGE_COLUMNS = COLUMNS[:9]
"""Those for which a page has room; it has a second table."""
MAPPING_COLUMNS = ("system", "MWh", "MFU", "global batch", "mapping", "checkpoints")
EFFECT_COLUMNS = ("input", "accelerators", "days", "cost of the run", "to buy", "power")


def question_in_words(found: Sizing) -> str:
    """Return what was asked."""
    asked = found.question
    limits = [
        quantity(asked.budget_usd, "USD", 4) if asked.budget_usd is not None else "",
        quantity(asked.power_w, "W", 4) if asked.power_w is not None else "",
        f"{asked.accelerators:,} accelerators" if asked.accelerators is not None else "",
        f"{asked.deadline_days:,.4g} days" if asked.deadline_days is not None else "",
    ]
    return f"{asked.model} on {quantity(asked.tokens, digits=4)} tokens within {' and '.join(filter(None, limits))}"


def row_cells(row: Row, risk: Risk | None) -> list[str]:
    """Return a row of the table."""
    metrics = row.best.metrics
    spread = "–" if risk is None else f"{_digits(_least(risk))}–{_digits(_most(risk))}"
    return [
        row.best.system,
        f"{row.best.accelerators:,}",
        _figure(metrics.train_days, 1),
        spread,
        "–" if metrics.goodput is None else f"{100 * metrics.goodput:.1f} %",
        _figure(metrics.cost_usd, MILLION),
        _figure(metrics.train_usd, MILLION),
        _figure(metrics.power_w, MILLION),
        row.bound_by or "–",
        _figure(metrics.train_energy_j, MWH),
        f"{100 * metrics.mfu:.0f} %",
        mapping_in_words(row.best.point),
    ]


def mapping_cells(row: Row) -> list[str]:
    """Return how a row is run."""
    point = row.best.point
    return [
        row.best.system,
        _figure(row.best.metrics.train_energy_j, MWH),
        f"{100 * row.best.metrics.mfu:.0f} %",
        f"{point.workload.global_batch:,}",
        mapping_in_words(point),
        point.run.checkpoint.replace("_", " "),
    ]


def _digits(value: float) -> str:
    """Return a number to a tenth, or with three digits where it is small.

    >>> _digits(1234.5), _digits(23.26), _digits(1.238)
    ('1,234', '23.3', '1.24')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _least(risk: Risk) -> float:
    return min(risk.failures.p05, risk.steps.p05)


def _most(risk: Risk) -> float:
    return max(risk.failures.p95, risk.steps.p95)


def _figure(value: float | None, unit: float) -> str:
    return "–" if value is None else _digits(value / unit)


def effect_cells(effect: Effect) -> list[str]:
    """Return a row of the table of sensitivities."""
    shares = (effect.train_days, effect.train_usd, effect.cost_usd, effect.power_w)
    return [
        effect.input,
        f"{effect.accelerators:,}",
        *map(_change, shares),
    ]


def _change(share: float | None) -> str:
    """Return by how much something changes.

    >>> _change(0.1), _change(-0.0004), _change(None)
    ('+10.0 %', '0', '–')
    """
    if share is None:
        return "–"
    return "0" if abs(share) < SMALLEST_CHANGE else f"{100 * share:+.1f} %"


def verdict(found: Sizing) -> list[str]:
    """Return the answer in a sentence or two."""
    assert found.best is not None  # noqa: S101  there is a row
    best, asked = found.best.best, found.question
    days, metrics = best.metrics.train_days, best.metrics
    if days is None:
        return []
    said = f"{best.accelerators:,} {best.point.compute.accelerator} in {best.system}: trained in {_digits(days)} days"
    if metrics.goodput is not None:
        said += f", of which {100 * (1 - metrics.goodput):.1f} % is lost to failures and checkpoints"
    lines = [said]
    if asked.deadline_days is not None and days > asked.deadline_days:
        lines.append(f"no cluster that was tried makes it in {asked.deadline_days:,.4g} days")
    return lines + [_next_best(best, row.best) for row in found.rows[1:2]]


def _next_best(best: Tried, other: Tried) -> str:
    """Return what the second best takes, over the best."""
    ours, theirs = best.metrics, other.metrics
    ratios = []
    if ours.train_days and theirs.train_days:
        ratios.append(f"{theirs.train_days / ours.train_days:.2f}× as long")
    if ours.cost_usd and theirs.cost_usd:
        ratios.append(f"for {theirs.cost_usd / ours.cost_usd:.2f}× the price")
    return f"next best: {other.accelerators:,} in {other.system}, {' '.join(ratios)}".rstrip(", ")


def batch_in_words(found: Sizing) -> str:
    """Return the global batches of all rows, and how to state one."""
    batches = sorted({row.best.point.workload.global_batch for row in found.rows})
    if not batches:
        return ""
    said = f"global batch {batches[0]:,}" + (f" to {batches[-1]:,}" if len(batches) > 1 else "")
    stated = {full_path(path) for path in found.question.overrides}
    if "workload.global_batch" in stated:
        return said
    return f"{said}, near the usual one of the model; --set global_batch=N states another"


def counted_in_words(found: Sizing) -> str:
    """Return what was gone through."""
    counted = found.counted
    return (
        f"gone through: {_many(counted.systems, 'system')}, {_many(counted.sizes, 'size')}, "
        f"{_many(counted.mappings, 'mapping')}, {_many(counted.designs, 'run')}; "
        "prices are the catalog's estimates unless --prices gives quotes"
    )


def _many(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"

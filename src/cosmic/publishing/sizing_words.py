"""The answer to what to buy, in words: cells of tables and sentences, for the terminal and for the page."""

from __future__ import annotations

from cosmic.reporting.words import mapping_in_words
from cosmic.sizing.risk import Risk
from cosmic.sizing.sensitivity import Effect
from cosmic.sizing.sizing import Row, Sizing

MILLION = 1e6
COLUMNS = (
    "system",
    "accelerators",
    "days",
    "P5–P95",
    "goodput",
    "to buy, M USD",
    "run, M USD",
    "MW",
    "MWh",
    "MFU",
    "mapping",
    "bound by",
)
EFFECT_COLUMNS = ("input", "accelerators", "days", "cost of the run", "to buy", "power")


def question_in_words(found: Sizing) -> str:
    """Return what was asked."""
    asked = found.question
    limits = [
        f"{asked.budget_usd / MILLION:,.4g} M USD" if asked.budget_usd is not None else "",
        f"{asked.power_w / MILLION:,.4g} MW" if asked.power_w is not None else "",
        f"{asked.accelerators:,} accelerators" if asked.accelerators is not None else "",
        f"{asked.deadline_days:,.4g} days" if asked.deadline_days is not None else "",
    ]
    return f"{asked.model} on {asked.tokens / 1e12:,.4g} T tokens within {' and '.join(filter(None, limits))}"


def row_cells(row: Row, risk: Risk | None) -> list[str]:
    """Return a row of the table."""
    metrics = row.best.metrics
    spread = "–" if risk is None else f"{_least(risk):.3g}–{_most(risk):.3g}"
    return [
        row.best.system,
        f"{row.best.accelerators:,}",
        _figure(metrics.train_days, 1, ".1f"),
        spread,
        _figure(metrics.goodput, 0.01, ".1f") + " %",
        _figure(metrics.cost_usd, MILLION, ",.1f"),
        _figure(metrics.train_usd, MILLION, ",.1f"),
        _figure(metrics.power_w, MILLION, ",.2f"),
        _figure(metrics.train_energy_j, 3.6e9, ",.0f"),
        f"{100 * metrics.mfu:.0f} %",
        mapping_in_words(row.best.point),
        row.bound_by,
    ]


def _least(risk: Risk) -> float:
    return min(risk.failures.p05, risk.steps.p05)


def _most(risk: Risk) -> float:
    return max(risk.failures.p95, risk.steps.p95)


def _figure(value: float | None, unit: float, form: str) -> str:
    return "–" if value is None else format(value / unit, form)


def effect_cells(effect: Effect) -> list[str]:
    """Return a row of the table of sensitivities."""
    shares = (effect.train_days, effect.train_usd, effect.cost_usd, effect.power_w)
    return [
        effect.input,
        f"{effect.accelerators:,}",
        *("–" if each is None else f"{100 * each:+.1f} %" for each in shares),
    ]


def verdict(found: Sizing) -> list[str]:
    """Return the answer in a sentence or two."""
    assert found.best is not None  # noqa: S101  there is a row
    best, asked = found.best.best, found.question
    days, metrics = best.metrics.train_days, best.metrics
    if days is None:
        return []
    said = f"{best.accelerators:,} {best.point.compute.accelerator} in {best.system}: trained in {days:,.1f} days"
    if metrics.goodput is not None:
        said += f", of which {100 * (1 - metrics.goodput):.1f} % is lost to failures and checkpoints"
    lines = [said]
    if asked.deadline_days is not None and days > asked.deadline_days:
        lines.append(f"no cluster within the limits makes it in {asked.deadline_days:,.4g} days")
    others = [row for row in found.rows[1:] if row.best.metrics.train_days is not None]
    if others:
        other = others[0].best
        ratio = (other.metrics.train_days or 0.0) / days
        lines.append(f"{ratio:.2f}× as long on the next best, {other.accelerators:,} in {other.system}")
    return lines


def counted_in_words(found: Sizing) -> str:
    """Return what was gone through."""
    counted = found.counted
    return (
        f"enumerated: {counted.systems} systems, {counted.sizes} sizes, {counted.mappings:,} mappings, "
        f"{counted.designs} ways to checkpoint; prices are the catalog's estimates unless --prices gives quotes"
    )

"""A fleet for people: who has which accelerators when, as lines of text, as a drawing, and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from cosmic.fleets.result import Fleet, JobResult
from cosmic.fleets.timeline import lines_of, rows_of
from cosmic.reporting.page import Figure, Heading, Page, Table, Text
from cosmic.reporting.scales import Axis, quantity, scale_of
from cosmic.reporting.svg import EDGE, WIDTH, abscissa, document, fill, heading, label, notes, number, plain, rule

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
MOST_TEXT_ROWS = 16
MOST_BARS = 20_000
MOST_TABLE_ROWS = 1000
ROW, BAR, LEFT = 16.0, 12.0, 90.0
HOUR_S, MINUTE_S = 3600.0, 60.0


def clock(seconds: float) -> str:
    """Return a time for people: hours and minutes where it is long.

    >>> clock(4.25), clock(75), clock(7384), clock(200_000)
    ('4.25 s', '1 min 15 s', '2 h 3 min', '55 h 33 min')
    """
    if seconds < MINUTE_S:
        return quantity(seconds, "s")
    if seconds < HOUR_S:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(round(seconds / MINUTE_S), 60)
    return f"{hours:,} h {rest} min" if rest else f"{hours:,} h"


def places(job: JobResult, most: int = 3) -> str:
    """Return where a job's accelerators lie: the first and the last of each range.

    >>> from types import SimpleNamespace
    >>> places(SimpleNamespace(accelerators=((0, 8), (16, 17))))
    '0-7, 16'
    """
    texts = [f"{first}-{end - 1}" if end - first > 1 else f"{first}" for first, end in job.accelerators]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def text_chart(fleet: Fleet, columns: int) -> list[str]:
    """Return a line for each row of accelerators, with a letter for each job along the time; none for an empty fleet.

    Rows of more accelerators than the smallest job has show who has most of the time in them.
    """
    if not fleet.jobs or fleet.makespan_s <= 0:
        return []
    rows, across = min(MOST_TEXT_ROWS, -(-fleet.npus // rows_of(fleet))), max(columns - 14, 10)
    size = -(-fleet.npus // rows)
    shown = fleet.jobs[: len(LETTERS)]
    weights: list[list[dict[int, float]]] = [[{} for _ in range(across)] for _ in range(-(-fleet.npus // size))]
    for place, job in enumerate(shown):
        _weigh(weights, place, job, size, fleet)
    lines = []
    for row, cells in enumerate(weights):
        text = "".join(LETTERS[max(cell, key=lambda each: (cell[each], -each))] if cell else "·" for cell in cells)
        last = min(fleet.npus, (row + 1) * size) - 1
        lines.append(f"{f'{row * size}-{last}' if last > row * size else last!s:>11} │{text}")
    lines.append(f"{'':11} └{clock(0.0)}{clock(fleet.makespan_s):>{across - len(clock(0.0))}}")
    names = [f"{LETTERS[place]} {job.name}" for place, job in enumerate(shown)]
    more = len(fleet.jobs) - len(shown)
    return [*lines, ", ".join(names) + (f", and {more:,} that are not drawn" if more else "")]


def _weigh(weights: list[list[dict[int, float]]], place: int, job: JobResult, size: int, fleet: Fleet) -> None:
    """Add to each cell how much of its accelerators' time a job has."""
    across = len(weights[0])
    low, high = (across * (at - fleet.start_s) / fleet.makespan_s for at in (job.start_s, job.end_s))
    device = job.device_s / job.run_s if job.run_s else 0.0
    for first, end in job.accelerators:
        for row in range(first // size, (end - 1) // size + 1):
            tall = min(end, (row + 1) * size) - max(first, row * size)
            for column in range(int(low), min(across, int(high) + 1)):
                part = min(high, column + 1) - max(low, column)
                if part > 0:
                    cell = weights[row][column]
                    cell[place] = cell.get(place, 0.0) + tall * part * device


def chart(fleet: Fleet) -> str:
    """Return a drawing: a line for each row of accelerators, and on it the jobs along the time."""
    title = f"{len(fleet.jobs):,} jobs on {fleet.npus:,} accelerators"
    elements, top = heading(title, [])
    top += 8
    scale = scale_of([0.0, max(fleet.makespan_s, 1e-12)], Axis("time", "s"), zero=True)
    across, size, lines = WIDTH - EDGE - LEFT, rows_of(fleet), lines_of(fleet)
    bars = 0
    for place, ((row, line), spans) in enumerate(sorted(lines.items())):
        middle = top + (place + 0.5) * ROW
        if line == 0:
            last = min(fleet.npus, (row + 1) * size) - 1
            name = f"{row * size}-{last}" if last > row * size else f"{last}"
            elements.append(label((LEFT - 8, middle + 4), name, "cc-muted cc-small", "end", LEFT - 8 - EDGE))
        elements.append(rule((LEFT, middle), (LEFT + across, middle), "cc-grid"))
        for start_s, end_s, index in spans[: max(0, MOST_BARS - bars)]:
            left, right = (LEFT + scale.share(at - fleet.start_s) * across for at in (start_s, end_s))
            elements.append(_bar(left, middle - BAR / 2, right - left, index, fleet.jobs[index].name))
        bars += len(spans)
    bottom = top + len(lines) * ROW + 4
    elements += abscissa(scale, (LEFT, bottom), across)
    said = [f"each row {size:,} accelerators", f"{bars - MOST_BARS:,} bars are not drawn" if bars > MOST_BARS else ""]
    small, end = notes(said, bottom + 50)
    return document(title, f"{title}, over {clock(fleet.makespan_s)}.", end + 6, [*elements, *small])


def _bar(left: float, top: float, width: float, place: int, name: str) -> str:
    box = f'x="{number(left)}" y="{number(top)}" width="{number(max(width - 0.5, 0.5))}" height="{number(BAR)}"'
    return f'<rect class="{fill(place)}" {box}><title>{plain(name)}</title></rect>'


COLUMNS = ("job", "NPUs", "where", "arrives", "waits", "runs", "step alone", "step here", "tokens/s", "slowdown")


def row_of(job: JobResult) -> list[str]:
    """Return a job as a row of a table under `COLUMNS`."""
    return [
        job.name,
        f"{job.npus:,}",
        places(job),
        clock(job.arrival_s),
        clock(job.wait_s),
        clock(job.run_s),
        quantity(job.alone_step_s, "s"),
        quantity(job.step_s, "s"),
        f"{job.tokens_per_s:,.0f}",
        f"{job.slowdown:.2f}",
    ]


def summary(fleet: Fleet) -> str:
    """Return what came of a fleet in one sentence."""
    ran = f"{len(fleet.jobs):,} job{'' if len(fleet.jobs) == 1 else 's'} in {clock(fleet.makespan_s)}"
    said = [ran, f"{100 * fleet.utilization:.1f} % utilisation"]
    if fleet.mean_slowdown is not None and fleet.max_slowdown is not None and fleet.fairness is not None:
        said.append(f"slowdown {fleet.mean_slowdown:.2f} on average, {fleet.max_slowdown:.2f} at most")
        said.append(f"fairness {fleet.fairness:.2f}")
    return " · ".join(said)


def rules_in_words(fleet: Fleet) -> str:
    """Return how the jobs shared the cluster."""
    rules = fleet.rules
    how = f"{rules.policy}, {rules.placement}" if rules.sharing == "space" else "gangs take turns"
    tier = f", leaves of {fleet.leaf} with uplinks {fleet.oversubscription:g}:1" if fleet.oversubscription > 1 else ""
    return f"shared in {rules.sharing}: {how}{tier}"


def page(fleet: Fleet, others: Sequence[Fleet] = ()) -> Page:
    """Return a page about a fleet; *others* are what other rules gave."""
    parts: list[Text | Heading | Table | Figure] = [Text(f"{summary(fleet)}\n\n{rules_in_words(fleet)}")]
    parts.append(Figure(chart(fleet), "schedule"))
    parts.append(Table(COLUMNS, [row_of(job) for job in fleet.jobs[:MOST_TABLE_ROWS]]))
    if fleet.refused:
        rows = [[each.name, "; ".join(each.reasons)] for each in fleet.refused[:MOST_TABLE_ROWS]]
        parts += [Heading("Jobs that cannot run"), Table(("job", "why"), rows)]
    if others:
        parts += [Heading("Other rules"), Table(CHOICES, [choice_of(each) for each in others])]
    stated = {field.name: getattr(fleet.rules, field.name) for field in fields(fleet.rules)}
    parts += [Heading("Rules"), Table(("rule", "value"), [[key, str(value)] for key, value in stated.items()])]
    return Page(f"Jobs on {fleet.system}", parts)


CHOICES = ("shared in", "policy", "placement", "makespan", "utilisation", "mean slowdown", "max slowdown", "fairness")


def choice_of(fleet: Fleet) -> list[str]:
    """Return what rules gave as a row of a table under `CHOICES`."""
    rules = fleet.rules
    in_space = rules.sharing == "space"
    return [
        rules.sharing,
        rules.policy if in_space else "-",
        rules.placement if in_space else "-",
        clock(fleet.makespan_s),
        f"{100 * fleet.utilization:.1f} %",
        *(
            "-" if value is None else f"{value:.2f}"
            for value in (fleet.mean_slowdown, fleet.max_slowdown, fleet.fairness)
        ),
    ]

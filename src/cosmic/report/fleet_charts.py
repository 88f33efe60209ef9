"""A fleet for people: who has which accelerators when, as text, as a drawing, as a page, and as a Perfetto timeline.

The timeline has rows of accelerators with the jobs that have them, and who waits. Where jobs share a row at the same
time, as those that take turns do, it has a line for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from cosmic.base.timelines import Sample, TimelineRows, TimelineSpan, Track, write_rows
from cosmic.cluster.fleet_jobs import Fleet, JobResult
from cosmic.report.charts import drawing
from cosmic.report.page import Figure, Heading, Page, Table, Text

MOST_ROWS = 64
MICROSECONDS = 1e6


def write_fleet_timeline(fleet: Fleet, path: str | Path, where: str = "file") -> None:
    """Write who had which accelerators when to *path*; messages name the file by *where*."""
    tracks, spans = [], []
    for number, ((row, line), jobs) in enumerate(sorted(jobs_by_line(fleet).items())):
        name = row_name(fleet, row)
        tracks.append(Track(0, f"{name} ({line + 1})" if line else name, number + 1))
        for start_s, end_s, job_index in jobs:
            job = fleet.jobs[job_index]
            about = {"accelerators": job.npus, "slowdown": job.slowdown, "device": job.device_s / (job.run_s or 1.0)}
            times_us = start_s * MICROSECONDS, (end_s - start_s) * MICROSECONDS
            spans.append(TimelineSpan(number, job.name, "job", *times_us, about))
    changes = sorted([(job.arrival_s, 1) for job in fleet.jobs] + [(job.start_s, -1) for job in fleet.jobs])
    samples, waiting = [], 0
    for index, (time_s, change) in enumerate(changes):
        waiting += change
        if index + 1 == len(changes) or changes[index + 1][0] > time_s:
            samples.append(Sample(0, "waiting", time_s * MICROSECONDS, {"jobs": waiting}))
    rows = TimelineRows(
        about={"system": fleet.system, "npus": fleet.npus},
        unit="ms",
        processes={0: f"accelerators of {fleet.system}"},
        tracks=tracks,
        spans=spans,
        samples=samples,
    )
    write_rows(rows, path, where)


def row_name(fleet: Fleet, row: int) -> str:
    """Return the first and the last accelerator of a row."""
    size = accelerators_per_row(fleet)
    last = min(fleet.npus, (row + 1) * size) - 1
    return f"{row * size}-{last}" if last > row * size else f"{last}"


def accelerators_per_row(fleet: Fleet) -> int:
    """Return the accelerators of a row: what the smallest job has, but no more than `MOST_ROWS` rows."""
    least = min((end - first for job in fleet.jobs for first, end in job.accelerators), default=fleet.npus)
    return max(least, -(-fleet.npus // MOST_ROWS))


def jobs_by_line(fleet: Fleet) -> dict[tuple[int, int], list[tuple[float, float, int]]]:
    """Return for each row, and each of its lines, who has it: from when until when, and the job's place."""
    size = accelerators_per_row(fleet)
    rows: dict[int, list[tuple[float, float, int]]] = {}
    for index, job in enumerate(fleet.jobs):
        covered = {row for first, end in job.accelerators for row in range(first // size, (end - 1) // size + 1)}
        for row in covered:
            rows.setdefault(row, []).append((job.start_s, job.end_s, index))
    spans_by_line: dict[tuple[int, int], list[tuple[float, float, int]]] = {}
    for row in sorted(rows):
        ends: list[float] = []
        for start_s, end_s, job_index in sorted(rows[row]):
            line = next((line for line, free_s in enumerate(ends) if free_s <= start_s), len(ends))
            ends[line : line + 1] = [end_s]
            spans_by_line.setdefault((row, line), []).append((start_s, end_s, job_index))
    return spans_by_line


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
MOST_TEXT_ROWS = 16
MOST_BARS = 20_000
MOST_TABLE_ROWS = 1000
ROW, BAR, LEFT = 16.0, 12.0, 90.0
HOUR_S, MINUTE_S = 3600.0, 60.0


def format_duration(seconds: float) -> str:
    """Return a time for people: hours and minutes where it is long.

    >>> format_duration(4.25), format_duration(75), format_duration(7384), format_duration(200_000)
    ('4.25 s', '1 min 15 s', '2 h 3 min', '55 h 33 min')
    """
    if seconds < MINUTE_S:
        return drawing.quantity(seconds, "s")
    if seconds < HOUR_S:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(round(seconds / MINUTE_S), 60)
    return f"{hours:,} h {rest} min" if rest else f"{hours:,} h"


def accelerator_ranges(job: JobResult, most: int = 3) -> str:
    """Return where a job's accelerators lie: the first and the last of each range.

    >>> from types import SimpleNamespace
    >>> accelerator_ranges(SimpleNamespace(accelerators=((0, 8), (16, 17))))
    '0-7, 16'
    """
    texts = [f"{first}-{end - 1}" if end - first > 1 else f"{first}" for first, end in job.accelerators]
    return ", ".join(texts[:most]) + (f" and {len(texts) - most} more" if len(texts) > most else "")


def fleet_text_chart(fleet: Fleet, columns: int) -> list[str]:
    """Return a line for each row of accelerators, with a letter for each job along the time; none for an empty fleet.

    Rows of more accelerators than the smallest job has show who has most of the time in them.
    """
    if not fleet.jobs or fleet.makespan_s <= 0:
        return []
    rows, across = min(MOST_TEXT_ROWS, -(-fleet.npus // accelerators_per_row(fleet))), max(columns - 14, 10)
    size = -(-fleet.npus // rows)
    shown = fleet.jobs[: len(LETTERS)]
    weights: list[list[dict[int, float]]] = [[{} for _ in range(across)] for _ in range(-(-fleet.npus // size))]
    for index, job in enumerate(shown):
        _add_device_time(weights, index, job, size, fleet)
    lines = []
    for row, cells in enumerate(weights):
        text = "".join(LETTERS[max(cell, key=lambda each: (cell[each], -each))] if cell else "·" for cell in cells)
        last = min(fleet.npus, (row + 1) * size) - 1
        lines.append(f"{f'{row * size}-{last}' if last > row * size else last!s:>11} │{text}")
    lines.append(
        f"{'':11} └{format_duration(0.0)}{format_duration(fleet.makespan_s):>{across - len(format_duration(0.0))}}"
    )
    names = [f"{LETTERS[letter]} {job.name}" for letter, job in enumerate(shown)]
    more = len(fleet.jobs) - len(shown)
    return [*lines, ", ".join(names) + (f", and {more:,} that are not drawn" if more else "")]


def _add_device_time(
    weights: list[list[dict[int, float]]], index: int, job: JobResult, size: int, fleet: Fleet
) -> None:
    """Add to each cell how much of its accelerators' time a job has."""
    across = len(weights[0])
    low, high = (across * (time_s - fleet.start_s) / fleet.makespan_s for time_s in (job.start_s, job.end_s))
    device = job.device_s / job.run_s if job.run_s else 0.0
    for first, end in job.accelerators:
        for row in range(first // size, (end - 1) // size + 1):
            tall = min(end, (row + 1) * size) - max(first, row * size)
            for column in range(int(low), min(across, int(high) + 1)):
                part = min(high, column + 1) - max(low, column)
                if part > 0:
                    cell = weights[row][column]
                    cell[index] = cell.get(index, 0.0) + tall * part * device


def fleet_svg(fleet: Fleet) -> str:
    """Return a drawing: a line for each row of accelerators, and on it the jobs along the time."""
    title = f"{len(fleet.jobs):,} jobs on {fleet.npus:,} accelerators"
    elements, top = drawing.draw_heading(title, [])
    top += 8
    scale = drawing.scale_of([0.0, max(fleet.makespan_s, 1e-12)], drawing.Axis("time", "s"), zero=True)
    across, size, lines = drawing.WIDTH - drawing.EDGE - LEFT, accelerators_per_row(fleet), jobs_by_line(fleet)
    bars = 0
    for drawn_line, ((row, line), spans) in enumerate(sorted(lines.items())):
        middle = top + (drawn_line + 0.5) * ROW
        if line == 0:
            name = row_name(fleet, row)
            elements.append(
                drawing.draw_label((LEFT - 8, middle + 4), name, "cc-muted cc-small", "end", LEFT - 8 - drawing.EDGE)
            )
        elements.append(drawing.draw_rule((LEFT, middle), (LEFT + across, middle), "cc-grid"))
        for start_s, end_s, index in spans[: max(0, MOST_BARS - bars)]:
            left, right = (LEFT + scale.share(time_s - fleet.start_s) * across for time_s in (start_s, end_s))
            elements.append(_draw_job(left, middle - BAR / 2, right - left, index, fleet.jobs[index].name))
        bars += len(spans)
    bottom = top + len(lines) * ROW + 4
    elements += drawing.draw_abscissa(scale, (LEFT, bottom), across)
    notes = [f"each row {size:,} accelerators", f"{bars - MOST_BARS:,} bars are not drawn" if bars > MOST_BARS else ""]
    small, end = drawing.draw_notes(notes, bottom + 50)
    return drawing.svg_document(
        title, f"{title}, over {format_duration(fleet.makespan_s)}.", end + 6, [*elements, *small]
    )


def _draw_job(left: float, top: float, width: float, index: int, name: str) -> str:
    box = f'x="{drawing.coordinate_text(left)}" y="{drawing.coordinate_text(top)}" width="{drawing.coordinate_text(max(width - 0.5, 0.5))}" height="{drawing.coordinate_text(BAR)}"'
    return f'<rect class="{drawing.fill_class(index)}" {box}><title>{drawing.escape_line(name)}</title></rect>'


JOB_COLUMNS = ("job", "NPUs", "where", "arrives", "waits", "runs", "step alone", "step here", "tokens/s", "slowdown")


def job_cells(job: JobResult) -> list[str]:
    """Return a job as a row of a table under `JOB_COLUMNS`."""
    return [
        job.name,
        f"{job.npus:,}",
        accelerator_ranges(job),
        format_duration(job.arrival_s),
        format_duration(job.wait_s),
        format_duration(job.run_s),
        drawing.quantity(job.alone_step_s, "s"),
        drawing.quantity(job.step_s, "s"),
        f"{job.tokens_per_s:,.0f}",
        f"{job.slowdown:.2f}",
    ]


def summarise_fleet(fleet: Fleet) -> str:
    """Return what came of a fleet in one sentence."""
    ran = f"{len(fleet.jobs):,} job{'' if len(fleet.jobs) == 1 else 's'} in {format_duration(fleet.makespan_s)}"
    sentences = [ran, f"{100 * fleet.utilization:.1f} % utilisation"]
    if fleet.mean_slowdown is not None and fleet.max_slowdown is not None and fleet.fairness is not None:
        sentences.append(f"slowdown {fleet.mean_slowdown:.2f} on average, {fleet.max_slowdown:.2f} at most")
        sentences.append(f"fairness {fleet.fairness:.2f}")
    return " · ".join(sentences)


def rules_in_words(fleet: Fleet) -> str:
    """Return how the jobs shared the cluster."""
    rules = fleet.rules
    how = f"{rules.policy}, {rules.placement}" if rules.sharing == "space" else "gangs take turns"
    tier = f", leaves of {fleet.leaf} with uplinks {fleet.oversubscription:g}:1" if fleet.oversubscription > 1 else ""
    return f"shared in {rules.sharing}: {how}{tier}"


def fleet_page(fleet: Fleet, others: Sequence[Fleet] = ()) -> Page:
    """Return a page about a fleet; *others* are what other rules gave."""
    parts: list[Text | Heading | Table | Figure] = [Text(f"{summarise_fleet(fleet)}\n\n{rules_in_words(fleet)}")]
    parts.append(Figure(fleet_svg(fleet), "schedule"))
    parts.append(Table(JOB_COLUMNS, [job_cells(job) for job in fleet.jobs[:MOST_TABLE_ROWS]]))
    if fleet.refused:
        rows = [[each.name, "; ".join(each.reasons)] for each in fleet.refused[:MOST_TABLE_ROWS]]
        parts += [Heading("Jobs that cannot run"), Table(("job", "why"), rows)]
    if others:
        parts += [Heading("Other rules"), Table(RULES_COLUMNS, [rules_cells(candidate) for candidate in others])]
    rule_values = {field.name: getattr(fleet.rules, field.name) for field in fields(fleet.rules)}
    parts += [Heading("Rules"), Table(("rule", "value"), [[key, str(value)] for key, value in rule_values.items()])]
    return Page(f"Jobs on {fleet.system}", parts)


RULES_COLUMNS = (
    "shared in",
    "policy",
    "placement",
    "makespan",
    "utilisation",
    "mean slowdown",
    "max slowdown",
    "fairness",
)


def rules_cells(fleet: Fleet) -> list[str]:
    """Return what rules gave as a row of a table under `RULES_COLUMNS`."""
    rules = fleet.rules
    in_space = rules.sharing == "space"
    return [
        rules.sharing,
        rules.policy if in_space else "-",
        rules.placement if in_space else "-",
        format_duration(fleet.makespan_s),
        f"{100 * fleet.utilization:.1f} %",
        *(
            "-" if value is None else f"{value:.2f}"
            for value in (fleet.mean_slowdown, fleet.max_slowdown, fleet.fairness)
        ),
    ]

"""Schedules of collectives, written for other programs and for people.

The picture has a row for each link, and on it the transfers over time in the colours of their chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.files import make_folder, write_text
from cosmic.base.json_types import json_keys
from cosmic.network.collective_requests import open_schedule
from cosmic.network.link_graph import Ints
from cosmic.network.schedules.collective_schedule import SCHEDULE_KEYS, Schedule
from cosmic.network.schedules.msccl_xml import msccl_text
from cosmic.network.schedules.schedule_checking import check_schedule
from cosmic.network.schedules.schedule_formats import schedule_timeline_text
from cosmic.network.schedules.schedule_tables import schedule_csv
from cosmic.report.charts.drawing import (
    EDGE,
    WIDTH,
    Axis,
    coordinate_text,
    draw_abscissa,
    draw_heading,
    draw_label,
    draw_notes,
    draw_rule,
    fill_class,
    scale_of,
    svg_document,
)
from cosmic.traces.chakra.schedule_traces import traces_of_schedule
from cosmic.traces.chakra.trace_writer import write_traces

MOST_LINKS = 64
MOST_BARS = 20_000
ROW, BAR, LEFT = 13.0, 9.0, 110.0
LEAST_WIDTH = 6.0
"""Units across from which a bar has its chunk's number on hovering, and a gap before the next."""


def schedule_svg(schedule: Schedule) -> str:
    """Return the picture; of many links, it shows those that are busy longest."""
    graph = schedule.graph
    busy = np.bincount(schedule.link, schedule.end_s - schedule.start_s, minlength=graph.links)
    used = np.flatnonzero(busy)
    shown = used[np.lexsort((used, -busy[used]))][:MOST_LINKS]
    shown = shown[np.lexsort((shown, graph.targets[shown], graph.sources[shown]))]
    kind = schedule.kind.replace("_", "-")
    title = f"{kind} of {schedule.size_bytes:,.0f} bytes: {schedule.transfers:,} transfers"
    elements, top = draw_heading(title, [])
    top += 8
    scale = scale_of([0.0, max(schedule.time_s, 1e-12)], Axis("time", "s"), zero=True)
    across = WIDTH - EDGE - LEFT
    row_of_link = {link: row for row, link in enumerate(shown.tolist())}
    for link, row in row_of_link.items():
        middle = top + (row + 0.5) * ROW
        name = graph.describe(link).removeprefix("link ")
        elements.append(draw_label((LEFT - 8, middle + 4), name, "cc-muted cc-small", "end", LEFT - 8 - EDGE))
        elements.append(draw_rule((LEFT, middle), (LEFT + across, middle), "cc-grid"))
    rows = np.flatnonzero(np.isin(schedule.link, shown))
    for row in islice(rows.tolist(), MOST_BARS):
        start, end = (scale.share(float(times[row])) * across for times in (schedule.start_s, schedule.end_s))
        up = top + row_of_link[int(schedule.link[row])] * ROW + (ROW - BAR) / 2
        elements.append(_draw_transfer(LEFT + start, up, end - start, int(schedule.chunk[row])))
    bottom = top + len(row_of_link) * ROW + 4
    elements += draw_abscissa(scale, (LEFT, bottom), across)
    small, end_of_notes = draw_notes(_schedule_notes(schedule, used, shown, rows), bottom + 50)
    description = f"{title}, over {len(shown)} links, in {schedule.time_s:.6g} s."
    return svg_document(title, description, end_of_notes + 6, [*elements, *small])


def _draw_transfer(left: float, top: float, wide: float, chunk: int) -> str:
    """Return a transfer; the number of its chunk shows on hovering."""
    if wide >= LEAST_WIDTH:
        wide -= 0.6
    shape = f'x="{coordinate_text(left)}" y="{coordinate_text(top)}" width="{max(wide, 0.4):.2f}" height="{coordinate_text(BAR)}"'
    return f'<rect class="{fill_class(chunk)}" {shape}><title>chunk {chunk}</title></rect>'


def _schedule_notes(schedule: Schedule, used: Ints, shown: Ints, rows: Ints) -> list[str]:
    """Return what the colours mean, and what is left out."""
    notes = ["Colours tell chunks apart; six colours repeat."]
    if len(shown) < len(used):
        notes.append(f"The {len(shown)} busiest of {len(used):,} links that are used.")
    if len(rows) > MOST_BARS:
        notes.append(f"The first {MOST_BARS:,} of {len(rows):,} transfers.")
    return notes


# ---- files

TEXTS = {"msccl": msccl_text, "perfetto": schedule_timeline_text, "svg": schedule_svg, "csv": schedule_csv}
TARGETS = ("msccl", "chakra", "perfetto", "svg", "csv")
RUN_BY_OTHERS = ("msccl", "chakra")
"""Formats that somebody will run: a schedule that is not valid is not written in them."""
MOST_STEPS = 256
"""Steps of a thread block that MSCCL's runtime takes (MSCCL_MAX_NUM_STEPS)."""


@json_keys(own=False, **SCHEDULE_KEYS, files="files")
@dataclass(frozen=True, eq=False)
class ConvertedSchedule:
    """A schedule that was written in another format."""

    schedule: Schedule
    files: tuple[str, ...]
    """Files that were written; traces as PREFIX.<rank>.et."""


def convert_schedule(schedule: str | Path | Schedule, *, to: str, out: str | Path, **stated: Any) -> list[str]:
    """Write a schedule in another format, and return the files: of Chakra, their common pattern.

    *to* is msccl, chakra, perfetto, svg or csv, and *out* the file, or the prefix of Chakra's. *schedule* and *stated*
    are those of `cosmic.network.check`.

        cosmic.network.convert("ag.csv", to="msccl", out="ag.xml", network="dgx-h100:8")  # ['ag.xml']
    """
    require(to in TARGETS, "to", to, f"choose from {', '.join(TARGETS)}")
    opened = open_schedule(schedule, **stated)
    if to in RUN_BY_OTHERS:
        verdict = check_schedule(opened)
        if not verdict.valid:
            wrong = next(words for examples in verdict.examples.values() for words in examples)
            raise SpecError("schedule", str(schedule), f"is not valid, and nothing is written: {wrong}")
    return write_schedule(opened, to, out)


def write_schedule(
    schedule: Schedule, to: str, out: str | Path, note: Callable[[str], None] = lambda _: None
) -> list[str]:
    """Write a schedule in a format, and return the files; *note* is called with what its reader may not take."""
    if to == "chakra":
        make_folder(Path(out).parent, "--out")
        write_traces(traces_of_schedule(schedule), out, "--out")
        return [f"{out}.<rank>.et"]
    text = TEXTS[to](schedule)
    write_text(out, text, "--out")
    if to == "msccl" and (steps := max(block.count("<step ") for block in text.split("<tb "))) > MOST_STEPS:
        rule = f"MSCCL's runtime takes {MOST_STEPS} at most, others fewer: use fewer --chunks"
        note(f"note: a thread block of {out} has {steps:,} steps; {rule}")
    return [str(out)]

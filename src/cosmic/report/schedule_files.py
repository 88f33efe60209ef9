"""Schedules of collectives, written for other programs and for people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.base.files import make_folder, write_text
from cosmic.network.collective_requests import open_schedule
from cosmic.network.schedules.collective_schedule import Schedule
from cosmic.network.schedules.msccl_xml import msccl_text
from cosmic.network.schedules.schedule_checking import check_schedule
from cosmic.network.schedules.schedule_formats import perfetto_text
from cosmic.network.schedules.schedule_tables import schedule_csv
from cosmic.report.charts.schedule_chart import schedule_svg
from cosmic.traces.chakra.schedule_traces import traces_of_schedule
from cosmic.traces.chakra.trace_writer import write_traces

TEXTS = {"msccl": msccl_text, "perfetto": perfetto_text, "svg": schedule_svg, "csv": schedule_csv}
TARGETS = ("msccl", "chakra", "perfetto", "svg", "csv")
RUN_BY_OTHERS = ("msccl", "chakra")
"""Formats that somebody will run: a schedule that is not valid is not written in them."""
MOST_STEPS = 256
"""Steps of a thread block that MSCCL's runtime takes (MSCCL_MAX_NUM_STEPS)."""


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

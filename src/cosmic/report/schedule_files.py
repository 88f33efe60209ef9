"""Schedules of collectives, written for other programs and for people.

The picture has a row for each link, and on it the transfers over time in the colours of their chunks.

As Chakra traces, a schedule has a send and a receive for each message. ASTRA-sim and `cosmic simulate` run them as a
custom collective (``all-gather-implementation-custom`` and so on in the system file), or as a workload of their own, in
which a rank has one send in flight at a time. Ranks are positions in the group where there is one group that needs
nobody else, else those of the network.

A send waits for the receives that bring what it carries, and for the send before it to the same rank; a receive waits
for the receive before it from the same rank. Through switches, messages to several ranks share a link, and the next may
be on its way before the last has arrived: there a send waits for the last messages that its rank had sent or received
in whole when it was to begin, so that ranks send in the order of the schedule. Tags number the messages from one rank
to another.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
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
from cosmic.network.schedules.schedule_transfers import Messages, messages_of, needed_messages
from cosmic.report.charts import drawing
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import NodeType, RankTrace, TraceSet, template_of

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
    elements, top = drawing.draw_heading(title, [])
    top += 8
    scale = drawing.scale_of([0.0, max(schedule.time_s, 1e-12)], drawing.Axis("time", "s"), zero=True)
    across = drawing.WIDTH - drawing.EDGE - LEFT
    row_of_link = {link: row for row, link in enumerate(shown.tolist())}
    for link, row in row_of_link.items():
        middle = top + (row + 0.5) * ROW
        name = graph.describe(link).removeprefix("link ")
        elements.append(
            drawing.draw_label((LEFT - 8, middle + 4), name, "cc-muted cc-small", "end", LEFT - 8 - drawing.EDGE)
        )
        elements.append(drawing.draw_rule((LEFT, middle), (LEFT + across, middle), "cc-grid"))
    rows = np.flatnonzero(np.isin(schedule.link, shown))
    for row in islice(rows.tolist(), MOST_BARS):
        start, end = (scale.share(float(times[row])) * across for times in (schedule.start_s, schedule.end_s))
        up = top + row_of_link[int(schedule.link[row])] * ROW + (ROW - BAR) / 2
        elements.append(_draw_transfer(LEFT + start, up, end - start, int(schedule.chunk[row])))
    bottom = top + len(row_of_link) * ROW + 4
    elements += drawing.draw_abscissa(scale, (LEFT, bottom), across)
    small, end_of_notes = drawing.draw_notes(_schedule_notes(schedule, used, shown, rows), bottom + 50)
    description = f"{title}, over {len(shown)} links, in {schedule.time_s:.6g} s."
    return drawing.svg_document(title, description, end_of_notes + 6, [*elements, *small])


def _draw_transfer(left: float, top: float, wide: float, chunk: int) -> str:
    """Return a transfer; the number of its chunk shows on hovering."""
    if wide >= LEAST_WIDTH:
        wide -= 0.6
    shape = f'x="{drawing.coordinate_text(left)}" y="{drawing.coordinate_text(top)}" width="{max(wide, 0.4):.2f}" height="{drawing.coordinate_text(BAR)}"'
    return f'<rect class="{drawing.fill_class(chunk)}" {shape}><title>chunk {chunk}</title></rect>'


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


# ---- a send and a receive for each message


def traces_of_schedule(schedule: Schedule) -> TraceSet:
    """Return the traces of all ranks; ranks outside of the groups that relay nothing have no nodes."""
    messages = messages_of(schedule, "Chakra")
    position = _positions(schedule, messages)
    npus = len(position)
    rows: list[list[dict[str, Any]]] = [[] for _ in range(npus)]
    peers: list[dict[int, int]] = [{} for _ in range(npus)]
    before: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    done: list[list[tuple[float, int]]] = [[] for _ in range(npus)]
    tags: dict[tuple[int, int], int] = defaultdict(int)
    receives: dict[int, int] = {}
    waiting = needed_messages(schedule, messages)
    tolerance = 1e-9 * schedule.time_s + 1e-12

    def add(kind: NodeType, row: int, rank: int, peer: int, data: list[int], last: list[int]) -> int:
        """Add a node of a rank, which carries what nodes *data* bring, and waits for the *last* ones before it too."""
        size = round(float(messages.size_bytes[row]))
        require(size >= 1, "size", float(messages.size_bytes[row]), "a message of Chakra has at least 1 byte")
        number = len(rows[rank])
        verb = (
            f"send chunk {messages.chunk[row]} to"
            if kind == NodeType.COMM_SEND
            else f"receive chunk {messages.chunk[row]} from"
        )
        rows[rank].append(
            {
                "id": number,
                "type": kind,
                "name": f"{verb} {peer}",
                "data": sorted(set(data)),
                "ctrl": sorted(set(last) - set(data)),
                "comm_size": size,
                "comm_tag": tags[(rank, peer) if kind == NodeType.COMM_SEND else (peer, rank)],
                "peer": peers[rank].setdefault(peer, len(peers[rank])),
            }
        )
        return number

    for row in range(messages.count):
        source, target = position[int(messages.source[row])], position[int(messages.target[row])]
        brought = [receives[message] for message in waiting[row] if message in receives]
        sent, received = before.get((source, target), ([], []))
        if schedule.graph.switches:
            sent = _last_nodes(done[source], float(messages.start_s[row]), tolerance)
        send = add(NodeType.COMM_SEND, row, source, target, brought, sent)
        receives[row] = add(NodeType.COMM_RECV, row, target, source, [], received)
        before[source, target] = ([send], [receives[row]])
        insort(done[source], (float(messages.end_s[row]), send))
        insort(done[target], (float(messages.end_s[row]), receives[row]))
        tags[source, target] += 1
    traces = [RankTrace(template_of(rows[rank]), (), tuple(peers[rank]), rank) for rank in range(npus)]
    return TraceSet(tuple(traces), "schedule")


def _last_nodes(done: list[tuple[float, int]], start_s: float, tolerance_s: float) -> list[int]:
    """Return the last of some nodes, in the order of their ends, to end before another starts; all that end together.

    >>> _last_nodes([(1.0, 4), (2.0, 3), (2.0, 7), (3.0, 5)], 2.5, 0.1), _last_nodes([(1.0, 4)], 0.5, 0.1)
    ([3, 7], [])
    """
    stop = bisect_right(done, start_s + tolerance_s, key=_end_of_nodes)
    first = bisect_left(done, done[stop - 1][0] - tolerance_s, key=_end_of_nodes) if stop else 0
    return [node for _, node in done[first:stop]]


def _end_of_nodes(done: tuple[float, int]) -> float:
    return done[0]


def _positions(schedule: Schedule, messages: Messages) -> dict[int, int]:
    """Return the rank of each node in the traces."""
    alone = len(schedule.groups) == 1
    members = schedule.groups[0] if alone else ()
    if alone and set(messages.source.tolist()) | set(messages.target.tolist()) <= set(members):
        return {member: index for index, member in enumerate(members)}
    return {node: node for node in range(schedule.graph.npus)}

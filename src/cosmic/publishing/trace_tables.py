"""What the page of a trace says in numbers: facts, the operators that take the most time, classes of kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from cosmic.publishing.contract import Fact
from cosmic.publishing.trace_contract import Operator
from cosmic.publishing.trace_schedule import COMPUTE, CPU, EXCHANGE, KINDS, STORAGE, Schedule, covered
from cosmic.traces.trace import Ints, NodeType, Template
from cosmic.traces.views import amount, enum_name
from cosmic.units import SECONDS

TOP = 20
"""Operators in the table."""
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")


def fact(label: str, text: str, value: float | None = None, note: str = "") -> Fact:
    """Return a fact."""
    return {"label": label, "text": text, "value": value, "note": note}


def time_text(ticks: float, schedule: Schedule) -> str:
    """Return a time of a schedule for a person to read."""
    if schedule.unit == "s":
        return amount(ticks * schedule.tick, SECONDS).replace("us", "µs")
    return f"{ticks:,.0f} step{'' if ticks == 1 else 's'}"


def percent(part: float, whole: float) -> str:
    """Return a share.

    >>> percent(1, 3), percent(0, 5), percent(1, 1_000_000), percent(9999, 10_000)
    ('33 %', '0 %', '<0.1 %', '99.9 %')
    """
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.1:
        return "<0.1 %"
    return f"{min(share, 99.9):.3g} %" if 99.5 <= share < 100 else f"{share:.2g} %" if share < 99.5 else "100 %"


def facts_of(template: Template, schedule: Schedule) -> list[Fact]:
    """Return the facts of one rank: nodes, dependencies, span, critical path, and what the time goes to."""
    data, ctrl = len(template.data_id), len(template.ctrl_id)
    note = f"{data:,} data, {ctrl:,} control"
    found = [
        fact("nodes", f"{template.nodes:,}", template.nodes, types_text([(template, 1)])),
        fact("dependencies", f"{data + ctrl:,}", data + ctrl, note),
        fact("depth", f"{int(schedule.depth.max(initial=-1)) + 1:,}", None, "nodes, one after the other"),
    ]
    end = schedule.end
    if schedule.unit == "s":
        how = "as recorded" if schedule.recorded else "each node as soon as its dependencies are done"
        found.append(fact("span", time_text(end, schedule), end * schedule.tick, how))
    if len(schedule.critical):
        length, nodes = schedule.critical_length, len(schedule.critical)
        share = f", {percent(length, end)} of the span" if schedule.recorded and end else ""
        value = length * schedule.tick if schedule.unit == "s" else None
        word = "node" if nodes == 1 else "nodes"
        found.append(fact("critical path", time_text(length, schedule), value, f"{nodes:,} {word}{share}"))
    return found + (_shares(schedule) if schedule.unit == "s" and end else [])


def types_text(parts: Iterable[tuple[Template, int]]) -> str:
    """Return the number of nodes of each type, of templates that so many ranks have.

    >>> from cosmic.traces.trace import template_of
    >>> types_text([(template_of([{"id": 1, "type": 7}, {"id": 2, "type": 4}, {"id": 3, "type": 4}]), 10)])
    '20 COMP, 10 COMM_COLL'
    """
    found: Counter[int] = Counter()
    for template, ranks in parts:
        numbers, counts = np.unique(template.type, return_counts=True)
        found.update(dict(zip(numbers.tolist(), (ranks * counts).tolist(), strict=True)))
    return ", ".join(f"{count:,} {enum_name(NodeType, number)}" for number, count in found.most_common())


def _shares(schedule: Schedule) -> list[Fact]:
    """Return which share of the span goes to compute, to communication, and to neither."""
    own = {"compute": np.isin(schedule.kind, (COMPUTE, STORAGE)), "communication": schedule.kind == EXCHANGE}
    words = "of the span, on the accelerator"
    if not own["compute"].any():
        own["compute"], words = schedule.kind == CPU, "of the span, on the CPU"
    end, ends = schedule.end, schedule.start + schedule.duration
    busy = {name: covered(schedule.start[rows], ends[rows]) for name, rows in own.items()}
    both = own["compute"] | own["communication"]
    either = covered(schedule.start[both], ends[both])
    notes = {"compute": words, "communication": f"{percent(either - busy['compute'], end)} exposed"}
    if own["communication"].any() and not busy["communication"]:
        notes["communication"] = "it states no duration"
    found = [
        fact(name, percent(time, end), time / end, notes[name])
        for name, time in busy.items()
        if own[name].any() or name == "compute"
    ]
    return [*found, fact("idle", percent(end - either, end), 1 - either / end, "neither of them runs")]


def operators_of(names: Sequence[str], code: Ints, schedule: Schedule, most: int = TOP) -> tuple[list[Operator], str]:
    """Return the operators that take the most time, and what is to be said of them.

    *code* says which of *names* each node has. Where nearly every node has a name of its own, names that differ in
    numbers alone count as one.
    """
    note = ""
    if len(names) > max(TOP, len(code) // 2):
        stems: dict[str, int] = {}
        code = np.array([stems.setdefault(_NUMBER.sub("*", name), len(stems)) for name in names], np.int64)[code]
        names, note = list(stems), "Names that differ in numbers alone count as one; * stands for a number."
    return _table(code, schedule, lambda place: names[place] or "(no name)", most), note


def kernels_of(template: Template, schedule: Schedule, most: int = TOP) -> list[Operator]:
    """Return the classes of kernels that take the most time; none where no kernel is known."""
    known = template.kernel >= 0
    if not known.any():
        return []
    words: dict[str, int] = {}
    first = [match[0] if (match := _WORD.search(text)) else "kernel" for text in template.kernels]
    place = np.array([words.setdefault(word, len(words)) for word in first], np.int64)
    code = np.where(known, place[np.maximum(template.kernel, 0)], -1)
    names = list(words)
    return _table(code, schedule, lambda at: names[at], most)


def _table(code: Ints, schedule: Schedule, name: Callable[[int], str], most: int) -> list[Operator]:
    """Return nodes by code and kind, the most time first; *name* is that of a code. Negative codes are left out."""
    keys = code * len(KINDS) + schedule.kind
    kept = code >= 0
    distinct, place = np.unique(keys[kept], return_inverse=True)
    counts = np.bincount(place, minlength=len(distinct))
    totals = np.bincount(place, schedule.duration[kept], minlength=len(distinct))
    whole = totals.sum()
    return [
        {
            "name": name(int(distinct[at]) // len(KINDS)),
            "kind": KINDS[int(distinct[at]) % len(KINDS)],
            "count": int(counts[at]),
            "total": float(totals[at]) * schedule.tick,
            "share": float(totals[at] / whole) if whole else 0.0,
        }
        for at in np.lexsort((-counts, -totals))[:most]
    ]

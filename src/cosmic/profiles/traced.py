"""Two traces beside each other, each from files or of a design: from what a user names to what differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, require
from cosmic.evaluation import step_of
from cosmic.files import is_file
from cosmic.mapping.completing import load_design
from cosmic.profiles.contrasting import By, TraceContrast, contrast, identical_traces
from cosmic.profiles.predicted_side import side_of_design
from cosmic.profiles.sides import TraceSide, side_of_traces
from cosmic.traces.generation import generate
from cosmic.traces.groups import read_groups
from cosmic.traces.reading import read_metadata, read_traces
from cosmic.traces.trace import TraceSet

ENDINGS = (".et", ".et.gz")
STEP_NS = "step_ns"
"""Of a recorded trace, what each of its steps took."""


@dataclass(frozen=True, slots=True, eq=False)
class _Source:
    """What a side is made of."""

    name: str
    traces: TraceSet | None = None
    groups: Mapping[str, Sequence[int]] | None = None
    steps: int = 1
    point: DesignPoint | None = None

    @property
    def is_recorded(self) -> bool:
        return self.traces is not None and any(each.is_recorded for each in self.traces.templates())

    def side(self, other: _Source) -> TraceSide:
        """Return the side to compare with *other*: a design node by node beside traces that were generated."""
        if self.traces is not None:
            return side_of_traces(self.traces, self.groups, self.steps)
        if self.point is None:
            raise SpecError("side", self.name, "has neither traces nor a design")
        if other.traces is None or other.is_recorded:
            return side_of_design(self.point, self.name)
        job = generate(self.point)
        return side_of_traces(replace(job.traces, where=self.name), job.groups, seconds=job.seconds)


def compare_traces(a: str, b: str, groups_a: str = "", groups_b: str = "", by: By | None = None) -> TraceContrast:
    """Return what differs between *a* and *b*, each a prefix of traces or a design, by what `contrast` says."""
    first = _source(a, groups_a, "a")
    second = first if (a, groups_a) == (b, groups_b) else _source(b, groups_b, "b")
    if first.traces is not None and second.traces is not None:
        same = identical_traces(first.traces, second.traces) and (first.groups or {}) == (second.groups or {})
    else:
        same = first.point is not None and first.point == second.point
    found = contrast(first.side(second), second.side(first), by, identical=same)
    rule = "recorded traces and generated nodes of several operators have no names in common: use class or type"
    mixed = {found.a.kind, found.b.kind} == {"recorded", "generated"}
    require(not mixed or found.by in ("class", "type"), "--by", found.by, rule)
    return found


def _source(name: str, groups: str, side: str) -> _Source:
    """Return what *name* stands for: traces where files of that prefix are, else a design."""
    known = read_groups(groups) if groups else None
    if _has_traces(name):
        traces = read_traces(name)
        steps = read_metadata(name).get(STEP_NS, "") if any(each.is_recorded for each in traces.templates()) else ""
        return _Source(name, traces, known, max(1, len([each for each in steps.split(",") if each])))
    option = f"--groups-{side}"
    if name.endswith(ENDINGS) and is_file(Path(name)):
        prefix = Path(name).name.split(".et")[0].rpartition(".")[0]
        raise SpecError(side.upper(), name, f"is the trace of one rank: give the prefix of all, such as {prefix}")
    if not _names_design(name):
        rule = f"is neither a prefix of traces (there is no {name}.0.et) nor a design, as MODEL@SYSTEM or a YAML file"
        raise SpecError(side.upper(), name, rule)
    require(not groups, option, groups, f"is for traces, and {name} is a design, whose groups are known")
    return _Source(name, point=step_of(load_design(name)))


def _has_traces(name: str) -> bool:
    return any(is_file(Path(f"{name}.0{ending}")) for ending in ENDINGS)


def _names_design(name: str) -> bool:
    return "@" in name or Path(name).suffix in (".yaml", ".yml") or is_file(Path(name))

"""Traces for people."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from cosmic.traces.trace import NodeType, RankTrace, template_of
from cosmic.traces.trace_views import COLOURS, graphviz_lines, node_records, node_summary
from tests.traces.graphs import Rows, collective, comp, graphs


def test_a_record_holds_what_the_node_states_and_nothing_else() -> None:
    rows = [
        comp(1, 7, ctrl=[8], on_cpu=1, duration_us=3, comm_type=4),
        collective(2, involved_dims=0b101, comm_priority=2),
        {"id": 3, "type": NodeType.MEM_LOAD, "tensor_size": 0},
    ]
    first, second, third = node_records(RankTrace(template_of(rows), ("5",)))
    assert {key: first[key] for key in first if key not in ("id", "type", "name")} == {
        "data": [7],
        "ctrl": [8],
        "duration_us": 3,
        "on_cpu": True,
    }
    assert node_summary(first) == "3 us, on the CPU"
    assert node_summary(second) == "ALL_REDUCE, 64 B, group 5, dimensions 0 2, priority 2"
    assert (third["type"], node_summary(third)) == ("MEM_LOAD", "0 B")


def test_every_type_of_node_has_its_colour() -> None:
    assert set(COLOURS) == {kind.name for kind in NodeType} - {"INVALID"}
    assert len(set(COLOURS.values())) == len(COLOURS)


@given(graphs())
def test_a_graph_has_every_node_and_every_dependency(rows: Rows) -> None:
    lines = list(graphviz_lines(RankTrace(template_of(rows))))
    assert (lines[0], lines[-1]) == ("digraph trace {", "}")
    assert sum("[label=" in line for line in lines) == len(rows)
    assert sum(" -> " in line for line in lines) == sum(len(row["data"]) + len(row["ctrl"]) for row in rows)


@given(st.text(max_size=20))
def test_names_stay_within_their_quotes(name: str) -> None:
    (line,) = [line for line in graphviz_lines(RankTrace(template_of([comp(1, name=name)]))) if "[label=" in line]
    assert line.isprintable()
    assert re.fullmatch(r'  1 \[label="(?:[^"\\]|\\.)*" fillcolor="#[0-9a-f]{6}"\];', line)

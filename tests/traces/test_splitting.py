"""Files that differ in a few bytes are read as if each were alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.traces.chakra import trace_reader
from cosmic.traces.chakra.trace_reader import DistinctMessages, read_trace, read_traces
from cosmic.traces.trace import NodeType
from tests.traces.encoding import attribute, file, ids, node, said

LONG = "a name that takes more than the 127 bytes of a short length " * 3


def rank_file(rank: int, *, order: tuple[int, ...] = (1, 2, 3, 4, 5), group: str = "g1", name: str = LONG) -> bytes:
    """Return the file of a rank: collectives, a send and a receive, in some order."""
    nodes = {
        1: node(1, name=name),
        2: node(2, attribute("pg_name", "string", group), kind=NodeType.COMM_COLL, name="sum"),
        3: node(3, ids("data_deps", 1), attribute("pg_name", "string", "g2"), kind=NodeType.COMM_COLL),
        4: node(4, *ends(rank, rank + 1), kind=NodeType.COMM_SEND, name="to"),
        5: node(5, *ends(rank + 1, rank), kind=NodeType.COMM_RECV, name="from"),
    }
    return file(*(nodes[each] for each in order))


def ends(source: int, destination: int) -> list[bytes]:
    """Return the attributes of a message."""
    return [attribute("comm_src", "int32", source), attribute("comm_dst", "int32", destination)]


def outcome(path: Path) -> Any:
    """Return all that a file says when it is read alone, or what is wrong with it."""
    try:
        return said(read_trace(path))
    except SpecError as error:
        return str(error)


def together(folder: Path, *contents: bytes) -> Any:
    """Return what the last of some files says when they are read together, and their templates."""
    for rank, content in enumerate(contents):
        (folder / f"job.{rank}.et").write_bytes(content)
    try:
        traces = read_traces(folder / "job")
    except SpecError as error:
        return str(error), 0
    return said(traces.ranks[-1]), len(traces.templates())


def test_any_byte_may_differ(tmp_path: Path) -> None:
    base, chance = rank_file(7), random.Random(5)
    alike = set()
    name = range(base.find(LONG.encode()) + 2, base.find(LONG.encode()) + len(LONG) - 2)
    for place in (each for each in range(len(base)) if each not in name):
        other = bytearray(base)
        other[place] ^= chance.choice([1, 2, 4, 128, chance.randrange(1, 256)])
        found, templates = together(tmp_path, base, bytes(other))
        assert found == outcome(tmp_path / "job.1.et"), place
        alike.add(templates)
    assert alike == {0, 1, 2}, "refused, the same nodes, other nodes"


@pytest.mark.parametrize(
    ("other", "templates"),
    [
        (rank_file(7), 1),
        (rank_file(8), 1),
        (rank_file(8, group="g3"), 1),
        (rank_file(8, group="g2"), 2),  # one group instead of two
        (rank_file(8, group="0"), 2),  # all ranks
        (rank_file(8, order=(1, 2, 3, 5, 4)), 1),
        (rank_file(8, order=(5, 4, 3, 2, 1)), 1),
        (rank_file(8, name=LONG.upper()), 2),
        (rank_file(8, name=LONG * 90), 2),
    ],
)
@pytest.mark.parametrize("order", [(1, 2, 3, 4, 5), (3, 1, 2, 5, 4)])
def test_what_differs_is_read(tmp_path: Path, order: tuple[int, ...], other: bytes, templates: int) -> None:
    base = rank_file(7, order=order)
    assert together(tmp_path, base, other) == (outcome(tmp_path / "job.1.et"), templates)


def test_files_in_another_order_are_compared_too(tmp_path: Path) -> None:
    order = (3, 1, 2, 5, 4)
    files = [rank_file(7, order=order), rank_file(8, order=order), rank_file(9, order=order, group="g7")]
    assert together(tmp_path, *files) == (outcome(tmp_path / "job.2.et"), 1)


def test_a_file_like_another_is_not_split_again(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = DistinctMessages()
    first = messages.split(rank_file(7), "first")
    monkeypatch.delattr(trace_reader, "message_heads")
    assert messages.split(rank_file(7), "same") is first
    other = messages.split(rank_file(8), "other")
    assert other.like is first
    assert other.changed.tolist() == [3, 4]
    assert (other.rows != first.rows).tolist() == [False, False, False, True, True]
    assert len(messages.numbers) == 7


def test_few_files_are_kept_to_compare_others_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(trace_reader, "_MOST_KEPT_BYTES", 0)
    assert together(tmp_path, rank_file(7), rank_file(8)) == (outcome(tmp_path / "job.1.et"), 1)


def test_a_file_full_of_zeros_is_refused_before_it_takes_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # After the metadata, 65 messages of length 0 are one more than may be; 64 may.
    start = b"\x02\x0a\x00"
    assert len(trace_reader.message_heads(start + bytes(64), "t.0.et")) == 65
    with pytest.raises(SpecError, match=r"65 nodes.*say nothing"):
        trace_reader.message_heads(start + bytes(65), "t.0.et")
    monkeypatch.setattr(trace_reader, "MOST_NODES", 10)
    with pytest.raises(SpecError, match="more than the 10 nodes"):
        trace_reader.message_heads(start + 11 * b"\x02\x08\x01", "t.0.et")

"""MSCCL-XML: a schedule as the steps of thread blocks, which runtimes of NCCL and RCCL execute.

A rank has a thread block for each peer that it sends to, and one for each that it receives from. A step that sends
waits for the last step of its rank that received the chunk; receptions of one chunk wait for each other, so that sums
are added up one after the other.

    buffer of     all-gather   reduce-scatter, all-reduce   all-to-all           broadcast   reduce
    chunk at      output       input                        input, then output   output      input

Chunk j of member r is at offset r k + j. On the way of an all-to-all, chunks are in the scratch buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cosmic.errors import require
from cosmic.graphs.schedule import Kind, Schedule
from cosmic.schedules.chunks import SUMS
from cosmic.schedules.messages import Messages, carries_whole, messages_of, needs

NAMES: dict[Kind, str] = {
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "all_reduce": "allreduce",
    "all_to_all": "alltoall",
    "broadcast": "broadcast",
    "reduce": "reduce",
}
"""What MSCCL calls collectives."""
NONE = -1


@dataclass
class _Step:
    """One step of a thread block."""

    type: str
    source: tuple[str, int]
    target: tuple[str, int]
    waits_for: tuple[int, int] = (NONE, NONE)
    is_waited_for: bool = False


@dataclass
class _Block:
    """A thread block: the rank that it sends to or receives from, and its steps."""

    send: int
    receive: int
    steps: list[_Step] = field(default_factory=list)


@dataclass
class _Rank:
    """The thread blocks of a rank, by peer and direction, and where it has received chunks last."""

    blocks: dict[tuple[int, str], int] = field(default_factory=dict)
    listed: list[_Block] = field(default_factory=list)
    received: dict[int, tuple[int, int]] = field(default_factory=dict)
    scratch: dict[int, int] = field(default_factory=dict)

    def add(self, peer: int, direction: str, step: _Step) -> tuple[int, int]:
        """Return the block and the number of a new step."""
        if (peer, direction) not in self.blocks:
            self.blocks[peer, direction] = len(self.listed)
            self.listed.append(_Block(peer if direction == "s" else NONE, peer if direction == "r" else NONE))
        block = self.blocks[peer, direction]
        if step.waits_for != (NONE, NONE):
            on, number = step.waits_for
            if on == block:
                step.waits_for = (NONE, NONE)  # steps of a block are in order anyway
            else:
                self.listed[on].steps[number].is_waited_for = True
        self.listed[block].steps.append(step)
        return block, len(self.listed[block].steps) - 1


def place_of(kind: Kind, members: int, k: int, chunk: int, rank: int) -> tuple[str, int]:
    """Return the buffer and the offset of a chunk at a rank; scratch has offsets of its own.

    >>> place_of("all_gather", 8, 2, 9, 0), place_of("all_to_all", 4, 1, 6, 2), place_of("all_to_all", 4, 1, 6, 1)
    (('o', 3), ('i', 1), ('o', 2))
    """
    if kind in ("broadcast", "reduce"):
        return ("o" if kind == "broadcast" else "i"), chunk
    if kind != "all_to_all":
        return ("o" if kind == "all_gather" else "i"), chunk % members * k + chunk // members
    origin, target, number = chunk % members, chunk // members % members, chunk // members**2
    if rank == origin:
        return "i", target * k + number
    return ("o", origin * k + number) if rank == target else ("s", NONE)


def msccl_text(schedule: Schedule) -> str:
    """Return a schedule of one group as MSCCL-XML; ranks are positions in the group."""
    require(len(schedule.groups) == 1, "group", f"{len(schedule.groups)} groups", "MSCCL-XML describes one group")
    group = schedule.groups[0]
    messages = messages_of(schedule, "MSCCL-XML")
    position = {member: place for place, member in enumerate(group)}
    for node in {*messages.source.tolist(), *messages.target.tolist()} - set(group):
        rule = "relays chunks and is no member of the group, which MSCCL-XML does not know"
        require(False, "group", schedule.graph.name(node), rule)
    ranks = [_Rank() for _ in group]
    _add_steps(schedule, messages, position, ranks)
    if schedule.kind == "all_to_all":
        _add_copies(schedule, ranks)
    return "\n".join(_lines(schedule, ranks)) + "\n"


def _add_steps(schedule: Schedule, messages: Messages, position: dict[int, int], ranks: list[_Rank]) -> None:
    sums = schedule.kind in SUMS
    whole = carries_whole(schedule, messages) if sums else []
    brought = needs(schedule, messages)
    steps: dict[int, tuple[int, int]] = {}
    p, k = len(position), schedule.chunks_per_npu
    for row in range(messages.count):
        chunk = int(messages.chunk[row])
        ends = [position[int(column[row])] for column in (messages.source, messages.target)]
        places = []
        for end in ends:
            buffer, offset = place_of(schedule.kind, p, k, chunk, end)
            if buffer == "s":
                offset = ranks[end].scratch.setdefault(chunk, len(ranks[end].scratch))
            places.append((buffer, offset))
        waits = steps.get(max(brought[row], default=NONE), (NONE, NONE))  # receptions wait for those listed before
        ranks[ends[0]].add(ends[1], "s", _Step("s", places[0], places[1], waits))
        receiver = ranks[ends[1]]
        waits = receiver.received.get(chunk, (NONE, NONE)) if sums else (NONE, NONE)
        kind = "rrc" if sums and not whole[row] else "r"
        steps[row] = receiver.received[chunk] = receiver.add(ends[0], "r", _Step(kind, places[0], places[1], waits))


def _add_copies(schedule: Schedule, ranks: list[_Rank]) -> None:
    """Add the copies of what an NPU has for itself."""
    k = schedule.chunks_per_npu
    for rank, each in enumerate(ranks):
        for number in range(k):
            step = _Step("cpy", ("i", rank * k + number), ("o", rank * k + number))
            each.add(NONE, "", step)


def _lines(schedule: Schedule, ranks: list[_Rank]) -> Iterator[str]:
    kind, p, k = schedule.kind, len(ranks), schedule.chunks_per_npu
    loop = k if kind in ("broadcast", "reduce") else p * k
    in_place = int(kind != "all_to_all")
    name = f"cosmic_{NAMES[kind]}_{p}"
    yield (
        f'<algo name="{name}" proto="Simple" nchannels="1" nchunksperloop="{loop}" ngpus="{p}" coll="{NAMES[kind]}" '
        f'inplace="{in_place}" outofplace="{1 - in_place}" minBytes="0" maxBytes="0"'
        + (f' root="{schedule.root}">' if kind in ("broadcast", "reduce") else ">")
    )
    inputs = 0 if kind in ("all_gather", "broadcast") else loop
    outputs = loop if kind in ("all_gather", "broadcast", "all_to_all") else 0
    for rank, each in enumerate(ranks):
        yield f'  <gpu id="{rank}" i_chunks="{inputs}" o_chunks="{outputs}" s_chunks="{len(each.scratch)}">'
        for number, block in enumerate(each.listed):
            yield f'    <tb id="{number}" send="{block.send}" recv="{block.receive}" chan="0">'
            yield from (_step_line(at, step) for at, step in enumerate(block.steps))
            yield "    </tb>"
        yield "  </gpu>"
    yield "</algo>"


def _step_line(at: int, step: _Step) -> str:
    places = f'srcbuf="{step.source[0]}" srcoff="{step.source[1]}" dstbuf="{step.target[0]}" dstoff="{step.target[1]}"'
    waits = f'depid="{step.waits_for[0]}" deps="{step.waits_for[1]}" hasdep="{int(step.is_waited_for)}"'
    return f'      <step s="{at}" type="{step.type}" {places} cnt="1" {waits}/>'

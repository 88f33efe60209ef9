"""MSCCL-XML: write schedules as steps of thread blocks, read those of others, and run the steps on a network.

MSCCL-XML: a schedule as the steps of thread blocks, which runtimes of NCCL and RCCL execute.

A rank has a thread block for each peer that it sends to, and one for each that it receives from. A step that sends
waits for the last step of its rank that received the chunk; receptions of one chunk wait for each other, so that sums
are added up one after the other.

    buffer of     all-gather   reduce-scatter, all-reduce   all-to-all           broadcast   reduce
    chunk at      output       input                        input, then output   output      input

Chunk j of member r is at offset r k + j. On the way of an all-to-all, chunks are in the scratch buffer.

Read MSCCL-XML, our own and that of others, as steps of thread blocks that run on a network.

The file has no times. `cosmic.network.schedules.msccl_xml` runs the steps in the order of their dependencies.

Run the steps of MSCCL-XML on a network: a schedule with times, in the order of their dependencies.

A step begins when the one before it in its thread block and the one that it waits for are done. One that sends is done
when its bytes have left their first link; one that receives, when they have come. The chunks of a message follow one
another. Each message takes the link between its ranks, or the quickest path of switches. What a place in a buffer holds
is followed from step to step, so that it is known which chunk a message carries.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from xml.etree import ElementTree

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.event_clock import EventClock
from cosmic.network.link_graph import LinkGraph
from cosmic.network.link_paths import Routes
from cosmic.network.network_files.named_nodes import parse_xml, read_whole_number
from cosmic.network.schedules.collective_schedule import SUMS, Kind, Schedule, chunk_bytes
from cosmic.network.schedules.schedule_replay import PICOSECONDS, WiredFabric
from cosmic.network.schedules.schedule_tables import link_finder, sort_transfers
from cosmic.network.schedules.schedule_transfers import Messages, carries_whole, messages_of, needed_messages

# ---- MSCCL-XML: a schedule as the steps of thread blocks, which runtimes of NCCL and RCCL execute

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
class _RankBlocks:
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


def buffer_place(kind: Kind, members: int, k: int, chunk: int, rank: int) -> tuple[str, int]:
    """Return the buffer and the offset of a chunk at a rank; scratch has offsets of its own.

    >>> buffer_place("all_gather", 8, 2, 9, 0), buffer_place("all_to_all", 4, 1, 6, 2), buffer_place("all_to_all", 4, 1, 6, 1)
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
    position = {member: index for index, member in enumerate(group)}
    for node in {*messages.source.tolist(), *messages.target.tolist()} - set(group):
        rule = "relays chunks and is no member of the group, which MSCCL-XML does not know"
        require(False, "group", schedule.graph.name(node), rule)
    ranks = [_RankBlocks() for _ in group]
    _add_steps(schedule, messages, position, ranks)
    if schedule.kind == "all_to_all":
        k = schedule.chunks_per_npu  # what an NPU has for itself is copied, as MSCCL sends nothing to its sender
        for rank, blocks in enumerate(ranks):
            for number in range(k):
                step = _Step("cpy", ("i", rank * k + number), ("o", rank * k + number))
                blocks.add(NONE, "", step)
    return "\n".join(_xml_lines(schedule, ranks)) + "\n"


def _add_steps(schedule: Schedule, messages: Messages, position: dict[int, int], ranks: list[_RankBlocks]) -> None:
    sums = schedule.kind in SUMS
    complete = carries_whole(schedule, messages) if sums else []
    brought = needed_messages(schedule, messages)
    steps: dict[int, tuple[int, int]] = {}
    p, k = len(position), schedule.chunks_per_npu
    for row in range(messages.count):
        chunk = int(messages.chunk[row])
        ends = [position[int(column[row])] for column in (messages.source, messages.target)]
        places = []
        for end in ends:
            buffer, offset = buffer_place(schedule.kind, p, k, chunk, end)
            if buffer == "s":
                offset = ranks[end].scratch.setdefault(chunk, len(ranks[end].scratch))
            places.append((buffer, offset))
        # A thread block waits for one step: the last message that brings what it sends.
        waits = steps.get(max(brought[row], default=NONE), (NONE, NONE))  # receptions wait for those listed before
        ranks[ends[0]].add(ends[1], "s", _Step("s", places[0], places[1], waits))
        receiver = ranks[ends[1]]
        waits = receiver.received.get(chunk, (NONE, NONE)) if sums else (NONE, NONE)
        # rrc: receive, reduce and copy; a complete sum is only received.
        kind = "rrc" if sums and not complete[row] else "r"
        steps[row] = receiver.received[chunk] = receiver.add(ends[0], "r", _Step(kind, places[0], places[1], waits))


def _xml_lines(schedule: Schedule, ranks: list[_RankBlocks]) -> Iterator[str]:
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
    for rank, blocks in enumerate(ranks):
        yield f'  <gpu id="{rank}" i_chunks="{inputs}" o_chunks="{outputs}" s_chunks="{len(blocks.scratch)}">'
        for number, block in enumerate(blocks.listed):
            yield f'    <tb id="{number}" send="{block.send}" recv="{block.receive}" chan="0">'
            yield from (_step_line(index, step) for index, step in enumerate(block.steps))
            yield "    </tb>"
        yield "  </gpu>"
    yield "</algo>"


def _step_line(index: int, step: _Step) -> str:
    places = f'srcbuf="{step.source[0]}" srcoff="{step.source[1]}" dstbuf="{step.target[0]}" dstoff="{step.target[1]}"'
    waits = f'depid="{step.waits_for[0]}" deps="{step.waits_for[1]}" hasdep="{int(step.is_waited_for)}"'
    return f'      <step s="{index}" type="{step.type}" {places} cnt="1" {waits}/>'


# ---- Read MSCCL-XML, our own and that of others, as steps of thread blocks that run on a network

COLLECTIVES: dict[str, Kind] = {name.replace("_", ""): kind for kind, name in NAMES.items()}
SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rcs", "rrc", "rrs", "rrcs")
REDUCES = ("rrc", "rrs", "rrcs", "re")
STORES = ("r", "rcs", "rrc", "rrcs", "re", "cpy")
TYPES = (*dict.fromkeys((*SENDS, *RECEIVES)), "re", "cpy", "nop")
BUFFERS = ("i", "o", "s")
MOST_RANKS = 2**16


@dataclass(frozen=True)
class MscclStep:
    """One step of a thread block."""

    type: str
    source: tuple[str, int]
    target: tuple[str, int]
    count: int
    waits_for: tuple[int, int]
    """A thread block of the same rank and its step, or -1."""


@dataclass(frozen=True)
class ThreadBlock:
    """A thread block: its peers, and its steps in order."""

    send: int
    receive: int
    channel: int
    steps: tuple[MscclStep, ...]


@dataclass(frozen=True)
class MscclProgram:
    """What an XML file holds: the thread blocks of each rank."""

    name: str
    kind: Kind
    ranks: tuple[dict[int, ThreadBlock], ...]
    chunks_per_npu: int
    in_place: bool
    root: int
    by_rank: bool = True
    """Whether offsets of an all-gather go from rank to rank; else, as TACOS writes them, offsets are its chunks."""


def is_msccl(text: str) -> bool:
    """Return whether *text* is XML."""
    return text.lstrip("\ufeff \r\n\t").startswith("<")


def parse_msccl(text: str, where: str) -> MscclProgram:
    """Return the steps of an MSCCL-XML file."""
    root = parse_xml(text.lstrip("\ufeff"), where)
    require(root.tag == "algo", where, root.tag, "is not MSCCL-XML: its root is an algo")
    named = (root.get("coll") or "").lower().replace("_", "").replace("-", "")
    if named not in COLLECTIVES:
        raise UnknownName.among(f"{where}: coll", root.get("coll"), "collective", NAMES.values())
    kind = COLLECTIVES[named]
    count = _read_whole(root, "ngpus", where, 1)
    require(count <= MOST_RANKS, f"{where}: ngpus", count, f"more than {MOST_RANKS:,} are not read")
    loop = _read_whole(root, "nchunksperloop", where, 1)
    parts = 1 if kind in ("broadcast", "reduce") else count
    rule = f"must be a multiple of the {count} GPUs"
    require(loop % parts == 0, f"{where}: nchunksperloop", loop, rule)
    gpus: dict[int, dict[int, ThreadBlock]] = {}
    for gpu in root:
        require(gpu.tag == "gpu", where, gpu.tag, "an algo has gpus")
        number = _read_whole(gpu, "id", f"{where}: gpu")
        require(number < count and number not in gpus, f"{where}: gpu", number, f"GPUs are 0 to {count - 1}, once each")
        gpus[number] = _read_blocks(gpu, count, f"{where}: gpu {number}")
    require(len(gpus) == count, where, f"{len(gpus)} gpus", f"ngpus says that there are {count}")
    at_root = _read_whole(root, "root", where) if root.get("root") else 0
    require(at_root < count, f"{where}: root", at_root, f"GPUs are 0 to {count - 1}")
    in_place = root.get("inplace", "1") == "1"
    ranks = tuple(gpus[rank] for rank in range(count))
    return MscclProgram(root.get("name", ""), kind, ranks, loop // parts, in_place, at_root)


def _read_blocks(gpu: ElementTree.Element, count: int, where: str) -> dict[int, ThreadBlock]:
    blocks: dict[int, ThreadBlock] = {}
    for block in gpu:
        require(block.tag == "tb", where, block.tag, "a gpu has tbs")
        number = _read_whole(block, "id", f"{where}: tb")
        location = f"{where}: tb {number}"
        require(number not in blocks, location, number, "is there twice")
        peers = [_read_whole(block, key, location, NONE) for key in ("send", "recv")]
        for peer in peers:
            require(peer < count, location, peer, f"is no GPU: there are {count}, from 0")
        steps = sorted(block, key=lambda element: _read_whole(element, "s", location))
        numbers = [_read_whole(element, "s", location) for element in steps]
        require(numbers == list(range(len(steps))), location, numbers, "steps are numbered from 0, without gaps")
        blocks[number] = ThreadBlock(
            peers[0],
            peers[1],
            _read_whole(block, "chan", location),
            tuple(_read_step(element, location, peers) for element in steps),
        )
    for number, own in blocks.items():
        for index, step in enumerate(own.steps):
            on, after = step.waits_for
            known = on == NONE or (on in blocks and after < len(blocks[on].steps))
            require(known, f"{where}: tb {number} step {index}", step.waits_for, "waits for a step that is not there")
    return blocks


def _read_step(element: ElementTree.Element, where: str, peers: list[int]) -> MscclStep:
    location = f"{where} step {element.get('s')}"
    kind = element.get("type", "")
    if kind not in TYPES:
        raise UnknownName.among(f"{location}: type", kind, "type of step", TYPES)
    require(kind not in SENDS or peers[0] != NONE, location, kind, "its thread block sends to nobody")
    require(kind not in RECEIVES or peers[1] != NONE, location, kind, "its thread block receives from nobody")
    places = [("i", 0)] * 2 if kind == "nop" else [_buffer_offset(element, key, location) for key in ("src", "dst")]
    waits = (_read_whole(element, "depid", location, NONE), _read_whole(element, "deps", location, NONE))
    count = _read_whole(element, "cnt", location) if element.get("cnt") else 1
    waits = waits if NONE not in waits else (NONE, NONE)
    return MscclStep(kind, places[0], places[1], max(count, 1), waits)


def _buffer_offset(element: ElementTree.Element, end: str, where: str) -> tuple[str, int]:
    buffer = element.get(f"{end}buf", "")
    require(buffer in BUFFERS, f"{where}: {end}buf", buffer, f"a buffer is one of {', '.join(BUFFERS)}")
    return buffer, max(_read_whole(element, f"{end}off", where, NONE), 0)


def _read_whole(element: ElementTree.Element, key: str, where: str, least: int = 0) -> int:
    text = element.get(key, "")
    if text == str(NONE) and least == NONE:
        return NONE
    return read_whole_number(text, f"{where}: {key}", max(least, 0))


# ---- Run the steps of MSCCL-XML on a network: a schedule with times, in the order of their dependencies

Where = tuple[int, int, int]
"""A step: rank, thread block, number."""


def time_steps(
    program: MscclProgram, graph: LinkGraph, size_bytes: float, group: tuple[int, ...] | None = None
) -> Schedule:
    """Return the schedule of a program on a network; its ranks are the members of *group*, or the first NPUs."""
    members = group if group is not None else tuple(range(len(program.ranks)))
    rule = f"the program has {len(program.ranks)} GPUs"
    require(len(members) == len(program.ranks), "group", len(members), rule)
    require(max(members) < graph.npus, "network", f"{graph.npus} NPUs", rule)
    try:
        run = _StepRun(program, graph, size_bytes, members)
        run.run()
    except SpecError as error:
        if program.kind != "all_gather" or program.chunks_per_npu == 1 or not program.in_place:
            raise
        try:
            run = _StepRun(replace(program, by_rank=False), graph, size_bytes, members)
            run.run()
        except SpecError:
            raise error from None
    columns = list(zip(*run.transfers, strict=True)) if run.transfers else [(), (), (), ()]
    return sort_transfers(
        Schedule(
            graph,
            program.kind,
            size_bytes,
            program.chunks_per_npu,
            (members,),
            np.array(columns[0], np.int64),
            np.array(columns[1], np.int64),
            np.array(columns[2], np.float64),
            np.array(columns[3], np.float64),
            program.root,
        )
    )


class _StepRun:
    """Thread blocks at work."""

    def __init__(self, program: MscclProgram, graph: LinkGraph, size_bytes: float, members: tuple[int, ...]) -> None:
        self._program, self._graph, self._members = program, graph, members
        self._size = chunk_bytes(program.kind, size_bytes, len(members), program.chunks_per_npu)
        self._clock = EventClock()
        self._routes = Routes(graph, self._size, relays=False)
        self._fabric = WiredFabric(graph, self._clock, self._routes.path, PICOSECONDS)
        self._direct = link_finder(graph)
        self._turn: dict[tuple[int, int], int] = defaultdict(int)
        self._held = _initial_chunks(program)
        self._at = {(rank, number): 0 for rank, blocks in enumerate(program.ranks) for number in blocks}
        self._done: set[Where] = set()
        self._waiting: dict[Where, list[Where]] = defaultdict(list)
        self._inbox: dict[tuple[int, int, int], deque[list[int]]] = defaultdict(deque)
        self._listening: dict[tuple[int, int, int], deque[Where]] = defaultdict(deque)
        self.transfers: list[tuple[int, int, float, float]] = []

    def run(self) -> None:
        """Run all steps; refuse a program in which some wait for ever."""
        for rank, number in sorted(self._at):
            self._begin(rank, number)
        self._clock.run()
        total = sum(len(block.steps) for blocks in self._program.ranks for block in blocks.values())
        rule = "wait for each other for ever, or for messages that nobody sends"
        require(len(self._done) == total, "schedule", f"{total - len(self._done):,} steps", rule)

    def _step(self, where: Where) -> MscclStep:
        return self._program.ranks[where[0]][where[1]].steps[where[2]]

    def _begin(self, rank: int, number: int) -> None:
        """Begin the next step of a thread block, if what it waits for is done."""
        index = self._at[rank, number]
        block = self._program.ranks[rank][number]
        if index == len(block.steps):
            return
        where, step = (rank, number, index), block.steps[index]
        if step.waits_for != (NONE, NONE) and (rank, *step.waits_for) not in self._done:
            self._waiting[rank, *step.waits_for].append(where)
            return
        if step.type in RECEIVES:
            source = (block.receive, rank, block.channel)
            self._listening[source].append(where)
            self._match_message(source)
        else:
            self._run_step(where, None)

    def _match_message(self, source: tuple[int, int, int]) -> None:
        """Hand messages that have come to the steps that wait for them."""
        while self._inbox[source] and self._listening[source]:
            self._run_step(self._listening[source].popleft(), self._inbox[source].popleft())

    def _run_step(self, where: Where, message: list[int] | None) -> None:
        """Do what a step does with its buffers, and send what it sends."""
        rank, number, _ = where
        step = self._step(where)
        chunks = [] if step.type == "nop" else self._chunks(where, step, message)
        if step.type in STORES:
            for index, chunk in enumerate(chunks):
                self._held[rank, *self._alias(rank, step.target[0], step.target[1] + index)] = chunk
        if step.type in SENDS:
            self._send(where, self._program.ranks[rank][number].send, chunks)
        else:
            self._finish(where)

    def _chunks(self, where: Where, step: MscclStep, message: list[int] | None) -> list[int]:
        """Return the chunks that a step handles: those of its message, or those at its place."""
        rank, name = where[0], f"gpu {where[0]} tb {where[1]} step {where[2]}"
        if message is not None:
            rule = f"has {step.count} chunks, and its message has {len(message)}"
            require(len(message) == step.count, name, step.type, rule)
        own: list[int] = []
        if message is None or step.type in REDUCES:
            buffer, first = step.target if step.type == "rrc" else step.source
            for offset in range(first, first + step.count):
                chunk = self._held.get((rank, *self._alias(rank, buffer, offset)))
                require(chunk is not None, name, f"{buffer}[{offset}]", "holds nothing at that time")
                own.append(chunk if chunk is not None else NONE)
        if message is not None and own:
            require(own == message, name, f"{own} and {message}", "adds up chunks that are not the same")
        return own if message is None else message

    def _alias(self, rank: int, buffer: str, offset: int) -> tuple[str, int]:
        """Return the place that is meant: in place, input and output are one buffer."""
        kind, k = self._program.kind, self._program.chunks_per_npu
        if not self._program.in_place or buffer == "s":
            return buffer, offset
        if kind == "all_gather":
            return "o", offset + (rank * k if buffer == "i" else 0)
        if kind == "reduce_scatter":
            return "i", offset + (rank * k if buffer == "o" else 0)
        return ("io", offset) if kind != "all_to_all" else (buffer, offset)

    def _send(self, where: Where, peer: int, chunks: list[int]) -> None:
        rank = where[0]
        channel = self._program.ranks[rank][where[1]].channel
        source, target = self._members[rank], self._members[peer]
        for number, chunk in enumerate(chunks):
            last = chunks if number == len(chunks) - 1 else None
            path = self._path(source, target)
            self._start_hop((path, 0, chunk, where, (rank, peer, channel), last))

    def _path(self, source: int, target: int) -> tuple[int, ...]:
        """Return the links of a message; parallel ones take turns."""
        links = self._direct.get((source, target))
        if links is None:
            return self._routes.path(source, target)
        turn = self._turn[source, target]
        self._turn[source, target] = turn + 1
        return (links[turn % len(links)],)

    def _start_hop(
        self, state: tuple[tuple[int, ...], int, int, Where, tuple[int, int, int], list[int] | None]
    ) -> None:
        self._fabric.carry(state[0][state[1]], self._size, self._finish_hop, state)

    def _finish_hop(
        self, state: tuple[tuple[int, ...], int, int, Where, tuple[int, int, int], list[int] | None]
    ) -> None:
        path, passed, chunk, where, route, last = state
        now, link = self._fabric.now_s, path[passed]
        takes = self._graph.latency_s[link] + self._size / self._graph.bandwidth_bytes_per_s[link]
        self.transfers.append((link, chunk, now - float(takes), now))
        if passed < len(path) - 1:
            self._start_hop((path, passed + 1, chunk, where, route, last))
            self._fabric.now_s = now
        if last is None:
            return
        if passed == len(path) - 1:
            self._inbox[route].append(last)
            self._match_message(route)
            self._fabric.now_s = now
        if passed == 0:
            self._finish(where)

    def _finish(self, where: Where) -> None:
        rank, number, index = where
        now = self._fabric.now_s
        self._done.add(where)
        self._at[rank, number] = index + 1
        self._clock.after(
            0, self._resume, (now, rank, number)
        )  # by the clock: steps without bytes may be many in a row
        for waiter in self._waiting.pop(where, []):
            self._clock.after(0, self._resume, (now, waiter[0], waiter[1]))

    def _resume(self, state: tuple[float, int, int]) -> None:
        self._fabric.now_s, rank, number = state
        self._begin(rank, number)


def _initial_chunks(program: MscclProgram) -> dict[tuple[int, str, int], int]:
    """Return which chunk each place holds at the beginning."""
    p, k = len(program.ranks), program.chunks_per_npu
    chunks: dict[tuple[int, str, int], int] = {}
    for rank in range(p):
        for number in range(k):
            if program.kind == "all_gather":
                location = ("o", rank * k + number) if program.in_place else ("i", number)
                if not program.by_rank:
                    location = ("o", number * p + rank)
                chunks[rank, *location] = number * p + rank
            elif program.kind in ("broadcast", "reduce"):
                if rank == program.root or program.kind == "reduce":
                    chunks[rank, "io" if program.in_place else "i", number] = number
            else:
                for peer in range(p):
                    chunk = number * p + peer
                    if program.kind == "all_to_all":
                        chunk = rank + p * (peer + p * number)
                    buffer = "io" if program.in_place and program.kind == "all_reduce" else "i"
                    chunks[rank, buffer, peer * k + number] = chunk
    return chunks

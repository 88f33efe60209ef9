"""Read MSCCL-XML, our own and that of others, as steps of thread blocks that run on a network.

The file has no times. `cosmic.schedules.msccl_timing` runs the steps in the order of their dependencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

from cosmic.errors import UnknownName, require
from cosmic.graphs.nodes import whole_number
from cosmic.graphs.safe_xml import parse_xml
from cosmic.graphs.schedule import Kind
from cosmic.schedules.msccl import NAMES, NONE

COLLECTIVES: dict[str, Kind] = {name.replace("_", ""): kind for kind, name in NAMES.items()}
SENDS = ("s", "rcs", "rrs", "rrcs")
RECEIVES = ("r", "rcs", "rrc", "rrs", "rrcs")
REDUCES = ("rrc", "rrs", "rrcs", "re")
STORES = ("r", "rcs", "rrc", "rrcs", "re", "cpy")
TYPES = (*dict.fromkeys((*SENDS, *RECEIVES)), "re", "cpy", "nop")
BUFFERS = ("i", "o", "s")
MOST_RANKS = 2**16


@dataclass(frozen=True)
class Step:
    """One step of a thread block."""

    type: str
    source: tuple[str, int]
    target: tuple[str, int]
    count: int
    waits_for: tuple[int, int]
    """A thread block of the same rank and its step, or -1."""


@dataclass(frozen=True)
class Block:
    """A thread block: its peers, and its steps in order."""

    send: int
    receive: int
    channel: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Program:
    """What an XML file holds: the thread blocks of each rank."""

    name: str
    kind: Kind
    ranks: tuple[dict[int, Block], ...]
    chunks_per_npu: int
    in_place: bool
    root: int
    by_rank: bool = True
    """Whether offsets of an all-gather go from rank to rank; else, as TACOS writes them, offsets are its chunks."""


def is_msccl(text: str) -> bool:
    """Return whether *text* is XML."""
    return text.lstrip("\ufeff \r\n\t").startswith("<")


def parse_msccl(text: str, where: str) -> Program:
    """Return the steps of an MSCCL-XML file."""
    root = parse_xml(text.lstrip("\ufeff"), where)
    require(root.tag == "algo", where, root.tag, "is not MSCCL-XML: its root is an algo")
    named = (root.get("coll") or "").lower().replace("_", "").replace("-", "")
    if named not in COLLECTIVES:
        raise UnknownName.among(f"{where}: coll", root.get("coll"), "collective", NAMES.values())
    kind = COLLECTIVES[named]
    count = _whole(root, "ngpus", where, 1)
    require(count <= MOST_RANKS, f"{where}: ngpus", count, f"more than {MOST_RANKS:,} are not read")
    loop = _whole(root, "nchunksperloop", where, 1)
    parts = 1 if kind in ("broadcast", "reduce") else count
    rule = f"must be a multiple of the {count} GPUs"
    require(loop % parts == 0, f"{where}: nchunksperloop", loop, rule)
    found: dict[int, dict[int, Block]] = {}
    for gpu in root:
        require(gpu.tag == "gpu", where, gpu.tag, "an algo has gpus")
        number = _whole(gpu, "id", f"{where}: gpu")
        require(
            number < count and number not in found, f"{where}: gpu", number, f"GPUs are 0 to {count - 1}, once each"
        )
        found[number] = _blocks(gpu, count, f"{where}: gpu {number}")
    require(len(found) == count, where, f"{len(found)} gpus", f"ngpus says that there are {count}")
    at_root = _whole(root, "root", where) if root.get("root") else 0
    require(at_root < count, f"{where}: root", at_root, f"GPUs are 0 to {count - 1}")
    in_place = root.get("inplace", "1") == "1"
    ranks = tuple(found[rank] for rank in range(count))
    return Program(root.get("name", ""), kind, ranks, loop // parts, in_place, at_root)


def _blocks(gpu: ElementTree.Element, count: int, where: str) -> dict[int, Block]:
    found: dict[int, Block] = {}
    for block in gpu:
        require(block.tag == "tb", where, block.tag, "a gpu has tbs")
        number = _whole(block, "id", f"{where}: tb")
        place = f"{where}: tb {number}"
        require(number not in found, place, number, "is there twice")
        peers = [_whole(block, key, place, NONE) for key in ("send", "recv")]
        for peer in peers:
            require(peer < count, place, peer, f"is no GPU: there are {count}, from 0")
        steps = sorted(block, key=lambda each: _whole(each, "s", place))
        numbers = [_whole(each, "s", place) for each in steps]
        require(numbers == list(range(len(steps))), place, numbers, "steps are numbered from 0, without gaps")
        found[number] = Block(
            peers[0], peers[1], _whole(block, "chan", place), tuple(_step(each, place, peers) for each in steps)
        )
    for number, own in found.items():
        for at, step in enumerate(own.steps):
            on, after = step.waits_for
            known = on == NONE or (on in found and after < len(found[on].steps))
            require(known, f"{where}: tb {number} step {at}", step.waits_for, "waits for a step that is not there")
    return found


def _step(element: ElementTree.Element, where: str, peers: list[int]) -> Step:
    place = f"{where} step {element.get('s')}"
    kind = element.get("type", "")
    if kind not in TYPES:
        raise UnknownName.among(f"{place}: type", kind, "type of step", TYPES)
    require(kind not in SENDS or peers[0] != NONE, place, kind, "its thread block sends to nobody")
    require(kind not in RECEIVES or peers[1] != NONE, place, kind, "its thread block receives from nobody")
    places = [("i", 0)] * 2 if kind == "nop" else [_place(element, key, place) for key in ("src", "dst")]
    waits = (_whole(element, "depid", place, NONE), _whole(element, "deps", place, NONE))
    count = _whole(element, "cnt", place) if element.get("cnt") else 1
    waits = waits if NONE not in waits else (NONE, NONE)
    return Step(kind, places[0], places[1], max(count, 1), waits)


def _place(element: ElementTree.Element, end: str, where: str) -> tuple[str, int]:
    buffer = element.get(f"{end}buf", "")
    require(buffer in BUFFERS, f"{where}: {end}buf", buffer, f"a buffer is one of {', '.join(BUFFERS)}")
    return buffer, max(_whole(element, f"{end}off", where, NONE), 0)


def _whole(element: ElementTree.Element, key: str, where: str, least: int = 0) -> int:
    text = element.get(key, "")
    if text == str(NONE) and least == NONE:
        return NONE
    return whole_number(text, f"{where}: {key}", max(least, 0))

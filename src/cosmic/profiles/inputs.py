"""Which files are what (execution traces, Kineto traces, graphs in JSON, text workloads), and what goes together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from cosmic.errors import SpecError, require
from cosmic.files import DASH
from cosmic.profiles.converting import Profile
from cosmic.profiles.json_stream import blocks

NO_INPUTS = {
    b"ustar": "is a tar archive: unpack it first",
    b"\n\x051.0.0": "is a Chakra trace already: check, repair or simulate it",
    b"\n\x06schema": "is a Chakra trace already: check, repair or simulate it",
}
"""What others files begin with, and what to do with them."""
START_BYTES = 512
"""Of a file: where such a sign is."""
MARKS = {"traceEvents": "kineto", "nodes": "execution trace", "workload_graph": "graph"}
"""The key of each kind's long array."""


class Kind(Enum):
    """What is converted."""

    PROFILES = "profiles"
    GRAPH = "graph"
    TEXT = "text"


def sorted_inputs(files: Sequence[str]) -> tuple[Kind, list[Profile]]:
    """Return what kind of input *files* are and, of profiles, the files of each rank in the order of their mention."""
    for place, file in enumerate(files):
        require(file != DASH, "file", file, "is standard input: give a file, as it is read more than once")
        require(not _is_among(file, files[:place]), "file", file, "is given twice: each rank has files of its own")
    kinds = [kind_of_file(file) for file in files]
    if "text" in kinds:
        require(len(files) == 1, "file", files[kinds.index("text")], "is no JSON; a text workload is converted alone")
        return Kind.TEXT, []
    if "graph" in kinds:
        other = [file for file, kind in zip(files, kinds, strict=True) if kind != "graph"]
        require(not other, "file", other[:1] and other[0], "is no graph of Chakra in JSON, as the others are")
        return Kind.GRAPH, []
    kineto = [file for file, kind in zip(files, kinds, strict=True) if kind == "kineto"]
    execution = [file for file, kind in zip(files, kinds, strict=True) if kind == "execution trace"]
    if kineto and execution:
        rule = f"{len(execution)} execution traces and {len(kineto)} Kineto traces: give one of each for every rank"
        require(len(kineto) == len(execution), "files", len(files), rule)
        return Kind.PROFILES, [Profile(*pair) for pair in zip(kineto, execution, strict=True)]
    return Kind.PROFILES, [Profile(kineto=file) for file in kineto] + [
        Profile(execution_trace=file) for file in execution
    ]


def _is_among(file: str, others: Sequence[str]) -> bool:
    """Return whether one of *others* is the same file."""
    try:
        return any(file == other or os.path.samefile(file, other) for other in others)
    except (OSError, ValueError):  # whoever reads it says what is wrong with it
        return False


def kind_of_file(path: str) -> str:
    """Return what the file at *path* holds: kineto, execution trace, graph or text."""
    start = b""
    found: dict[str, int] = {}
    for block in blocks(path):
        tail = start[-64:]
        start = tail + block if start else block
        for key, kind in MARKS.items():
            place = start.find(f'"{key}"'.encode())
            if place >= 0:
                found.setdefault(kind, place)
        if found or start.lstrip()[:1] not in (b"{", b"["):
            break
    require(bool(start.strip()), "file", path, "is empty: a profile of PyTorch or a text workload is converted")
    if start.lstrip()[:1] not in (b"{", b"["):
        for sign, what in NO_INPUTS.items():
            require(sign not in start[:START_BYTES], "file", path, what)
        return "text"
    if not found:
        known = "a Kineto trace (traceEvents), an execution trace (nodes) or a graph (workload_graph)"
        raise SpecError("file", Path(path).name, f"is JSON, but no profile: it must be {known}")
    return min(found, key=found.__getitem__)

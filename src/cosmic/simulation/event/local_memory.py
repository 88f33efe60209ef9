"""Local memory over the time of a simulation: ASTRA-sim's `track-local-mem`.

A tensor is in memory from the begin of the first node that writes it to the end of the last one that reads it. One that
is read first was there from the start; one that no node reads stays to the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from cosmic.errors import SpecError
from cosmic.simulation.event.result import LocalMemory, RankTimes, Result
from cosmic.traces.reading import contents, trace_paths
from cosmic.traces.tensors import NodeTensors, tensors_of

LARGEST = 5
"""Tensors that are named at the peak."""


def local_memory(result: Result, workload: str | Path) -> tuple[LocalMemory, ...]:
    """Return the local memory of each rank of a simulation of the traces *workload*."""
    known: dict[tuple[int, bytes], LocalMemory] = {}
    found: dict[int, LocalMemory] = {}
    paths = trace_paths(workload, len(result.per_npu))
    read: dict[bytes, Mapping[int, NodeTensors]] = {}
    for place, times in enumerate(result.rank_times):
        for rank in times.ranks:
            data = contents(paths[rank])
            digest = sha256(data).digest()
            if digest not in read:
                read[digest] = tensors_of(data, paths[rank].name)
            if (place, digest) not in known:
                known[place, digest] = of_rank(rank, times, read[digest], result.per_npu[rank].cycles)
            found[rank] = replace(known[place, digest], npu=rank)
    if not any(read.values()):
        rule = "no node states the tensors that it reads and writes (attributes inputs and outputs)"
        raise SpecError("track_local_mem", str(workload), rule)
    return tuple(found[rank] for rank in sorted(found))


def of_rank(rank: int, times: RankTimes, tensors: Mapping[int, NodeTensors], end_ns: int) -> LocalMemory:
    """Return the local memory of one rank, whose nodes ran at *times* until *end_ns*."""
    lives = _lives(times, tensors, end_ns)
    size = np.array([life[2] for life in lives.values()], np.int64)
    begun = np.array([life[0] for life in lives.values()], np.int64)
    ended = np.array([life[1] for life in lives.values()], np.int64)
    moments = np.unique(np.concatenate([[0], begun, ended, [end_ns]]).astype(np.int64))
    change = np.zeros(len(moments), np.int64)
    np.add.at(change, np.searchsorted(moments, begun), size)
    np.subtract.at(change, np.searchsorted(moments, ended), size)
    during = moments <= end_ns
    moments, held = moments[during], np.cumsum(change)[during]
    top = int(np.argmax(held))
    at = int(moments[top])
    there = [(name, life[2]) for name, life in lives.items() if life[0] <= at < life[1]]
    return LocalMemory(
        npu=rank,
        peak_bytes=int(held[top]),
        peak_ns=at,
        start_bytes=int(held[0]),
        end_bytes=int(held[-1]),
        largest=tuple(sorted(there, key=lambda each: (-each[1], each[0]))[:LARGEST]),
        unstated=sum(int(node) not in tensors for node in times.template.id),
        times_ns=moments,
        bytes=held,
    )


def _lives(times: RankTimes, tensors: Mapping[int, NodeTensors], end_ns: int) -> dict[str, tuple[int, int, int]]:
    """Return from when to when each tensor is in memory, and its bytes: the most that any node states.

    One that no node reads is there beyond the end.
    """
    first_write: dict[str, int] = {}
    first_read: dict[str, int] = {}
    last_read: dict[str, int] = {}
    size: dict[str, int] = {}
    for row, node in enumerate(times.template.id.tolist()):
        stated = tensors.get(node)
        if stated is None or times.ended[row] < 0:
            continue
        begun, ended = int(times.begun[row]), int(times.ended[row])
        for name, count in stated.writes:
            first_write[name] = min(first_write.get(name, begun), begun)
            size[name] = max(size.get(name, 0), count)
        for name, count in stated.reads:
            first_read[name] = min(first_read.get(name, begun), begun)
            last_read[name] = max(last_read.get(name, ended), ended)
            size[name] = max(size.get(name, 0), count)
    found = {}
    for name, count in size.items():
        written, read = first_write.get(name), first_read.get(name)
        start = 0 if written is None or (read is not None and read < written) else written
        found[name] = start, last_read.get(name, end_ns + 1), count
    return found

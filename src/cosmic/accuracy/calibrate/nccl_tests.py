"""The output of nccl-tests (all_reduce_perf and its siblings), read as rows of collectives.

    # nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 …
    #  Rank  0 Group  0 Pid  12 on  node-1 device  0 [0x1b] NVIDIA H100 80GB HBM3
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
             8           2     float     sum      -1    10.37    0.00    0.00      0    10.12    0.00    0.00      0

The name of the program says the collective, if its line is there; otherwise how bus bandwidth follows from algorithm
bandwidth tells an all-reduce from others. Sizes are whole buffers. Of out-of-place and in-place times the
smaller counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from cosmic.accuracy.measured_rows import Row
from cosmic.base.errors import SpecError, require

PROGRAMS: Mapping[str, str] = {
    "all_reduce_perf": "all_reduce",
    "all_gather_perf": "all_gather",
    "reduce_scatter_perf": "reduce_scatter",
    "alltoall_perf": "all_to_all",
}
TITLES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
}
_RANK = re.compile(r"^#\s*Rank\s+(\d+)\b.*?\bon\s+(\S+)", re.MULTILINE)
_DEVICE = re.compile(r"^#\s*Rank\s+\d+\b.*?device\s+\d+\s+\[[^\]]*\]\s*(.+?)\s*$", re.MULTILINE)
_GPUS = re.compile(r"\bnGpus\s+(\d+)")
_ROW = re.compile(r"^\s*(\d+)\s+(\d+)\s+(\S+)\s+(.*)$")
SMALLEST = 2**20
"""Bytes from which two bandwidths are large enough to tell collectives apart."""
COLUMNS = 4
"""Of each way: time, algbw, busbw, #wrong."""


def is_nccl_tests(text: str) -> bool:
    """Return whether *text* looks like the output of nccl-tests."""
    return "algbw" in text and "busbw" in text


def read_nccl_tests(text: str, where: str) -> list[Row]:
    """Return the rows of an output: one for each size."""
    ranks, nodes = _ranks(text, where)
    measurements = [measurement for line in text.splitlines() if (measurement := _measured(line)) is not None]
    require(bool(measurements), where, 0, "there is no measured size in this output of nccl-tests")
    kind = _collective(f"{where} {text}") or _by_bandwidth(measurements, ranks)
    require(
        bool(kind), where, "", f"does not say its collective: name the file after its program: {', '.join(PROGRAMS)}"
    )
    device = _DEVICE.search(text)
    return [
        {
            "collective": kind,
            "n_ranks": str(ranks),
            "n_nodes": str(nodes),
            "size_bytes": str(size),
            "time_us": repr(min(times)),
            "device": device[1] if device else "",
        }
        for size, times, _, _ in measurements
    ]


def _ranks(text: str, where: str) -> tuple[int, int]:
    """Return how many ranks there are, and on how many hosts."""
    listed = dict(_RANK.findall(text))
    if listed:
        return len(listed), len(set(listed.values()))
    gpus = _GPUS.search(text)
    if gpus is None or int(gpus[1]) < 2:
        raise SpecError(where, "", "the header does not list its ranks: keep the lines that begin with '#'")
    return int(gpus[1]), 1


def _measured(line: str) -> tuple[int, list[float], float, float] | None:
    """Return size, times in µs, and the algorithm and bus bandwidth of a line; None if it is none of a size.

    What stands between the type and the times (redop, root) differs from program to program.

    >>> _measured("  1048576  262144  float  sum  -1  61.3  17.1  29.9  0  60.2  17.4  30.5  0")
    (1048576, [61.3, 60.2], 17.1, 29.9)
    """
    match = _ROW.match(line)
    if match is None:
        return None
    cells = match[4].split()
    timing_cells = cells[-2 * COLUMNS :] if len(cells) >= 2 * COLUMNS else cells[-COLUMNS:]
    if len(timing_cells) < COLUMNS - 1:
        return None
    try:
        times = [float(timing_cells[index]) for index in range(0, len(timing_cells), COLUMNS)]
        algorithm, bus = float(timing_cells[1]), float(timing_cells[2])
    except ValueError:
        return None
    positive_times = [time for time in times if time > 0]
    return (int(match[1]), positive_times, algorithm, bus) if positive_times and int(match[1]) > 0 else None


def _collective(text: str) -> str:
    """Return the collective that a line names: the program, or the title of newer releases."""
    for program, kind in PROGRAMS.items():
        if program in text:
            return kind
    title = re.search(r"Collective test starting: (\w+)_perf", text)
    return TITLES.get(title[1].lower().replace("_", ""), "") if title else ""


def _by_bandwidth(rows: list[tuple[int, list[float], float, float]], ranks: int) -> str:
    """Return an all-reduce where bus bandwidth is 2 (p - 1) / p of the algorithm's; others cannot be told apart."""
    large = [bus / algorithm for size, _, algorithm, bus in rows if size >= SMALLEST and algorithm > 0]
    if not large:
        return ""
    ratio = sorted(large)[len(large) // 2]
    all_reduce_factor, one_way_factor = 2 * (ranks - 1) / ranks, (ranks - 1) / ranks
    return "all_reduce" if abs(ratio - all_reduce_factor) < abs(ratio - one_way_factor) else ""

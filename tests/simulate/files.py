"""Small jobs as ASTRA-sim's files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cosmic.traces.chakra.trace_writer import write_traces
from tests.simulate.jobs import KINDS, SETTINGS, Node, traces

SYSTEM: dict[str, Any] = SETTINGS | {f"{kind}-implementation": ["ring"] for kind in KINDS}
NETWORK: dict[str, Any] = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [50.0], "latency": [500.0]}
MEMORY: dict[str, Any] = {
    "memory-type": "PER_NPU_MEMORY_EXPANSION",
    "remote-mem-latency": 100,
    "remote-mem-bw": 10,
}
NAMES = {
    "system": "system.json",
    "network": "network.yml",
    "comm_groups": "groups.json",
    "remote_memory": "memory.json",
}


def write_job(
    folder: Path,
    ranks: Sequence[Sequence[Node]] | None = None,
    *,
    system: Any = SYSTEM,
    network: Any = NETWORK,
    groups: Any = None,
    memory: Any = None,
) -> dict[str, Any]:
    """Write the files of a job, and return them as `cosmic.simulate` takes them; JSON is YAML too."""
    if ranks is not None:
        write_traces(traces(ranks), folder / "job")
    contents = dict(zip(NAMES, (system, network, groups, memory), strict=True))
    given = {key: content for key, content in contents.items() if content is not None}
    for key, content in given.items():
        (folder / NAMES[key]).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return {"workload": str(folder / "job")} | {key: str(folder / NAMES[key]) for key in given}


def words(files: Mapping[str, Any]) -> list[str]:
    """Return *files* as the command takes them."""
    return [word for key, value in files.items() for word in (f"--{key.replace('_', '-')}", str(value))]

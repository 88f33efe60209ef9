"""Small profiles, made by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from cosmic.traces.profiles.kineto import Kineto, read_kineto
from cosmic.traces.profiles.profile_conversion import ConvertedProfiles, RankProfile, convert_profiles
from cosmic.traces.trace import Template

Event = dict[str, Any]


def event(cat: str, name: str, start: float, took: float, **args: Any) -> Event:
    """Return an event of thread 1; *args* are its arguments, `tid` and `pid` aside."""
    tid, pid = args.pop("tid", 1), args.pop("pid", 100)
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": took, "args": args}


def operator(name: str, start: float, took: float, **args: Any) -> Event:
    """Return an operator."""
    return event("cpu_op", name, start, took, **args)


def call(name: str, start: float, took: float, correlation: int = 0, **args: Any) -> Event:
    """Return a call of the runtime."""
    return event("cuda_runtime", name, start, took, correlation=correlation, **args)


def kernel(name: str, start: float, took: float, correlation: int = 0, stream: int = 7, **args: Any) -> Event:
    """Return a kernel."""
    return event("kernel", name, start, took, correlation=correlation, stream=stream, device=0, **args)


def write_kineto(path: Path, events: list[Any], **rest: Any) -> str:
    """Write a Kineto trace, and return its path."""
    text = json.dumps({"schemaVersion": 1, **rest, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return str(path)


def kineto_of(folder: Path, events: list[Any], **rest: Any) -> Kineto:
    """Return the trace of some events."""
    return read_kineto(write_kineto(folder / "kineto.json", events, **rest))


def converted(folder: Path, events: list[Any], nodes: list[Any] | None = None, **rest: Any) -> ConvertedProfiles:
    """Return what some events, and the nodes of an execution trace, are converted into."""
    path = write_kineto(folder / "kineto.json", events, **rest)
    if nodes is None:
        return convert_profiles([RankProfile(path)])
    return convert_profiles([RankProfile(path, write_execution_trace(folder / "et.json", nodes))])


def write_execution_trace(path: Path, nodes: list[Any], schema: str = "1.1.1-chakra.0.0.4", process: int = 100) -> str:
    """Write an execution trace, and return its path."""
    path.write_text(json.dumps({"schema": schema, "pid": process, "nodes": nodes}))
    return str(path)


def et_node(number: int, name: str, function: int, **more: Any) -> dict[str, Any]:
    """Return a node of an execution trace."""
    nothing: dict[str, list[Any]] = {"values": [], "shapes": [], "types": []}
    attrs = [{"name": "rf_id", "type": "uint64", "value": function}, {"name": "tid", "type": "uint64", "value": 1}]
    attrs += [{"name": key, "type": "string", "value": value} for key, value in more.pop("said", {}).items()]
    return {"id": number, "name": name, "ctrl_deps": 1, "inputs": nothing, "outputs": nothing, "attrs": attrs, **more}


def timeline(template: Template) -> list[tuple[str, int, int]]:
    """Return the name, start and duration in nanoseconds of each node."""
    return list(zip(template.names, template.start_ns.tolist(), template.duration_ns.tolist(), strict=True))


def waits(template: Template) -> dict[str, list[str]]:
    """Return the names of what each node waits for, by its name."""
    found = {}
    for row, name in enumerate(template.names):
        ids = template.data_id[template.data_start[row] : template.data_start[row + 1]].tolist()
        found[name] = [template.names[each] for each in ids]
    return found


def delays(template: Template) -> dict[str, int]:
    """Return the delay of each node, by its name."""
    return dict(zip(template.names, template.delay_ns.tolist(), strict=True))

"""Measure the conversion of a large profile into a Chakra trace, stage by stage, on one core; print JSON.

python benchmarks/traces.py [--nodes 1000000] [--profile ET KINETO] [--repeats 1]

A recorded step (examples/profiles/gpt, or --profile) is repeated with later times and other ids until the trace has
about so many nodes; both files are gzip. Stages run in one process, one after the other: *cpu_s* is the best of some
runs, *nodes_per_s* is by it, and *peak_mb* the most memory that the process has had until then. *convert* is the whole:
both files read, linked, described, encoded and written. A busy machine makes every number worse: *loop_s* is what ten
million turns of a plain loop take, about 0.6 s on a quiet one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cosmic.base.native.library import native_library
from cosmic.traces.chakra.trace_reader import read_trace
from cosmic.traces.chakra.trace_writer import trace_files
from cosmic.traces.profiles.event_linking import link_events
from cosmic.traces.profiles.execution_traces import read_execution_trace
from cosmic.traces.profiles.kineto import read_kineto
from cosmic.traces.profiles.profile_conversion import RankProfile, convert_profiles
from cosmic.traces.profiles.profiled_collectives import find_communications
from cosmic.traces.replay import replay_traces
from cosmic.traces.trace import TraceSet
from cosmic.traces.trace_statistics import summarize_traces

RECORDED = Path(__file__).parent.parent / "examples" / "profiles"
IDS = ("External id", "Record function id", "correlation")
GAP_US = 1000


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    default = [str(RECORDED / "gpt.et.json.gz"), str(RECORDED / "gpt.kineto.json.gz")]
    parser.add_argument("--profile", nargs=2, metavar=("ET", "KINETO"), default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        json.dump(_measured(Path(folder), options), sys.stdout, indent=2)
    print()


def _measured(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    recorded = RankProfile(options.profile[1], options.profile[0])
    times = max(1, round(options.nodes / convert_profiles([recorded]).traces.nodes))
    files = RankProfile(str(folder / "kineto.json.gz"), str(folder / "et.json.gz"))
    _repeat_kineto(options.profile[1], str(files.kineto), times)
    _repeat_execution_trace(options.profile[0], str(files.execution_trace), times, options.profile[1])
    stages = _Stages(options.repeats)
    kineto = stages.run("read_kineto", lambda: read_kineto(str(files.kineto)))
    functions = kineto.host.function[kineto.host.correlation < 0][::5]
    stages.run("read_execution_trace", lambda: read_execution_trace(str(files.execution_trace), functions))
    stages.run("link", lambda: link_events(kineto, find_communications(kineto)))
    path = folder / "made.0.et"

    def whole() -> TraceSet:
        made = convert_profiles([files])
        for _, content in trace_files(made.traces, "made", made.metadata):
            path.write_bytes(content)
        return made.traces

    traces = stages.run("convert", whole)
    stages.run("write", lambda: sum(len(content) for _, content in trace_files(traces, "made")))
    again = TraceSet((stages.run("read_back", lambda: read_trace(path)),))
    stages.run("replay", lambda: replay_traces(again, {}))
    stages.run("stats", lambda: summarize_traces(again, {}))
    made = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    return {
        "nodes": traces.nodes,
        "steps": times,
        "bytes": made,
        "compiled": native_library() is not None,
        "loop_s": _loop_s(),
        "stages": stages.listed(traces.nodes),
    }


class _Stages:
    """Stages that were measured."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._found: dict[str, tuple[float, float]] = {}

    def run(self, name: str, work: Callable[[], Any]) -> Any:
        """Return what *work* returns; note what it takes."""
        best = float("inf")
        for _ in range(self._repeats):
            start = time.process_time()
            result = work()
            best = min(best, time.process_time() - start)
        self._found[name] = best, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return result

    def listed(self, nodes: int) -> dict[str, dict[str, float]]:
        """Return all of them."""
        return {
            name: {"cpu_s": round(took, 3), "nodes_per_s": round(nodes / took), "peak_mb": round(peak)}
            for name, (took, peak) in self._found.items()
        }


def _loop_s() -> float:
    start, total = time.process_time(), 0
    for each in range(10**7):
        total += each
    return round(time.process_time() - start, 2)


# ---- a long profile


def _load(path: str) -> dict[str, Any]:
    content = Path(path).read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    return found


def _write(path: str, document: dict[str, Any], key: str, parts: Iterator[list[str]]) -> None:
    head = json.dumps({name: value for name, value in document.items() if name != key})
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(f'{head[:-1]}, "{key}": [\n')
        for place, part in enumerate(parts):
            file.write((",\n" if place else "") + ",\n".join(part))
        file.write("]}\n")


def _repeat_kineto(source: str, target: str, times: int) -> None:
    document = _load(source)
    events = document["traceEvents"]
    timed = [each for each in events if each.get("ph") == "X" and each.get("cat") != "Trace"]
    first = min(float(each["ts"]) for each in timed)
    span = max(float(each["ts"]) + float(each.get("dur", 0)) for each in timed) - first + GAP_US
    offsets = _offsets(events)

    def step(number: int) -> list[str]:
        return [json.dumps(_shifted(each, number, span, offsets)) for each in events if not number or _repeats(each)]

    _write(target, document, "traceEvents", (step(number) for number in range(times)))


def _repeats(event: dict[str, Any]) -> bool:
    return event.get("ph") != "M" and event.get("cat") != "Trace"


def _offsets(events: list[dict[str, Any]]) -> dict[str, int]:
    """Return by how much the ids of one step are higher than those of the step before."""
    stated = [each.get("args") or {} for each in events]
    return {key: 1 + max((each[key] for each in stated if isinstance(each.get(key), int)), default=0) for key in IDS}


def _shifted(event: dict[str, Any], number: int, span: float, offsets: dict[str, int]) -> dict[str, Any]:
    args = dict(event.get("args") or {})
    for key, offset in offsets.items():
        if isinstance(args.get(key), int) and args[key] > 0:
            args[key] += number * offset
    made = event | {"args": args}
    if "ts" in event:
        made["ts"] = round(float(event["ts"]) + number * span, 3)
    if event["name"].startswith("ProfilerStep#"):
        made["name"] = f"ProfilerStep#{number}"
    return made


def _repeat_execution_trace(source: str, target: str, times: int, kineto: str) -> None:
    document = _load(source)
    nodes, offset = document["nodes"], _offsets(_load(kineto)["traceEvents"])["Record function id"]
    higher = 1 + max(each["id"] for each in nodes)

    def shifted(node: dict[str, Any], number: int) -> dict[str, Any]:
        moved = [
            each | {"value": each["value"] + number * offset} if each["name"] == "rf_id" and each["value"] else each
            for each in node["attrs"]
        ]
        return node | {"id": node["id"] + number * higher, "attrs": moved}

    steps = ([json.dumps(shifted(node, number)) for node in nodes] for number in range(times))
    _write(target, document, "nodes", steps)


if __name__ == "__main__":
    main()

"""A simulated load as a timeline for Perfetto: a track for each instance, and counters of what it holds.

The format is Chrome's (see `cosmic.simulate.step_timeline`). A span is a step with prompts in it, or steps that decode
the
same requests. Long simulations are cut: the file says up to when it is whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic.serving.engine_instances import MOST_SPANS, InstanceSpan
from cosmic.serving.request_simulation import SimulatedLoad
from cosmic.simulate.step_timeline import write_events

MOST_INSTANCES = 64
"""The most instances of a pool that are drawn."""
MOST_EVENTS = 200_000
"""The most spans that are drawn, of all instances together."""
_compact = json.JSONEncoder(separators=(",", ":")).encode


def write_serving_timeline(simulated: SimulatedLoad, path: str | Path, where: str = "file") -> None:
    """Write what the instances did to *path*; it must have been simulated with *noting*."""
    write_events(map(_compact, timeline_events(simulated)), {"until_s": timeline_end_s(simulated)}, "ms", path, where)


def timeline_end_s(simulated: SimulatedLoad) -> float:
    """Return the time up to which all that the drawn instances did is there."""
    drawn = [spans for pool in simulated.spans.values() for spans in pool[:MOST_INSTANCES]]
    most_spans = min(MOST_SPANS, MOST_EVENTS // max(len(drawn), 1))
    return min((spans[most_spans - 1].end_s for spans in drawn if len(spans) >= most_spans), default=simulated.end_s)


def timeline_events(simulated: SimulatedLoad) -> Iterator[dict[str, Any]]:
    """Yield the events of the timeline."""
    until = timeline_end_s(simulated)
    for process, (pool, instances) in enumerate(simulated.spans.items()):
        name = "instances" if pool == "all" else f"{pool} pool"
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
        for index, spans in enumerate(instances[:MOST_INSTANCES]):
            common = {"pid": process, "tid": index + 1}
            yield {"ph": "M", "name": "thread_name", **common, "args": {"name": f"instance {index}"}}
            shown = [span for span in spans if span.end_s <= until]
            for span, next_span in zip(shown, [*shown[1:], None], strict=False):
                yield {
                    "ph": "X",
                    "ts": span.start_s * 1e6,
                    "dur": (span.end_s - span.start_s) * 1e6,
                    **common,
                } | _span_event(span)
                yield from _counters(span, process, index)
                if next_span is None or next_span.start_s > span.end_s:
                    yield from _counters(InstanceSpan(span.end_s, span.end_s, 0, 0, 0, 0, 0, 0.0), process, index)


def _span_event(span: InstanceSpan) -> dict[str, Any]:
    kinds = ("prefill and decode", "prefill") if span.tokens else ("decode", "idle")
    sizes = {"prompt_tokens": span.tokens, "decoding": span.decodes, "steps": span.steps}
    return {"name": kinds[0] if span.decodes else kinds[1], "cat": "step", "args": sizes}


def _counters(span: InstanceSpan, process: int, instance: int) -> Iterator[dict[str, Any]]:
    for name, value in (("running", span.running), ("waiting", span.waiting), ("KV cache [tokens]", span.held)):
        shown = f"{name}, instance {instance}"
        yield {"ph": "C", "name": shown, "pid": process, "ts": span.start_s * 1e6, "args": {"value": value}}

"""A simulated load as a timeline for Perfetto: a track for each instance, and counters of what it holds.

A span is a step with prompts in it, or steps that decode the same requests. Long simulations are cut: the file says up to when it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cosmic.base.timelines import Sample, TimelineRows, TimelineSpan, Track, write_rows
from cosmic.serving.engine_instances import MOST_SPANS, InstanceSpan
from cosmic.serving.request_simulation import SimulatedLoad

MOST_INSTANCES = 64
"""The most instances of a pool that are drawn."""
MOST_EVENTS = 200_000
"""The most spans that are drawn, of all instances together."""


def write_serving_timeline(simulated: SimulatedLoad, path: str | Path, where: str = "file") -> None:
    """Write what the instances did to *path*; it must have been simulated with *noting*."""
    pools = {pool: instances[:MOST_INSTANCES] for pool, instances in simulated.spans.items()}
    tracks: list[Track] = []
    spans: list[TimelineSpan] = []
    samples: list[Sample] = []
    until = timeline_end_s(simulated)
    for process, instances in enumerate(pools.values()):
        for index, noted in enumerate(instances):
            shown = [span for span in noted if span.end_s <= until]
            spans += [_span_row(len(tracks), span) for span in shown]
            tracks.append(Track(process, f"instance {index}", index + 1))
            for span, next_span in zip(shown, [*shown[1:], None], strict=False):
                samples += _counters(span, process, index)
                if next_span is None or next_span.start_s > span.end_s:
                    samples += _counters(InstanceSpan(span.end_s, span.end_s, 0, 0, 0, 0, 0, 0.0), process, index)
    names = ("instances" if pool == "all" else f"{pool} pool" for pool in pools)
    rows = TimelineRows(
        about={"until_s": until},
        unit="ms",
        processes=dict(enumerate(names)),
        tracks=tracks,
        spans=spans,
        samples=samples,
    )
    write_rows(rows, path, where)


def timeline_end_s(simulated: SimulatedLoad) -> float:
    """Return the time up to which all that the drawn instances did is there."""
    drawn = [spans for pool in simulated.spans.values() for spans in pool[:MOST_INSTANCES]]
    most_spans = min(MOST_SPANS, MOST_EVENTS // max(len(drawn), 1))
    return min((spans[most_spans - 1].end_s for spans in drawn if len(spans) >= most_spans), default=simulated.end_s)


def _span_row(track: int, span: InstanceSpan) -> TimelineSpan:
    kinds = ("prefill and decode", "prefill") if span.tokens else ("decode", "idle")
    sizes = {"prompt_tokens": span.tokens, "decoding": span.decodes, "steps": span.steps}
    name = kinds[0] if span.decodes else kinds[1]
    return TimelineSpan(track, name, "step", span.start_s * 1e6, (span.end_s - span.start_s) * 1e6, sizes)


def _counters(span: InstanceSpan, process: int, instance: int) -> Iterator[Sample]:
    for name, value in (("running", span.running), ("waiting", span.waiting), ("KV cache [tokens]", span.held)):
        yield Sample(process, f"{name}, instance {instance}", span.start_s * 1e6, {"value": value})

"""Traces of a job in files: what one asks of them, a function for each command, with the words of the command.

A job's files are ``PREFIX.<rank>.et`` and, with its communicator groups, ``PREFIX.json``. Functions that make traces
return them, and write them where *out* is given, which is the prefix of what they write.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from cosmic.base.errors import require
from cosmic.base.files import check_folder, exists, is_file, make_folder, write_all
from cosmic.base.units import BYTES_PER_S, FLOP_PER_S, read_quantity
from cosmic.traces.anonymization import Anonymized, anonymize, parse_policy
from cosmic.traces.chakra.trace_reader import read_metadata, read_trace, read_traces
from cosmic.traces.chakra.trace_writer import trace_files
from cosmic.traces.profiles.trace_projection import ProjectedTraces, WhatIf, project_traces
from cosmic.traces.repaired_traces import RepairedTraces, copy_to_ranks, repair_traces
from cosmic.traces.synthesis.trace_model import SyntheticTraces, TraceLength, fit_model, synthesize
from cosmic.traces.trace import TraceSet, groups_text, known_groups, read_groups
from cosmic.traces.trace_checks import is_replayed, list_problems
from cosmic.traces.trace_statistics import Recorded, TraceStatistics, recorded_statistics, summarize_traces
from cosmic.traces.trace_views import node_records

Groups = dict[str, tuple[int, ...]]
SEED_BITS = 128
"""Of a random seed that hides values: nobody can try them all."""


def read_job(
    prefix: str | Path | TraceSet, groups: str | Path | Mapping[str, Sequence[int]] = ""
) -> tuple[TraceSet, Groups | None]:
    """Return the traces of a job and its groups, if a file has them: the given one, or that of recorded traces."""
    if isinstance(groups, Mapping):
        known: Groups | None = {name: tuple(ranks) for name, ranks in groups.items()}
        return prefix if isinstance(prefix, TraceSet) else read_traces(prefix), known
    if isinstance(prefix, TraceSet):
        return prefix, read_groups(groups) if groups else None
    known = read_groups(groups) if groups else None  # first, as it is small: a mistake shows at once
    traces = read_traces(prefix)
    beside = f"{prefix}.json"
    if known is None and exists(beside) and any(rank.template.is_recorded for rank in traces.ranks):
        known = read_groups(beside)
    return traces, known


def write_job(
    traces: TraceSet,
    groups: Mapping[str, Sequence[int]],
    out: str | Path,
    metadata: Sequence[Mapping[str, str]] = (),
) -> int:
    """Write the traces of a job and its groups, all files or none, and return their bytes."""
    check_folder(Path(out).parent, "out")
    make_folder(Path(out).parent, "out")
    texts: list[tuple[str, str | bytes]] = [(f"{out}.json", groups_text(groups))]
    return write_all(chain(texts, trace_files(traces, out, metadata)), "out")


def check_job(prefix: str | Path | TraceSet, *, groups: str | Path | Mapping[str, Sequence[int]] = "") -> list[str]:
    """Return why the traces of a job cannot run, a sentence for each reason; nothing where they can.

    *prefix* may be traces themselves. *groups* are communicator groups, or their file; that of recorded traces is
    beside them.

        cosmic.trace.check("runs/gpt", groups="runs/gpt.json")  # []
    """
    traces, known = read_job(prefix, groups)
    return list_problems(traces, known, replayed=is_replayed(traces))


def repair_job(
    prefix: str | Path,
    *,
    groups: str | Path = "",
    ranks: int | None = None,
    drop_unmatched: bool = False,
    out: str | Path | None = None,
) -> RepairedTraces:
    """Return traces that others wrote, repaired, with what was done and what is left.

    *prefix* may be the file of one rank; *ranks* lets so many run its nodes. With *drop_unmatched*, sends and receives
    without a counterpart go, too.

        cosmic.trace.repair("theirs/job", out="runs/job").left  # ()
    """
    known = read_groups(groups) if groups else None
    if is_file(prefix):
        traces = TraceSet((read_trace(prefix, distinct_ids=False),), Path(prefix).name)
    else:
        traces = read_traces(prefix, distinct_ids=False)
    if ranks is not None and ranks != len(traces.ranks):
        rule = f"the job has traces of {len(traces.ranks):,} ranks; only a single one is copied to others"
        require(len(traces.ranks) == 1, "ranks", ranks, rule)
        traces = copy_to_ranks(traces.ranks[0], ranks, traces.where)
    repaired = repair_traces(traces, known, drop_unmatched=drop_unmatched)
    if out is not None:
        write_job(repaired.traces, repaired.groups or {}, out)
    return repaired


@dataclass(frozen=True, slots=True)
class JobStatistics:
    """What there is in the traces of a job."""

    work: TraceStatistics
    """Nodes, flop, bytes and messages; with rates, the times that they take."""
    recorded: tuple[Recorded, ...]
    """Of each rank that was recorded: where its time went."""


def summarize_job(
    prefix: str | Path, *, groups: str | Path = "", peak: str | float = "", bandwidth: str | float = ""
) -> JobStatistics:
    """Return statistics of a job's traces and, of recorded ones, where the time went.

    With the *peak* of an accelerator and the *bandwidth* of its memory, such as "900 TFLOP/s" and "3.35 TB/s", compute
    nodes take their roofline time.

        cosmic.trace.stats("runs/gpt").recorded[0].span_s  # 0.412
    """
    rates = (
        read_quantity(peak, FLOP_PER_S) if peak else None,
        read_quantity(bandwidth, BYTES_PER_S) if bandwidth else None,
    )
    traces, known = read_job(prefix, groups)
    times = (recorded_statistics(trace, rank) for rank, trace in enumerate(traces.ranks))
    return JobStatistics(summarize_traces(traces, known, *rates), tuple(time for time in times if time is not None))


def show_nodes(file: str | Path, *, limit: int | None = 50) -> list[dict[str, Any]]:
    """Return the first nodes of the trace of one rank as plain values; all of them without a *limit*.

    [node["type"] for node in cosmic.trace.show("runs/gpt.0.et", limit=2)]  # ['COMP', 'COMM_COLL']
    """
    nodes: Iterator[dict[str, Any]] = node_records(read_trace(file))
    return list(islice(nodes, limit))


def project_job(  # noqa: PLR0913  the options of the command
    prefix: str | Path,
    *,
    accelerator: str = "",
    network: str = "",
    dp: int | None = None,
    batch: float = 1.0,
    scale_layers: float = 1.0,
    host: float = 1.0,
    from_shapes: bool = False,
    settings: Mapping[str, Any] | None = None,
    groups: str | Path = "",
    out: str | Path | None = None,
) -> ProjectedTraces:
    """Return recorded traces on another accelerator, network, width of data parallelism, batch or number of layers.

    *network* is a system whose network to take, *batch*, *scale_layers* and *host* are factors: of the tokens of a
    step, of the layers, and of the host's time. With *from_shapes*, kernels take predicted times.

        cosmic.trace.project("runs/gpt", accelerator="b200").speedup  # 1.9
    """
    traces, known = read_job(prefix, groups)
    change = WhatIf(
        machine=accelerator,
        network=network,
        settings=dict(settings or {}),
        dp=dp,
        batch=batch,
        layers=scale_layers,
        host=host,
        from_shapes=from_shapes,
    )
    device = read_metadata(prefix).get("device", "")
    projected = project_traces(traces, known_groups(traces, known), device, change)
    if out is not None:
        job = projected.job()
        metadata = [{"recorded_with": "projection", "device": projected.device}] * len(job.ranks)
        stated = {name: ranks for name, ranks in projected.groups.items() if name not in ("", "0")}
        write_job(job, stated, out, metadata)
    return projected


def anonymize_job(
    prefix: str | Path,
    *,
    groups: str | Path = "",
    policy: Mapping[str, str] | None = None,
    tolerance: float = 0.05,
    seed: int | None = None,
    out: str | Path | None = None,
) -> Anonymized:
    """Return traces without names, ids and exact sizes, so that they may be shared.

    *policy* says what becomes of a part, such as ``{"sizes": "bucket"}``; *tolerance* how far sizes and times may be
    from the original. *seed* repeats a run: it is a secret, as it undoes noise, and random unless given.

        cosmic.trace.anonymize("runs/gpt", policy={"names": "drop"}, out="shared/job").visible.ranks  # 8
    """
    chosen = parse_policy([f"{part}={way}" for part, way in (policy or {}).items()], tolerance)
    traces, known = read_job(prefix, groups)
    number = secrets.randbits(SEED_BITS) if seed is None else seed
    anonymous = anonymize(traces, known, chosen, number, str(out or prefix))
    if out is not None:
        rule = "is the prefix of the original, which would be overwritten"
        require(Path(out).absolute() != Path(prefix).absolute(), "out", str(out), rule)
        write_job(anonymous.traces, anonymous.groups, out)
    return anonymous


def synthesize_job(
    prefixes: str | Path | Sequence[str | Path],
    *,
    groups: Sequence[str | Path] = (),
    ranks: int | None = None,
    blocks: int | None = None,
    scale: float | None = None,
    seed: int = 0,
    out: str | Path | None = None,
) -> SyntheticTraces:
    """Return new traces from a model fitted on others, of any length and number of ranks.

    *blocks* is how many copies of its main block a trace has, and *scale* its length over the original's.

        cosmic.trace.synthesize("runs/gpt", ranks=64, blocks=24, out="runs/larger").mesh  # (8, 8)
    """
    named = [prefixes] if isinstance(prefixes, str | Path) else list(prefixes)
    rule = f"give one for each of {len(named)} prefixes, or none"
    require(len(groups) in (0, len(named)), "groups", len(groups), rule)
    known: list[Groups | None] = [read_groups(group) for group in groups] or [None] * len(named)
    model = fit_model([(read_traces(prefix), group) for prefix, group in zip(named, known, strict=True)])
    made = synthesize(model, TraceLength(scale=scale, blocks=blocks), ranks=ranks, seed=seed)
    if out is not None:
        write_job(made.traces, made.groups, out)
    return made

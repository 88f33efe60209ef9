"""`cosmic trace repair`, `anonymize`, `synthesize` and `suite`: traces made from traces.

`repair` mends traces that others wrote, and says what was done. `anonymize` makes traces that may be shared.
`synthesize` writes new traces from a model fitted on given ones. `suite` simulates benchmark traces, and compares them
with what they should take.
"""

from __future__ import annotations

import json as json_module
import os
import re
import secrets
import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.base.errors import SpecError, require
from cosmic.base.files import DASH, check_folder, check_writable, is_file, write_all
from cosmic.cli.console import Json, emit_commands, emit_json, emit_table
from cosmic.cli.output_streams import BAD_INPUT, FAILED, complain, doing, emit
from cosmic.cli.trace_files import check_trace_prefix, make_trace_folder, read_job, require_disk_space, trace_headline

if TYPE_CHECKING:
    from cosmic.accuracy.trace_fidelity import FidelityReport
    from cosmic.cli.answers.trace_answers import (
        SynthesizedFiles,
        TraceAnonymizeAnswer,
        TraceRepairAnswer,
        TraceSuiteAnswer,
        TraceSynthesizeAnswer,
    )
    from cosmic.traces.anonymization import Anonymized, Policy, ValueChange
    from cosmic.traces.repaired_traces import RepairedTraces
    from cosmic.traces.synthesis.block_grammar import GrowthPlan
    from cosmic.traces.synthesis.trace_model import SyntheticTraces, TraceLength, TraceModel
    from cosmic.traces.trace import TraceSet


WANTED = 0.05
"""The change of simulated times that is mostly wanted at most."""
SEED_BITS = 128
MOST_SEED = 2**SEED_BITS - 1
CHOSEN = (
    "PART=WAY, any number of times: names=class|drop, sizes=perturb|bucket|keep, times=perturb|bucket|keep,"
    " starts=keep|drop, kernels=sizes|class|drop, ranks=keep|permute."
)


def anonymize(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Prefix of the traces: PREFIX.<rank>.et.")],
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    groups: Annotated[
        str, typer.Option("--groups", metavar="FILE", help='Communicator groups: {"1": [0, 1], …}.')
    ] = "",
    policy: Annotated[list[str], typer.Option("--policy", metavar="PART=WAY", help=CHOSEN)] = [],  # noqa: B006
    tolerance: Annotated[
        str, typer.Option("--tolerance", help="How far sizes and times may be from the original.")
    ] = "5%",
    seed: Annotated[
        str, typer.Option("--seed", metavar="N", help="Repeat a run; a secret, as it undoes noise. Random if absent.")
    ] = "",
    keep_map: Annotated[
        str, typer.Option("--keep-map", metavar="FILE", help="Write the way back to the original, for its owner.")
    ] = "",
    json: Json = False,
) -> None:
    """Write traces without names, ids and exact sizes, so that they may be shared."""
    from cosmic.traces.anonymization import anonymize as run  # noqa: PLC0415  heavy
    from cosmic.traces.anonymization import parse_policy  # noqa: PLC0415  heavy
    from cosmic.traces.chakra.trace_writer import trace_files  # noqa: PLC0415  heavy
    from cosmic.traces.trace import groups_text  # noqa: PLC0415  heavy

    chosen, number = parse_policy(policy, _read_share(tolerance)), _read_seed(seed)
    check_trace_prefix(out)
    _check_apart(prefix, groups, out, keep_map)
    traces, groups_of_job = read_job(prefix, groups)
    started = time.perf_counter()
    doing(f"anonymizing {traces.nodes:,} nodes")
    anonymized = run(traces, groups_of_job, chosen, number, out)
    doing(f"writing {len(anonymized.traces.ranks):,} traces")
    make_trace_folder(out, len(anonymized.traces.ranks))
    require_disk_space(Path(out).parent, anonymized.traces.nodes)
    back = [(keep_map, _map_text(number, chosen, anonymized))] if keep_map else []
    texts = [(f"{out}.json", groups_text(anonymized.groups))]
    size = write_all(back, "--keep-map") + write_all(chain(texts, trace_files(anonymized.traces, out)), "--out")
    took, files = time.perf_counter() - started, len(anonymized.traces.ranks) + len(texts) + len(back)
    if json:
        answer: TraceAnonymizeAnswer = {
            "prefix": out,
            "groups_file": f"{out}.json",
            "map_file": keep_map or None,
            "policy": chosen,
            "changes": anonymized.changes,
            "visible": anonymized.visible,
            "warnings": list(_retiming_warnings(chosen)),
            "files": files,
            "bytes": size,
            "seconds": took,
        }
        emit_json(answer)
        return
    headline = f"{_count(anonymized.visible.ranks, 'rank')}, {_count(anonymized.visible.nodes, 'node')}"
    emit([f"{headline}: {files:,} files, {size:,} bytes, {took:.2f} s", ""])
    _print_trace_anonymize(anonymized, chosen, keep_map)


def _read_share(text: str) -> float:
    """Return a share that is written as a number or in percent.

    >>> _read_share("5%"), _read_share("0.1")
    (0.05, 0.1)
    """
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        raise SpecError("--tolerance", text, "is a share, such as 5% or 0.05") from None
    return share


def _read_seed(text: str) -> int:
    """Return the seed that *text* states; a random one if it is empty."""
    if not text:
        return secrets.randbits(SEED_BITS)
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_SEED))
    require(is_number and int(text) <= MOST_SEED, "--seed", text, f"must be a whole number below 2^{SEED_BITS}")
    return int(text)


def absolute_path(path: str) -> Path:
    """Return the absolute path, links not followed: text that can be no path is refused where it is used."""
    return Path(os.path.abspath(path))


def _check_apart(prefix: str, groups: str, out: str, keep_map: str) -> None:
    """Refuse outputs that would replace inputs or each other."""
    written = absolute_path(out)
    require(written != absolute_path(prefix), "--out", out, "is the prefix of the original, which would be overwritten")
    rule = "is written with the groups of the new traces: choose another --out"
    require(not groups or absolute_path(f"{out}.json") != absolute_path(groups), "--out", out, rule)
    if keep_map:
        require(keep_map != DASH, "--keep-map", keep_map, "is a file, which must not be shared")
        back = absolute_path(keep_map)
        taken = {absolute_path(path) for path in (f"{out}.json", groups) if path}
        require(back not in taken, "--keep-map", keep_map, "is another file of this command")
        traces = back.name.startswith(f"{written.name}.") and back.name.endswith((".et", ".et.gz"))
        require(not traces, "--keep-map", keep_map, "has a name as traces have")
        check_writable(keep_map, "--keep-map")


def _map_text(seed: int, policy: Policy, anonymized: Anonymized) -> str:
    """Return the way back to the original as JSON."""
    return json_module.dumps({"seed": str(seed), "policy": asdict(policy), **anonymized.mapping()}, indent=1) + "\n"


def _print_trace_anonymize(anonymized: Anonymized, policy: Policy, keep_map: str) -> None:
    rows = [_row(change) for change in anonymized.changes if change.distinct]
    emit_table("", ["what", "policy", "distinct", "as before", "largest change"], rows)
    emit(["", *_bounds_in_words(policy), *_retiming_warnings(policy), "", "still visible:"])
    emit(f"- {line}" for line in _still_visible(anonymized, policy))
    emit([""])
    if keep_map:
        emit([f"{keep_map} undoes all of this: do not share it"])
    else:
        emit(["the way back was not kept: --keep-map FILE writes it"])


def _count(count: int, what: str) -> str:
    """Return a number of things.

    >>> _count(1, "rank"), _count(1024, "rank")
    ('1 rank', '1,024 ranks')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _row(change: ValueChange) -> list[Any]:
    largest = "" if change.largest_change is None else f"{change.largest_change:.3%}"
    return [change.what, change.policy, change.distinct, change.kept, largest]


def _bounds_in_words(policy: Policy) -> Iterator[str]:
    """Yield how far numbers may be from the original."""
    noisy = [part for part in ("sizes", "times") if getattr(policy, part) != "keep"]
    if noisy:
        share, factor = f"{100 * policy.tolerance:g} %", f"{1 + policy.tolerance:g}"
        yield f"{' and '.join(noisy)} are within {share}: multiplied or divided by at most {factor}"


def _retiming_warnings(policy: Policy) -> Iterator[str]:
    """Yield what may change simulated times by more than is wanted."""
    if policy.tolerance > WANTED and {policy.sizes, policy.times} != {"keep"}:
        share = f"{100 * policy.tolerance:g} %"
        yield f"simulated times may change by {share} or more: a tolerance of 5 % or less mostly keeps them within 5 %"
    if policy.ranks == "permute":
        yield "ranks are elsewhere in the network now: simulated times may change by any amount"


def _still_visible(anonymized: Anonymized, policy: Policy) -> Iterator[str]:
    """Yield what the traces still show."""
    shown = anonymized.visible
    types = ", ".join(f"{count:,} {name}" for name, count in shown.nodes_by_type.items())
    nodes, ranks, graphs = _count(shown.nodes, "node"), _count(shown.ranks, "rank"), _count(shown.templates, "graph")
    yield f"{nodes} on {ranks} ({types or 'of no type'}), {graphs} of them, and their order"
    yield f"{shown.dependencies:,} dependencies in graphs: repetition tells layers, microbatches and the pipeline"
    sizes = ", ".join(f"{count:,} of {size:,}" for size, count in shown.group_sizes.items())
    yield f"groups and peers ({sizes or 'no groups'}): they tell the degrees of parallelism"
    yield "priorities, network dimensions of collectives, what runs on the CPU, and which values are equal"
    if policy.sizes == "keep":
        yield "every size: they tell the model"
    else:
        yield "sizes within the tolerance: their ratios tell a model that is known, or one like it"
    yield "durations beside operations: how fast the accelerator is"


MOST_RANKS = 2**17
"""Ranks that one trace is copied to, each of which is a file."""


def repair(
    source: Annotated[
        str, typer.Argument(metavar="PREFIX|FILE", help="Traces PREFIX.<rank>.et (or .et.gz), or the file of one rank.")
    ],
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    groups: Annotated[
        str, typer.Option("--groups", metavar="FILE", help='Communicator groups: {"1": [0, 1], …}.')
    ] = "",
    ranks: Annotated[
        int | None, typer.Option("--ranks", min=1, max=MOST_RANKS, help="Let so many ranks run the nodes of the one.")
    ] = None,
    drop_unmatched: Annotated[
        bool, typer.Option("--drop-unmatched", help="Also drop sends and receives without a counterpart.")
    ] = False,
    json: Json = False,
) -> None:
    """Repair Chakra traces that cannot run, and say what was done; exit with 2 if something is left."""
    from cosmic.traces.chakra.trace_writer import trace_files  # noqa: PLC0415  heavy
    from cosmic.traces.repaired_traces import repair_traces  # noqa: PLC0415  heavy
    from cosmic.traces.trace import groups_text, read_groups  # noqa: PLC0415  heavy

    check_trace_prefix(out)
    comm_groups = read_groups(groups) if groups else None
    started = time.perf_counter()
    doing("reading traces")
    read = _read_broken_traces(source, out)
    job = _place_on_ranks(read, ranks)
    doing(f"repairing {job.nodes:,} nodes")
    repaired = repair_traces(job, comm_groups, drop_unmatched=drop_unmatched)
    traces, groups_after = repaired.traces, repaired.groups or {}
    doing(f"writing {len(traces.ranks):,} traces")
    make_trace_folder(out, len(traces.ranks))
    require_disk_space(Path(out).parent, traces.nodes)
    size = write_all(chain([(f"{out}.json", groups_text(groups_after))], trace_files(traces, out)), "--out")
    took, copied = time.perf_counter() - started, len(job.ranks) - len(read.ranks)
    if json:
        emit_json(_trace_repair_data(repaired, out, copied, size, took))
    else:
        _print_trace_repair(repaired, copied)
        files = f"{len(traces.ranks) + 1:,} files, {size:,} bytes, {took:.2f} s"
        emit([f"{trace_headline(traces)}, {len(groups_after):,} groups: {files}"])
        if len(traces.ranks) == 1:
            emit(["a simulation needs at least two ranks: --ranks 2 lets two run these nodes"])
    if repaired.left:
        complain(f"cosmic trace repair: {sentence}" for sentence in ([] if json else repaired.left))
        raise typer.Exit(BAD_INPUT)
    if not json and len(traces.ranks) > 1:
        prefix, file = shlex.quote(out), shlex.quote(f"{out}.json")
        words = f"--workload {prefix} --comm-groups {file} --on SYSTEM"
        emit_commands({f"cosmic simulate {words}": "simulate them"})


def _read_broken_traces(source: str, out: str) -> TraceSet:
    """Return the traces at a prefix, or of one file; refuse to write over them."""
    from cosmic.traces.chakra.trace_reader import read_trace, read_traces, trace_paths  # noqa: PLC0415  heavy
    from cosmic.traces.trace import TraceSet  # noqa: PLC0415  heavy

    paths = [Path(source)] if is_file(source) else trace_paths(source)
    own = re.compile(rf"{re.escape(Path(out).name)}\.[0-9]+\.et(\.gz)?")
    folder = Path(out).parent.resolve()
    over = any(own.fullmatch(path.name) and path.parent.resolve() == folder for path in paths)
    require(not over, "--out", out, "its files are those to repair: give another prefix")
    if is_file(source):
        return TraceSet((read_trace(source, distinct_ids=False),), Path(source).name)
    return read_traces(source, distinct_ids=False)


def _place_on_ranks(read: TraceSet, ranks: int | None) -> TraceSet:
    """Return the job, on as many ranks as asked for."""
    from cosmic.traces.repaired_traces import copy_to_ranks  # noqa: PLC0415  heavy

    count = len(read.ranks)
    if ranks is None or ranks == count:
        return read
    require(
        count == 1, "--ranks", ranks, f"the job has traces of {count:,} ranks; only a single one is copied to others"
    )
    return copy_to_ranks(read.ranks[0], ranks, read.where)


def _trace_repair_data(repaired: RepairedTraces, out: str, copied: int, size: int, took: float) -> TraceRepairAnswer:
    traces = repaired.traces
    return {
        "prefix": out,
        "groups_file": f"{out}.json",
        "ranks": len(traces.ranks),
        "copied_ranks": copied,
        "nodes": traces.nodes,
        "templates": len(traces.templates()),
        "groups": len(repaired.groups or {}),
        "repairs": repaired.done,
        "problems": list(repaired.left),
        "files": len(traces.ranks) + 1,
        "bytes": size,
        "seconds": took,
    }


def _print_trace_repair(repaired: RepairedTraces, copied: int) -> None:
    if copied:
        emit([f"all {copied + 1:,} ranks run the nodes of the one that was read"])
    if not repaired.done:
        emit(["nothing to repair" if not repaired.left else "nothing that could be repaired"])
    for each in repaired.done:
        emit([f"{each.count:,} {each.what}", f"  {each.example}"])


def suite(
    out: Annotated[
        str, typer.Option("--out", metavar="FOLDER", help="Also write each case's files for ASTRA-sim to FOLDER/CASE.")
    ] = "",
    only: Annotated[str, typer.Option("--only", metavar="NAME", help="Run this case alone.")] = "",
    json: Json = False,
) -> None:
    """Simulate the benchmark traces, and compare their cycles with what is expected; exit with 1 if any differs."""
    from cosmic.accuracy.trace_suite import launch_case, list_cases, run_case  # noqa: PLC0415  heavy
    from cosmic.frameworks.launch import write_launch  # noqa: PLC0415  heavy

    if out:
        check_folder(out, "--out")
    rows_of_cases = []
    for case in list_cases(only or None):
        doing(f"simulating {case.name}")
        rows_of_cases.append(run_case(case, launch_case))
        if out:
            doing(f"writing {case.name}")
            write_launch(launch_case(case), Path(out) / case.name)
    if json:
        answer: TraceSuiteAnswer = rows_of_cases
        emit_json(answer)
    else:
        rows = [
            [each.name, each.ranks, each.nodes, each.cycles, each.expected, "yes" if each.ok else "no", each.seconds]
            for each in rows_of_cases
        ]
        emit_table("", ["name", "ranks", "nodes", "cycles", "expected", "ok", "seconds"], rows)
        if out:
            emit([f"files: {Path(out) / 'CASE'}, {len(rows_of_cases)} cases"])
    if wrong := [each.name for each in rows_of_cases if not each.ok]:
        complain([f"cosmic trace suite: cycles differ from what is expected: {', '.join(wrong)}"])
        raise typer.Exit(FAILED)


Prefixes = Annotated[
    list[str], typer.Argument(metavar="PREFIX", help="Prefixes of the traces to fit: PREFIX.<rank>.et.")
]
BLOCKS = re.compile(r"(?:([0-9]{1,9})(?:x([0-9]{1,9}))?:)?([0-9]{1,9})", re.ASCII)


def synthesize(  # noqa: PLR0913, PLR0917  one option each
    prefixes: Prefixes,
    out: Annotated[str, typer.Option("--out", metavar="PREFIX", help="Write PREFIX.<rank>.et and PREFIX.json.")],
    groups: Annotated[
        list[str], typer.Option("--groups", metavar="FILE", help="Communicator groups of each PREFIX, in their order.")
    ] = [],  # noqa: B006  typer copies it
    ranks: Annotated[int | None, typer.Option("--ranks", help="Ranks; as many as in the traces if not given.")] = None,
    blocks: Annotated[
        str,
        typer.Option(
            "--blocks", metavar="N|K:N|KxW:N", help="Copies of the main block, or of that with K copies (of W nodes)."
        ),
    ] = "",
    scale: Annotated[float | None, typer.Option("--scale", help="Length: times the nodes of the traces.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Seed of the random numbers.")] = 0,
    report: Annotated[bool, typer.Option("--report", help="Also compare the model with a baseline.")] = False,
    json: Json = False,
) -> None:
    """Fit a model on traces, and write new ones of any length and number of ranks, with their groups."""
    from cosmic.accuracy.trace_fidelity import report_fidelity as compare  # noqa: PLC0415  heavy
    from cosmic.traces.chakra.trace_writer import trace_files  # noqa: PLC0415  heavy
    from cosmic.traces.synthesis.trace_model import synthesize as make  # noqa: PLC0415  heavy
    from cosmic.traces.trace import groups_text  # noqa: PLC0415  heavy

    check_trace_prefix(out)
    length = _parse_length(blocks, scale)
    model = _fit_model(prefixes, groups)
    started = time.perf_counter()
    doing("making traces")
    synthetic = make(model, length, ranks=ranks, seed=seed)
    doing(f"writing {len(synthetic.traces.ranks):,} traces")
    make_trace_folder(out, len(synthetic.traces.ranks))
    require_disk_space(Path(out).parent, synthetic.traces.nodes)
    files = f"{out}.json"
    size = write_all(chain([(files, groups_text(synthetic.groups))], trace_files(synthetic.traces, out)), "--out")
    took = time.perf_counter() - started
    fidelity = None
    if report:
        doing("comparing")
        fidelity = compare(model, seed)
    if json:
        written: SynthesizedFiles = {"prefix": out, "seed": seed, "bytes": size, "seconds": took}
        emit_json(_trace_synthesize_data(synthetic, model, written, fidelity))
        return
    _print_trace_synthesize(synthetic, model, size, took)
    if fidelity is not None:
        _print_report(fidelity)
    named = f"--workload {shlex.quote(out)} --comm-groups {shlex.quote(files)}"
    emit_commands({f"cosmic simulate {named} --on SYSTEM": "simulate them"})


def _parse_length(blocks: str, scale: float | None) -> TraceLength:
    from cosmic.traces.synthesis.trace_model import TraceLength  # noqa: PLC0415  heavy

    match = BLOCKS.fullmatch(blocks)
    rule = "must be a number of copies, such as 24, or 12:24 or 12x40:24 for the block with 12 copies of 40 nodes"
    require(match is not None or not blocks, "--blocks", blocks, rule)
    of, width, copies = (None if each is None else int(each) for each in (match.groups() if match else (None,) * 3))
    return TraceLength(scale=scale, blocks=copies, of=of, width=width)


def _fit_model(prefixes: list[str], groups: list[str]) -> TraceModel:
    from cosmic.traces.chakra.trace_reader import read_traces  # noqa: PLC0415  heavy
    from cosmic.traces.synthesis.trace_model import fit_model  # noqa: PLC0415  heavy
    from cosmic.traces.trace import read_groups  # noqa: PLC0415  heavy

    rule = f"give one for each of {len(prefixes)} prefixes, or none"
    require(len(groups) in (0, len(prefixes)), "--groups", len(groups), rule)
    groups_of_jobs: list[dict[str, tuple[int, ...]] | None] = [read_groups(group) for group in groups] or [None] * len(
        prefixes
    )
    doing("reading traces")
    traces = [read_traces(prefix) for prefix in prefixes]
    doing(f"fitting a model of {sum(trace.nodes for trace in traces):,} nodes")
    return fit_model(list(zip(traces, groups_of_jobs, strict=True)))


def _trace_synthesize_data(
    synthetic: SyntheticTraces, model: TraceModel, written: SynthesizedFiles, fidelity: FidelityReport | None
) -> TraceSynthesizeAnswer:
    """Return what `--json` prints."""
    source = model.jobs[synthetic.job].source
    return {
        **written,
        "ranks": len(synthetic.traces.ranks),
        "nodes": synthetic.traces.nodes,
        "templates": len(synthetic.traces.templates()),
        "groups": len(synthetic.groups),
        "scale": _scale_of_rank(synthetic, model),
        "source": {
            "prefix": source.traces.where,
            "ranks": len(source.traces.ranks),
            "nodes": source.traces.nodes,
            "roles": len(source.roles),
            "mesh": list(synthetic.mesh_before),
        },
        "mesh": list(synthetic.mesh),
        "block": {
            "kind": synthetic.block or None,
            "nodes": synthetic.width,
            "copies": synthetic.copies,
            "before": synthetic.copies_before,
        },
        "blocks": [
            {
                "kind": plan.name,
                "copies": plan.copies,
                "nodes": plan.width,
                "share": min(1.0, plan.covered / source.traces.nodes),
            }
            for plan in model.jobs[synthetic.job].plans
        ],
        "rules": model.rules,
        "rules_for": model.nodes,
        "notes": list(model.notes),
        "report": fidelity,
    }


def _print_trace_synthesize(synthetic: SyntheticTraces, model: TraceModel, size: int, took: float) -> None:
    source = model.jobs[synthetic.job].source
    emit([*model.notes, f"fitted: roles {len(source.roles):,}, nodes {model.nodes:,}, rules {model.rules:,}"])
    rows = [
        [plan.name, plan.copies, plan.width, f"{min(1.0, plan.covered / source.traces.nodes):.0%}"]
        for plan in _distinct_plans(model.jobs[synthetic.job].plans)
    ]
    emit_table("", ["found", "copies", "nodes of a copy", "of all nodes"], rows)
    if synthetic.block:
        grown = (
            f"{synthetic.block}: {synthetic.copies_before:,} become {synthetic.copies:,} of {synthetic.width:,} nodes"
        )
        emit([f"{grown}, {_scale_of_rank(synthetic, model):.3g} times the length"])
    if synthetic.mesh != synthetic.mesh_before:
        emit([f"mesh: {_parse_mesh(synthetic.mesh_before)} becomes {_parse_mesh(synthetic.mesh)}"])
    counts = (
        f"{len(synthetic.traces.ranks):,} ranks, {synthetic.traces.nodes:,} nodes, {len(synthetic.groups):,} groups"
    )
    emit([f"{counts}: {len(synthetic.traces.ranks) + 1:,} files, {size:,} bytes, {took:.2f} s"])


def _scale_of_rank(synthetic: SyntheticTraces, model: TraceModel) -> float:
    """Return the nodes of a rank over those of the source."""
    source = model.jobs[synthetic.job].source.traces
    return (synthetic.traces.nodes / len(synthetic.traces.ranks)) / (source.nodes / len(source.ranks))


def _distinct_plans(plans: Iterable[GrowthPlan]) -> list[GrowthPlan]:
    """Return plans that look different: the first of those whose largest block is the same."""
    found: dict[tuple[int, int], GrowthPlan] = {}
    for plan in plans:
        found.setdefault((plan.copies, plan.width), plan)
    return list(found.values())


def _parse_mesh(sizes: tuple[int, ...]) -> str:
    return " × ".join(map(str, sizes)) or "1"


def _print_report(fidelity: FidelityReport) -> None:
    from cosmic.accuracy.trace_fidelity import fidelity_rows  # noqa: PLC0415  heavy

    emit(["", "distance from the traces it was fitted on, at their length and ranks:"])
    cells = [
        [name, *("cannot run" if value is None else f"{value:.4f}" for value in values)]
        for name, *values in fidelity_rows(fidelity)
    ]
    emit_table("", ["", "model", "baseline"], cells)

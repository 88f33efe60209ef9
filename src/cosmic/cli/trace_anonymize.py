"""`cosmic trace anonymize`: traces that may be shared."""

from __future__ import annotations

import json as json_module
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli.console import Json, doing, emit, emit_json, emit_table
from cosmic.cli.trace_files import check_prefix, make_room, read_job, require_space
from cosmic.errors import SpecError, require
from cosmic.files import DASH, check_writable, write_all

if TYPE_CHECKING:
    from cosmic.traces.anonymizing import Anonymized, Change, Policy

WANTED = 0.05
"""The change of simulated times that is mostly wanted at most."""
SEED_BITS = 128
MOST_SEED = 2**SEED_BITS - 1
CHOSEN = (
    "PART=WAY, any number of times: names=class|drop, sizes=perturb|bucket|keep, times=perturb|bucket|keep,"
    " starts=keep|drop, kernels=sizes|class|drop, ranks=keep|permute."
)


def anonymize(  # noqa: PLR0913, PLR0917  one option each
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
    from cosmic.traces.anonymizing import anonymize as run  # noqa: PLC0415  heavy
    from cosmic.traces.anonymizing import policy_of  # noqa: PLC0415  heavy
    from cosmic.traces.groups import groups_text  # noqa: PLC0415  heavy
    from cosmic.traces.writing import trace_files  # noqa: PLC0415  heavy

    chosen, number = policy_of(policy, _share(tolerance)), _seed(seed)
    check_prefix(out)
    _check_apart(prefix, groups, out, keep_map)
    traces, known = read_job(prefix, groups)
    started = time.perf_counter()
    doing(f"anonymizing {traces.nodes:,} nodes")
    made = run(traces, known, chosen, number, out)
    doing(f"writing {len(made.traces.ranks):,} traces")
    make_room(out, len(made.traces.ranks))
    require_space(Path(out).parent, made.traces.nodes)
    back = [(keep_map, _map_text(number, chosen, made))] if keep_map else []
    texts = [(f"{out}.json", groups_text(made.groups))]
    size = write_all(back, "--keep-map") + write_all(chain(texts, trace_files(made.traces, out)), "--out")
    took, files = time.perf_counter() - started, len(made.traces.ranks) + len(texts) + len(back)
    if json:
        counted = {"files": files, "bytes": size, "seconds": took}
        emit_json(
            {
                "prefix": out,
                "groups_file": f"{out}.json",
                "map_file": keep_map or None,
                **_data(made, chosen),
                **counted,
            }
        )
        return
    headline = f"{_count(made.visible.ranks, 'rank')}, {_count(made.visible.nodes, 'node')}"
    emit([f"{headline}: {files:,} files, {size:,} bytes, {took:.2f} s", ""])
    _print(made, chosen, keep_map)


def _share(text: str) -> float:
    """Return a share that is written as a number or in percent.

    >>> _share("5%"), _share("0.1")
    (0.05, 0.1)
    """
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        raise SpecError("--tolerance", text, "is a share, such as 5% or 0.05") from None
    return share


def _seed(text: str) -> int:
    """Return the seed that *text* states; a random one if it is empty."""
    if not text:
        return secrets.randbits(SEED_BITS)
    whole = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_SEED))
    require(whole and int(text) <= MOST_SEED, "--seed", text, f"must be a whole number below 2^{SEED_BITS}")
    return int(text)


def absolute(path: str) -> Path:
    """Return the absolute path, links not followed: text that can be no path is refused where it is used."""
    return Path(os.path.abspath(path))


def _check_apart(prefix: str, groups: str, out: str, keep_map: str) -> None:
    """Refuse outputs that would replace inputs or each other."""
    written = absolute(out)
    require(written != absolute(prefix), "--out", out, "is the prefix of the original, which would be overwritten")
    rule = "is written with the groups of the new traces: choose another --out"
    require(not groups or absolute(f"{out}.json") != absolute(groups), "--out", out, rule)
    if keep_map:
        require(keep_map != DASH, "--keep-map", keep_map, "is a file, which must not be shared")
        back = absolute(keep_map)
        taken = {absolute(path) for path in (f"{out}.json", groups) if path}
        require(back not in taken, "--keep-map", keep_map, "is another file of this command")
        traces = back.name.startswith(f"{written.name}.") and back.name.endswith((".et", ".et.gz"))
        require(not traces, "--keep-map", keep_map, "has a name as traces have")
        check_writable(keep_map, "--keep-map")


def _map_text(seed: int, policy: Policy, made: Anonymized) -> str:
    """Return the way back to the original as JSON."""
    return json_module.dumps({"seed": str(seed), "policy": asdict(policy), **made.mapping()}, indent=1) + "\n"


def _data(made: Anonymized, policy: Policy) -> dict[str, Any]:
    """Return what was changed and what is left as plain values."""
    visible = asdict(made.visible)
    visible["group_sizes"] = {str(size): count for size, count in made.visible.group_sizes.items()}
    changes = [asdict(each) for each in made.changes]
    return {"policy": asdict(policy), "changes": changes, "visible": visible, "warnings": list(_warnings(policy))}


def _print(made: Anonymized, policy: Policy, keep_map: str) -> None:
    rows = [_row(each) for each in made.changes if each.distinct]
    emit_table("", ["what", "policy", "distinct", "as before", "largest change"], rows)
    emit(["", *_bounds(policy), *_warnings(policy), "", "still visible:"])
    emit(f"- {line}" for line in _visible(made, policy))
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


def _row(change: Change) -> list[Any]:
    largest = "" if change.largest_change is None else f"{change.largest_change:.3%}"
    return [change.what, change.policy, change.distinct, change.kept, largest]


def _bounds(policy: Policy) -> Iterator[str]:
    """Yield how far numbers may be from the original."""
    noisy = [part for part in ("sizes", "times") if getattr(policy, part) != "keep"]
    if noisy:
        share, factor = f"{100 * policy.tolerance:g} %", f"{1 + policy.tolerance:g}"
        yield f"{' and '.join(noisy)} are within {share}: multiplied or divided by at most {factor}"


def _warnings(policy: Policy) -> Iterator[str]:
    """Yield what may change simulated times by more than is wanted."""
    if policy.tolerance > WANTED and {policy.sizes, policy.times} != {"keep"}:
        share = f"{100 * policy.tolerance:g} %"
        yield f"simulated times may change by {share} or more: a tolerance of 5 % or less mostly keeps them within 5 %"
    if policy.ranks == "permute":
        yield "ranks are elsewhere in the network now: simulated times may change by any amount"


def _visible(made: Anonymized, policy: Policy) -> Iterator[str]:
    """Yield what the traces still show."""
    shown = made.visible
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

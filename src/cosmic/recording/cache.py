"""Programs on disk, so that the next process need not record them (see `cosmic.caching`)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from cosmic.caching import keep, recall
from cosmic.cost.fabric import collective_terms, point_to_point_terms, synthesized_terms
from cosmic.cost.tiers import library_terms, message_terms, tier_terms
from cosmic.goodput.spares import spare_terms
from cosmic.graphs.wired import connection
from cosmic.pricing.clusters import bill_terms
from cosmic.pricing.network import block_terms
from cosmic.recording.operations import NAMES
from cosmic.recording.program import Program
from cosmic.recording.structure import Structure
from cosmic.recording.tables import MOST_KEYS
from cosmic.recording.tape import CONSTANT, INPUT, LISTED, LONGEST, OPERANDS, Guard, Lookup
from cosmic.workload.operators import kinds
from cosmic.workload.patterns import heaviest_stage, layers_in_pattern
from cosmic.workload.schedule import schedules

LOOKED_UP = (
    *(collective_terms, synthesized_terms, point_to_point_terms, connection),
    *(tier_terms, message_terms, library_terms, block_terms, bill_terms, spare_terms),
    *(layers_in_pattern, heaviest_stage),
)
FUNCTIONS = {each.__name__: each for each in LOOKED_UP}
"""The functions that programs look up."""
MOST_VARIANTS = 8


def load(structure: Structure) -> Iterator[Program]:
    """Yield the programs of a structure that are on disk."""
    for variant in range(MOST_VARIANTS) if _is_ours(structure) else ():
        content = recall("programs", f"{variant} {structure}")
        if content is None:
            return
        try:
            yield _read(content)
        except (ValueError, KeyError, TypeError, IndexError, zlib.error):
            return


def store(structure: Structure, program: Program, variant: int) -> None:
    """Keep a program for other processes, if that can be."""
    if variant < MOST_VARIANTS and _is_ours(structure):
        keep("programs", f"{variant} {structure}", _written(program))


def _is_ours(structure: Structure) -> bool:
    """Return whether a program follows from our sources alone, not from schedules, kinds or strategies of others."""
    fixed = dict(structure.fixed)
    if any(path.startswith("workload.strategies") for path in fixed):
        return False
    ours = [schedules[fixed["workload.schedule"]], *kinds.values()]
    return all(getattr(each, "__module__", "").startswith("cosmic.") for each in ours)


# ----------------------------------------------------------------------------------------------- format


def _written(program: Program) -> bytes:
    """Return a program as bytes: what it is made of as JSON, then its arrays."""
    about = {
        "shape": [len(program.nodes), len(program.lists)],
        "constants": [[place, value.hex()] for place, value in program.constants.items()],
        "inputs": dict(program.inputs),
        "tables": program.tables,
        "lookups": [[each.function.__name__, each.leading, each.known] for each in program.lookups],
        "guards": [[guard.node, guard.least.hex(), guard.most.hex()] for guard in program.guards],
        "results": dict(program.results),
        "measured": program.measured,
    }
    header = json.dumps(about).encode()
    arrays = b"".join(np.ascontiguousarray(each, dtype="<i4").tobytes() for each in (program.nodes, program.lists))
    return len(header).to_bytes(4, "little") + header + zlib.compress(arrays, 1)


def _read(content: bytes) -> Program:
    length = int.from_bytes(content[:4], "little")
    about = json.loads(content[4 : 4 + length])
    count, listed = about["shape"]
    numbers = np.frombuffer(zlib.decompress(content[4 + length :]), dtype="<i4").astype(np.int32)
    if len(numbers) != 4 * count + listed:
        raise ValueError("arrays of another length")
    program = Program(
        nodes=np.ascontiguousarray(numbers[: 4 * count].reshape(count, 4)),
        lists=np.ascontiguousarray(numbers[4 * count :]),
        constants={place: float.fromhex(value) for place, value in about["constants"]},
        inputs=about["inputs"],
        tables=tuple(_known(each) for each in about["tables"]),
        lookups=tuple(
            Lookup(FUNCTIONS[name], tuple(leading), _known(known)) for name, leading, known in about["lookups"]
        ),
        guards=tuple(Guard(node, float.fromhex(least), float.fromhex(most)) for node, least, most in about["guards"]),
        results=about["results"],
        measured=about["measured"],
    )
    _check(program)
    return program


def _known(columns: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(each) if isinstance(each, list) else each for each in columns)


def _check(program: Program) -> None:
    """Raise a `ValueError` unless every node reads earlier ones, and everything named exists: C does not look."""
    nodes, lists = program.nodes, program.lists
    operation, places = nodes[:, 0], np.arange(len(nodes))
    _require(bool(np.all((operation >= INPUT) & (operation < len(NAMES)))))
    plain = np.where(operation >= 0, np.array(OPERANDS)[np.maximum(operation, 0)], 0)
    plain[np.isin(operation, LISTED)] = 0
    for operand in range(3):
        reads = plain > operand
        _require(bool(np.all((nodes[reads, 1 + operand] >= 0) & (nodes[reads, 1 + operand] < places[reads]))))
    for place in np.flatnonzero(np.isin(operation, LISTED)).tolist():
        _, first, start, length = nodes[place].tolist()
        _require(0 <= start <= start + length <= len(lists) and length > 0)
        _require(length <= LONGEST.get(NAMES[operation[place]], MOST_KEYS))
        _require(bool(np.all((lists[start : start + length] >= 0) & (lists[start : start + length] < place))))
        if NAMES[operation[place]] == "index":
            _require(0 <= first < len(program.tables) and length == sum(map(_is_column, program.tables[first])))
    gathers = nodes[operation == NAMES.index("gather")]
    _require(bool(np.all((gathers[:, 2] >= 0) & (gathers[:, 2] < len(program.lookups)) & (gathers[:, 3] // 2 == 0))))
    named = [*program.constants, *program.inputs.values(), *program.results.values()]
    _require(all(0 <= place < len(nodes) for place in (*named, *(guard.node for guard in program.guards))))
    _require(set(np.flatnonzero(operation == CONSTANT)) == set(program.constants))
    _require(set(np.flatnonzero(operation == INPUT)) == set(program.inputs.values()))
    _require(all(each.known in program.tables for each in program.lookups))


def _is_column(known: Any) -> bool:
    return not isinstance(known, str)


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("no program")

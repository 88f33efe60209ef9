"""Runs a program with NumPy: the reference of the C interpreter, and what there is where no compiler was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.recording.operations import NAMES, OPERATIONS
from cosmic.recording.program import Program
from cosmic.recording.tables import table_of
from cosmic.recording.tape import GATHER, INDEX, reads
from cosmic.step.stages import interleaved_bytes

Floats = npt.NDArray[np.float64]
WHOLE: dict[str, Callable[..., Any]] = {"interleaved_bytes": interleaved_bytes}
"""Functions of the physics that are recorded as a whole."""
AT_ONCE = 10_000
"""Designs at a time: their columns take some hundred megabytes at most."""


def replay(
    program: Program, uniform: Mapping[str, float], columns: Floats, paths: tuple[str, ...], results: Floats
) -> bool:
    """Run *program* on *columns*, of the fields at *paths*, and on *uniform* ones; return whether its guards hold.

    Results are written to *results*. A design that NumPy would raise an error for has NaN for what is measured.
    """
    kept = True
    for start in range(0, columns.shape[1], AT_ONCE):
        stretch = slice(start, start + AT_ONCE)
        given = {**uniform, **dict(zip(paths, columns[:, stretch], strict=True))}
        kept &= _stretch(program, given, results[:, stretch])
    return kept


def _stretch(program: Program, given: Mapping[str, Any], results: Floats) -> bool:
    with np.errstate(all="ignore"):
        found, kept = _run(program, given)
    for place, value in enumerate(found):
        results[place] = value
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            _run(program, given)
    except ArithmeticError:
        _mark(program, given, results)
    return kept


def _mark(program: Program, given: Mapping[str, Any], results: Floats) -> None:
    """Clear what is measured of the designs whose numbers are too large or too small."""
    waiting = [np.arange(results.shape[1])]
    while waiting:
        rows = waiting.pop()
        part = {path: value[rows] if np.ndim(value) else value for path, value in given.items()}
        try:
            with np.errstate(over="raise", divide="raise", invalid="raise"):
                _run(program, part)
        except ArithmeticError:
            if len(rows) == 1:
                results[: program.measured, rows] = np.nan
            else:
                waiting += np.array_split(rows, 2)


def _run(program: Program, given: Mapping[str, Any]) -> tuple[list[Any], bool]:
    """Return the results, and whether the guards hold."""
    steps = program.once(_steps, lambda: _steps(program))
    values: dict[int, Any] = dict(program.constants)
    values |= {place: given[path] for path, place in program.inputs.items()}
    for place, node, read, done in steps:
        values[place] = _computed(program, node, [values[each] for each in read])
        for each in done:
            del values[each]
    kept = all(
        bool(np.all((values[guard.node] >= guard.least) & (values[guard.node] <= guard.most)))
        for guard in program.guards
    )
    return [values[place] for place in program.results.values()], kept


def _computed(program: Program, node: list[int], operands: list[Any]) -> Any:
    if node[0] == INDEX:
        keys = np.broadcast_arrays(*(np.atleast_1d(each) for each in operands))
        return table_of(program.tables[node[1]]).places_of(np.stack(keys, axis=1))
    if node[0] == GATHER:
        lookup = program.lookups[node[2]]
        table = table_of(lookup.known)
        return table.value(table.column(lookup) + node[3], operands[0])
    name = NAMES[node[0]]
    return OPERATIONS[name](*operands) if name in OPERATIONS else WHOLE[name](*operands)


def _steps(program: Program) -> list[tuple[int, list[int], list[int], list[int]]]:
    """Return each operation: its place, its node, the nodes that it reads, and those that are needed no more."""
    lists: list[int] = program.lists.tolist()
    held = {*program.results.values(), *(guard.node for guard in program.guards)}
    nodes: list[list[int]] = program.nodes.tolist()
    steps: list[tuple[int, list[int], list[int], list[int]]] = [
        (place, node, list(reads(node, lists)), []) for place, node in enumerate(nodes)
    ]
    last = {read: place for place, _, operands, _ in steps for read in operands}
    for read, place in last.items():
        if read not in held:
            steps[place][3].append(read)
    return [step for step in steps if step[1][0] >= 0]

"""Evaluate designs by the recorded programs of their structures; record, keep and load those programs.

Designs of a batch are told apart by what is structural in them, and each group is run by its own plan. Plans are kept
with the design that a batch is based on, so that a search finds them at once.

Programs are kept on disk, so that the next process need not record them (see `cosmic.base.caching`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.caching import keep_cached, read_cached
from cosmic.design.design_batch import Batch, Column, Names, combine_codes, has_gaps, none_to_nan
from cosmic.design.design_point import DesignPoint
from cosmic.network.dimension_wiring import wiring_paths
from cosmic.simulate.recording.program_interpreters import ProgramPlan, find_interpreter
from cosmic.simulate.recording.program_tape import (
    CONSTANT,
    INPUT,
    LISTED,
    LONGEST,
    OPERANDS,
    OPERATION_NAMES,
    Guard,
    Lookup,
    Tape,
    Unrecordable,
)
from cosmic.simulate.recording.recorded_program import (
    MOST_KEYS,
    RecordedProgram,
    Structure,
    forget_tables,
    is_structural,
    program_of_tape,
    structure_of,
)
from cosmic.workload.operator_kinds import kinds
from cosmic.workload.pipeline_schedule import schedules

# ---- Programs on disk, so that the next process need not record them (see `cosmic.base.caching`)

MOST_VARIANTS = 8


def load_programs(structure: Structure) -> Iterator[RecordedProgram]:
    """Yield the programs of a structure that are on disk."""
    for variant in range(MOST_VARIANTS) if _follows_from_sources(structure) else ():
        content = read_cached("programs", f"{variant} {structure}")
        if content is None:
            return
        try:
            yield _decode_program(content)
        except (ValueError, KeyError, TypeError, IndexError, zlib.error):
            return


def store_program(structure: Structure, program: RecordedProgram, variant: int) -> None:
    """Keep a program for other processes, if that can be."""
    if variant < MOST_VARIANTS and _follows_from_sources(structure):
        keep_cached("programs", f"{variant} {structure}", _encode_program(program))


def _follows_from_sources(structure: Structure) -> bool:
    """Return whether a program follows from our sources alone, not from schedules, kinds or strategies of others."""
    fixed = dict(structure.fixed)
    if any(path.startswith("workload.strategies") for path in fixed):
        return False
    ours = [schedules[fixed["workload.schedule"]], *kinds.values()]
    return all(getattr(our, "__module__", "").startswith("cosmic.") for our in ours)


# ---- Format


def _name_function(function: Callable[..., Any]) -> str:
    """Return where a function of ours is found by another process; a `ValueError` if it would not find it.

    >>> _name_function(combine_codes)
    'cosmic.design.design_batch:combine_codes'
    """
    name = f"{function.__module__}:{function.__qualname__}"
    _require_valid(_find_function(name) is function)
    return name


@cache
def _find_function(name: str) -> Callable[..., Any]:
    module, _, defined = name.partition(":")
    _require_valid(module.startswith("cosmic."))
    try:
        function: Callable[..., Any] = getattr(import_module(module), defined)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"no function {name}") from error
    return function


def _encode_program(program: RecordedProgram) -> bytes:
    """Return a program as bytes: what it is made of as JSON, then its arrays."""
    about = {
        "shape": [len(program.nodes), len(program.lists)],
        "constants": [[node, value.hex()] for node, value in program.constants.items()],
        "inputs": dict(program.inputs),
        "tables": program.tables,
        "lookups": [[_name_function(lookup.function), lookup.leading, lookup.known] for lookup in program.lookups],
        "guards": [[guard.node, guard.least.hex(), guard.most.hex()] for guard in program.guards],
        "results": dict(program.results),
        "measured": program.measured,
    }
    header = json.dumps(about).encode()
    arrays = b"".join(np.ascontiguousarray(array, dtype="<i4").tobytes() for array in (program.nodes, program.lists))
    return len(header).to_bytes(4, "little") + header + zlib.compress(arrays, 1)


def _decode_program(content: bytes) -> RecordedProgram:
    length = int.from_bytes(content[:4], "little")
    about = json.loads(content[4 : 4 + length])
    count, listed = about["shape"]
    numbers = np.frombuffer(zlib.decompress(content[4 + length :]), dtype="<i4").astype(np.int32)
    if len(numbers) != 4 * count + listed:
        raise ValueError("arrays of another length")
    program = RecordedProgram(
        nodes=np.ascontiguousarray(numbers[: 4 * count].reshape(count, 4)),
        lists=np.ascontiguousarray(numbers[4 * count :]),
        constants={node_number: float.fromhex(value) for node_number, value in about["constants"]},
        inputs=about["inputs"],
        tables=tuple(_decode_known(columns) for columns in about["tables"]),
        lookups=tuple(
            Lookup(_find_function(name), tuple(leading), _decode_known(columns))
            for name, leading, columns in about["lookups"]
        ),
        guards=tuple(Guard(node, float.fromhex(least), float.fromhex(most)) for node, least, most in about["guards"]),
        results=about["results"],
        measured=about["measured"],
    )
    _check_program(program)
    return program


def _decode_known(columns: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(column) if isinstance(column, list) else column for column in columns)


def _check_program(program: RecordedProgram) -> None:
    """Raise a `ValueError` unless every node reads earlier ones, and everything named exists: C does not look."""
    nodes, lists = program.nodes, program.lists
    operation, numbers = nodes[:, 0], np.arange(len(nodes))
    _require_valid(bool(np.all((operation >= INPUT) & (operation < len(OPERATION_NAMES)))))
    plain = np.where(operation >= 0, np.array(OPERANDS)[np.maximum(operation, 0)], 0)
    plain[np.isin(operation, LISTED)] = 0
    for operand in range(3):
        reads = plain > operand
        _require_valid(bool(np.all((nodes[reads, 1 + operand] >= 0) & (nodes[reads, 1 + operand] < numbers[reads]))))
    for number in np.flatnonzero(np.isin(operation, LISTED)).tolist():
        _, first, start, length = nodes[number].tolist()
        _require_valid(0 <= start <= start + length <= len(lists) and length > 0)
        _require_valid(length <= LONGEST.get(OPERATION_NAMES[operation[number]], MOST_KEYS))
        _require_valid(bool(np.all((lists[start : start + length] >= 0) & (lists[start : start + length] < number))))
        if OPERATION_NAMES[operation[number]] == "index":
            _require_valid(0 <= first < len(program.tables) and length == sum(map(_is_column, program.tables[first])))
    gathers = nodes[operation == OPERATION_NAMES.index("gather")]
    _require_valid(
        bool(np.all((gathers[:, 2] >= 0) & (gathers[:, 2] < len(program.lookups)) & (gathers[:, 3] // 2 == 0)))
    )
    named = [*program.constants, *program.inputs.values(), *program.results.values()]
    _require_valid(all(0 <= number < len(nodes) for number in (*named, *(guard.node for guard in program.guards))))
    _require_valid(set(np.flatnonzero(operation == CONSTANT)) == set(program.constants))
    _require_valid(set(np.flatnonzero(operation == INPUT)) == set(program.inputs.values()))
    _require_valid(all(lookup.known in program.tables for lookup in program.lookups))


def _is_column(key: Any) -> bool:
    return not isinstance(key, str)


def _require_valid(holds: bool) -> None:
    if not holds:
        raise ValueError("no program")


# ---- Records the evaluation of a structure, and keeps what was recorded

Evaluate = Callable[[Batch], Mapping[str, Any]]
"""Gives some numbers of every design of a batch that shares one structure."""
MOST_PROGRAMS = 2_000
"""Structures whose programs are kept in memory."""


class Recorder:
    """Programs for what *measure* and *judge* compute: the metrics of designs, and the rules that they meet."""

    def __init__(self, measure: Evaluate, judge: Evaluate) -> None:
        self._measure, self._judge = measure, judge
        self._programs: dict[Structure, list[RecordedProgram]] = {}
        self.generation = 0
        """Raised when programs are forgotten: plans of earlier ones are not used any more."""

    def forget(self) -> None:
        """Forget all programs and what they look up: for who changes the physics while it is in memory."""
        self._programs.clear()
        forget_tables()
        self.generation += 1

    def variants(self, structure: Structure) -> list[RecordedProgram]:
        """Return the programs of a structure: each for machines that agree in what its guards ask."""
        programs = self._programs.get(structure)
        if programs is None:
            if len(self._programs) >= MOST_PROGRAMS:
                self._programs.clear()
            programs = self._programs[structure] = list(load_programs(structure))
        return programs

    def record(self, batch: Batch) -> RecordedProgram | None:
        """Return the program of designs that share one structure; None where there can be none."""
        structure = structure_of(batch.base, batch.columns)
        try:
            program = self._record(batch, structure)
        except Unrecordable:
            return None
        variants = self.variants(structure)
        variants.append(program)
        store_program(structure, program, len(variants) - 1)
        return program

    def _record(self, batch: Batch, structure: Structure) -> RecordedProgram:
        values = {
            path: _numbers_of_field(batch, path)
            for path in (*structure.numbers, *(path for path, _ in structure.names))
        }
        tape = Tape(values, tuple(batch.columns))
        columns: dict[str, Any] = {path: tape.column(path) for path in structure.numbers}
        columns |= {path: Names(names, tape.column(path)) for path, names in structure.names}
        recorded = Batch(batch.base, columns)
        return program_of_tape(tape, self._measure(recorded), self._judge(recorded))


def _numbers_of_field(batch: Batch, path: str) -> npt.NDArray[Any]:
    """Return the numbers of a field, or the codes of its names."""
    column = batch[path]
    if isinstance(column, Names):
        return column.codes
    values: npt.NDArray[Any] = np.atleast_1d(column)
    return values.astype(np.float64) if values.dtype == object else values


# ---- Runs designs by the programs of their structures

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
MOST_FAMILIES = 16
"""Sets of columns for which a design keeps plans."""
PATIENCE = 1
"""How often designs of a structure are evaluated without a program before one is recorded; both give the same bits."""
MANY = 1_000
"""Designs for which a program is recorded at once."""
ONE = np.zeros(1, dtype=np.int64)


def run_recorded_point(recorder: Recorder, point: DesignPoint) -> dict[str, float] | None:
    """Return the results of one design; None where it has no program, or nothing that runs it fast."""
    if find_interpreter() is None:
        return None
    structure = structure_of(point, {})
    variants = recorder.variants(structure)
    for index, program in enumerate(variants):
        if (results := _run_alone(program, point)) is not None:
            variants.insert(0, variants.pop(index))
            return results
    recorded = recorder.record(Batch(point, {}))
    return None if recorded is None else _run_alone(recorded, point)


def _run_alone(program: RecordedProgram, point: DesignPoint) -> dict[str, float] | None:
    """Return the results of one design; None where a guard fails."""
    plan = program.once(run_recorded_point, lambda: ProgramPlan(program, tuple(program.inputs), {}))
    columns = np.array([[point.fields[path]] for path in program.inputs], dtype=np.float64)
    results = np.empty((len(program.results), 1))
    if not plan.run(columns, ONE, results):
        return None
    return dict(zip(program.results, results[:, 0].tolist(), strict=True))


def run_recorded_batch(recorder: Recorder, batch: Batch, count: int) -> tuple[Floats, list[Rows]]:
    """Return a matrix with a row for each of *count* results, and the designs that were not run by a program."""
    results = np.empty((count, batch.size))
    if find_interpreter() is None:  # the physics itself is faster than a program that NumPy runs
        return results, [np.arange(batch.size)]
    kinds: tuple[Any, ...] = tuple(
        (path, column.names if isinstance(column, Names) else column.dtype.kind)
        for path, column in batch.columns.items()
    )
    kinds = (id(recorder), recorder.generation, *kinds)
    families = batch.base.known.setdefault(DesignFamily, {})
    family = families.get(kinds)
    if family is None:
        if len(families) >= MOST_FAMILIES:
            families.clear()
        family = families[kinds] = DesignFamily(recorder, batch)
    return results, list(family.run(batch, results))


class DesignFamily:
    """Designs that differ from one base in the same fields: their plans, by structure."""

    def __init__(self, recorder: Recorder, batch: Batch) -> None:
        self._recorder = recorder
        columns = batch.columns
        self._gapped = {path for path, column in columns.items() if _has_numbers(path, column)}
        """Fields that some designs state, as a number, and others do not."""
        self._structural = {path for path, column in columns.items() if is_structural(path, column)} - self._gapped
        self._structural |= set(wiring_paths(batch))
        self._numeric = tuple(path for path in columns if path not in self._structural)
        self._coded = [path for path in columns if path in self._structural | self._gapped]
        self._codes: dict[str, dict[Any, int]] = {path: {} for path in self._coded}
        self._plans: dict[tuple[int, ...], list[ProgramPlan]] = {}
        self._met: dict[tuple[int, ...], int] = {}
        """How often designs of a structure were met that has no plan yet."""

    def run(self, batch: Batch, results: Floats) -> Iterator[Rows]:
        """Write the results of every design; yield the rows of those that have no program."""
        columns = np.empty((len(self._numeric), batch.size))
        for index, path in enumerate(self._numeric):
            column = batch.columns[path]
            columns[index] = column.codes if isinstance(column, Names) else none_to_nan(column)
        for key, rows in self._groups(batch):
            if not self._run(batch, key, rows, columns, results):
                yield rows

    def _groups(self, batch: Batch) -> Iterator[tuple[tuple[int, ...], Rows]]:
        """Yield the rows of each structure, with its code."""
        codes = [self._code(path, batch.columns[path]) for path in self._coded]
        if not codes:
            yield (), np.arange(batch.size)
            return
        combined = combine_codes(((int(code.max(initial=0)) + 1, code) for code in codes), batch.size)
        order = np.argsort(combined, kind="stable")
        ends = np.flatnonzero(np.diff(combined[order])) + 1
        for rows in np.split(order, ends) if batch.size else ():
            yield tuple([int(code[rows[0]]) for code in codes]), np.ascontiguousarray(rows)

    def _code(self, path: str, column: Column) -> npt.NDArray[np.int64]:
        """Return a number for each design: two have the same if they agree in what the column decides."""
        if isinstance(column, Names):
            return column.codes
        if column.dtype.kind == "b":
            return column.astype(np.int64)
        if path in self._gapped:
            return np.asarray(np.isnan(none_to_nan(column)), dtype=np.int64)
        codes = self._codes[path]
        return np.array([codes.setdefault(value, len(codes)) for value in column.tolist()], dtype=np.int64)

    def _run(self, batch: Batch, key: tuple[int, ...], rows: Rows, columns: Floats, results: Floats) -> bool:
        """Run the designs at *rows*, which share one structure; return False where there is no program for them.

        To record one takes as long as a few evaluations without it: it waits until it is worth it.
        """
        plans = self._plans.setdefault(key, [])
        for plan in plans:
            if plan.run(columns, rows, results):
                return True
        part = self._part(batch, rows)
        for program in self._recorder.variants(structure_of(part.base, part.columns)):
            if not any(plan.program is program for plan in plans):
                plans.append(ProgramPlan(program, self._numeric, part.base.fields))
                if plans[-1].run(columns, rows, results):
                    return True
        self._met[key] = self._met.get(key, 0) + 1
        worth_it = self._met[key] > PATIENCE or len(rows) >= MANY
        recorded = self._recorder.record(part) if worth_it else None
        if recorded is None:
            return False
        plans.append(ProgramPlan(recorded, self._numeric, part.base.fields))
        return plans[-1].run(columns, rows, results)

    def _part(self, batch: Batch, rows: Rows) -> Batch:
        """Return the designs at *rows*, with what is structural as constants of their base."""
        constant = {path: _plain_value(batch.columns[path][int(rows[0])]) for path in self._structural}
        for path in self._gapped:
            if batch.columns[path][int(rows[0])] is None:
                constant[path] = None
        part = batch.take(rows, constant)
        return Batch(part.base, {path: none_to_nan(column) for path, column in part.columns.items()})


def _has_numbers(path: str, column: Column) -> bool:
    """Return whether a column has numbers and gaps, and nothing else."""
    if not has_gaps(column) or path.startswith("model."):
        return False
    structural = is_structural(path, np.zeros(0))
    return not structural and all(value is None or type(value) in (int, float) for value in column.tolist())


def _plain_value(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value

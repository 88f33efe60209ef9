"""Run a recorded program: as a plan laid out for the compiled interpreter, or with NumPy, its reference.

What is the same in all designs is worked out once. A plan belongs to one program, to the fields that differ among
designs, and to the values of those that do not. Its arrays are what `native/program.c` reads: instructions with the
registers of their operands and results.

`replay_program` runs a program with NumPy: the reference of the C interpreter, and what certificates take where no
compiler was. Designs are then evaluated without programs, which takes less long.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.native.library import declare_functions, native_library
from cosmic.simulate.recording.program_tape import (
    GATHER,
    INDEX,
    INPUT,
    OPERATION_NAMES,
    OPERATIONS,
    Guard,
    nodes_read_by,
)
from cosmic.simulate.recording.recorded_program import MOST_KEYS, LookupTable, RecordedProgram, table_of
from cosmic.step.stage_memory import interleaved_bytes

# ---- Runs a program with NumPy: the reference of the C interpreter

Floats = npt.NDArray[np.float64]
WHOLE: dict[str, Callable[..., Any]] = {"interleaved_bytes": interleaved_bytes}
"""Functions of the physics that are recorded as a whole."""
AT_ONCE = 10_000
"""Designs at a time: their columns take some hundred megabytes at most."""


def replay_program(
    program: RecordedProgram, uniform: Mapping[str, float], columns: Floats, paths: tuple[str, ...], results: Floats
) -> bool:
    """Run *program* on *columns*, of the fields at *paths*, and on *uniform* ones; return whether its guards hold.

    Results are written to *results*. A design that NumPy would raise an error for has NaN for what is measured.
    """
    guarded = True
    for start in range(0, columns.shape[1], AT_ONCE):
        stretch = slice(start, start + AT_ONCE)
        inputs = {**uniform, **dict(zip(paths, columns[:, stretch], strict=True))}
        guarded &= _replay_rows(program, inputs, results[:, stretch])
    return guarded


def _replay_rows(program: RecordedProgram, inputs: Mapping[str, Any], results: Floats) -> bool:
    with np.errstate(all="ignore"):
        values, guarded = _run_steps(program, inputs)
    for index, value in enumerate(values):
        results[index] = value
    try:
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            _run_steps(program, inputs)
    except ArithmeticError:
        # Some design overflows: halve the rows until it is alone, and clear only what is measured of it.
        waiting = [np.arange(results.shape[1])]
        while waiting:
            rows = waiting.pop()
            part = {path: value[rows] if np.ndim(value) else value for path, value in inputs.items()}
            try:
                with np.errstate(over="raise", divide="raise", invalid="raise"):
                    _run_steps(program, part)
            except ArithmeticError:
                if len(rows) == 1:
                    results[: program.measured, rows] = np.nan
                else:
                    waiting += np.array_split(rows, 2)
    return guarded


def _run_steps(program: RecordedProgram, inputs: Mapping[str, Any]) -> tuple[list[Any], bool]:
    """Return the results, and whether the guards hold."""
    steps = program.once(_steps_of_program, lambda: _steps_of_program(program))
    values: dict[int, Any] = dict(program.constants)
    values |= {number: inputs[path] for path, number in program.inputs.items()}
    for number, node, read, done in steps:
        values[number] = compute_node(program, node, [values[operand] for operand in read])
        for operand in done:
            del values[operand]
    guarded = all(
        bool(np.all((values[guard.node] >= guard.least) & (values[guard.node] <= guard.most)))
        for guard in program.guards
    )
    return [values[number] for number in program.results.values()], guarded


def compute_node(program: RecordedProgram, node: Sequence[int], operands: Sequence[Any]) -> Any:
    """Return what a node gives for operands that are known: numbers, or arrays of them."""
    if node[0] == INDEX:
        keys = np.broadcast_arrays(*(np.atleast_1d(operand) for operand in operands))
        rows = table_of(program.tables[node[1]]).places_of(np.stack(keys, axis=1).astype(np.float64))
        return rows if any(np.ndim(operand) for operand in operands) else rows[0]
    if node[0] == GATHER:
        lookup = program.lookups[node[2]]
        table = table_of(lookup.known)
        value = table.value(table.column(lookup) + node[3], np.atleast_1d(operands[0]).astype(np.intp))
        return value if np.ndim(operands[0]) else value[0]
    name = OPERATION_NAMES[node[0]]
    return OPERATIONS[name](*operands) if name in OPERATIONS else WHOLE[name](*operands)


def _steps_of_program(program: RecordedProgram) -> list[tuple[int, list[int], list[int], list[int]]]:
    """Return each operation: its place, its node, the nodes that it reads, and those that are needed no more."""
    lists: list[int] = program.lists.tolist()
    held = {*program.results.values(), *(guard.node for guard in program.guards)}
    nodes: list[list[int]] = program.nodes.tolist()
    steps: list[tuple[int, list[int], list[int], list[int]]] = [
        (index, node, list(nodes_read_by(node, lists)), []) for index, node in enumerate(nodes)
    ]
    last = {read: last_step for last_step, _, operands, _ in steps for read in operands}
    for read, last_step in last.items():
        if read not in held:
            steps[last_step][3].append(read)
    return [step for step in steps if step[1][0] >= 0]


# ---- A program made ready to run: what is the same in all designs is worked out once, the rest is laid out for C

WIDTH = 5
MISSING_AT_ONCE = 4096
"""Unknown combinations that one run can note; more are found by the next."""
MOST_RUNS = 1000
ONE_ROW = np.zeros(1, dtype=np.int64)
SHARED = 512
"""Designs from which on what their mappings share is computed once for each mapping."""


def _structure_fields(names: str) -> list[tuple[str, Any]]:
    """Return the fields of a structure: addresses, and whole numbers, whose names end in ``#``."""
    return [(name.rstrip("#"), ctypes.c_int64 if name.endswith("#") else ctypes.c_void_p) for name in names.split()]


class _CoreTable(ctypes.Structure):
    _fields_ = _structure_fields("keys# mask# room# rows slots values")


class _CoreProgram(ctypes.Structure):
    _fields_ = _structure_fields(
        "scalars registers single vector single_lists vector_lists tables input_nodes input_registers "
        "input_columns outputs vector_outputs guards vector_guards least most "
        "instructions# inputs# measured# results# guarded# own#",
    )


class _CoreDesigns(ctypes.Structure):
    _fields_ = _structure_fields(
        "columns stride# count# rows results results_stride# places shared shared_stride# mappings"
    )


class _CoreLayout(ctypes.Structure):
    _fields_ = _structure_fields(
        "nodes lists lookup_columns lookup_tables held varies registers last spare prologue single vector vector_lists "
        "count# listed# prologue_count# body_count# register_count#",
    )


class _CoreMissing(ctypes.Structure):
    _fields_ = _structure_fields("keys room# count#")


def find_interpreter() -> ctypes.PyDLL | None:
    """Return the library with the compiled interpreter; None where there is none, or where it is turned off."""
    library = native_library()
    return None if library is None else _load_interpreter(library)


@cache
def _load_interpreter(library: ctypes.CDLL) -> ctypes.PyDLL | None:
    # It keeps Python's lock: a plan's arrays are for one run at a time.
    core = declare_functions(ctypes.PyDLL(library._name, handle=library._handle))
    return core if core.cosmic_operations().decode().split() == list(OPERATION_NAMES) else None


class ProgramPlan:
    """A program for designs that differ in the fields at *paths*, and have *uniform* values in the others."""

    def __init__(self, program: RecordedProgram, paths: Sequence[str], uniform: Mapping[str, float]) -> None:
        self.program = program
        self.columns = {path: index for index, path in enumerate(paths) if path in program.inputs}
        """The inputs that differ, and the number of the column of each."""
        self.uniform = {path: float(uniform[path]) for path in program.inputs if path not in self.columns}
        interpreter = find_interpreter()
        self._compiled = (
            None if interpreter is None else _CompiledPlan(program, self.columns, self.uniform, interpreter)
        )

    def run(self, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool:
        """Run the designs at some *rows* of *columns*, and write the *results* there; return whether guards hold.

        Columns are those of the *paths*, results those of the program, each a row of its matrix.
        """
        if self._compiled is not None:
            return self._compiled.run(columns, rows, results)
        values = np.empty((len(self.program.results), len(rows)))
        chosen = columns[np.ix_(np.array([*self.columns.values()], dtype=np.intp), rows)]
        guarded = replay_program(self.program, self.uniform, chosen, tuple(self.columns), values)
        results[:, rows] = values
        return guarded


class _PlanPart:
    """Some nodes of a program laid out for C: those that follow from given ones."""

    def __init__(
        self,
        plan: _CompiledPlan,
        nodes: npt.NDArray[np.int32],
        own: Sequence[int],
        *,
        shared: Sequence[int],
        held: Sequence[int],
    ) -> None:
        self.nodes, self.given = nodes, [*own, *shared]
        self._plan, self._own = plan, len(own)
        program, count, keep_array = plan.program, len(nodes), plan.keep_array
        self.varies = np.zeros(count, dtype=np.uint8)
        self.varies[self.given] = 1
        needed = np.zeros(count, dtype=np.uint8)
        needed[list(held)] = 1
        self.registers = np.full(count, -1, dtype=np.int32)
        of_nodes = [np.full(count, -1, dtype=np.int32) for _ in range(2)]  # last uses, spare registers
        self.code = [np.zeros((count, WIDTH), dtype=np.int32) for _ in range(3)]  # the same in all, single, vector
        self.lists = np.zeros(max(1, len(program.lists)), dtype=np.int32)
        layout = _CoreLayout(
            *(keep_array(array) for array in (nodes, program.lists, plan.lookup_columns, plan.lookup_tables)),
            *(keep_array(array, np.uint8) for array in (needed, self.varies)),
            *(keep_array(array) for array in (self.registers, *of_nodes, *self.code, self.lists)),
            count,
            len(program.lists),
        )
        plan.interpreter.cosmic_layout(ctypes.addressof(layout))
        self.counts = (int(layout.prologue_count), int(layout.body_count))
        self._room = keep_array(np.zeros((max(1, layout.register_count), plan.interpreter.cosmic_lanes())), np.float64)

    def place(self, node: int) -> int:
        """Return where a node's value is: its register, or its scalar."""
        varies = node < len(self.nodes) and self.varies[node]
        return int(self.registers[node]) if varies else ~node

    def prologue(self, columns: Sequence[int]) -> _CoreProgram:
        """Return the program of all that depends on no varying input; its result is 1 unless it overflows."""
        return self._struct(columns, range(len(columns)), 0, [len(self.nodes)], 1, ())

    def body(
        self, columns: Sequence[int], results: Sequence[int], measured: int, guards: Sequence[Guard]
    ) -> _CoreProgram:
        """Return the program of all that depends on the varying inputs, whose numbers are in some *columns*."""
        return self._struct(self.given, columns, 1, results, measured, guards)

    def _struct(
        self,
        inputs: Sequence[int],
        columns: Sequence[int],
        form: int,
        results: Sequence[int],
        measured: int,
        guards: Sequence[Guard],
    ) -> _CoreProgram:
        plan, keep_array = self._plan, self._plan.keep_array
        # C keeps addresses only: `keep_array` holds the arrays for as long as the plan lives.
        struct = _CoreProgram(
            scalars=plan.scalars.ctypes.data,
            registers=self._room,
            single=keep_array(self.code[form]),
            vector=keep_array(self.code[2]),
            single_lists=keep_array(plan.program.lists),
            vector_lists=keep_array(self.lists),
            tables=ctypes.addressof(plan.pointers),
            input_nodes=keep_array(inputs),
            input_columns=keep_array(list(columns)),
            outputs=keep_array(results),
            guards=keep_array([guard.node for guard in guards]),
            least=keep_array([guard.least for guard in guards], np.float64),
            most=keep_array([guard.most for guard in guards], np.float64),
            instructions=self.counts[form],
            inputs=len(inputs),
            measured=measured,
            results=len(results),
            guarded=len(guards),
            own=self._own if form else len(inputs),
        )
        if form:
            struct.input_registers = keep_array(self.registers[list(inputs)])
            struct.vector_outputs = keep_array([self.place(node) for node in results])
            struct.vector_guards = keep_array([self.place(guard.node) for guard in guards])
        return struct


class _CompiledPlan:
    """A plan laid out for the C interpreter.

    What follows from the mapping alone can be computed once for each mapping of a large batch, and the rest from it.
    """

    def __init__(
        self,
        program: RecordedProgram,
        columns: Mapping[str, int],
        uniform: Mapping[str, float],
        interpreter: ctypes.PyDLL,
    ) -> None:
        self.interpreter, self.program = interpreter, program
        self._columns = columns
        self._kept: list[Any] = []
        """Arrays that C reads: they must not be collected."""
        self._tables = [table_of(key_columns) for key_columns in program.tables]
        numbers = {key_columns: number for number, key_columns in enumerate(program.tables)}
        self.lookup_columns = [table_of(lookup.known).column(lookup) for lookup in program.lookups]
        self.lookup_tables = [numbers[lookup.known] for lookup in program.lookups]
        self._views = [_CoreTable() for _ in self._tables]
        self._versions = [-1] * len(self._tables)
        self.pointers = (ctypes.c_void_p * max(1, len(self._views)))(*(ctypes.addressof(view) for view in self._views))
        self._notes = np.zeros((MISSING_AT_ONCE, MOST_KEYS + 1))
        self._missing = _CoreMissing(self._notes.ctypes.data, MISSING_AT_ONCE, 0)
        self.scalars = np.ones(len(program.nodes) + 1)  # the last is 1, whatever happens
        self.scalars[list(program.constants)] = list(program.constants.values())
        self._results = list(program.results.values())
        self._held = [*self._results, *(guard.node for guard in program.guards)]
        own = [program.inputs[path] for path in columns]
        part = _PlanPart(self, program.nodes, own, shared=(), held=self._held)
        self._body = part.body([*columns.values()], self._results, program.measured, program.guards)
        self._whole = part
        alone = np.zeros((1, 1))
        prologue = part.prologue([program.inputs[path] for path in uniform])
        self._call(prologue, np.array([*uniform.values()]).reshape(len(uniform), 1), ONE_ROW, alone)
        self._troubled = bool(np.isnan(alone[0, 0]))

    def run(self, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool:
        """Run the designs at some *rows*; return whether the guards hold."""
        guarded = self._run_shared(columns, rows, results) if len(rows) >= SHARED else None
        if guarded is None:
            guarded = self._call(self._body, columns, rows, results)
        if self._troubled:
            results[: self.program.measured, rows] = np.nan
        return guarded

    # ------------------------------------------------------------------------------------------ mappings

    @cached_property
    def _parts(self) -> tuple[_CoreProgram, _CoreProgram, list[int], int] | None:
        """What follows from the mapping alone, the rest, the columns of the mapping, and how much is shared."""
        program = self.program
        mapping = {path: node for path, node in self._columns.items() if path.startswith("workload.")}
        others = {path: node for path, node in self._columns.items() if path not in mapping}
        if not mapping or not others:
            return None
        of_mapping, of_others = ([program.inputs[path] for path in group] for group in (mapping, others))
        on_others = _PlanPart(self, program.nodes, of_others, shared=(), held=self._held).varies.astype(bool)
        alone = self._whole.varies.astype(bool) & ~on_others
        # The nodes among some that readers read, or that are results
        lists = program.lists.tolist()
        nodes = program.nodes.tolist()
        read_by_rest = {
            read
            for node in np.flatnonzero(on_others).tolist()
            for read in nodes_read_by(nodes[node], lists)
            if alone[read]
        }
        shared = sorted(read_by_rest | {node for node in self._held if alone[node]})
        first, second = program.nodes.copy(), program.nodes.copy()
        first[on_others, 0] = INPUT  # not computed there
        second[alone, 0] = INPUT
        once = _PlanPart(self, first, of_mapping, shared=(), held=[*shared, *self._held])
        rest = _PlanPart(self, second, of_others, shared=shared, held=self._held)
        in_once = [guard for guard in program.guards if not on_others[guard.node]]
        in_rest = [guard for guard in program.guards if on_others[guard.node]]
        outputs = [*shared, len(program.nodes)]  # the last is 1, unless a mapping is in trouble
        return (
            once.body([*mapping.values()], outputs, len(outputs), in_once),
            rest.body([*others.values(), *range(len(shared))], self._results, program.measured, in_rest),
            [*mapping.values()],
            len(outputs),
        )

    def _run_shared(self, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool | None:
        """Run what mappings share once for each; None where designs have hardly a mapping in common."""
        if self._parts is None:
            return None
        once, rest, chosen, outputs = self._parts
        count, bits = len(rows), max(4, (2 * len(rows)).bit_length())
        firsts, mappings = (np.empty(count, dtype=np.int64) for _ in range(2))
        slots, keys = np.empty(1 << bits, dtype=np.int64), np.array(chosen, dtype=np.int32)
        designs = _CoreDesigns(columns.ctypes.data, columns.shape[1], count, rows.ctypes.data)
        distinct = self.interpreter.cosmic_mappings(
            ctypes.addressof(designs),
            keys.ctypes.data,
            len(keys),
            *(array.ctypes.data for array in (firsts, mappings, slots)),
            bits,
        )
        if 2 * distinct > count:
            return None
        shared = np.empty((outputs, distinct))
        if not self._call(once, columns, firsts[:distinct], shared, slots=np.arange(distinct)):
            return False  # what mappings share is not there, and whatever lies there instead must not be looked up
        return self._call(rest, columns, rows, results, shared=(shared, mappings))

    # ------------------------------------------------------------------------------------------- calls

    def _call(
        self,
        struct: _CoreProgram,
        columns: Floats,
        rows: npt.NDArray[np.int64],
        results: Floats,
        *,
        slots: npt.NDArray[np.int64] | None = None,
        shared: tuple[Floats, npt.NDArray[np.int64]] | None = None,
    ) -> bool:
        """Run a program; *slots* say where results go, *shared* is what mappings share, and the mapping of each."""
        designs = _CoreDesigns(
            columns.ctypes.data,
            columns.shape[1],
            len(rows),
            rows.ctypes.data,
            results.ctypes.data,
            results.shape[1],
            None if slots is None else slots.ctypes.data,
            *(() if shared is None else (shared[0].ctypes.data, shared[0].shape[1], shared[1].ctypes.data)),
        )
        for _ in range(MOST_RUNS):
            self._refresh()
            self._missing.count = 0
            state: int = self.interpreter.cosmic_run(
                ctypes.addressof(struct), ctypes.addressof(designs), ctypes.addressof(self._missing)
            )
            if not self._missing.count:
                return state == 0
            self._learn(min(self._missing.count, MISSING_AT_ONCE))
        raise RuntimeError("combinations that are looked up have no end")

    def _refresh(self) -> None:
        """Say where the tables lie now."""
        for index, table in enumerate(self._tables):
            if self._versions[index] != table.version:
                self._versions[index] = table.version
                view = self._views[index]
                view.keys, view.mask, view.room = table.keys, len(table.slots) - 1, table.room
                view.rows, view.slots, view.values = (
                    array.ctypes.data for array in (table.rows, table.slots, table.values)
                )

    def _learn(self, count: int) -> None:
        """Add the combinations that a run did not know; raise what went wrong with one that it did."""
        notes = self._notes[:count]
        for number in sorted(
            set(notes[:, 0].astype(int).tolist())
        ):  # np.unique would load numpy.ma: a fifth of a start
            own_notes = notes[notes[:, 0] == number]
            if number < 0:
                self._tables[-1 - number].explain(int(own_notes[0, 1]), int(own_notes[0, 2]))
                raise RuntimeError("a number that is looked up is not known")
            table: LookupTable = self._tables[number]
            table.add(np.array(sorted(set(map(tuple, own_notes[:, 1 : 1 + table.keys].tolist())))))

    def keep_array(self, values: Any, dtype: Any = np.int32) -> int:
        """Return the address of an array that lives as long as the plan."""
        array = np.ascontiguousarray(values, dtype=dtype)
        self._kept.append(array)
        address: int = array.ctypes.data
        return address

"""A program made ready to run: what is the same in all designs is worked out once, the rest is laid out for C.

A plan belongs to one program, to the fields that differ among designs, and to the values of those that do not. Its
arrays are what `native/program.c` reads: instructions with the registers of their operands and results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosmic.native import library
from cosmic.recording.operations import NAMES
from cosmic.recording.program import Program
from cosmic.recording.replay import replay
from cosmic.recording.tables import MOST_KEYS, Table, table_of

Floats = npt.NDArray[np.float64]
WIDTH = 5
MISSING_AT_ONCE = 4096
"""Unknown combinations that one run can note; more are found by the next."""
MOST_RUNS = 1000


class _Table(ctypes.Structure):
    _fields_ = (
        ("keys", ctypes.c_int64),
        ("mask", ctypes.c_int64),
        ("room", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class _Program(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "scalars",
            "registers",
            "single",
            "vector",
            "single_lists",
            "vector_lists",
            "tables",
            "input_nodes",
            "input_registers",
            "input_columns",
            "outputs",
            "vector_outputs",
            "guards",
            "vector_guards",
            "least",
            "most",
        )
    ) + tuple((name, ctypes.c_int64) for name in ("instructions", "inputs", "measured", "results", "guarded"))


class _Layout(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "nodes",
            "lists",
            "lookup_columns",
            "lookup_tables",
            "held",
            "varies",
            "registers",
            "last",
            "spare",
            "prologue",
            "single",
            "vector",
            "vector_lists",
        )
    ) + tuple((name, ctypes.c_int64) for name in ("count", "listed", "prologue_count", "body_count", "register_count"))


class _Missing(ctypes.Structure):
    _fields_ = (("keys", ctypes.c_void_p), ("room", ctypes.c_int64), ("count", ctypes.c_int64))


class _Interpreter(NamedTuple):
    """The functions of the compiled interpreter."""

    run: Callable[..., int]
    lay_out: Callable[..., None]
    lanes: int
    """Designs that it runs at a time."""


def interpreter() -> _Interpreter | None:
    """Return the compiled interpreter; None where there is none, or where it is turned off."""
    found = library()
    return None if found is None else _interpreter(found)


@cache
def _interpreter(found: ctypes.CDLL) -> _Interpreter | None:
    found.cosmic_operations.restype = ctypes.c_char_p
    if found.cosmic_operations().decode().split() != list(NAMES):
        return None
    found.cosmic_lanes.restype = ctypes.c_int64
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    # It keeps Python's lock: a plan's arrays are for one run at a time.
    run = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer, pointer, number, pointer, number, pointer, number, pointer)
    lay_out = ctypes.PYFUNCTYPE(None, pointer)
    return _Interpreter(run(("cosmic_run", found)), lay_out(("cosmic_layout", found)), int(found.cosmic_lanes()))


class Plan:
    """A program for designs that differ in the fields at *paths*, and have *uniform* values in the others."""

    def __init__(self, program: Program, paths: Sequence[str], uniform: Mapping[str, float]) -> None:
        self.program = program
        self.columns = {path: place for place, path in enumerate(paths) if path in program.inputs}
        """The inputs that differ, and the number of the column of each."""
        self.uniform = {path: float(uniform[path]) for path in program.inputs if path not in self.columns}
        found = interpreter()
        self._compiled = None if found is None else _Compiled(program, self.columns, self.uniform, found)

    def run(self, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool:
        """Run the designs at some *rows* of *columns*, and write the *results* there; return whether guards hold.

        Columns are those of the *paths*, results those of the program, each a row of its matrix.
        """
        if self._compiled is not None:
            return self._compiled.run(columns, rows, results)
        found = np.empty((len(self.program.results), len(rows)))
        chosen = columns[np.ix_(np.array([*self.columns.values()], dtype=np.intp), rows)]
        kept = replay(self.program, self.uniform, chosen, tuple(self.columns), found)
        results[:, rows] = found
        return kept


class _Compiled:
    """A plan laid out for the C interpreter."""

    def __init__(
        self, program: Program, columns: Mapping[str, int], uniform: Mapping[str, float], run: _Interpreter
    ) -> None:
        self._interpreter, self._program = run, program
        self._tables = [table_of(known) for known in program.tables]
        self._views = [_Table() for _ in self._tables]
        self._versions = [-1] * len(self._tables)
        self._pointers = (ctypes.c_void_p * max(1, len(self._views)))(*(ctypes.addressof(each) for each in self._views))
        self._notes = np.zeros((MISSING_AT_ONCE, MOST_KEYS + 1))
        self._missing = _Missing(self._notes.ctypes.data, MISSING_AT_ONCE, 0)
        self._scalars = np.ones(len(program.nodes) + 1)  # the last is 1, whatever happens
        self._scalars[list(program.constants)] = list(program.constants.values())
        self._kept: list[Any] = []
        """Arrays that C reads: they must not be collected."""
        prologue, self._body = self._laid_out(columns, {path: place for place, path in enumerate(uniform)})
        values = np.array([*uniform.values()]).reshape(len(uniform), 1)
        alone = np.zeros((1, 1))
        self._call(prologue, values, np.zeros(1, dtype=np.int64), alone)
        self._troubled = bool(np.isnan(alone[0, 0]))

    def run(self, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool:
        """Run the designs at some *rows*; return whether the guards hold."""
        kept = self._call(self._body, columns, rows, results)
        if self._troubled:
            results[: self._program.measured, rows] = np.nan
        return kept

    def _call(self, struct: _Program, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool:
        for _ in range(MOST_RUNS):
            self._refresh()
            self._missing.count = 0
            state = self._interpreter.run(
                ctypes.addressof(struct),
                columns.ctypes.data,
                columns.shape[1],
                rows.ctypes.data,
                len(rows),
                results.ctypes.data,
                results.shape[1],
                ctypes.addressof(self._missing),
            )
            if not self._missing.count:
                return state == 0
            self._learn(min(self._missing.count, MISSING_AT_ONCE))
        raise RuntimeError("combinations that are looked up have no end")

    def _refresh(self) -> None:
        """Say where the tables lie now."""
        for place, table in enumerate(self._tables):
            if self._versions[place] != table.version:
                self._versions[place] = table.version
                view = self._views[place]
                view.keys, view.mask, view.room = table.keys, len(table.slots) - 1, table.room
                view.rows, view.slots, view.values = (
                    each.ctypes.data for each in (table.rows, table.slots, table.values)
                )

    def _learn(self, count: int) -> None:
        """Add the combinations that a run did not know; raise what went wrong with one that it did."""
        notes = self._notes[:count]
        for number in np.unique(notes[:, 0]).astype(int).tolist():
            mine = notes[notes[:, 0] == number]
            if number < 0:
                self._tables[-1 - number].explain(int(mine[0, 1]), int(mine[0, 2]))
                raise RuntimeError("a number that is looked up is not known")
            table: Table = self._tables[number]
            table.add(np.unique(mine[:, 1 : 1 + table.keys], axis=0))

    # ---------------------------------------------------------------------------------------- layout

    def _laid_out(self, columns: Mapping[str, int], first: Mapping[str, int]) -> tuple[_Program, _Program]:
        """Return what is the same in all designs, and what is computed for each, as C reads it."""
        program, count = self._program, len(self._program.nodes)
        numbers = {known: number for number, known in enumerate(program.tables)}
        guards = [guard.node for guard in program.guards]
        results = list(program.results.values())
        held, varies = np.zeros(count, dtype=np.uint8), np.zeros(count, dtype=np.uint8)
        held[[*results, *guards]] = 1
        varies[[program.inputs[path] for path in columns]] = 1
        of_nodes = [np.full(count, -1, dtype=np.int32) for _ in range(3)]  # registers, last uses, spare registers
        code = [np.zeros((count, WIDTH), dtype=np.int32) for _ in range(3)]  # prologue, single, vector
        lists = np.zeros(max(1, len(program.lists)), dtype=np.int32)
        layout = _Layout(
            *(self._keep(each) for each in (program.nodes, program.lists)),
            self._keep([table_of(each.known).column(each) for each in program.lookups]),
            self._keep([numbers[each.known] for each in program.lookups]),
            *(self._keep(each, np.uint8) for each in (held, varies)),
            *(self._keep(each) for each in (*of_nodes, *code, lists)),
            count,
            len(program.lists),
        )
        self._interpreter.lay_out(ctypes.addressof(layout))
        registers = of_nodes[0]
        self._registers = np.zeros((max(1, layout.register_count), self._interpreter.lanes))

        def place(node: int) -> int:
            return int(registers[node]) if varies[node] else ~node

        prologue = _Program(
            scalars=self._scalars.ctypes.data,
            single=self._keep(code[0]),
            single_lists=self._keep(program.lists),
            tables=ctypes.addressof(self._pointers),
            input_nodes=self._keep([program.inputs[path] for path in first]),
            input_columns=self._keep(list(first.values())),
            outputs=self._keep([count]),
            instructions=layout.prologue_count,
            inputs=len(first),
            measured=1,
            results=1,
        )
        inputs = [program.inputs[path] for path in columns]
        body = _Program(
            scalars=self._scalars.ctypes.data,
            registers=self._registers.ctypes.data,
            single=self._keep(code[1]),
            vector=self._keep(code[2]),
            single_lists=self._keep(program.lists),
            vector_lists=self._keep(lists),
            tables=ctypes.addressof(self._pointers),
            input_nodes=self._keep(inputs),
            input_registers=self._keep(registers[inputs]),
            input_columns=self._keep(list(columns.values())),
            outputs=self._keep(results),
            vector_outputs=self._keep([place(node) for node in results]),
            guards=self._keep(guards),
            vector_guards=self._keep([place(node) for node in guards]),
            least=self._keep([guard.least for guard in program.guards], np.float64),
            most=self._keep([guard.most for guard in program.guards], np.float64),
            instructions=layout.body_count,
            inputs=len(inputs),
            measured=program.measured,
            results=len(results),
            guarded=len(guards),
        )
        return prologue, body

    def _keep(self, values: Any, dtype: Any = np.int32) -> int:
        found = np.ascontiguousarray(values, dtype=dtype)
        self._kept.append(found)
        address: int = found.ctypes.data
        return address

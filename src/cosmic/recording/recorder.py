"""Records the evaluation of a structure, and keeps what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch, Names
from cosmic.recording import cache
from cosmic.recording.program import Program, program_of
from cosmic.recording.structure import Structure, structure_of
from cosmic.recording.tables import forget_tables
from cosmic.recording.tape import Tape, Unrecordable

Evaluate = Callable[[Batch], Mapping[str, Any]]
"""Gives some numbers of every design of a batch that shares one structure."""
MOST_PROGRAMS = 2_000
"""Structures whose programs are kept in memory."""


class Recorder:
    """Programs for what *measure* and *judge* compute: the metrics of designs, and the rules that they meet."""

    def __init__(self, measure: Evaluate, judge: Evaluate) -> None:
        self._measure, self._judge = measure, judge
        self._programs: dict[Structure, list[Program]] = {}
        self.generation = 0
        """Raised when programs are forgotten: plans of earlier ones are not used any more."""

    def forget(self) -> None:
        """Forget all programs and what they look up: for who changes the physics while it is in memory."""
        self._programs.clear()
        forget_tables()
        self.generation += 1

    def variants(self, structure: Structure) -> list[Program]:
        """Return the programs of a structure: each for machines that agree in what its guards ask."""
        found = self._programs.get(structure)
        if found is None:
            if len(self._programs) >= MOST_PROGRAMS:
                self._programs.clear()
            found = self._programs[structure] = list(cache.load(structure))
        return found

    def record(self, batch: Batch) -> Program | None:
        """Return the program of designs that share one structure; None where there can be none."""
        structure = structure_of(batch.base, batch.columns)
        try:
            program = self._record(batch, structure)
        except Unrecordable:
            return None
        variants = self.variants(structure)
        variants.append(program)
        cache.store(structure, program, len(variants) - 1)
        return program

    def _record(self, batch: Batch, structure: Structure) -> Program:
        values = {path: _numbers(batch, path) for path in (*structure.numbers, *(path for path, _ in structure.names))}
        tape = Tape(values, tuple(batch.columns))
        columns: dict[str, Any] = {path: tape.column(path) for path in structure.numbers}
        columns |= {path: Names(names, tape.column(path)) for path, names in structure.names}
        recorded = Batch(batch.base, columns)
        return program_of(tape, self._measure(recorded), self._judge(recorded))


def _numbers(batch: Batch, path: str) -> npt.NDArray[Any]:
    """Return the numbers of a field, or the codes of its names."""
    column = batch[path]
    if isinstance(column, Names):
        return column.codes
    found: npt.NDArray[Any] = np.atleast_1d(column)
    return found.astype(np.float64) if found.dtype == object else found

"""Runs designs by the programs of their structures.

Designs of a batch are told apart by what is structural in them, and each group is run by its own plan. Plans are kept
with the design that a batch is based on, so that a search finds them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design.batch import Batch, Column, Names, combined, has_gaps, known
from cosmic.design.point import DesignPoint
from cosmic.graphs.wired import wiring_paths
from cosmic.recording.plan import Plan
from cosmic.recording.program import Program
from cosmic.recording.recorder import Recorder
from cosmic.recording.structure import is_structural, structure_of

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
MOST_FAMILIES = 16
"""Sets of columns for which a design keeps plans."""
PATIENCE = 1
"""How often designs of a structure are evaluated without a program before one is recorded; both give the same bits."""
MANY = 1_000
"""Designs for which a program is recorded at once."""
ONE = np.zeros(1, dtype=np.int64)


def run_point(recorder: Recorder, point: DesignPoint) -> dict[str, float] | None:
    """Return the results of one design; None where it has no program."""
    structure = structure_of(point, {})
    variants = recorder.variants(structure)
    for place, program in enumerate(variants):
        if (found := _run_alone(program, point)) is not None:
            variants.insert(0, variants.pop(place))
            return found
    recorded = recorder.record(Batch(point, {}))
    return None if recorded is None else _run_alone(recorded, point)


def _run_alone(program: Program, point: DesignPoint) -> dict[str, float] | None:
    """Return the results of one design; None where a guard fails."""
    plan = program.once(run_point, lambda: Plan(program, tuple(program.inputs), {}))
    columns = np.array([[point.fields[path]] for path in program.inputs], dtype=np.float64)
    results = np.empty((len(program.results), 1))
    if not plan.run(columns, ONE, results):
        return None
    return dict(zip(program.results, results[:, 0].tolist(), strict=True))


def run_batch(recorder: Recorder, batch: Batch, count: int) -> tuple[Floats, list[Rows]]:
    """Return a matrix with a row for each of *count* results, and the designs that have no program."""
    kinds: tuple[Any, ...] = tuple(
        (path, column.names if isinstance(column, Names) else column.dtype.kind)
        for path, column in batch.columns.items()
    )
    kinds = (id(recorder), recorder.generation, *kinds)
    families = batch.base.known.setdefault(Family, {})
    family = families.get(kinds)
    if family is None:
        if len(families) >= MOST_FAMILIES:
            families.clear()
        family = families[kinds] = Family(recorder, batch)
    results = np.empty((count, batch.size))
    return results, list(family.run(batch, results))


class Family:
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
        self._plans: dict[tuple[int, ...], list[Plan]] = {}
        self._met: dict[tuple[int, ...], int] = {}
        """How often designs of a structure were met that has no plan yet."""

    def run(self, batch: Batch, results: Floats) -> Iterator[Rows]:
        """Write the results of every design; yield the rows of those that have no program."""
        columns = np.empty((len(self._numeric), batch.size))
        for place, path in enumerate(self._numeric):
            column = batch.columns[path]
            columns[place] = column.codes if isinstance(column, Names) else known(column)
        for key, rows in self._groups(batch):
            if not self._run(batch, key, rows, columns, results):
                yield rows

    def _groups(self, batch: Batch) -> Iterator[tuple[tuple[int, ...], Rows]]:
        """Yield the rows of each structure, with its code."""
        codes = [self._code(path, batch.columns[path]) for path in self._coded]
        if not codes:
            yield (), np.arange(batch.size)
            return
        whole = combined(((int(each.max(initial=0)) + 1, each) for each in codes), batch.size)
        order = np.argsort(whole, kind="stable")
        ends = np.flatnonzero(np.diff(whole[order])) + 1
        for rows in np.split(order, ends) if batch.size else ():
            yield tuple([int(each[rows[0]]) for each in codes]), np.ascontiguousarray(rows)

    def _code(self, path: str, column: Column) -> npt.NDArray[np.int64]:
        """Return a number for each design: two have the same if they agree in what the column decides."""
        if isinstance(column, Names):
            return column.codes
        if column.dtype.kind == "b":
            return column.astype(np.int64)
        if path in self._gapped:
            return np.asarray(np.isnan(known(column)), dtype=np.int64)
        codes = self._codes[path]
        return np.array([codes.setdefault(each, len(codes)) for each in column.tolist()], dtype=np.int64)

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
                plans.append(Plan(program, self._numeric, part.base.fields))
                if plans[-1].run(columns, rows, results):
                    return True
        self._met[key] = self._met.get(key, 0) + 1
        worth_it = self._met[key] > PATIENCE or len(rows) >= MANY
        recorded = self._recorder.record(part) if worth_it else None
        if recorded is None:
            return False
        plans.append(Plan(recorded, self._numeric, part.base.fields))
        return plans[-1].run(columns, rows, results)

    def _part(self, batch: Batch, rows: Rows) -> Batch:
        """Return the designs at *rows*, with what is structural as constants of their base."""
        constant = {path: _plain(batch.columns[path][int(rows[0])]) for path in self._structural}
        for path in self._gapped:
            if batch.columns[path][int(rows[0])] is None:
                constant[path] = None
        part = batch.take(rows, constant)
        return Batch(part.base, {path: known(column) for path, column in part.columns.items()})


def _has_numbers(path: str, column: Column) -> bool:
    """Return whether a column has numbers and gaps, and nothing else."""
    if not has_gaps(column) or path.startswith("model."):
        return False
    structural = is_structural(path, np.zeros(0))
    return not structural and all(each is None or type(each) in (int, float) for each in column.tolist())


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value

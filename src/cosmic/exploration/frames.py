"""Tables of trials for notebooks: a DataFrame of pandas, a Table of Arrow. Both are optional libraries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.exploration.extras import needs
from cosmic.exploration.tabular import Block, Cells, Coded, Head, Part, TrialTable

EXTRA = "notebook"


def to_pandas(table: TrialTable, parts: Iterable[Part]) -> Any:
    """Return trials as a DataFrame of numbers, truth values and text; NaN or None where there is no value."""
    pandas = needs("pandas", EXTRA, "to_pandas", "study")
    blocks = list(table.blocks(parts))
    columns = {}
    for head in table.heads:
        pieces = [_as_array(head, block.columns.pop(head.name)) for block in blocks]  # each column is in memory once
        columns[head.name] = np.concatenate([_as_array(head, Coded((), np.empty(0, dtype=np.intp))), *pieces])
    return pandas.DataFrame(columns, copy=False)


def _as_array(head: Head, cells: Cells) -> npt.NDArray[Any]:
    """Return a column as pandas has it: a whole number that is missing makes floats, as in a file that it reads."""
    if not isinstance(cells, Coded):
        return cells
    missing = any(value is None for value in cells.values)
    if head.kind is str or (head.kind is bool and missing):
        values = np.array([*cells.values, None], dtype=object)[:-1]  # the None keeps lists of one length from stacking
    elif missing:
        values = np.array([np.nan if value is None else value for value in cells.values], dtype=np.float64)
    else:
        values = np.array(cells.values, dtype={int: np.int64, float: np.float64, bool: np.bool_}[head.kind])
    return np.asarray(values[cells.codes])


# ---------------------------------------------------------------------------------------------------- Arrow


def to_arrow(table: TrialTable, parts: Iterable[Part]) -> Any:
    """Return trials as an Arrow Table, null where there is no value."""
    arrow = needs("pyarrow", EXTRA, "to_arrow", "study")
    wanted = schema(arrow, table)
    return arrow.Table.from_batches([batch(arrow, wanted, table, block) for block in table.blocks(parts)], wanted)


def schema(arrow: Any, table: TrialTable) -> Any:
    """Return the columns of *table* as a schema of Arrow."""
    types = {int: arrow.int64(), float: arrow.float64(), bool: arrow.bool_(), str: arrow.string()}
    return arrow.schema([(head.name, types[head.kind]) for head in table.heads])


def batch(arrow: Any, wanted: Any, table: TrialTable, block: Block) -> Any:
    """Return some rows as a record batch of Arrow."""
    arrays = []
    for head in table.heads:
        cells, kind = block.columns[head.name], wanted.field(head.name).type
        if isinstance(cells, Coded):
            arrays.append(arrow.array(list(cells.values), kind).take(arrow.array(cells.codes)))
        else:
            missing = np.isnan(cells) if head.kind is float else None
            arrays.append(arrow.array(cells, kind, mask=missing))
    return arrow.RecordBatch.from_arrays(arrays, schema=wanted)

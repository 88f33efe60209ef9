"""Many design points at once: one base, and an array for each field in which they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.design import schema
from cosmic.design.point import DesignPoint


@dataclass(frozen=True, eq=False)
class Batch:
    """Design points as a struct of arrays; a single point is a batch whose fields are plain values."""

    base: DesignPoint
    columns: Mapping[str, npt.NDArray[Any]]

    def __getitem__(self, path: str) -> Any:
        """Return the field at *path*: an array where the points differ, else the base's value."""
        return self.columns[path] if path in self.columns else schema.get(self.base, path)

    @property
    def size(self) -> int:
        """How many points there are."""
        return len(next(iter(self.columns.values()))) if self.columns else 1

    def take(self, rows: npt.NDArray[np.intp], constant: Mapping[str, Any]) -> Batch:
        """Return the points at *rows*, in all of which the fields in *constant* have one value."""
        base: DesignPoint = schema.assign(self.base, constant) if constant else self.base
        return Batch(base, {path: column[rows] for path, column in self.columns.items() if path not in constant})

    def groups(self, paths: Sequence[str]) -> Iterator[tuple[npt.NDArray[np.intp], Batch]]:
        """Yield the points in groups that agree in the fields at *paths*, with where they stand in the batch.

        What cannot be reckoned with (a schedule's name) is so made constant; the rest stays in arrays.
        """
        varying = [path for path in paths if path in self.columns]
        if not varying:
            yield np.arange(self.size), self
            return
        codes = np.zeros(self.size, dtype=np.int64)
        for path in varying:
            found, inverse = np.unique(self.columns[path].astype(str), return_inverse=True)
            codes = codes * len(found) + inverse.reshape(-1)
        for code in np.unique(codes):
            rows = np.flatnonzero(codes == code)
            first = int(rows[0])
            yield rows, self.take(rows, {path: _plain(self.columns[path][first]) for path in varying})


def batch_of(point: DesignPoint) -> Batch:
    """Return *point* as a batch of one."""
    return Batch(point, {})


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value

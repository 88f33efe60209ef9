"""Fit what processes hold beside tensors, and how sure their memory is.

python calibration/fit_memory.py

Rows are those of published and collected training runs and of `training_memory.csv`. Of each source, the constants are
fitted to the others:

    cached, communicator   the least mean over sources of |log(predicted / measured)| of reserved and device figures
    spreads                one factor for all, at which 9 in 10 of the errors, of sources left out, are from P5 to P95

It prints the constants of ``catalog/constants/process.yaml`` and the errors with sources left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import log
from statistics import mean

import numpy as np

from cosmic.accuracy.measured_rows import CARRIED, GIB, Fields, read_rows, source_of
from cosmic.accuracy.rows.training_rows import FIGURES, memory_parts, read_design
from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of
from cosmic.step.device_memory import TENSORS
from cosmic.step.process_memory import (
    CACHED,
    COMMUNICATORS,
    CONTEXT,
    FRAGMENTATION,
    NORMAL,
    communicators,
    spread_of,
)

FILES = ("training_published.csv", "training_collected.csv", "training_memory.csv")
SHARES = np.arange(0.0, 0.26, 0.01)
COMMUNICATOR_GIB = np.arange(0.3, 1.01, 0.1)
"""What was measured of NCCL's communicators."""
COVERED = 0.90
FACTORS = np.arange(0.3, 3.01, 0.05)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure, with what its prediction is made of."""

    source: str
    kind: str
    measured: float
    parts: dict[str, float]
    """The components, in GiB."""
    spreads: dict[str, float]
    groups: float
    left: float

    def predicted(self, cached: float, communicator: float, z: float = 0.0, factor: float = 1.0) -> float:
        """Return the figure with a share of *cached* blocks and GiB of a *communicator*, at a quantile."""
        sizes = {name: self.parts[name] for name in TENSORS}
        if self.kind != "allocated":
            sizes[FRAGMENTATION] = self.parts[FRAGMENTATION]
        if self.kind == "device":
            sizes |= {CONTEXT: self.parts[CONTEXT], COMMUNICATORS: communicator * self.groups}
        total = sum(size * np.exp(factor * z * self.spreads[name]) for name, size in sizes.items())
        if self.kind == "allocated":
            return float(total)
        tensors = sum(self.parts[name] for name in TENSORS)
        kept = cached * tensors * np.exp(factor * z * self.spreads[CACHED])
        return float(max(total, min(total + kept, self.left)))


def read_figures() -> list[Figure]:
    """Return every figure of a run that ran, and whose design is read."""
    figures = []
    for name in FILES:
        for row in read_rows(CARRIED / name)[1]:
            fields = Fields(row)
            columns = [column for column in FIGURES if row.get(column)]
            if not columns or row.get("outcome") == "oom":
                continue
            try:
                point = read_design(fields)
            except SpecError:
                continue
            batch = batch_of(point)
            parts = {part: size / GIB for part, size in memory_parts(batch).items()}
            spreads = {part: spread_of(point, part) for part in parts}
            groups, left = float(np.ravel(communicators(batch))[0]), point.memory.left_bytes / GIB
            figures += [
                Figure(source_of(row["set"]), FIGURES[column][0], float(row[column]), parts, spreads, groups, left)
                for column in columns
            ]
    return figures


def mean_error(figures: Iterable[Figure], cached: float, communicator: float) -> float:
    """Return the mean over sources of the mean error of their figures."""
    errors: dict[str, list[float]] = {}
    for figure in figures:
        errors.setdefault(figure.source, []).append(abs(log(figure.predicted(cached, communicator) / figure.measured)))
    return mean(map(mean, errors.values()))


def fit(figures: Sequence[Figure]) -> tuple[float, float]:
    """Return the share of cached blocks and the GiB of a communicator that leave the least error."""
    shown = [figure for figure in figures if figure.kind != "allocated"]
    return min(
        ((float(share), float(size)) for share, size in product(SHARES, COMMUNICATOR_GIB)),
        key=lambda constants: mean_error(shown, *constants),
    )


def main() -> None:
    """Print the constants and the errors with sources left out."""
    figures = read_figures()
    sources = sorted({figure.source for figure in figures})
    print("all sources:", "cached {:.2f}, communicator {:.1f} GiB".format(*fit(figures)))
    left_out = {source: fit([figure for figure in figures if figure.source != source]) for source in sources}
    errors = [(figure, figure.predicted(*left_out[figure.source]) / figure.measured - 1) for figure in figures]
    for source in sources:
        own = [error for figure, error in errors if figure.source == source]
        constants = "cached {:.2f}, communicator {:.1f} GiB".format(*left_out[source])
        print(f"{source:20} {len(own):4} mean {mean(map(abs, own)):6.1%} bias {mean(own):+6.1%}   {constants}")
    print(
        f"{'mean of all':20} {len(errors):4} mean {mean(abs(error) for _, error in errors):6.1%} bias {mean(error for _, error in errors):+6.1%}"
    )
    z = NORMAL.inv_cdf(0.95)
    for factor in FACTORS:
        inside = mean(
            figure.predicted(*left_out[figure.source], -z, factor)
            <= figure.measured
            <= figure.predicted(*left_out[figure.source], z, factor)
            for figure in figures
        )
        if inside >= COVERED:
            print(f"spreads times {factor:.2f}: {inside:.0%} from P5 to P95")
            break


if __name__ == "__main__":
    main()

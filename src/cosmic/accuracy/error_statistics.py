"""Error statistics: mean, median and worst error, bias, and Kendall's τ of the order.

Symbols, over n rows with measured times m and predicted times p:

    e      = p / m - 1, the relative error of a row
    mean   = Σ |e| / n         median, worst  of |e|         bias = Σ e / n
    τ      = (C - D) / N       Kendall's, pooled over groups
    N        pairs of rows of one group, of different designs, whose measured times differ
    C, D     pairs that the predictions order alike, and inversely; equal predictions count as neither

Pooled: pairs of all groups are counted together, so large groups weigh more. A group is rows that do the same work on
the same machine with different mappings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median
from typing import Any

from cosmic.accuracy.measured_rows import Verdict

CLEAR = 0.05
"""Share by which measured times differ clearly: less is within what runs of one design differ by."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The errors of some rows; None where no row was predicted."""

    name: str
    rows: int
    """Rows given."""
    predicted: int
    mean: float | None
    median: float | None
    worst: float | None
    bias: float | None
    tau: float | None
    """None where no two rows can be compared."""
    pairs: int
    """Pairs compared for τ."""
    clear_tau: float | None
    """τ over the pairs whose measured times differ by more than `CLEAR`."""
    clear_pairs: int
    ranged: int
    """Rows whose prediction has a range."""
    in_range: float | None
    """Share of those whose measured time is from P5 to P95."""
    width: float | None
    """Mean distance of P95 from the prediction, as a share."""
    left_out_mean: float | None
    """Mean error by constants that were fitted without the row's source."""
    left_out_median: float | None
    skipped: dict[str, int]
    """Reasons, and the number of rows that each skipped."""

    @property
    def coverage(self) -> float:
        """Share of the rows that was predicted."""
        return self.predicted / self.rows if self.rows else 0.0

    def to_dict(self, key: str) -> dict[str, Any]:
        """Return the summary as plain data, its name under *key*."""
        return {
            key: self.name,
            "rows": self.rows,
            "predicted": self.predicted,
            "coverage": self.coverage,
            "mean_abs_error": self.mean,
            "median_abs_error": self.median,
            "worst_abs_error": self.worst,
            "bias": self.bias,
            "ranged": self.ranged,
            "in_range": self.in_range,
            "range_width": self.width,
            "mean_abs_error_left_out": self.left_out_mean,
            "median_abs_error_left_out": self.left_out_median,
            "kendall_tau": self.tau,
            "pairs": self.pairs,
            "kendall_tau_clear": self.clear_tau,
            "pairs_clear": self.clear_pairs,
            "skipped": self.skipped,
        }


def summarise_errors(name: str, verdicts: Sequence[Verdict], *, memory: bool = False) -> Summary:
    """Return the statistics of the errors of time, or of *memory*."""
    errors = [verdict.memory_error if memory else verdict.error for verdict in verdicts]
    known_errors = [error for error in errors if error is not None]
    sizes = sorted(map(abs, known_errors))
    ordered, pairs = (0, 0) if memory else concordance(verdicts)
    clearly, clear = (0, 0) if memory else concordance(verdicts, CLEAR)
    ranges = [] if memory else [seconds_range for verdict in verdicts if (seconds_range := verdict.range_s) is not None]
    in_range = [] if memory else [within for verdict in verdicts if (within := verdict.in_range) is not None]
    left_out = [] if memory else [abs(verdict.left_out) for verdict in verdicts if verdict.left_out is not None]
    reasons: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.skipped:
            reasons[verdict.skipped] = reasons.get(verdict.skipped, 0) + 1
    return Summary(
        name=name,
        rows=len(verdicts),
        predicted=len(known_errors),
        mean=fmean(sizes) if known_errors else None,
        median=median(sizes) if known_errors else None,
        worst=sizes[-1] if known_errors else None,
        bias=fmean(known_errors) if known_errors else None,
        tau=ordered / pairs if pairs else None,
        pairs=pairs,
        clear_tau=clearly / clear if clear else None,
        clear_pairs=clear,
        ranged=len(ranges),
        in_range=fmean(in_range) if in_range else None,
        width=fmean(verdict.p95 / verdict.p50 - 1 for verdict in ranges) if ranges else None,
        left_out_mean=fmean(left_out) if left_out else None,
        left_out_median=median(left_out) if left_out else None,
        skipped=dict(sorted(reasons.items(), key=lambda item: -item[1])),
    )


def concordance(verdicts: Iterable[Verdict], beyond: float = 0.0) -> tuple[int, int]:
    """Return C - D and N of all groups together, over pairs whose measured times differ by a share *beyond* this."""
    groups: dict[tuple[str, ...], list[tuple[float, float, str]]] = {}
    for verdict in verdicts:
        if verdict.group and verdict.measured_s is not None and verdict.predicted_s is not None:
            groups.setdefault(verdict.group, []).append((verdict.measured_s, verdict.predicted_s, verdict.design))
    ordered = pairs = 0
    for times in groups.values():
        ordered_alike, compared = _pairs(times, beyond)
        ordered, pairs = ordered + ordered_alike, pairs + compared
    return ordered, pairs


def _pairs(times: Sequence[tuple[float, float, str]], beyond: float = 0.0) -> tuple[int, int]:
    """Return C - D and N of one group, given measured time, predicted time and mapping of its rows.

    >>> _pairs([(1.0, 10.0, "a"), (2.0, 30.0, "b"), (3.0, 20.0, "c"), (4.0, 20.0, "c")])
    (1, 5)
    >>> _pairs([(1.0, 10.0, "a"), (1.04, 9.0, "b"), (2.0, 20.0, "c")], 0.05)
    (2, 2)
    """
    ordered = pairs = 0
    for (measured, predicted, design), (other_measured, expected, another) in combinations(times, 2):
        differs = max(measured, other_measured) > min(measured, other_measured) * (1 + beyond)
        if differs and (design != another or not design):
            pairs += 1
            ordered += ((measured > other_measured) - (measured < other_measured)) * (
                (predicted > expected) - (predicted < expected)
            )
    return ordered, pairs

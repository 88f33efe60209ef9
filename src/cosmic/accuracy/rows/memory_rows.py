"""Memory of training processes: what was reported of it, by kind of figure, and whether a run ran out of it.

Figures are those of `training_rows.memory_figure`; `outcome` says whether the run ran or ran out of
memory (oom), which is compared with the probability that it fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from cosmic.accuracy.measured_rows import Fields, Row, Verdict, compare_row
from cosmic.accuracy.rows.training_rows import memory_figure, memory_parts, read_design, require_fit
from cosmic.base.errors import require
from cosmic.design.design_batch import batch_of
from cosmic.step.process_memory import fit_probability

OUTCOMES = {"ran": True, "oom": False, "": None}


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each process."""
    return [compare_row(row, row.get("id", ""), row.get("set") or "memory", _compare_fields) for row in rows]


def _compare_fields(fields: Fields) -> Verdict:
    outcome = fields.text("outcome").lower()
    require(outcome in OUTCOMES, "outcome", outcome, "must be ran or oom")
    point = read_design(fields)
    require_fit(point)
    ran = OUTCOMES[outcome]
    parts = memory_parts(batch_of(point))
    return Verdict(
        row=fields.row,
        assumed=tuple(fields.assumed),
        memory=None if ran is False else memory_figure(fields, point, parts),
        ran=ran,
        fits=fit_probability(point, parts),
        design=repr(point.workload),
    )

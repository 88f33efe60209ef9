"""Measured steps of designs, by the source that published them.

A source is a collection of rows that one party measured with one stack of software, such as a paper, or the tables of
a framework: what one of its rows is off by says something of the others. A part of a collection (``name-part``,
``name2024``) belongs to the same source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.validation.rows import Fields, Row, carried_files, read_rows
from cosmic.validation.single_gpu_rows import inference_design, training_design
from cosmic.validation.training_rows import read_run, require_fit


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A measured step of a design."""

    id: str
    source: str
    point: DesignPoint
    measured_s: float
    group: tuple[str, ...] = ()
    """Steps of one group were measured by one party with one release of its software."""
    collection: str = ""
    """The file of its row, without its ending."""


def source_of(collection: str) -> str:
    """Return the source that a collection of rows belongs to: its name up to a hyphen or a number.

    >>> source_of("vtrain-multi"), source_of("nemo2407"), source_of("h200-training")
    ('vtrain', 'nemo', 'h200')
    """
    found = re.match(r"[^\W\d_]{2,}|[^-\s]+", collection)
    return found[0].lower() if found else collection


def measured_steps(paths: Iterable[Path] | None = None) -> Iterator[MeasuredStep]:
    """Yield every measured step of the files at *paths*, by default those of the package; others are left out."""
    for path in carried_files() if paths is None else paths:
        kind, rows = read_rows(path)
        read = READERS.get(kind.name)
        for row in rows if read else ():
            try:
                step = read(row) if read else None
            except SpecError:  # validation skips it too, and says why
                continue
            if step is not None:
                yield replace(step, collection=path.stem)


def _published(row: Row) -> MeasuredStep:
    run = read_run(Fields(row))
    require_fit(run.point)
    collection = row.get("set") or "training"
    group = collection, row.get("source", "")
    return MeasuredStep(row.get("id", ""), source_of(collection), run.point, run.measured_s, group)


def _training(row: Row) -> MeasuredStep:
    fields = Fields(row)
    return MeasuredStep(
        "", source_of(row.get("set") or "h200"), training_design(fields), fields.seconds("step_ms", 1e-3)
    )


def _inference(row: Row) -> MeasuredStep:
    fields = Fields(row)
    return MeasuredStep("", source_of(row.get("set") or "h200"), inference_design(fields), fields.seconds("ms", 1e-3))


READERS = {
    "training runs": _published,
    "training steps of one GPU": _training,
    "prefill and decode of one GPU": _inference,
}
"""How a row of each kind becomes a measured step."""

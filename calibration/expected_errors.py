"""Write the mean error of predictions by kind of design: ``python calibration/expected_errors.py``.

The script predicts every measured step that the package carries in closed form, groups the runs by kind
(`cosmic.catalog.accuracy`), and writes the mean absolute errors into the catalog, where `cosmic evaluate` reads them.
What `cosmic.serving` predicts is not among them: another model made those numbers. Run it last: it checks what the
other scripts fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cosmic import catalog
from cosmic.catalog.accuracy import KEYS, design_kind
from cosmic.design.batch import batch_of
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.evaluation import evaluate_batch
from cosmic.validation.rows import Fields, Row, carried_files, read_rows
from cosmic.validation.single_gpu_rows import inference_design, training_design
from cosmic.validation.training_rows import read_run, require_fit

TARGET = catalog.FOLDER / "accuracy.yaml"
HEADER = """\
# Mean absolute error of predicted steps, by kind of design: written by calibration/expected_errors.py from the
# measured runs that the package carries (src/cosmic/validation/data), each predicted by the closed form.
kinds:
"""


def runs() -> Iterator[tuple[str, DesignPoint, float]]:
    """Yield source, design and measured seconds of every run."""
    for path in carried_files():
        _, rows = read_rows(path)
        for row in rows:
            try:
                found = _run(path.stem, row)
            except SpecError:  # validation skips it too, and says why
                continue
            if found is not None:
                yield (row.get("set") or path.stem, *found)


def _run(name: str, row: Row) -> tuple[DesignPoint, float] | None:
    fields = Fields(row)
    if name in ("training_published", "training_single_node_a100"):
        run = read_run(fields)
        require_fit(run.point)
        return run.point, run.measured_s
    if name == "h200_training":
        return training_design(fields), fields.seconds("step_ms", 1e-3)
    if name == "h200_inference":
        return inference_design(fields), fields.seconds("ms", 1e-3)
    return None


def main() -> None:
    """Predict, average by kind, and write."""
    table: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    for source, point, measured in runs():
        step = float(evaluate_batch(batch_of(point)).columns["step_s"][0])
        kind = design_kind(point)
        table.setdefault(tuple(kind[key] for key in KEYS), []).append((source, abs(step / measured - 1)))
    lines = []
    for values, found in sorted(table.items()):
        row: dict[str, Any] = dict(zip(KEYS, values, strict=True))
        row["error"] = f"{sum(error for _, error in found) / len(found):.3f}"
        row["runs"] = str(len(found))
        row["sources"] = f"[{', '.join(sorted({source for source, _ in found}))}]"
        lines.append("  - {" + ", ".join(f"{key}: {value}" for key, value in row.items()) + "}")
    TARGET.write_text(HEADER + "\n".join(lines) + "\n")
    print(TARGET.read_text())


if __name__ == "__main__":
    main()

"""Fit what engines take where one pool prefills and another decodes; ``python calibration/fit_handovers.py`` writes it.

    python calibration/fit_handovers.py [DATA.csv] [--dry-run]

DATA has the columns of aiconfigurator's measured samples; the default is data/serving_pools.csv.gz. Only rows of two
pools are read. The fit minimizes the mean of |log(predicted / measured)| of TTFT: the handover and the host time of a
wide prefill step for each engine, the host time of a narrow one and the factor of prefill kernels for all together. It
prints errors by engine, also on rows that it has not seen: a model at a time, and a fifth of the rows at a time. It
rewrites ``catalog/handovers.yaml``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from read_serving import columns_of
from scipy.optimize import least_squares

from cosmic.accuracy.rows.serving_rows import ServedPools, price_pools, read_serving_row, see_pools
from cosmic.base.units import SECONDS, format_quantity
from cosmic.design import catalog_entries
from cosmic.serving.disaggregated_serving import Handover

Array = npt.NDArray[np.float64]
NAMES = ("trtllm", "vllm", "sglang")
OWN = {"handover_s": 0.1, "wide_s": 0.1}
"""Parameters of each engine, and where the fit starts."""
SHARED = {"narrow_s": 0.05, "factor": 0.8, "wide_fp8_factor": 0.8}
"""Parameters that all engines share."""
SOFT = 0.1
"""Errors above this count by their size, those below by their square."""
WORST = 1.2
"""Logarithms of errors beyond this count as this: such rows are not what they say."""
HELD = 0.02
"""Weight of a parameter's distance from its start: decides where the data does not."""


class Data:
    """Rows of two pools, priced once."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
            read = [read_serving_row({**row, **columns_of(row)}) for row in csv.DictReader(file)]
        self.rows = [each for each in read if isinstance(each, ServedPools)]
        self.priced = price_pools(self.rows)
        self.engine = np.array([NAMES.index(row.engine) for row in self.rows])
        self.ttft_s = np.array([row.ttft_s for row in self.rows])
        self.tpot_s = np.array([row.tpot_s for row in self.rows])

    def errors(self, logs: Array) -> tuple[Array, Array]:
        """Return the relative errors of TTFT and TPOT."""
        seen = see_pools(self.rows, self.priced, self.given(logs))
        return seen.ttft_s / self.ttft_s - 1, seen.tpot_s / self.tpot_s - 1

    def given(self, logs: Array) -> Handover:
        """Return the parameters of each row."""
        values = np.exp(logs)
        all_: dict[str, Any] = {
            name: values[len(NAMES) * place :][: len(NAMES)][self.engine] for place, name in enumerate(OWN)
        }
        shared = zip(SHARED, values[len(OWN) * len(NAMES) :], strict=True)
        all_ |= {name: np.full(len(self.rows), value) for name, value in shared}
        return Handover(**all_)


def fit(data: Data, rows: npt.NDArray[np.bool_]) -> Array:
    """Return the logarithms of the parameters that fit *rows* best."""
    origin: Array = np.log(np.array([*(value for value in OWN.values() for _ in NAMES), *SHARED.values()]))
    held = HELD * np.sqrt(rows.sum() / len(origin))

    def residuals(logs: Array) -> Array:
        first = np.clip(np.log1p(data.errors(logs)[0][rows]), -WORST, WORST)
        return np.concatenate([first, held * (logs - origin)])

    found: Array = least_squares(
        residuals, origin, loss="soft_l1", f_scale=SOFT, bounds=(origin - 4, origin + 4), diff_step=1e-3, max_nfev=60
    ).x
    return found


def left_out(data: Data, parts: npt.NDArray[Any]) -> tuple[Array, Array]:
    """Return the errors of each part of the rows under a fit to all others."""
    first, further = np.empty(len(parts)), np.empty(len(parts))
    for part in np.unique(parts):
        inside = parts == part
        found = data.errors(fit(data, ~inside))
        first[inside], further[inside] = found[0][inside], found[1][inside]
    return first, further


def table(title: str, found: tuple[Array, Array], parts: npt.NDArray[Any]) -> str:
    """Return a table of errors by part: rows, and mean, median, P90 and bias of TTFT and TPOT."""
    lines = [f"{title:<32} rows |  ttft: mean  median    p90   bias |  tpot: mean  median    p90   bias"]
    for part in [*np.unique(parts), None]:
        inside = np.ones(len(parts), dtype=bool) if part is None else parts == part
        cells = []
        for each in found:
            size = np.abs(each[inside])
            spread = f"{np.median(size):7.3f} {np.quantile(size, 0.9):6.2f}"
            cells.append(f"{size.mean():12.3f} {spread} {each[inside].mean():+6.3f}")
        lines.append(f"{part or 'all':<32} {inside.sum():4} | {' | '.join(cells)}")
    return "\n".join(lines)


def write(logs: Array, data: Data, unseen: tuple[Array, Array]) -> None:
    """Rewrite the catalog's file."""
    path = catalog_entries.CATALOG_FOLDER / "handovers.yaml"
    kept = path.read_text(encoding="utf-8").split("handovers:")[0]
    values = [float(f"{value:.3g}") for value in np.exp(logs)]
    shared = dict(zip(SHARED, values[len(OWN) * len(NAMES) :], strict=True))
    lines = ["handovers:"]
    for number, name in enumerate(NAMES):
        own = {key: values[len(NAMES) * place + number] for place, key in enumerate(OWN)}
        cells = [f"{key.removesuffix('_s')}: {_shown(key, value)}" for key, value in (own | shared).items()]
        lines.append(f"  {name}: {{{', '.join(cells)}}}")
    lines.append("residuals:")
    for place, name in enumerate(("ttft", "tpot")):
        size = np.abs(data.errors(logs)[place])
        outside = np.abs(unseen[place])
        lines.append(
            f'  {name}: "n {len(size)}, mean {100 * size.mean():.1f} %, median {100 * np.median(size):.1f} %; '
            f'held out mean {100 * outside.mean():.1f} %, median {100 * np.median(outside):.1f} %"'
        )
    path.write_text(kept + "\n".join(lines) + "\n", encoding="utf-8")


def _shown(name: str, value: float) -> str:
    return format_quantity(value, SECONDS) if name.endswith("_s") else repr(value)


def main() -> None:
    """Fit, print the errors, and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = Path(__file__).parent / "data" / "serving_pools.csv.gz"
    parser.add_argument("data", nargs="?", type=Path, default=default, help="samples with aiconfigurator's columns")
    parser.add_argument("--dry-run", action="store_true", help="only print")
    options = parser.parse_args()
    data = Data(options.data)
    logs = fit(data, np.ones(len(data.rows), dtype=bool))
    print(np.exp(logs).round(4).tolist())
    found = data.errors(logs)
    for title, key in (
        ("engine", lambda row: row.engine),
        ("model", lambda row: row.decode.model.name),
        ("system, precision", lambda row: f"{row.decode.compute.accelerator} {row.decode.workload.precision}"),
        ("set", lambda row: row.set),
    ):
        print("\n" + table(title, found, np.array([key(row) for row in data.rows])))
    models = np.array([row.decode.model.name for row in data.rows])
    print("\n" + table("left out: a model at a time", left_out(data, models), models))
    unseen = left_out(data, np.random.default_rng(0).integers(5, size=len(models)).astype(str))
    print("\n" + table("left out: a fifth at a time", unseen, np.array([row.engine for row in data.rows])))
    if not options.dry_run:
        write(logs, data, unseen)


if __name__ == "__main__":
    main()

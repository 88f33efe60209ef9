"""Fit what serving engines add to their kernels, and say how far off predictions are.

    python calibration/fit_serving.py [DATA.csv]

DATA has the columns of aiconfigurator's measured samples; without it, data/serving.csv.gz is used: all aggregated ones
(https://github.com/ai-dynamo/aiconfigurator at 095f58a51, Apache-2.0). The fit makes the mean of |predicted / measured
- 1| small, of times to first token and per output token together, with few parameters for each engine and fewer for
all (`SHARED`), none for a model or a system. It prints them as they stand in `cosmic.serving.ENGINES`, then errors by
engine, by model and by system, and the errors on models that were left out of the fit, one at a time, and on a fifth
of the rows, five times.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from cosmic.serving import ENGINES, Deployment, Engine, Load, continuous_batching
from cosmic.validation import serving_rows

Array = npt.NDArray[np.float64]
OWN = {
    "prefill": 1.0,
    "layer_s": 4e-5,
    "sequence_s": 1e-5,
    "launch_layer_s": 5e-4,
    "front_s": 0.03,
    "mla_front_s": 0.03,
}
"""Parameters of each engine, and where the search for them starts."""
SHARED = {
    "decode": 1.0,
    "grouped": 0.3,
    "streamed": 1.0,
    "exchange_s": 1e-5,
    "mla_layer_s": 2e-5,
    "front_growth": 0.4,
    "train": 1.5,
    "speculation": 1.5,
    "polled": 0.5,
    "held": 0.5,
}
"""Parameters that are one for all: of hardware, load and recipes."""
NAMES = tuple(ENGINES)
FIRST_TOKEN_WEIGHT = 1.0
"""Of errors of the first token, relative to those of further ones."""
SOFT = 0.1
"""Relative errors above this count by their size, those below by their square."""
WORST = 3.0
"""A relative error above this counts as this."""
HELD = 0.01
"""How strongly parameters are held to where they start, where the data says nothing of them."""


@dataclass(frozen=True)
class Data:
    """All rows that are understood, as arrays."""

    given: Deployment
    load: Load
    engine: npt.NDArray[np.intp]
    """Number of each row's engine."""
    drafting: npt.NDArray[np.bool_]
    polling: Array
    holding: Array
    prompts_first: npt.NDArray[np.bool_]
    ttft_s: Array
    tpot_s: Array
    rows: list[serving_rows.Served]

    def column(self, name: Callable[[serving_rows.Served], str]) -> npt.NDArray[np.str_]:
        """Return a text for each row."""
        return np.array([name(row) for row in self.rows])


def gather(path: Path) -> Data:
    """Return the rows of a file, with what each deployment has to do."""
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        understood = [serving_rows.understood(row) for row in csv.DictReader(file)]
    served = [each for each in understood if isinstance(each, serving_rows.Served)]
    parts = serving_rows.deployments(served)
    order = np.concatenate([part.places for part in parts])
    rows = [served[place] for place in order]
    sizes = [len(part.places) for part in parts]
    return Data(
        given=joined([part.given for part in parts], sizes),
        load=replace(joined([part.load for part in parts], sizes), rounds=parts[0].load.rounds),
        engine=np.array([NAMES.index(row.engine) for row in rows]),
        drafting=np.array([row.drafting for row in rows]),
        polling=np.array([row.polling for row in rows]),
        holding=np.array([row.holding for row in rows]),
        prompts_first=np.array([row.prompts_first for row in rows]),
        ttft_s=np.array([row.ttft_s for row in rows]),
        tpot_s=np.array([row.tpot_s for row in rows]),
        rows=rows,
    )


def joined(parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return one dataclass of arrays, given several and the length of each."""
    found = {}
    for field in fields(parts[0]):
        values = [getattr(part, field.name) for part in parts]
        if hasattr(values[0], "__dataclass_fields__"):
            found[field.name] = joined(values, sizes)
        else:
            wide = [np.broadcast_to(np.asarray(each, float), size) for each, size in zip(values, sizes, strict=True)]
            found[field.name] = np.concatenate(wide)
    return type(parts[0])(**found)


# ------------------------------------------------------------------------------------------------ fitting


def start() -> Array:
    """Return the logarithms of all parameters, where the search starts."""
    found: Array = np.log(np.array([*(value for value in OWN.values() for _ in NAMES), *SHARED.values()]))
    return found


def engines(logs: Array, data: Data) -> tuple[Engine, Array]:
    """Return the parameters of each row's engine, and the tokens that each row's steps yield."""
    values = np.exp(logs)
    own = {name: values[len(NAMES) * place :][: len(NAMES)] for place, name in enumerate(OWN)}
    shared: dict[str, Any] = dict(zip(SHARED, values[len(OWN) * len(NAMES) :], strict=True))
    speculation = np.where(data.drafting, shared.pop("speculation"), 1.0)
    shared["hold_steps"] = shared.pop("polled") * data.polling + shared.pop("held") * data.holding
    chosen: dict[str, Any] = {name: numbers[data.engine] for name, numbers in own.items()}
    return Engine(**chosen, **shared, prompts_first=data.prompts_first), speculation


def errors(logs: Array, data: Data) -> tuple[Array, Array]:
    """Return the relative errors of first and of further tokens."""
    engine, speculation = engines(logs, data)
    seen = continuous_batching(data.given, data.load, engine, speculation)
    return seen.ttft_s / data.ttft_s - 1, seen.tpot_s / data.tpot_s - 1


def fit(data: Data, rows: npt.NDArray[np.bool_]) -> Array:
    """Return the logarithms of the parameters that suit some of the rows best."""
    origin = start()
    held = HELD * np.sqrt(rows.sum() / len(origin))

    def residuals(logs: Array) -> Array:
        first, further = (np.minimum(each[rows], WORST) for each in errors(logs, data))
        return np.concatenate([FIRST_TOKEN_WEIGHT * first, further, held * (logs - origin)])

    bounds = origin - 5, origin + 5
    found: Array = least_squares(residuals, origin, loss="soft_l1", f_scale=SOFT, bounds=bounds, max_nfev=80).x
    return found


def left_out(data: Data, parts: npt.NDArray[Any]) -> tuple[Array, Array]:
    """Return the errors of each part of the rows under a fit to all others."""
    first, further = np.empty(len(parts)), np.empty(len(parts))
    for part in np.unique(parts):
        inside = parts == part
        found = errors(fit(data, ~inside), data)
        first[inside], further[inside] = found[0][inside], found[1][inside]
    return first, further


# --------------------------------------------------------------------------------------------- reporting


def told(logs: Array) -> str:
    """Return the parameters as they stand in the package."""
    values = [float(f"{value:.3g}") for value in np.exp(logs)]
    shared = dict(zip(SHARED, values[len(OWN) * len(NAMES) :], strict=True))
    recipes = {name: shared.pop(name) for name in ("speculation", "polled", "held")}
    lines = [f"recipes {recipes}", f"shared {shared}"]
    for number, name in enumerate(NAMES):
        own = {key: values[len(NAMES) * place + number] for place, key in enumerate(OWN)}
        lines.append(f"{name} {own}")
    return "\n".join(lines)


def table(title: str, found: tuple[Array, Array], parts: npt.NDArray[Any]) -> str:
    """Return errors by part: rows, and of both times the mean, median, worst and bias."""
    lines = [f"{title:<44} rows |  ttft: mean  median  worst   bias |  tpot: mean  median  worst   bias"]
    for part in [*np.unique(parts), None]:
        inside = np.ones(len(parts), dtype=bool) if part is None else parts == part
        cells = []
        for each in found:
            size = np.abs(each[inside])
            cells.append(f"{size.mean():12.3f} {np.median(size):7.3f} {size.max():6.2f} {each[inside].mean():+6.3f}")
        lines.append(f"{part or 'all':<44} {inside.sum():4} | {' | '.join(cells)}")
    return "\n".join(lines)


def main(path: Path) -> None:
    """Fit, and print what came of it."""
    data = gather(path)
    everything = np.ones(len(data.rows), dtype=bool)
    logs = fit(data, everything)
    found = errors(logs, data)
    models = data.column(lambda row: row.design.model.name)
    by_engine = data.column(lambda row: f"{row.engine} {'drawn' if row.spread else 'exact'} lengths")
    systems = data.column(lambda row: f"{row.design.compute.accelerator} {row.design.workload.precision}")
    both = np.array([f"{row.engine} {model}" for row, model in zip(data.rows, models, strict=True)])
    folds = np.random.default_rng(0).integers(5, size=len(models)).astype(str)
    print(told(logs))
    for title, parts in (("engine", by_engine), ("engine, model", both), ("system, precision", systems)):
        print("\n" + table(title, found, parts))
    print("\n" + table("left out: a model at a time", left_out(data, models), models))
    print("\n" + table("left out: a fifth at a time", left_out(data, folds), by_engine))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data" / "serving.csv.gz")

"""Fit what serving engines add to their kernels; ``python calibration/fit_serving.py`` writes it into the catalog.

    python calibration/fit_serving.py [DATA.csv] [--dry-run]

DATA has the columns of aiconfigurator's measured samples; the default is data/serving.csv.gz, all aggregated ones
(https://github.com/ai-dynamo/aiconfigurator at 095f58a51, Apache-2.0). The fit minimizes the mean of |predicted /
measured - 1| over TTFT and TPOT, with few parameters per engine (`OWN`), fewer for all engines (`SHARED`), and none for
a model or a system. It prints errors by engine, by model and by system, also on rows that it has not seen: a model at a
time, and a fifth of the rows at a time. It rewrites the fitted keys and the residuals of ``catalog/engines/NAME.yaml``
and of ``catalog/serving_recipes.yaml``.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from cosmic import catalog
from cosmic.catalog.yaml_files import load_yaml
from cosmic.design.engine import Engine
from cosmic.serving import Deployment, RequestLoad, continuous_batching
from cosmic.units import SECONDS, show
from cosmic.validation import serving_rows

Array = npt.NDArray[np.float64]
OWN = {
    "prefill_factor": 1.0,
    "layer_gap_s": 4e-5,
    "request_host_s": 1e-5,
    "layer_launch_s": 5e-4,
    "frontend_s": 0.03,
    "mla_frontend_s": 0.03,
}
"""Parameters of each engine, and where the fit starts."""
SHARED = {
    "decode_factor": 1.0,
    "grouped_gemm_efficiency": 0.3,
    "activation_passes": 1.0,
    "collective_s": 1e-5,
    "mla_layer_gap_s": 2e-5,
    "frontend_growth": 0.4,
    "convoy_factor": 1.5,
    "tokens_per_step": 1.5,
    "polled": 0.5,
    "held": 0.5,
}
"""Parameters that all engines share: of hardware, load and recipes."""
RECIPES = ("tokens_per_step", "polled", "held")
"""Those of `SHARED` that describe InferenceMAX's recipes, not engines."""
NAMES = ("trtllm", "vllm", "sglang")
CATALOG = catalog.FOLDER
FIRST_TOKEN_WEIGHT = 1.0
"""Weight of errors of TTFT, relative to those of TPOT."""
SOFT = 0.1
"""Relative errors above this count by their size, those below by their square."""
WORST = 3.0
"""Relative errors above this count as this."""
HELD = 0.01
"""Weight of a parameter's distance from its start: decides where the data does not."""


@dataclass(frozen=True)
class Data:
    """The rows that can be predicted, as arrays."""

    given: Deployment
    load: RequestLoad
    engine: npt.NDArray[np.intp]
    """Number of each row's engine."""
    drafting: npt.NDArray[np.bool_]
    polling: Array
    holding: Array
    prefill_first: npt.NDArray[np.bool_]
    ttft_s: Array
    tpot_s: Array
    rows: list[serving_rows.Served]

    def column(self, name: Callable[[serving_rows.Served], str]) -> npt.NDArray[np.str_]:
        """Return a text for each row."""
        return np.array([name(row) for row in self.rows])


def gather(path: Path) -> Data:
    """Return the rows of a file, with the work of each deployment."""
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        understood = [serving_rows.understood(row) for row in csv.DictReader(file)]
    served = [each for each in understood if isinstance(each, serving_rows.Served)]
    groups = serving_rows.deployments(served)
    order = np.concatenate([group.places for group in groups])
    rows = [served[place] for place in order]
    sizes = [len(group.places) for group in groups]
    return Data(
        given=joined([group.given for group in groups], sizes),
        load=replace(joined([group.load for group in groups], sizes), rounds=groups[0].load.rounds),
        engine=np.array([NAMES.index(row.engine) for row in rows]),
        drafting=np.array([row.drafting for row in rows]),
        polling=np.array([row.polling for row in rows]),
        holding=np.array([row.holding for row in rows]),
        prefill_first=np.array([row.prefill_first for row in rows]),
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
    """Return the logarithms of all parameters at the start of the fit."""
    found: Array = np.log(np.array([*(value for value in OWN.values() for _ in NAMES), *SHARED.values()]))
    return found


def engines(logs: Array, data: Data) -> tuple[Engine, Array]:
    """Return the engine and the tokens per step of each row."""
    values = np.exp(logs)
    own = {name: values[len(NAMES) * place :][: len(NAMES)] for place, name in enumerate(OWN)}
    shared: dict[str, Any] = dict(zip(SHARED, values[len(OWN) * len(NAMES) :], strict=True))
    tokens = np.where(data.drafting, shared.pop("tokens_per_step"), 1.0)
    shared["hold_steps"] = shared.pop("polled") * data.polling + shared.pop("held") * data.holding
    chosen: dict[str, Any] = {name: numbers[data.engine] for name, numbers in own.items()}
    chosen["prefill_first"] = data.prefill_first  # fields hold arrays here, one number for each row
    return Engine(**chosen, **shared), tokens


def errors(logs: Array, data: Data) -> tuple[Array, Array]:
    """Return the relative errors of TTFT and TPOT."""
    engine, tokens = engines(logs, data)
    seen = continuous_batching(data.given, data.load, engine, tokens)
    return seen.ttft_s / data.ttft_s - 1, seen.tpot_s / data.tpot_s - 1


def fit(data: Data, rows: npt.NDArray[np.bool_]) -> Array:
    """Return the logarithms of the parameters that fit *rows* best."""
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


def as_text(logs: Array) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Return the parameters of each engine, and those of the recipes, as their files have them: to three digits."""
    values = [float(f"{value:.3g}") for value in np.exp(logs)]
    shared = dict(zip(SHARED, values[len(OWN) * len(NAMES) :], strict=True))
    recipes = {name: _shown(name, shared.pop(name)) for name in RECIPES}
    found = {}
    for number, name in enumerate(NAMES):
        own = {key: values[len(NAMES) * place + number] for place, key in enumerate(OWN)}
        given = {key: (own | shared)[key] for key in Engine.__dataclass_fields__ if key in own | shared}
        found[name] = {key.removesuffix("_s"): _shown(key, value) for key, value in given.items()}
    return found, recipes


def _shown(name: str, value: float) -> str:
    return show(value, SECONDS) if name.endswith("_s") else repr(value)


def summary(errors_: Array) -> str:
    """Return mean, median and worst absolute error and the bias."""
    size = np.abs(errors_)
    shown = [f"{100 * value:.1f} %" for value in (size.mean(), np.median(size), size.max(), errors_.mean())]
    return f"n {len(size)}, mean {shown[0]}, median {shown[1]}, worst {shown[2]}, bias {shown[3]}"


def write(engine: str, fields: Mapping[str, str], residuals: Mapping[str, str]) -> None:
    """Rewrite what was fitted in the file of an engine; what precedes it, and how it schedules, stays."""
    path = CATALOG / "engines" / f"{engine}.yaml"
    kept = path.read_text(encoding="utf-8").split("engine:")[0]
    scheduling = {key: str(value).lower() for key, value in load_yaml(path)["engine"].items() if key not in fields}
    lines = ["engine:", *(f"  {key}: {value}" for key, value in (scheduling | dict(fields)).items())]
    lines += ["residuals:", *(f'  {key}: "{text}"' for key, text in residuals.items())]
    path.write_text(kept + "\n".join(lines) + "\n", encoding="utf-8")


def write_recipes(fields: Mapping[str, str]) -> None:
    """Rewrite what was fitted of the recipes."""
    path = CATALOG / "serving_recipes.yaml"
    kept = path.read_text(encoding="utf-8").split("recipes:")[0]
    path.write_text(kept + "\n".join(["recipes:", *(f"  {key}: {value}" for key, value in fields.items())]) + "\n")


def table(title: str, found: tuple[Array, Array], parts: npt.NDArray[Any]) -> str:
    """Return a table of errors by part: rows, and mean, median, worst and bias of TTFT and TPOT."""
    lines = [f"{title:<44} rows |  ttft: mean  median  worst   bias |  tpot: mean  median  worst   bias"]
    for part in [*np.unique(parts), None]:
        inside = np.ones(len(parts), dtype=bool) if part is None else parts == part
        cells = []
        for each in found:
            size = np.abs(each[inside])
            cells.append(f"{size.mean():12.3f} {np.median(size):7.3f} {size.max():6.2f} {each[inside].mean():+6.3f}")
        lines.append(f"{part or 'all':<44} {inside.sum():4} | {' | '.join(cells)}")
    return "\n".join(lines)


def main() -> None:
    """Fit, print the errors, and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    default = Path(__file__).parent / "data" / "serving.csv.gz"
    parser.add_argument("data", nargs="?", type=Path, default=default, help="samples with aiconfigurator's columns")
    parser.add_argument("--dry-run", action="store_true", help="only print")
    options = parser.parse_args()
    data = gather(options.data)
    everything = np.ones(len(data.rows), dtype=bool)
    logs = fit(data, everything)
    found = errors(logs, data)
    models = data.column(lambda row: row.design.model.name)
    by_engine = data.column(lambda row: f"{row.engine} {'drawn' if row.spread else 'exact'} lengths")
    systems = data.column(lambda row: f"{row.design.compute.accelerator} {row.design.workload.precision}")
    both = np.array([f"{row.engine} {model}" for row, model in zip(data.rows, models, strict=True)])
    folds = np.random.default_rng(0).integers(5, size=len(models)).astype(str)
    fitted, recipes = as_text(logs)
    for name, values in {**fitted, "recipes": recipes}.items():
        print(name, values)
    for title, parts in (("engine", by_engine), ("engine, model", both), ("system, precision", systems)):
        print("\n" + table(title, found, parts))
    print("\n" + table("left out: a model at a time", left_out(data, models), models))
    unseen = left_out(data, folds)
    print("\n" + table("left out: a fifth at a time", unseen, by_engine))
    if options.dry_run:
        return
    for number, name in enumerate(NAMES):
        here = data.engine == number
        residuals = {
            time: f"{summary(found[place][here])}; held out {summary(unseen[place][here])}"
            for place, time in enumerate(("ttft", "tpot"))
        }
        write(name, fitted[name], residuals)
    write_recipes(recipes)


if __name__ == "__main__":
    main()

"""Fit what serving engines add to their kernels; ``python calibration/fit_serving.py`` writes it into the catalog.

    python calibration/fit_serving.py [DATA.csv] [--dry-run]

DATA has the columns of aiconfigurator's measured samples; the default is data/serving.csv.gz, all aggregated ones
(https://github.com/ai-dynamo/aiconfigurator at 095f58a51, Apache-2.0). The fit minimizes a robust mean of
|predicted / measured - 1| over TTFT and TPOT, with few parameters per engine (`OWN`), fewer for all engines
(`SHARED`), and none for a model or a system. It prints errors and rank correlations by engine, by model and by system,
also on rows that it has not seen: a model at a time, and a fifth of the rows at a time. It rewrites the fitted keys and
the residuals of ``catalog/engines/NAME.yaml`` and of ``catalog/serving_recipes.yaml``.

What steps take does not depend on what is fitted: each group of rows is priced once, and all rows are then predicted
together, from what was priced.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from read_serving import columns_of
from scipy.optimize import least_squares

from cosmic.accuracy.rows.serving_rows import (
    Fitted,
    RowGroup,
    ServedPool,
    group_rows,
    hold_steps,
    read_serving_row,
    stack_column,
)
from cosmic.base.units import SECONDS, format_quantity
from cosmic.design import catalog_entries
from cosmic.design.plain_data import load_yaml
from cosmic.design.serving_engine import Engine, load_engine
from cosmic.serving.continuous_batching import ClientTimes, RankLoad, estimate_closed_loop
from cosmic.serving.step_price import StepPrice

Array = npt.NDArray[np.float64]
OWN = {
    "decode_factor": 1.0,
    "prefill_factor": 1.0,
    "cast_factor": 1.1,
    "step_host_s": 3e-4,
    "launch_factor": 0.7,
    "layer_gap_s": 5e-6,
    "expert_gap_s": 5e-6,
    "cast_gap_s": 1e-5,
    "widening_gap_s": 1e-5,
    "request_host_s": 1e-5,
    "frontend_s": 0.02,
    "device_handing_s": 0.002,
    "mla_frontend_s": 0.02,
    "taken_steps": 1.0,
}
"""Parameters of each engine, and where the fit starts."""
SHARED = {"frontend_growth": 0.4, "burst_prompts": 1.0, "acceptance": 0.65, "polled": 0.35, "held": 0.5}
"""Parameters that all engines share: of hosts, load and recipes."""
RECIPES = tuple(each.name for each in fields(Fitted))
"""Those of `SHARED` that describe recipes of published runs, not engines."""
KEPT = ("prefill_first", "reserves_kv", "chunked_prefill")
"""How engines schedule."""
NAMES = ("trtllm", "vllm", "sglang")
CATALOG = catalog_entries.CATALOG_FOLDER
FIRST_TOKEN_WEIGHT = 1.0
"""Weight of errors of TTFT, relative to those of TPOT."""
SOFT = 0.1
"""Errors above this count by their size, those below by their square."""
WORST = 1.5
"""Relative errors above this count as this: such rows are not what they say."""
HELD = 0.02
"""Weight of a parameter's distance from its start: decides where the data does not."""
PRICED = ("memory_bytes", "memory.fragmentation", "memory.kv_cache")
"""What is read of a step beside its breakdown."""


# ----------------------------------------------------------------------------------------------- pricing once


@dataclass(frozen=True)
class Noted(StepPrice):
    """A price that notes what it was asked for."""

    notes: tuple[list[dict[str, Array]], int] = ([], 0)
    """What steps took, in the order in which they were asked for, and for how many rows."""

    def steps(self, task: str, requests: Any, tokens: Any) -> Mapping[str, Any]:
        """Return the metrics of steps, and note them."""
        found = super().steps(task, requests, tokens)
        kept = {name: value for name, value in found.items() if name.startswith("breakdown.") or name in PRICED}
        self.notes[0].append({name: np.broadcast_to(value, self.notes[1]) for name, value in kept.items()})
        return found

    def chunk_attention(self, tokens: Any, prompts: Any, cached: Any) -> Any:
        """Return the attention of a chunk; both of its steps are asked for in any case."""
        return _chunk(self, tokens, prompts, cached)


class Told(StepPrice):
    """A price that says again what was noted."""

    def __init__(self, part: Part, engine: Engine) -> None:
        for name, value in (("batch", part), ("engine", engine), ("draft_tokens", part.drafts), ("_next", [0])):
            object.__setattr__(self, name, value)

    layers = property(lambda self: self.batch.layers)
    expert_layers = property(lambda self: self.batch.expert_layers)
    casts = property(lambda self: self.batch.casts)
    widens = property(lambda self: self.batch.widens)
    more_queries = property(lambda self: self.batch.more_queries)
    expert_share = property(lambda self: self.batch.expert_share)

    def steps(self, task: str, requests: Any, tokens: Any) -> Mapping[str, Any]:
        """Return what was noted next."""
        place = self._next[0]  # type: ignore[attr-defined]
        self._next[0] += 1  # type: ignore[attr-defined]
        return self.batch.notes[place]  # type: ignore[attr-defined, no-any-return]

    def chunk_attention(self, tokens: Any, prompts: Any, cached: Any) -> Any:
        """Return the attention of a chunk."""
        return _chunk(self, tokens, prompts, cached)


def _chunk(price: StepPrice, tokens: Any, prompts: Any, cached: Any) -> Any:
    cached = np.asarray(cached, dtype=float)
    whole, before = (
        price.steps("prefill", prompts, length)["breakdown.attention"]
        for length in (cached + tokens, np.maximum(cached, 1))
    )
    return np.maximum(whole - np.where(cached > 0, before, 0.0), 0.0)


@dataclass(frozen=True)
class Part:
    """Rows with as many drafted tokens, all with CUDA graphs or none: what their steps take, and their loads."""

    rows: npt.NDArray[np.intp]
    drafts: int
    cuda_graphs: bool
    notes: list[dict[str, Array]]
    load: RankLoad
    capacity: Array
    layers: Array
    expert_layers: Array
    casts: Array
    widens: Array
    more_queries: Array
    expert_share: Array

    def __getitem__(self, path: str) -> Array:
        """Return the memory of each row's accelerators, which is all that a price looks up."""
        return self.capacity


def _asking(group: RowGroup) -> tuple[object, ...]:
    """Return what decides which steps the closed form asks for: rows that agree in it are predicted together."""
    price, load = group.price, group.load
    several, vary = bool(np.any(np.asarray(load.ranks) > 1)), bool(np.any(np.asarray(load.isl_cv) > 0))
    return price.draft_tokens, price.engine.cuda_graphs, several, vary, price.expert_share > 0


def _of_load(name: str, group: RowGroup) -> Any:
    return getattr(group.load, name)


def _part(those: Sequence[RowGroup]) -> Part:
    notes: list[list[dict[str, Array]]] = []
    for group in those:
        kept: list[dict[str, Array]] = []
        price = Noted(group.price.batch, group.price.engine, group.price.draft_tokens, notes=(kept, len(group.places)))
        estimate_closed_loop(price, group.load)
        notes.append(kept)
    sizes = [len(group.places) for group in those]

    def wide(value: Callable[[RowGroup], Any]) -> Any:
        return np.concatenate([np.broadcast_to(value(group), size) for group, size in zip(those, sizes, strict=True)])

    arrays = [each.name for each in fields(RankLoad) if each.name != "rounds"]
    return Part(
        rows=np.concatenate([group.places for group in those]),
        drafts=those[0].price.draft_tokens,
        cuda_graphs=those[0].price.engine.cuda_graphs,
        notes=[
            {name: np.concatenate([each[call][name] for each in notes]) for name in first}
            for call, first in enumerate(notes[0])
        ],
        load=RankLoad(rounds=those[0].load.rounds, **{name: wide(partial(_of_load, name)) for name in arrays}),
        capacity=wide(lambda group: group.price.batch["memory.capacity"]),
        layers=wide(lambda group: group.price.layers),
        expert_layers=wide(lambda group: group.price.expert_layers),
        casts=wide(lambda group: group.price.casts),
        widens=wide(lambda group: group.price.widens),
        more_queries=wide(lambda group: group.price.more_queries),
        expert_share=wide(lambda group: group.price.expert_share),
    )


@dataclass(frozen=True)
class Data:
    """The rows that can be predicted, and what their steps take."""

    rows: list[ServedPool]
    parts: list[Part]
    engine: npt.NDArray[np.intp]
    """Number of each row's engine."""
    kept: dict[str, Array]
    """How each row's engine schedules, and its share of the memory."""
    holding: Array
    cold_s: Array
    ttft_s: Array
    tpot_s: Array

    def column(self, name: Callable[[ServedPool], str]) -> npt.NDArray[np.str_]:
        """Return a text for each row."""
        return np.array([name(row) for row in self.rows])


def gather(path: Path) -> Data:
    """Return the rows of a file, with the price of each deployment's steps."""
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        read = [read_serving_row({**row, **columns_of(row)}) for row in csv.DictReader(file)]
    rows = [each for each in read if isinstance(each, ServedPool)]
    all_groups = group_rows(rows)
    kinds: dict[tuple[object, ...], list[RowGroup]] = {}
    for group in all_groups:
        kinds.setdefault(_asking(group), []).append(group)
    engines = [load_engine(row.engine) for row in rows]
    kept = {name: np.array([getattr(each, name) for each in engines]) for name in KEPT}
    usual = [row.recipe.memory_fraction or each.memory_fraction for row, each in zip(rows, engines, strict=True)]
    return Data(
        rows=rows,
        parts=[_part(those) for those in kinds.values()],
        engine=np.array([NAMES.index(row.engine) for row in rows]),
        kept={**kept, "memory_fraction": np.array(usual)},
        holding=stack_column([row.recipe for row in rows], "hold_steps"),
        cold_s=stack_column([row.recipe for row in rows], "cold_s"),
        ttft_s=stack_column(rows, "ttft_s"),
        tpot_s=stack_column(rows, "tpot_s"),
    )


# ------------------------------------------------------------------------------------------------ fitting


def start() -> Array:
    """Return the logarithms of all parameters at the start of the fit."""
    found: Array = np.log(np.array([*(value for value in OWN.values() for _ in NAMES), *SHARED.values()]))
    return found


def unpacked(logs: Array) -> tuple[dict[str, Array], dict[str, float]]:
    """Return the parameters of each engine, and those that all share."""
    values = np.exp(logs)
    own = {name: values[len(NAMES) * place :][: len(NAMES)] for place, name in enumerate(OWN)}
    return own, dict(zip(SHARED, values[len(OWN) * len(NAMES) :].tolist(), strict=True))


def predicted(logs: Array, data: Data) -> tuple[Array, Array]:
    """Return the TTFT and TPOT of each row."""
    own, shared = unpacked(logs)
    effects = Fitted(**{name: min(shared.pop(name), 1.0) for name in RECIPES})
    ttft, tpot = np.empty(len(data.rows)), np.empty(len(data.rows))
    for part in data.parts:
        here = {name: numbers[data.engine[part.rows]] for name, numbers in own.items()}
        schedules = {name: numbers[part.rows] for name, numbers in data.kept.items()}
        graphs = part.cuda_graphs
        engine = Engine(**here, **shared, **schedules, cuda_graphs=graphs)  # type: ignore[arg-type]  # arrays
        load = replace(
            part.load,
            tokens_per_step=effects.tokens_of(part.drafts) * np.ones(len(part.rows)),
            polled_steps=effects.polled * part.load.poll_steps,
            hold_steps=hold_steps(effects, data.holding[part.rows], part.load.ranks),
        )
        seen: ClientTimes = estimate_closed_loop(Told(part, engine), load)
        ttft[part.rows] = seen.mean_ttft_s + data.cold_s[part.rows] / (load.rounds or 1)
        tpot[part.rows] = seen.tpot_s
    return ttft, tpot


def errors(logs: Array, data: Data) -> tuple[Array, Array]:
    """Return the relative errors of TTFT and TPOT."""
    ttft, tpot = predicted(logs, data)
    return ttft / data.ttft_s - 1, tpot / data.tpot_s - 1


def fit(data: Data, rows: npt.NDArray[np.bool_]) -> Array:
    """Return the logarithms of the parameters that fit *rows* best."""
    origin = start()
    held = HELD * np.sqrt(rows.sum() / len(origin))

    def residuals(logs: Array) -> Array:
        first, further = (np.minimum(each[rows], WORST) for each in errors(logs, data))
        return np.concatenate([FIRST_TOKEN_WEIGHT * first, further, held * (logs - origin)])

    bounds = origin - 6, origin + 6
    found: Array = least_squares(residuals, origin, loss="soft_l1", f_scale=SOFT, bounds=bounds, max_nfev=60).x
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
    own, shared = unpacked(logs)
    recipes = {name: _shown(name, shared.pop(name)) for name in RECIPES}
    found = {}
    for number, name in enumerate(NAMES):
        both = {key: float(numbers[number]) for key, numbers in own.items()} | shared
        given = {key: both[key] for key in Engine.__dataclass_fields__ if key in both}
        found[name] = {key.removesuffix("_s"): _shown(key, value) for key, value in given.items()}
    return found, recipes


def _shown(name: str, value: float) -> str:
    short = float(f"{value:.3g}")
    return format_quantity(short, SECONDS) if name.endswith("_s") else repr(short)


def summary(errors_: Array) -> str:
    """Return mean, median, ninth decile and worst of the absolute error, and the bias."""
    size = np.abs(errors_)
    values = (size.mean(), np.median(size), np.quantile(size, 0.9), size.max(), errors_.mean())
    shown = [f"{100 * value:.1f} %" for value in values]
    return f"n {len(size)}, mean {shown[0]}, median {shown[1]}, P90 {shown[2]}, worst {shown[3]}, bias {shown[4]}"


def write(engine: str, fields_: Mapping[str, str], residuals: Mapping[str, str]) -> None:
    """Rewrite what was fitted in the file of an engine; what precedes it, and how it schedules, stays."""
    path = CATALOG / "engines" / f"{engine}.yaml"
    kept = path.read_text(encoding="utf-8").split("engine:")[0]
    scheduling = {key: _plain(value) for key, value in load_yaml(path)["engine"].items() if key not in fields_}
    lines = ["engine:", *(f"  {key}: {value}" for key, value in (scheduling | dict(fields_)).items())]
    lines += ["residuals:", *(f'  {key}: "{text}"' for key, text in residuals.items())]
    path.write_text(kept + "\n".join(lines) + "\n", encoding="utf-8")


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_recipes(fields_: Mapping[str, str]) -> None:
    """Rewrite what was fitted of the recipes."""
    path = CATALOG / "serving_recipes.yaml"
    kept = path.read_text(encoding="utf-8").split("recipes:\n")[0]
    lines = ["recipes:", *(f"  {key}: {value}" for key, value in fields_.items())]
    path.write_text(kept + "\n".join(lines) + "\n", encoding="utf-8")


def table(title: str, found: tuple[Array, Array], parts: npt.NDArray[Any]) -> str:
    """Return a table of errors by part: rows, and mean, median, ninth decile and bias of TTFT and TPOT."""
    lines = [f"{title:<44} rows |  ttft: mean  median    P90   bias |  tpot: mean  median    P90   bias"]
    for part in [*np.unique(parts), None]:
        inside = np.ones(len(parts), dtype=bool) if part is None else parts == part
        cells = []
        for each in found:
            size = np.abs(each[inside])
            middle, most = np.median(size), np.quantile(size, 0.9)
            cells.append(f"{size.mean():12.3f} {middle:7.3f} {most:6.2f} {each[inside].mean():+6.3f}")
        lines.append(f"{part or 'all':<44} {inside.sum():4} | {' | '.join(cells)}")
    return "\n".join(lines)


def kendall(data: Data, times: Array, measured: Array) -> float:
    """Return Kendall's τ of all pairs of rows with the same engine, model, machine, lengths and load."""
    together: dict[Any, list[int]] = {}
    for place, row in enumerate(data.rows):
        key = (row.engine, row.row["model_path"], row.row["system"], row.isl, row.osl, row.row["concurrency"])
        together.setdefault(key, []).append(place)
    alike = against = 0
    for those in together.values():
        for one in range(len(those)):
            for other in range(one):
                a, b = those[one], those[other]
                sign = (times[a] - times[b]) * (measured[a] - measured[b])
                alike, against = alike + (sign > 0), against + (sign < 0)
    return float((alike - against) / max(alike + against, 1))


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
    unseen_models = left_out(data, models)
    print("\n" + table("left out: a model at a time", unseen_models, models))
    unseen = left_out(data, folds)
    print("\n" + table("left out: a fifth at a time", unseen, by_engine))
    for name, each in (("fitted", found), ("model left out", unseen_models), ("fifth left out", unseen)):
        taus = [
            kendall(data, (1 + part) * real, real) for part, real in zip(each, (data.ttft_s, data.tpot_s), strict=True)
        ]
        print(f"Kendall's tau, {name}: ttft {taus[0]:.3f}, tpot {taus[1]:.3f}")
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

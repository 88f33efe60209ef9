"""`cosmic sweep`: a design evaluated for every combination of some fields' values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import candidates
from cosmic.cli.console import (
    Design,
    Fix,
    Json,
    Prices,
    Settings,
    StatusLine,
    emit_json,
    emit_table,
    fixed_paths,
    new_app,
    say,
)
from cosmic.cli.evaluate import seconds
from cosmic.cli.output import emit, emit_data
from cosmic.cli.spaces import varied

if TYPE_CHECKING:
    from cosmic.comparing.sweeping import Row

app = new_app()
MOST = 10_000
MOST_MOVED = 6
"""Fields that moved along for which the table has room; JSON has all."""
SHADES = " ░▒▓█"
NUMBERS = (
    "step_s",
    "tokens_per_s",
    "samples_per_s",
    "mfu",
    "memory_bytes",
    "cost_usd",
    "network_usd",
    "power_w",
    "goodput",
    "train_days",
)
OF_CLUSTERS: dict[str, tuple[str, Callable[[float], str]]] = {
    "network_usd": ("network M USD", lambda usd: f"{usd / 1e6:,.3f}"),
    "power_w": ("MW", lambda watts: f"{watts / 1e6:,.3f}"),
    "goodput": ("goodput", lambda share: f"{100 * share:.2f} %"),
    "train_days": ("days", lambda days: f"{days:,.2f}"),
}
"""Columns of the table for what differs from row to row besides the step."""
OF_REQUESTS = ("ttft_s", "tpot_s", "ttft_p95_s", "tpot_p95_s", "tokens_per_s_per_npu", "tokens_per_s_per_user")
"""What designs that serve a load have besides."""


@app.command()
def sweep(  # noqa: PLR0913, PLR0917  one option each
    design: Design,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="PATH=A,B,…",
            help="A field and its values, such as tp=1,2,4.",
            autocompletion=candidates.settings,
        ),
    ],
    settings: Settings = [],  # noqa: B006  typer copies it
    prices: Prices = None,
    fix: Fix = [],  # noqa: B006
    metric: Annotated[
        str,
        typer.Option(
            "--metric", help="The metric of the heat map.", autocompletion=candidates.one_of(*NUMBERS, *OF_REQUESTS)
        ),
    ] = "step_s",
    csv_: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
) -> None:
    """Evaluate a design for every combination of some fields' values: a table; for two fields also a heat map.

    Fields that the design does not state are chosen anew for each combination; the table shows which, --fix holds them.
    """
    from cosmic.errors import SpecError, UnknownName  # noqa: PLC0415  heavy imports stay in functions

    if metric not in (*NUMBERS, *OF_REQUESTS):
        raise UnknownName.among("--metric", metric, "metric of a sweep", (*NUMBERS, *OF_REQUESTS))
    with StatusLine() as line:
        found = run_sweep(design, settings, vary, line.show, fix, prices)
    rows = [_data(row) for row in found]
    running = [row for row in rows if row["feasible"]]
    if running and all(row[metric] is None for row in running):
        raise SpecError("--metric", metric, f"is unknown for every design: {running[0]['unknown'][metric]}")
    if json:
        emit_json(rows)
    elif csv_:
        emit_data(_csv(rows, _moving(found)))
    else:
        _print(found, rows, [each.partition("=")[0].strip() for each in vary], metric)


def _print(found: list[Row], rows: list[dict[str, Any]], paths: list[str], metric: str) -> None:
    from cosmic.comparing.sweeping import moved_in_words, short  # noqa: PLC0415  heavy

    moving = dict(list(_moving(found).items())[:MOST_MOVED])
    times = ["TTFT", "TPOT"] if any("tpot_s" in row for row in rows) else ["step"]
    running = [row for row in rows if row["feasible"]]
    dated = any(row["train_days"] is not None for row in running)  # without a length, no run is meant
    clusters = [
        name
        for name in OF_CLUSTERS
        if len({row[name] for row in running}) > 1 and (dated or name not in ("goodput", "train_days"))
    ]
    shown = [OF_CLUSTERS[name][0] for name in clusters]
    rate = "samples/s" if any(row["tokens_per_s"] is None for row in running) else "tokens/s"
    columns = [*paths, *map(short, moving), *times, rate, "MFU", "memory GiB", *shown, "cannot run"]
    cells = list(zip(*moving.values(), strict=True)) or [()] * len(rows)
    table = [_row(row, paths, others, len(times), clusters) for row, others in zip(rows, cells, strict=True)]
    if all(row["feasible"] for row in rows):
        columns, table = columns[:-1], [row[:-1] for row in table]
    emit_table("", columns, table)
    if said := moved_in_words(found, paths):
        say(["", said])
    if len(paths) == 2:
        emit(["", *heat_map(rows, paths[0], paths[1], metric)])


def run_sweep(
    design: str,
    settings: list[str],
    vary: list[str],
    progress: Callable[[str], None] = lambda _: None,
    fix: list[str] | None = None,
    prices: Path | None = None,
) -> list[Row]:
    """Return a row for each combination: the values, what comes of the design, and what moved along.

    *progress* is called with a line of text before each design.
    """
    from cosmic.comparing.sweeping import sweep_design  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.errors import require  # noqa: PLC0415
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415
    from cosmic.loading.prices import quotes_in  # noqa: PLC0415

    values = varied(vary)
    count = prod(map(len, values.values()))
    require(count <= MOST, "--vary", count, f"at most {MOST:,} combinations")
    overrides = {**quotes_in(prices), **parse_overrides(settings)}
    return sweep_design(design, overrides, values, fixed_paths(fix or []), progress)


def _data(row: Row) -> dict[str, Any]:
    """Return a row as JSON has it."""
    from cosmic.evaluation import Metrics  # noqa: PLC0415  heavy

    moved = {path: {"from": old, "to": new} for path, (old, new) in row.moved.items()}
    outcome = row.outcome
    if not isinstance(outcome, Metrics):
        return {**row.values, "feasible": False, "reasons": list(outcome.reasons), "moved": moved}
    served = outcome.ttft_p95_s is not None
    numbers = {name: getattr(outcome, name) for name in (*NUMBERS, *(OF_REQUESTS if served else ()))}
    unknown = {name: why for name, why in outcome.unknown.items() if name in NUMBERS}
    told = {"feasible": True, "reasons": [], "moved": moved, **numbers, "unknown": unknown}
    return {**row.values, **told, "breakdown": outcome.breakdown}


def _moving(rows: list[Row]) -> dict[str, list[str]]:
    """Return the fields that moved, and differ among the designs, with the value of each; a dash without a design."""
    from cosmic.comparing import as_text  # noqa: PLC0415  heavy

    first = {path: old for row in rows for path, (old, _) in row.moved.items()}
    found = {}
    for path, old in first.items():
        values = [as_text(row.moved.get(path, (old, old))[1]) for row in rows]
        if len(set(values)) > 1:
            found[path] = values
    return found


def _row(row: dict[str, Any], paths: list[str], others: tuple[str, ...], times: int, clusters: list[str]) -> list[Any]:
    values = [*(str(row[path]) for path in paths), *others]
    if not row["feasible"]:
        return [*values, *[None] * (times + 3 + len(clusters)), "; ".join(row["reasons"])]
    memory = f"{row['memory_bytes'] / 2**30:.1f}"
    taken = [seconds(row[name]) for name in (("ttft_s", "tpot_s") if times > 1 else ("step_s",))]
    bought = ["–" if row[name] is None else OF_CLUSTERS[name][1](row[name]) for name in clusters]
    rate = row["samples_per_s"] if row["tokens_per_s"] is None else row["tokens_per_s"]
    return [*values, *taken, f"{rate:,.0f}", f"{100 * row['mfu']:.1f} %", memory, *bought, ""]


def _csv(rows: list[dict[str, Any]], moving: dict[str, list[str]]) -> Iterator[str]:
    from cosmic.design.paths import full_path  # noqa: PLC0415  heavy
    from cosmic.exploration.studies.export import csv_lines  # noqa: PLC0415  heavy

    parts = {part for row in rows for part in row.get("breakdown", {})}
    named = {
        key: full_path(key) if key in parts else key for row in rows for key in row
    }  # tp is a part of the step, too
    flat = [
        {
            **{named[key]: value for key, value in row.items() if key not in ("breakdown", "unknown", "moved")},
            "reasons": "; ".join(row["reasons"]),
            **row.get("breakdown", {}),
            **{path: values[place] for path, values in moving.items()},
        }
        for place, row in enumerate(rows)
    ]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return csv_lines({name: [row.get(name, "") for row in flat] for name in names})


def heat_map(rows: list[dict[str, Any]], down: str, across: str, metric: str) -> list[str]:
    """Return a heat map over two fields, darker for more of *metric*; a dot cannot run, or has no such metric."""
    ys, xs = (list(dict.fromkeys(str(row[path]) for row in rows)) for path in (down, across))
    found = {(str(row[down]), str(row[across])): row.get(metric) for row in rows}
    values = [value for value in found.values() if value is not None]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    width, label = max(map(len, xs)) + 1, max(map(len, ys))
    lines = [f"{metric}: {low:.4g} (light) to {high:.4g} (dark); {down} down, {across} across"]
    lines.append(" " * label + "".join(x.rjust(width) for x in xs))
    for y in ys:
        cells = []
        for x in xs:
            value = found.get((y, x))
            level = 0 if value is None or high == low else round((len(SHADES) - 2) * (value - low) / (high - low)) + 1
            cells.append(("·" if value is None else SHADES[max(level, 1)] * 2).rjust(width))
        lines.append(y.rjust(label) + "".join(cells))
    return lines

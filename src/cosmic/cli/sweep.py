"""`cosmic sweep`: a design evaluated for every combination of some fields' values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Annotated, Any

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Design, Json, Settings, StatusLine, emit_json, emit_table, new_app
from cosmic.cli.evaluate import seconds
from cosmic.cli.output import emit, emit_data

app = new_app()
MOST = 10_000
SHADES = " ░▒▓█"
NUMBERS = ("step_s", "tokens_per_s", "mfu", "memory_bytes", "cost_usd")


@app.command()
def sweep(
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
    metric: Annotated[
        str,
        typer.Option("--metric", help="The metric of the heat map.", autocompletion=candidates.one_of(*NUMBERS)),
    ] = "step_s",
    csv_: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
) -> None:
    """Evaluate a design for every combination of some fields' values: a table; for two fields also a heat map."""
    from cosmic.errors import SpecError, UnknownName  # noqa: PLC0415  heavy imports stay in functions

    if metric not in NUMBERS:
        raise UnknownName.among("--metric", metric, "metric of a sweep", NUMBERS)
    with StatusLine() as line:
        rows = run_sweep(design, settings, vary, line.show)
    running = [row for row in rows if row["feasible"]]
    if running and all(row[metric] is None for row in running):
        raise SpecError("--metric", metric, f"is unknown for every design: {running[0]['unknown'][metric]}")
    if json:
        emit_json(rows)
    elif csv_:
        emit_data(_csv(rows))
    else:
        paths = [each.partition("=")[0].strip() for each in vary]
        columns = [*paths, "step", "tokens/s", "MFU", "memory GiB", "cannot run"]
        emit_table("", columns, [_row(row, paths) for row in rows])
        if len(paths) == 2:
            emit(["", *heat_map(rows, paths[0], paths[1], metric)])


def run_sweep(
    design: str, settings: list[str], vary: list[str], progress: Callable[[str], None] = lambda _: None
) -> list[dict[str, Any]]:
    """Return a row for each combination: the values, and the design's metrics or why it cannot run.

    *progress* is called with a line of text before each design.
    """
    from cosmic.design.paths import full_path  # noqa: PLC0415  heavy imports stay in functions
    from cosmic.errors import SpecError, require  # noqa: PLC0415
    from cosmic.evaluation import Infeasible, Metrics, Outcome, evaluate  # noqa: PLC0415
    from cosmic.loading.designs import load_design, parse_overrides  # noqa: PLC0415

    fixed = parse_overrides(settings)
    varied: dict[str, list[Any]] = {}
    for each in vary:
        path, _, text = (part.strip() for part in each.partition("="))
        require(bool(path and text), "--vary", each, "give a field and its values, such as tp=1,2,4")
        require(full_path(path) not in map(full_path, varied), "--vary", each, "names a field that another one varies")
        varied[path] = parse_overrides([f"{path}=[{text}]"])[path]
        require(bool(varied[path]), "--vary", each, "give a field and its values, such as tp=1,2,4")
    count = prod(map(len, varied.values()))
    require(count <= MOST, "--vary", count, f"at most {MOST:,} combinations")
    combinations = list(product(*varied.values()))
    rows, refusals = [], []
    for place, values in enumerate(combinations):
        if place:
            progress(f"{place:,} of {len(combinations):,} designs")
        chosen = dict(zip(varied, values, strict=True))
        try:
            outcome: Outcome = evaluate(load_design(design, {**fixed, **chosen}))
        except SpecError as error:  # one combination may be malformed; if all are, --vary itself is wrong
            refusals.append(error)
            outcome = Infeasible((str(error),))
        if isinstance(outcome, Metrics):
            numbers = {name: getattr(outcome, name) for name in NUMBERS}
            unknown = {name: why for name, why in outcome.unknown.items() if name in NUMBERS}
            told = {"feasible": True, "reasons": [], **numbers, "unknown": unknown, "breakdown": outcome.breakdown}
            rows.append({**chosen, **told})
        else:
            rows.append({**chosen, "feasible": False, "reasons": list(outcome.reasons)})
    if len(refusals) == len(rows):
        raise refusals[0]
    return rows


def _row(row: dict[str, Any], paths: list[str]) -> list[Any]:
    values = [str(row[path]) for path in paths]
    if not row["feasible"]:
        return [*values, None, None, None, None, "; ".join(row["reasons"])]
    memory = f"{row['memory_bytes'] / 2**30:.1f}"
    return [*values, seconds(row["step_s"]), f"{row['tokens_per_s']:,.0f}", f"{100 * row['mfu']:.1f} %", memory, ""]


def _csv(rows: list[dict[str, Any]]) -> Iterator[str]:
    from cosmic.exploration.studies.export import csv_lines  # noqa: PLC0415  heavy

    flat = [
        {
            **{key: value for key, value in row.items() if key not in ("breakdown", "unknown")},
            "reasons": "; ".join(row["reasons"]),
            **row.get("breakdown", {}),
        }
        for row in rows
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

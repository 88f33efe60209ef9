"""`cosmic design diff`: two designs beside each other; `cosmic design sweep`: one, for combinations of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.base.errors import require
from cosmic.cli import value_completion
from cosmic.cli.console import (
    Design,
    Fix,
    Json,
    Prices,
    Settings,
    emit_json,
    emit_table,
    fixed_paths,
    format_seconds,
    print_sentences,
)
from cosmic.cli.output_streams import FAILED, StatusLine, doing, emit, emit_data
from cosmic.cli.search_command import parse_varied
from cosmic.cli.search_output import format_metric

if TYPE_CHECKING:
    from cosmic.search.compare.design_differences import Contrast, Difference
    from cosmic.search.compare.remapping import SweptDesign
    from cosmic.search.design_answers import DesignComparison


# ---- `cosmic design diff`: two designs beside each other

SHOWN = {
    "step_s": "step",
    "tokens_per_s": "tokens/s",
    "samples_per_s": "samples/s",
    "mfu": "MFU",
    "hfu": "HFU",
    "memory_bytes": "memory",
    "offloaded_bytes": "offloaded",
    "cost_usd": "cost",
    "network_usd": "network cost",
    "cost_usd_per_token": "cost per token, USD",
    "cost_usd_per_sample": "cost per sample, USD",
    "power_w": "power, W",
    "energy_j": "energy per step, J",
    "goodput": "goodput",
    "train_days": "days to train",
    "train_usd": "cost of the run",
}
"""The metrics of the table; JSON has all."""
SERVED = {
    "ttft_s": "TTFT",
    "ttft_p95_s": "TTFT P95",
    "tpot_s": "TPOT",
    "tpot_p95_s": "TPOT P95",
    "goodput_per_s": "requests/s within their limits",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_npu": "tokens/s an accelerator",
    "tokens_per_s_per_user": "tokens/s a user",
    "mfu": "MFU",
    "memory_bytes": "memory",
    "cost_usd": "cost",
    "cost_usd_per_token": "cost per token, USD",
    "energy_j_per_token": "energy per token, J",
}
"""The same where both designs serve a load of requests."""
MOST_FIELDS = 8
"""Fields of one difference that the table shows; JSON has all."""


def diff(
    a: Design,
    b: Annotated[
        str, typer.Argument(help="The design to compare it with.", autocompletion=value_completion.complete_designs)
    ],
    settings: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change one field of both, such as tp=8.",
            autocompletion=value_completion.complete_settings,
        ),
    ] = [],  # noqa: B006  typer copies it
    settings_b: Annotated[
        list[str],
        typer.Option(
            "--set-b",
            metavar="PATH=VALUE",
            help="Change one field of B alone.",
            autocompletion=value_completion.complete_settings,
        ),
    ] = [],  # noqa: B006
    prices: Prices = None,
    fix: Fix = [],  # noqa: B006
    same_mapping: Annotated[
        bool, typer.Option("--same-mapping", help="Give B the mapping of A; without it, each has its best.")
    ] = False,
    json: Json = False,
) -> None:
    """Print which of two designs is faster, what differs between them, and what each difference is worth.

    A design that states no mapping has its best one; then the gain is split: what the change itself is worth at the
    mapping of A, and what re-mapping adds.
    """
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.search.design_answers import diff_designs  # noqa: PLC0415  heavy
    from cosmic.search.design_wording import design_in_words  # noqa: PLC0415  heavy

    both, of_b = parse_overrides(settings), parse_overrides(settings_b, "--set-b")
    doing("choosing mappings, and evaluating designs between A and B")
    found = diff_designs(
        a,
        b,
        settings=both,
        settings_b=of_b,
        prices=prices,
        fix=fixed_paths(fix),
        same_mapping=same_mapping,
    )
    contrast = found.contrast
    if json:
        emit_json(found)
    else:
        print_sentences([found.answer.verdict, *found.answer.assumptions])
        emit(["", f"A  {' '.join([a, *settings])}", f"   {design_in_words(contrast.a.point)}"])
        emit([f"B  {' '.join([b, *settings, *settings_b])}", f"   {design_in_words(contrast.b.point)}"])
        _print_diff(found)
    if contrast.a.reasons or contrast.b.reasons:
        raise typer.Exit(FAILED)


def _print_diff(found: DesignComparison) -> None:
    contrast = found.contrast
    print_sentences(found.answer.reasons)
    shown = SERVED if contrast.serves else SHOWN
    pairs = found.metrics
    rows: list[list[Any]] = [
        [label, format_metric(name, pair.a), format_metric(name, pair.b), _times_in_words(pair.ratio)]
        for name, label in shown.items()
        if (pair := pairs.get(name)) is not None and (pair.a or pair.b)
    ]
    if rows:
        emit([""])
        emit_table("", ["", "A", "B", "B/A"], rows)
        print_sentences(_unknown_costs(contrast))
    if not contrast.differences:
        return
    emit([""])
    rows = [row for difference in contrast.differences for row in _difference_rows(difference)]
    emit_table("", ["what differs", "A", "B", "alone", "worth", "share"], rows)
    print_sentences(["", *_notes(contrast)])
    parts = [(name, part.a, part.b) for name, part in found.breakdown.items() if part.a or part.b]
    if parts:
        parts.append(("total", sum(a for _, a, _ in parts), sum(b for _, _, b in parts)))
        emit([""])
        rows = [[name, format_seconds(a), format_seconds(b), _signed(b - a)] for name, a, b in parts]
        emit_table("", ["decode step" if contrast.serves else "step", "A", "B", "B - A"], rows)


def _unknown_costs(contrast: Contrast) -> list[str]:
    """Return which costs are unknown of either design, and why."""
    from cosmic.simulate.step_evaluation import unknown_metrics  # noqa: PLC0415  heavy

    lines = []
    for name, side in (("A", contrast.a), ("B", contrast.b)):
        reasons: dict[str, list[str]] = {}
        for metric, why in unknown_metrics(side.point).items():
            if metric in (shown := {**SERVED, **SHOWN}):
                reasons.setdefault(why, []).append(shown[metric].partition(",")[0])
        lines += [f"{name}: {' and '.join(designs)} unknown: {why}" for why, designs in reasons.items()]
    return lines


def _difference_rows(difference: Difference) -> list[list[str]]:
    """Return a row for the group with its worth, then one for each field, unless there is only one."""
    from cosmic.search.compare.design_differences import field_text  # noqa: PLC0415  heavy

    fields = [[path, field_text(difference.a[path]), field_text(difference.b[path])] for path in difference.a]
    share = difference.worth_share
    numbers = [
        _signed(difference.alone_s),
        _signed(difference.worth_s),
        "-" if share is None else f"{100 * share:z.0f} %",
    ]
    if len(fields) == 1:
        return [[*fields[0], *numbers]]
    rows = [[difference.group, "", "", *numbers]]
    rows += [[f"  {path}", a, b, "", "", ""] for path, a, b in fields[:MOST_FIELDS]]
    if len(fields) > MOST_FIELDS:
        rows.append([f"  and {len(fields) - MOST_FIELDS} more: --json has all", "", "", "", "", ""])
    return rows


def _notes(contrast: Contrast) -> list[str]:
    """Return how the numbers were computed, one sentence a line."""
    from cosmic.search.compare.design_differences import SAMPLED_ORDERS  # noqa: PLC0415  heavy

    between = f"{contrast.designs} designs, A and B among them"
    notes = {
        "none": "no difference has a worth: one of the designs has no time",
        "exact": f"alone: changed in A only; worth: average over all orders of changing A into B ({between})",
        "sampled": f"alone: changed in A only; worth: average over {SAMPLED_ORDERS} orders of changing A into B ({between})",
        "one_at_a_time": (
            f"alone: changed in A only; worth: average of changing it first and last ({between}), as {contrast.invalid}"
            f" other combinations are invalid mappings; {_signed(contrast.together_s)} come from several together"
        ),
    }
    lines = [("of TPOT; " if contrast.serves and contrast.method != "none" else "") + notes[contrast.method]]
    if contrast.over_memory:
        lines.append(f"{contrast.over_memory} of them exceed the memory; their times count all the same")
    return lines


def _times_in_words(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}×" if ratio >= 0.1 else f"{ratio:.2g}×"


def _signed(value: float | None) -> str:
    """Return a change of time with its sign and a readable unit.

    >>> _signed(-0.5), _signed(2.0), _signed(0.0), _signed(None)
    ('-500 ms', '+2 s', '0 s', '-')
    """
    if value is None:
        return "-"
    return "0 s" if abs(value) < 1e-12 else f"{'-' if value < 0 else '+'}{format_seconds(abs(value))}"


# ---- `cosmic design sweep`: a design evaluated for every combination of some fields' values

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


def sweep(
    design: Design,
    vary: Annotated[
        list[str],
        typer.Option(
            "--vary",
            metavar="PATH=A,B,…",
            help="A field and its values, such as tp=1,2,4.",
            autocompletion=value_completion.complete_settings,
        ),
    ],
    settings: Settings = [],  # noqa: B006  typer copies it
    prices: Prices = None,
    fix: Fix = [],  # noqa: B006
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            help="The metric of the heat map.",
            autocompletion=value_completion.complete_one_of(*NUMBERS, *OF_REQUESTS),
        ),
    ] = "step_s",
    csv_: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
) -> None:
    """Evaluate a design for every combination of some fields' values: a table; for two fields also a heat map.

    Fields that the design does not state are chosen anew for each combination; the table shows which, --fix holds them.
    """
    from cosmic.base.errors import SpecError, UnknownName  # noqa: PLC0415  heavy imports stay in functions

    if metric not in (*NUMBERS, *OF_REQUESTS):
        raise UnknownName.among("--metric", metric, "metric of a sweep", (*NUMBERS, *OF_REQUESTS))
    with StatusLine() as line:
        swept = run_sweep(design, settings, vary, line.show, fix, prices)
    rows = [_sweep_data(row) for row in swept]
    running = [row for row in rows if row["feasible"]]
    if running and all(row[metric] is None for row in running):
        raise SpecError("--metric", metric, f"is unknown for every design: {running[0]['unknown'][metric]}")
    if json:
        emit_json(rows)
    elif csv_:
        emit_data(_csv(rows, _moved_fields(swept)))
    else:
        _print_sweep(swept, rows, [each.partition("=")[0].strip() for each in vary], metric)


def _print_sweep(swept: list[SweptDesign], rows: list[dict[str, Any]], paths: list[str], metric: str) -> None:
    from cosmic.search.compare.remapping import moved_fields_text, shorten_path  # noqa: PLC0415  heavy

    moving = dict(list(_moved_fields(swept).items())[:MOST_MOVED])
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
    columns = [*paths, *map(shorten_path, moving), *times, rate, "MFU", "memory GiB", *shown, "cannot run"]
    cells = list(zip(*moving.values(), strict=True)) or [()] * len(rows)
    table = [_row(row, paths, others, len(times), clusters) for row, others in zip(rows, cells, strict=True)]
    if all(row["feasible"] for row in rows):
        columns, table = columns[:-1], [row[:-1] for row in table]
    emit_table("", columns, table)
    if note := moved_fields_text(swept, paths):
        print_sentences(["", note])
    if len(paths) == 2:
        emit(["", *heat_map(rows, paths[0], paths[1], metric)])


def run_sweep(
    design: str,
    settings: list[str],
    vary: list[str],
    progress: Callable[[str], None] = lambda _: None,
    fix: list[str] | None = None,
    prices: Path | None = None,
) -> list[SweptDesign]:
    """Return a row for each combination: the values, what comes of the design, and what moved along.

    *progress* is called with a line of text before each design.
    """
    from cosmic.design.catalog_parts import quotes_override  # noqa: PLC0415
    from cosmic.design.loading import parse_overrides  # noqa: PLC0415
    from cosmic.search.compare.remapping import sweep_design  # noqa: PLC0415  heavy imports stay in functions

    values = parse_varied(vary)
    count = prod(map(len, values.values()))
    require(count <= MOST, "--vary", count, f"at most {MOST:,} combinations")
    overrides = {**quotes_override(prices), **parse_overrides(settings)}
    return sweep_design(design, overrides, values, fixed_paths(fix or []), progress)


def _sweep_data(row: SweptDesign) -> dict[str, Any]:
    """Return a row as JSON has it."""
    from cosmic.simulate.metrics import Metrics  # noqa: PLC0415  heavy

    moved = {path: {"from": old, "to": new} for path, (old, new) in row.moved.items()}
    outcome = row.outcome
    if not isinstance(outcome, Metrics):
        return {**row.values, "feasible": False, "reasons": list(outcome.reasons), "moved": moved}
    served = outcome.ttft_p95_s is not None
    numbers = {name: getattr(outcome, name) for name in (*NUMBERS, *(OF_REQUESTS if served else ()))}
    unknown = {name: why for name, why in outcome.unknown.items() if name in NUMBERS}
    facts = {"feasible": True, "reasons": [], "moved": moved, **numbers, "unknown": unknown}
    return {**row.values, **facts, "breakdown": outcome.breakdown}


def _moved_fields(rows: list[SweptDesign]) -> dict[str, list[str]]:
    """Return the fields that moved, and differ among the designs, with the value of each; a dash without a design."""
    from cosmic.search.compare.design_differences import field_text  # noqa: PLC0415  heavy

    first = {path: old for row in rows for path, (old, _) in row.moved.items()}
    moved_values = {}
    for path, old in first.items():
        values = [field_text(row.moved.get(path, (old, old))[1]) for row in rows]
        if len(set(values)) > 1:
            moved_values[path] = values
    return moved_values


def _row(row: dict[str, Any], paths: list[str], others: tuple[str, ...], times: int, clusters: list[str]) -> list[Any]:
    values = [*(str(row[path]) for path in paths), *others]
    if not row["feasible"]:
        return [*values, *[None] * (times + 3 + len(clusters)), "; ".join(row["reasons"])]
    memory = f"{row['memory_bytes'] / 2**30:.1f}"
    taken = [format_seconds(row[name]) for name in (("ttft_s", "tpot_s") if times > 1 else ("step_s",))]
    bought = ["–" if row[name] is None else OF_CLUSTERS[name][1](row[name]) for name in clusters]
    rate = row["samples_per_s"] if row["tokens_per_s"] is None else row["tokens_per_s"]
    return [*values, *taken, f"{rate:,.0f}", f"{100 * row['mfu']:.1f} %", memory, *bought, ""]


def _csv(rows: list[dict[str, Any]], moving: dict[str, list[str]]) -> Iterator[str]:
    from cosmic.design.design_point import full_path  # noqa: PLC0415  heavy
    from cosmic.search.study.study import csv_lines  # noqa: PLC0415  heavy

    parts = {part for row in rows for part in row.get("breakdown", {})}
    named = {
        key: full_path(key) if key in parts else key for row in rows for key in row
    }  # tp is a part of the step, too
    flat = [
        {
            **{named[key]: value for key, value in row.items() if key not in ("breakdown", "unknown", "moved")},
            "reasons": "; ".join(row["reasons"]),
            **row.get("breakdown", {}),
            **{path: values[index] for path, values in moving.items()},
        }
        for index, row in enumerate(rows)
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

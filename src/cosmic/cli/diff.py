"""`cosmic diff`: two designs beside each other."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosmic.cli import candidates
from cosmic.cli.console import Design, Fix, Json, Prices, doing, emit, emit_json, emit_table, fixed_paths, new_app, say
from cosmic.cli.evaluate import NO_FEASIBLE_DESIGN, seconds
from cosmic.cli.studies import worth
from cosmic.errors import require

if TYPE_CHECKING:
    from cosmic.catalog.pair_accuracy import Certainty
    from cosmic.comparing import Contrast, Difference, Pair, Side, Split

app = new_app()
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


@app.command()
def diff(  # noqa: PLR0913, PLR0917  one option each
    a: Design,
    b: Annotated[str, typer.Argument(help="The design to compare it with.", autocompletion=candidates.designs)],
    settings: Annotated[
        list[str],
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change one field of both, such as tp=8.",
            autocompletion=candidates.settings,
        ),
    ] = [],  # noqa: B006  typer copies it
    settings_b: Annotated[
        list[str],
        typer.Option(
            "--set-b",
            metavar="PATH=VALUE",
            help="Change one field of B alone.",
            autocompletion=candidates.settings,
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
    from cosmic.comparing import compare_designs, load_pair, mapping_in_words, split_gain, verdict  # noqa: PLC0415
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.loading.prices import quotes_in  # noqa: PLC0415  heavy
    from cosmic.reporting.words import design_in_words  # noqa: PLC0415  heavy

    both, of_b = parse_overrides(settings), parse_overrides(settings_b, "--set-b")
    both = {**quotes_in(prices), **both}
    doing("choosing mappings")
    pair = load_pair(a, b, both, of_b, fix=fixed_paths(fix), same_mapping=same_mapping)
    kinds = [side.serving is not None for side in (pair.a, pair.b)]
    rule = "one design serves a load, and the other is a single step: save both with 'cosmic serve … --save'"
    require(kinds[0] == kinds[1], "B", b, rule)
    doing("evaluating designs between A and B")
    contrast, split = compare_designs(pair.a, pair.b), split_gain(pair)
    said, mapping, sure = verdict(contrast), mapping_in_words(pair, split), contrast.certainty
    if json:
        emit_json(
            {
                "verdict": said,
                "certainty": _certainty(sure),
                "a": {"design": a, "settings": both, **_standing(contrast.a)},
                "b": {"design": b, "settings": pair.settings, **_standing(contrast.b)},
                "mapping": _mapping(pair, split, mapping),
                **_data(contrast),
            }
        )
    else:
        say([said, mapping, *([] if sure is None else [sure.sentence])])
        emit(["", f"A  {' '.join([a, *settings])}", f"   {design_in_words(contrast.a.point)}"])
        emit([f"B  {' '.join([b, *settings, *settings_b])}", f"   {design_in_words(contrast.b.point)}"])
        _print(contrast)
    if contrast.a.reasons or contrast.b.reasons:
        raise typer.Exit(NO_FEASIBLE_DESIGN)


def _certainty(sure: Certainty | None) -> dict[str, Any] | None:
    if sure is None:
        return None
    return {**asdict(sure), "told_apart": sure.told_apart, "sentence": sure.sentence}


def _mapping(pair: Pair, split: Split | None, sentence: str) -> dict[str, Any]:
    return {
        "mode": pair.mode,
        "sentence": sentence,
        "fixed": list(pair.fixed),
        "change_speedup": None if split is None else split.change,
        "remapping_speedup": None if split is None else split.remapping,
        "reasons": [] if split is None else list(split.reasons),
        "remapped": {} if split is None else {path: {"a": a, "b": b} for path, (a, b) in split.remapped.items()},
    }


def _data(contrast: Contrast) -> dict[str, Any]:
    return {
        "metrics": {
            name: {"a": value, "b": other, "ratio": _ratio(value, other)} for name, value, other in _metrics(contrast)
        },
        "differences": [
            {
                "group": each.group,
                "a": each.a,
                "b": each.b,
                "alone_s": each.alone_s,
                "worth_s": each.worth_s,
                "worth_share": each.worth_share,
            }
            for each in contrast.differences
        ],
        "attribution": {
            "method": contrast.method,
            "designs": contrast.designs,
            "invalid": contrast.invalid,
            "over_memory": contrast.over_memory,
            "together_s": contrast.together_s,
        },
        "breakdown": {
            part: {"a": value, "b": other, "difference_s": other - value} for part, value, other in _parts(contrast)
        },
    }


def _standing(side: Side) -> dict[str, Any]:
    return {"identity": side.point.identity, "feasible": not side.reasons, "reasons": list(side.reasons)}


def _metrics(contrast: Contrast) -> list[tuple[str, float | None, float | None]]:
    """Return the metrics that either design has, each with both values."""
    a, b = contrast.a.metrics, contrast.b.metrics
    return [(name, a.get(name), b.get(name)) for name in {**a, **b}]


def _parts(contrast: Contrast) -> list[tuple[str, float, float]]:
    """Return each component of a step with both times; none where one of the steps has no time."""
    a, b = contrast.a.breakdown, contrast.b.breakdown
    return [(name, a[name], b[name]) for name in a if name in b]


def _ratio(a: float | None, b: float | None) -> float | None:
    return b / a if a and b is not None else None


def _print(contrast: Contrast) -> None:
    for name, side in (("A", contrast.a), ("B", contrast.b)):
        say([f"{name} cannot run: {reason}" for reason in side.reasons])
    shown = SERVED if contrast.serves else SHOWN
    found = {name: (a, b) for name, a, b in _metrics(contrast)}
    rows: list[list[Any]] = [
        [label, *(worth(name, each) for each in found[name]), _times(_ratio(*found[name]))]
        for name, label in shown.items()
        if any(found.get(name, ()))
    ]
    if rows:
        emit([""])
        emit_table("", ["", "A", "B", "B/A"], rows)
        say(_unknown(contrast))
    if not contrast.differences:
        return
    emit([""])
    rows = [row for each in contrast.differences for row in _difference_rows(each)]
    emit_table("", ["what differs", "A", "B", "alone", "worth", "share"], rows)
    say(["", *_notes(contrast)])
    parts = [(name, a, b) for name, a, b in _parts(contrast) if a or b]
    if parts:
        parts.append(("total", sum(a for _, a, _ in parts), sum(b for _, _, b in parts)))
        emit([""])
        rows = [[name, seconds(a), seconds(b), _signed(b - a)] for name, a, b in parts]
        emit_table("", ["decode step" if contrast.serves else "step", "A", "B", "B - A"], rows)


def _unknown(contrast: Contrast) -> list[str]:
    """Return which costs are unknown of either design, and why."""
    from cosmic.evaluation import unknown_metrics  # noqa: PLC0415  heavy

    lines = []
    for name, side in (("A", contrast.a), ("B", contrast.b)):
        reasons: dict[str, list[str]] = {}
        for metric, why in unknown_metrics(side.point).items():
            if metric in (shown := {**SERVED, **SHOWN}):
                reasons.setdefault(why, []).append(shown[metric].partition(",")[0])
        lines += [f"{name}: {' and '.join(those)} unknown: {why}" for why, those in reasons.items()]
    return lines


def _difference_rows(difference: Difference) -> list[list[str]]:
    """Return a row for the group with its worth, then one for each field, unless there is only one."""
    from cosmic.comparing import as_text  # noqa: PLC0415  heavy

    fields = [[path, as_text(difference.a[path]), as_text(difference.b[path])] for path in difference.a]
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
    from cosmic.comparing import ORDERS  # noqa: PLC0415  heavy

    between = f"{contrast.designs} designs, A and B among them"
    notes = {
        "none": "no difference has a worth: one of the designs has no time",
        "exact": f"alone: changed in A only; worth: average over all orders of changing A into B ({between})",
        "sampled": f"alone: changed in A only; worth: average over {ORDERS} orders of changing A into B ({between})",
        "one_at_a_time": (
            f"alone: changed in A only; worth: average of changing it first and last ({between}), as {contrast.invalid}"
            f" other combinations are invalid mappings; {_signed(contrast.together_s)} come from several together"
        ),
    }
    lines = [("of TPOT; " if contrast.serves and contrast.method != "none" else "") + notes[contrast.method]]
    if contrast.over_memory:
        lines.append(f"{contrast.over_memory} of them exceed the memory; their times count all the same")
    return lines


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.3f}×" if ratio >= 0.1 else f"{ratio:.2g}×"


def _signed(value: float | None) -> str:
    """Return a change of time with its sign and a readable unit.

    >>> _signed(-0.5), _signed(2.0), _signed(0.0), _signed(None)
    ('-500 ms', '+2 s', '0 s', '-')
    """
    if value is None:
        return "-"
    return "0 s" if abs(value) < 1e-12 else f"{'-' if value < 0 else '+'}{seconds(abs(value))}"

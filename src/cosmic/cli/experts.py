"""`cosmic experts`: what uneven routing does to a mixture of experts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from cosmic.cli.console import Design, Json, Settings, emit, emit_json, emit_table, new_app, say

app = new_app()
NOTES = [
    "skew: the i-th most popular expert is picked in proportion to 1 / i^skew; 0 is balanced.",
    "load: of the fullest rank of ep, over an even one: it decides what experts and all-to-alls take.",
    "hits: experts in use that a cache holds (LFU with decay), and in brackets those of the most popular ones.",
]


@app.command()
def experts(  # noqa: PLR0913, PLR0917  one option each
    design: Design,
    skew: Annotated[list[float], typer.Option(help="A Zipf exponent of routing; several if repeated.")] = [],  # noqa: B006
    copies: Annotated[list[int], typer.Option(metavar="N", help="Redundant experts of a layer.")] = [],  # noqa: B006
    capacity: Annotated[list[float], typer.Option(metavar="FACTOR", help="A capacity factor of experts.")] = [],  # noqa: B006
    cache: Annotated[list[float], typer.Option(metavar="SHARE", help="A share of the experts in a cache.")] = [],  # noqa: B006
    settings: Settings = [],  # noqa: B006  typer copies it
    json: Json = False,
) -> None:
    """Print what skewed routing does to a design's experts: the fullest rank, dropped tokens, hits of a cache."""
    from cosmic.loading.designs import parse_overrides  # noqa: PLC0415  heavy
    from cosmic.mapping.completing import load_design  # noqa: PLC0415  heavy
    from cosmic.workload.expert_loads import CACHED, CAPACITIES, SKEWS, expert_loads  # noqa: PLC0415  heavy

    point = load_design(design, parse_overrides(settings))
    found = expert_loads(point, skew or SKEWS, copies, capacity or CAPACITIES, cache or CACHED)
    if json:
        emit_json(asdict(found))
        return
    first = found.rows[0]
    said = f"{found.experts} experts, {found.active} for each token, on {found.ep} ranks"
    emit_table(
        f"{said}: load of the fullest rank, over an even one",
        ["skew", "by number", *(f"{each.redundant} copies" for each in first.packed)],
        [[row.skew, f"{row.load:.2f}", *(f"{each.load:.2f}" for each in row.packed)] for row in found.rows],
    )
    emit([""])
    emit_table(
        "the same with a capacity factor, and the picks that are dropped",
        ["skew", *(f"{each.factor:g}" for each in first.capped)],
        [[row.skew, *(f"{each.load:.2f}, {each.dropped:.1%}" for each in row.capped)] for row in found.rows],
    )
    emit([""])
    emit_table(
        f"hits of a cache of experts, in steps of {found.tokens:,.0f} tokens",
        ["skew", *(f"{each.cached:.0%}" for each in first.hits)],
        [[row.skew, *(f"{each.rate:.1%} ({each.most:.1%})" for each in row.hits)] for row in found.rows],
    )
    emit([""])
    say(NOTES)

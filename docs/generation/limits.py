"""Limits: what is refused however well formed it is, and how much of it there may be."""

from __future__ import annotations

from cosmic.accuracy import measured_rows as measured
from cosmic.base import expression_syntax, units
from cosmic.base.errors import LONGEST_NAME
from cosmic.cli import design_comparison_commands
from cosmic.design import network_layer, plain_data, schema
from cosmic.report.live.connections import Limits
from cosmic.search import leaderboard, search_inputs, worker_pools
from cosmic.search.space import parameters
from cosmic.search.study import trial_storage as study_database
from cosmic.simulate import trace_generation
from cosmic.traces.chakra import trace_reader
from generation.text import page, table

INTRODUCTION = """
What goes beyond a limit is refused with one sentence, before any work begins. The limits are far from what clusters,
models and searches need; tell us where one is in your way. Files are read if they are regular files: a pipe may never
answer, and a device may never end.
"""
UNITS = {
    "plain numbers": units.NUMBER,
    "bytes": units.BYTES,
    "times": units.SECONDS,
    "bandwidths": units.BYTES_PER_S,
    "rates of compute": units.FLOP_PER_S,
    "power": units.WATTS,
    "prices": units.USD,
}


def make() -> str:
    """Return the page."""
    return page("Limits", INTRODUCTION, *_sections())


def _sections() -> list[str]:
    return [
        "## Files",
        table(
            ["file", "at most"],
            [
                ["a design, a parameter set, a catalog entry, a `config.json`", _mebibytes(plain_data.MOST_BYTES)],
                ["levels of lists and mappings in it", f"{plain_data.DEEPEST}"],
                ["measured rows (CSV)", _mebibytes(measured.MOST_BYTES)],
                ["the trace of one rank, decompressed", _mebibytes(trace_reader.MOST_BYTES)],
                ["the `study.json` of a study", _mebibytes(study_database.MAX_INPUT_BYTES)],
            ],
        ),
        "## Designs",
        f"Names are printable text on one line, of at most {LONGEST_NAME} characters. Every number has a range:",
        table(
            ["number", "range, besides 0"],
            [
                ["whole numbers, unless a key says less", f"at most {schema.MOST_WHOLE:,}"],
                ["accelerators", f"at most {network_layer.MOST_NPUS:,}"],
                *([name, _range(dimension)] for name, dimension in UNITS.items()),
            ],
        ),
        "## Work",
        table(
            ["work", "at most"],
            [
                ["values of a parameter", f"{parameters.MAX_VALUES:,}"],
                ["parts of an expression", f"{expression_syntax.MAX_TOKENS:,}"],
                ["trials of a search, or of a tournament in all", f"{search_inputs.MAX_TRIALS:,}"],
                ["designs in one batch", f"{search_inputs.MAX_BATCH:,}"],
                ["seeds of a tournament", f"{leaderboard.MAX_SEEDS:,}"],
                ["worker processes of one machine", f"{worker_pools.MAX_LOCAL_WORKERS}, or 4 for each core"],
                ["combinations of a sweep", f"{design_comparison_commands.MOST:,}"],
                ["ranks of generated traces", f"{trace_generation.MOST_RANKS:,}"],
                ["nodes of generated traces, one rank of each pipeline stage", f"{trace_generation.MOST_NODES:,}"],
            ],
        ),
        "## The live page",
        table(
            ["limit", "value"],
            [
                ["a request's header, its body, the time between requests", _seconds("header_s", "body_s", "idle_s")],
                ["an answer; a design that is changed on the page", _seconds("seconds", "design_s")],
                ["connections without a key, and with one", f"{Limits().strangers}, {Limits().connections}"],
                ["a request's body", f"{Limits().body_bytes // 2**10} KiB"],
            ],
        ),
    ]


def _mebibytes(size: int) -> str:
    return f"{size // 2**20:,} MiB"


def _range(dimension: units.PhysicalDimension) -> str:
    low, high = schema.RANGES[dimension]
    if dimension == units.NUMBER:
        return f"{low:g} to {high:g}"
    return f"{units.format_quantity(low, dimension)} to {units.format_quantity(high, dimension)}"


def _seconds(*names: str) -> str:
    return ", ".join(f"{getattr(Limits(), name):g} s" for name in names)

"""Limits: what is refused however well formed it is, and how much of it there may be."""

from __future__ import annotations

from cosmic import syntax, units
from cosmic.catalog import yaml_files
from cosmic.cli import sweep
from cosmic.design import bounds, network
from cosmic.errors import LONGEST_NAME
from cosmic.exploration import inputs, tournament, workers
from cosmic.exploration.studies import folder
from cosmic.live.limits import Limits
from cosmic.psa import parameters
from cosmic.traces import generation, reading
from cosmic.validation import rows as measured
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
                ["a design, a parameter set, a catalog entry, a `config.json`", _mebibytes(yaml_files.MOST_BYTES)],
                ["levels of lists and mappings in it", f"{yaml_files.DEEPEST}"],
                ["measured rows (CSV)", _mebibytes(measured.MOST_BYTES)],
                ["the trace of one rank, decompressed", _mebibytes(reading.MOST_BYTES)],
                ["the `study.json` of a study", _mebibytes(folder.MOST_INPUT_BYTES)],
            ],
        ),
        "## Designs",
        f"Names are printable text on one line, of at most {LONGEST_NAME} characters. Every number has a range:",
        table(
            ["number", "range, besides 0"],
            [
                ["whole numbers, unless a key says less", f"at most {bounds.MOST_WHOLE:,}"],
                ["accelerators", f"at most {network.MOST_NPUS:,}"],
                *([name, _range(dimension)] for name, dimension in UNITS.items()),
            ],
        ),
        "## Work",
        table(
            ["work", "at most"],
            [
                ["values of a parameter", f"{parameters.MAX_VALUES:,}"],
                ["parts of an expression", f"{syntax.MAX_TOKENS:,}"],
                ["trials of a search, or of a tournament in all", f"{inputs.MOST_TRIALS:,}"],
                ["designs in one batch", f"{inputs.LARGEST_BATCH:,}"],
                ["seeds of a tournament", f"{tournament.MOST_SEEDS:,}"],
                ["worker processes of one machine", f"{workers.MOST_HERE}, or 4 for each core"],
                ["combinations of a sweep", f"{sweep.MOST:,}"],
                ["ranks of generated traces", f"{generation.MOST_RANKS:,}"],
                ["nodes of generated traces, one rank of each pipeline stage", f"{generation.MOST_NODES:,}"],
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
    low, high = bounds.RANGES[dimension]
    if dimension == units.NUMBER:
        return f"{low:g} to {high:g}"
    return f"{units.show(low, dimension)} to {units.show(high, dimension)}"


def _seconds(*names: str) -> str:
    return ", ".join(f"{getattr(Limits(), name):g} s" for name in names)

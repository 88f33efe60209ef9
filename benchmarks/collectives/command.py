"""The command line of the table.

    python benchmarks/collective_table.py --json
    python benchmarks/collective_table.py --page docs/reference/collectives.md

With --json, one object a line, for each network. TACOS' times are carried; all others are computed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collectives.algorithms import row_of
from collectives.networks import NETWORKS
from collectives.page import page
from cosmic.base.errors import require


def main() -> None:
    """Print a JSON object for each network, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--json", action="store_true", help="print an object for each network")
    chosen.add_argument("--page", type=Path, help="write the page")
    given = parser.parse_args()
    if given.page:
        given.page.write_text(page(list(rows())))
        return
    for row in rows():
        print(json.dumps(row), flush=True)


def rows() -> Iterator[dict[str, Any]]:
    """Yield the rows of all networks, whose synthesised schedules are valid and take as long as they say."""
    for network in NETWORKS:
        row = row_of(network)
        require(row["valid"], network.name, row["valid"], "the synthesised schedule is not valid")
        rule = f"nanoseconds, in the event engine; the synthesised schedule says {row['stated_ns']:,}"
        require(row["played_ns"] == row["stated_ns"], network.name, row["played_ns"], rule)
        yield row

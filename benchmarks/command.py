"""The command line of every benchmark: options in, JSON out."""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable
from typing import Any

SPACE = "cosmic-1024-full-stack"


def main(description: str | None, measure: Callable[[str, int], dict[str, Any]], option: str, default: int) -> None:
    """Print the result of *measure* for the space and the number on the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--space", default=SPACE)
    parser.add_argument(f"--{option}", type=int, default=default, dest="number")
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    options = parser.parse_args()
    found = measure(options.space, options.number)
    peak_memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**found, "peak_memory_bytes": peak_memory_bytes}, indent=2))

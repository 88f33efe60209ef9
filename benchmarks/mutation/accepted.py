"""Survivors that are accepted, each with a reason: a TOML file beside the benchmark.

    [[survivor]]
    module = "cost/gemm.py"
    line = "TINY_S = 1e-30"                  # the source line, without its indent
    mutant = "constant: 1e-30 -> 2e-30"      # operator and description
    why = "equivalent: any tiny number does"

A mutant whose reason begins with "equivalent:" is left out of the score: no test can tell it from the original. Others
are listed apart, and count as survivors.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from .operators import Mutant

FILE = Path("benchmarks/mutation/survivors.toml")
"""Below the root of the tree that is mutated."""
EQUIVALENT = "equivalent:"

Key = tuple[str, str, str]


def read(path: Path) -> dict[Key, str]:
    """Return the reasons by module, source line and mutant; none if there is no such file."""
    if not path.exists():
        return {}
    entries = tomllib.loads(path.read_text()).get("survivor", [])
    return {(entry["module"], entry["line"], entry["mutant"]): entry["why"] for entry in entries}


def stale(reasons: Mapping[Key, str], mutants: Iterable[Mutant]) -> list[str]:
    """Return the entries that are no mutant of these."""
    known = {mutant.key for mutant in mutants}
    return [" | ".join(key) for key in reasons if key not in known]

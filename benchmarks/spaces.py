"""The parameter sets that benchmarks measure on: COSMIC's own, and real models on real machines."""

from __future__ import annotations

from pathlib import Path

from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space

FOLDER = Path(__file__).parent / "spaces"
CATALOG = {"cosmic-1024": "cosmic-1024-full-stack"}
"""Short names of sets of the catalog."""
NAMES = (*CATALOG, "llama3-70b", "llama3-70b-wide", "mixtral", "deepseek-v3", "decode")


def benchmark_space(name: str) -> ParameterSet:
    """Return the set of this name: one of `NAMES`, or any other that `cosmic.load_space` knows."""
    path = FOLDER / f"{name}.yaml"
    return load_space(path if path.is_file() else CATALOG.get(name, name))

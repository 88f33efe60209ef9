"""Small parameter sets to test on."""

from __future__ import annotations

from typing import Any

from cosmic.search.space.parameter_set import ParameterSet
from cosmic.search.space.space_files import load_space

BASE = "gpt3-175b@cosmic-512"


def space(parameters: Any, constraints: Any = (), derived: Any = None) -> ParameterSet:
    """Return a parameter set around the 512-NPU design."""
    tree = {"base": BASE, "parameters": parameters, "constraints": list(constraints), "derived": derived or {}}
    return load_space(tree)

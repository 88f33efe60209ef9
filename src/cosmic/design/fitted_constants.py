"""Constants that measurements settled: YAML files in ``constants/``, each read into a frozen dataclass.

A number is written with where it comes from and what sets it, lists of numbers likewise; mappings group them:

Attention:
      exposed_tail: {value: 0.75, source: "attention kernels of one H200", set_by: calibration/fit_kernels.py}

Keys are the names of the dataclass's fields without their unit (`cosmic.design.schema`).

"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from cosmic.base.errors import SpecError, join_path
from cosmic.design import schema
from cosmic.design.catalog_entries import CATALOG_FOLDER, load_mapping

T = TypeVar("T")
CONSTANT_KEYS = {"value", "source", "set_by"}
"""What a constant consists of."""


def load_constants(name: str, cls: type[T]) -> T:
    """Return the constants in ``catalog/constants/NAME.yaml`` as a *cls*.

    >>> from dataclasses import make_dataclass
    >>> Roofline = make_dataclass("Roofline", [("sustained", float), ("usual_efficiency", float)])
    >>> load_constants("roofline", Roofline)
    Roofline(sustained=0.8, usual_efficiency=0.6)
    """
    values = _constant_values(load_mapping(CATALOG_FOLDER / "constants" / f"{name}.yaml"), name)
    return cast(T, schema.read_value(cls, values, name))


def _constant_values(tree: Any, where: str) -> Any:
    """Return a tree of constants as a tree of their values."""
    if not isinstance(tree, dict):
        raise SpecError(where, tree, f"a constant must state {', '.join(sorted(CONSTANT_KEYS))}")
    if "value" not in tree:
        return {key: _constant_values(entry, join_path(where, key)) for key, entry in tree.items()}
    if tree.keys() != CONSTANT_KEYS:
        raise SpecError(where, sorted(tree), f"a constant must state {', '.join(sorted(CONSTANT_KEYS))}, and no more")
    return tree["value"]

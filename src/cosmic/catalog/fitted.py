"""Constants that measurements settled: YAML files in ``constants/``, each read into a frozen dataclass.

A number is written with where it comes from and what sets it, lists of numbers likewise; mappings group them:

Attention:
      exposed_tail: {value: 0.75, source: "attention kernels of one H200", set_by: calibration/fit_kernels.py}

Keys are the names of the dataclass's fields without their unit (`cosmic.design.schema`).

"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from cosmic.catalog import FOLDER, load_mapping
from cosmic.design import schema
from cosmic.errors import SpecError, join

T = TypeVar("T")
STATED = {"value", "source", "set_by"}
"""What a constant consists of."""


def fitted(name: str, cls: type[T]) -> T:
    """Return the constants in ``catalog/constants/NAME.yaml`` as a *cls*.

    >>> from dataclasses import make_dataclass
    >>> Roofline = make_dataclass("Roofline", [("sustained", float), ("usual_efficiency", float)])
    >>> fitted("roofline", Roofline)
    Roofline(sustained=0.8, usual_efficiency=0.6)
    """
    values = _values(load_mapping(FOLDER / "constants" / f"{name}.yaml"), name)
    return cast(T, schema.read(cls, values, name))


def _values(tree: Any, where: str) -> Any:
    """Return a tree of constants as a tree of their values."""
    if not isinstance(tree, dict):
        raise SpecError(where, tree, f"a constant must state {', '.join(sorted(STATED))}")
    if "value" not in tree:
        return {key: _values(entry, join(where, key)) for key, entry in tree.items()}
    if tree.keys() != STATED:
        raise SpecError(where, sorted(tree), f"a constant must state {', '.join(sorted(STATED))}, and no more")
    return tree["value"]

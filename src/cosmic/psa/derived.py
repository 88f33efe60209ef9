"""Values of derived fields: what an expression gives, as its field holds it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, get_args

from cosmic.design import schema
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.psa.expressions import Scalar


def as_field(base: DesignPoint, path: str, value: Scalar, text: str) -> Any:
    """Return the *value* of the expression *text* as the field at *path* holds it; refuse what it cannot hold."""
    where, slot = f"derived.{path}", schema.slot_at(base, path)
    held = _as_number(value, slot.hint, where, text) if isinstance(value, Fraction) else value
    if isinstance(held, str) and (choices := slot.choices()) is not None and held not in choices:
        raise SpecError(where, held, f"must be one of {', '.join(sorted(choices))} ({text})")
    try:
        schema.assign(base, {path: held})
    except SpecError as error:
        if error.where == path:  # what else the base breaks then, other values of the same point may mend
            raise SpecError(where, held, f"{error.rule} ({text})") from None
    return held


def _as_number(value: Fraction, hint: Any, where: str, text: str) -> int | float:
    whole = int in (hint, *get_args(hint))
    if whole and value.denominator != 1:
        raise SpecError(where, _as_float(value, where, text), f"must be a whole number ({text})")
    if whole and abs(value) >= schema.INT_LIMIT:
        raise SpecError(where, text, "is too large")
    return int(value) if whole else _as_float(value, where, text)


def _as_float(value: Fraction, where: str, text: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise SpecError(where, text, "is too large") from None

"""Columns of a block as the page sees them: written from the contract, not from the code that packs them."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from cosmic.report.container import numbers_of
from cosmic.report.document_types import BlockJson, Column


def column(block: BlockJson, name: str) -> Column:
    """Return the column of a name."""
    return next(each for each in block["columns"] if each["name"] == name)


def coding_of(block: BlockJson, name: str) -> dict[str, Any]:
    """Return the coding of the column of a name, of whichever kind."""
    return cast(dict[str, Any], column(block, name)["coding"])


def labels(block: BlockJson, name: str, binary: bytes) -> list[str]:
    """Return what a parameter of each trial is called."""
    coding = coding_of(block, name)
    codes = numbers_of(coding["codes"], binary).tolist()
    return [coding["labels"][coding["of"][code] if "of" in coding else code] for code in codes]


def values(block: BlockJson, place: int, binary: bytes) -> npt.NDArray[np.float64]:
    """Return the numbers of the column at *place*, NaN where there is none."""
    coding = cast(dict[str, Any], block["columns"][place]["coding"])
    match coding["kind"]:
        case "numbers":
            return numbers_of(coding["numbers"], binary).astype(float)
        case "choices":
            known = np.array([*coding["values"], np.nan], dtype=float)
            return np.asarray(known[numbers_of(coding["codes"], binary)])
        case "scaled":
            codes = numbers_of(coding["codes"], binary).astype(float)
            share = (codes - 1) / 65_534
            low, high = coding["low"], coding["high"]
            found = low * (high / low) ** share if coding["log"] else low + share * (high - low)
            return np.where(codes == 0, np.nan, found)
        case _:
            other, by = values(block, coding["column"], binary), coding["by"]
            return np.asarray({"times": other * by, "over": by / other, "plus": other + by}[coding["rule"]])

"""Containers and columns as the page reads them: written from the contract, not from the code that packs them."""

from __future__ import annotations

import json
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from cosmic.report.container import MAGIC, TYPES


def unpack_container(container: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of a container, and its binary part."""
    end = 8 + int.from_bytes(container[4:8], "little")
    assert container[:4] == MAGIC
    content: dict[str, Any] = json.loads(container[8:end])
    return content, container[end:]


def numbers_of(packed: dict[str, Any], binary: bytes) -> npt.NDArray[Any]:
    """Return the numbers that *packed* points to."""
    dtype = np.dtype(TYPES[packed["type"]])
    offset, count = packed["offset"], packed["count"]
    planes = np.frombuffer(binary, np.uint8, dtype.itemsize * count, offset)
    return np.ascontiguousarray(planes.reshape(dtype.itemsize, count).T).view(dtype).reshape(count)


def column(block: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the column of a name."""
    return next(each for each in block["columns"] if each["name"] == name)


def coding_of(block: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the coding of the column of a name, of whichever kind."""
    return cast(dict[str, Any], column(block, name)["coding"])


def labels(block: dict[str, Any], name: str, binary: bytes) -> list[str]:
    """Return what a parameter of each trial is called."""
    coding = coding_of(block, name)
    codes = numbers_of(coding["codes"], binary).tolist()
    return [coding["labels"][coding["of"][code] if "of" in coding else code] for code in codes]


def values(block: dict[str, Any], place: int, binary: bytes) -> npt.NDArray[np.float64]:
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

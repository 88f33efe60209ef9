"""Engines that tests bring, and that are gone after them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from cosmic.design.design_point import EngineFields
from cosmic.simulate.metrics import Infeasible
from cosmic.simulate.user_engines import engine, engines, external


@dataclass(frozen=True)
class Tiles(EngineFields):
    """Fields of the engine of these tests."""

    tile: int = 64
    buffers: int = 2
    scratch_bytes: float = 65536.0
    order: Literal["row", "column"] = "row"


METRICS: dict[str, Literal["less", "more"]] = {"latency_s": "less", "ops_per_s": "more", "area_mm2": "less"}


def tiles(point: Tiles) -> dict[str, float] | Infeasible:
    """Answer as a tiled matrix unit would."""
    if point.tile == 16 and point.order == "column":
        raise ValueError("no columns, sorry")
    if 2 * point.tile**2 > point.scratch_bytes:
        return Infeasible(("two tiles, both whole, do not fit",))
    latency = 1 / point.tile**2 + 1e-6 * point.tile / point.buffers
    return {"latency_s": latency, "ops_per_s": 1 / latency, "area_mm2": float(point.buffers)}


@pytest.fixture(autouse=True)
def _only_here() -> Iterator[None]:
    known = dict(engines.items())
    yield
    engines._variants.clear()
    engines._variants.update(known)


@pytest.fixture
def brought() -> type[Tiles]:
    """Register the engine ``tiles``."""
    engine("tiles", version="1", metrics=METRICS, fields=Tiles)(tiles)
    return Tiles


SPACE: dict[str, Any] = {
    "engine": "tiles",
    "parameters": {
        "tile": {"powers_of_two": [16, 512]},
        "buffers": [1, 2, 4],
        "scratch": ["64 KiB", "1 MiB"],
        "order": ["row", "column"],
    },
    "constraints": ["tile * buffers <= 1024", "area_mm2 <= 3"],
}


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that registers Python code as the program of the engine ``program``, and asks it."""

    def ask(code: str, **options: Any) -> Any:
        path = tmp_path / "program.py"
        path.write_text(code)
        external("program", [sys.executable, "-S", path], version="1", metrics=METRICS, fields=Tiles, **options)
        return engines["program"].ask(Tiles())

    return ask

"""Serving engines of the catalog."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cosmic import catalog
from cosmic.design import schema
from cosmic.design.engine import Engine
from cosmic.registry import user_folders


def load_engine(name: str) -> Engine:
    """Return the engine that the catalog, or a folder of ``COSMIC_PATH``, has under *name*.

    >>> load_engine("sglang").prefill_first, load_engine("vllm").prefill_first
    (True, False)
    """
    return _engine(name, user_folders())


@cache
def _engine(name: str, folders: tuple[Path, ...]) -> Engine:
    """Return an engine; *folders* are part of the cache's key."""
    found: Engine = schema.read(Engine, catalog.entry("engines", name)["engine"], f"engines/{name}.yaml engine")
    return found

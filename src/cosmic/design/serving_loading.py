"""The serving layer of a design as files write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmic.base.errors import UnknownName, require
from cosmic.design import catalog_entries, schema
from cosmic.design.serving_layer import Serving
from cosmic.design.systems import split_size


def read_serving(given: Any) -> Serving | None:
    """Return the serving layer of a design file; None if it has none."""
    if given is None:
        return None
    layer: Serving = schema.read_value(Serving, given, "serving")
    engines = catalog_entries.entry_names("engines")
    if layer.engine not in engines:
        raise UnknownName.among("serving.engine", layer.engine, "engine", engines)
    system = layer.prefill.system if layer.prefill else None
    if system is not None:
        where, sized = "serving.prefill.system", split_size(system)[1]
        require(not sized, where, system, "name it without a number: the pool's mapping says how many accelerators")
        if system not in catalog_entries.entry_names("systems"):
            raise UnknownName.among(where, system, "system", catalog_entries.entry_names("systems"))
    return layer


def replaced_overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what overrides by path replace: a load has requests in flight or a rate, so that either drops the other.

    >>> replaced_overrides({"serving.load.rate": 5})
    {'serving.load.concurrency': None, 'serving.load.rounds': None}
    """
    replaced = {
        "serving.load.rate": ("serving.load.concurrency", "serving.load.rounds"),
        "serving.load.concurrency": ("serving.load.rate",),
    }
    dropped = (other for path, others in replaced.items() if given.get(path) is not None for other in others)
    return {path: None for path in dropped if path not in given}

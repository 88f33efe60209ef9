"""Trees of plain data, as files hold them: one changed by another, or built from paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmic.design import schema
from cosmic.errors import SpecError, as_key, require


def merge(below: Any, above: Any) -> Any:
    """Return *below* changed by *above*: mappings key by key, lists place by place if *above* gives places.

    >>> merge({"dims": [{"npus": 4}, {"npus": 8}]}, {"dims": {"1": {"npus": 2}}})
    {'dims': [{'npus': 4}, {'npus': 2}]}
    """
    if isinstance(below, list) and isinstance(above, Mapping):
        items = list(below)
        for key, value in above.items():
            place = schema.place_in(items, as_key(key))
            if place is None:
                raise SpecError(as_key(key), value, f"the list has {len(items)} places, which count from 0")
            items[place] = merge_inside(items[place], value, place)
        return items
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        merged = dict(below)
        for key, value in above.items():
            merged[key] = merge_inside(merged[key], value, key) if key in merged else value
        return merged
    return above


def merge_inside(below: Any, above: Any, key: Any) -> Any:
    """Return what `merge` returns; a mistake in it is at *key*."""
    try:
        return merge(below, above)
    except SpecError as error:
        raise error.inside(as_key(key)) from None


def unflatten(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree that holds each value of *overrides* at its dotted path.

    >>> unflatten({"workload.tp": 8, "workload.pp": 2})
    {'workload': {'tp': 8, 'pp': 2}}
    """
    tree: dict[str, Any] = {}
    for path, value in overrides.items():
        *parents, last = path.split(".")
        node = tree
        for key in parents:
            node = node.setdefault(key, {})
            require(isinstance(node, dict), path, value, f"'{key}' is set as a whole too")
        require(not isinstance(node.get(last), dict), path, value, f"keys below '{last}' are set too")
        node[last] = value
    return tree

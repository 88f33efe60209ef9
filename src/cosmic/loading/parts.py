"""Parts that a design names, and the figures that the catalog has of them: nodes and switches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cosmic import catalog
from cosmic.catalog.fabrics import FIGURES
from cosmic.catalog.hosts import node_of
from cosmic.design import schema
from cosmic.design.point import DesignPoint
from cosmic.errors import as_key

OF_NODE = ("accelerator", "npus", "host_price", "host_power", "host_idle_power")


def with_stated_parts(point: DesignPoint, tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the *tree* of a design with every figure of its node and switches said.

    What the catalog knows and *point* leaves open, or at its default, loading would fill in.
    """
    found = dict(tree)
    if point.node.name:
        known = node_of(point.node.name) if catalog.known_as("nodes", point.node.name) else {}
        found["node"] = _said(point.node, known) | found["node"]
    dims = [
        {**dim, "fabric": _said(of.fabric, FIGURES) | dim["fabric"]} if of.fabric.switch else dim
        for of, dim in zip(point.network.dims, found["network"]["dims"], strict=True)
    ]
    return found | {"network": {**found["network"], "dims": dims}}


def _said(value: Any, keys: Any) -> dict[str, Any]:
    whole = schema.write(value)
    return {key: whole.get(key) for key in keys}


def without_replaced(tree: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a *tree* without figures of parts that *given*, values by path, names others in place of.

    A saved design states every figure of its switch: those are not of the one that is named now.

    >>> without_replaced({"node": {"name": "dgx-h100", "host_price": "1 USD"}}, {"node.name": "dgx-h200"})
    {'node': {'name': 'dgx-h100'}}
    """
    found = dict(tree)
    if "node.name" in given and isinstance(found.get("node"), Mapping):
        found["node"] = _without(found["node"], OF_NODE)
    network = found.get("network")
    dims = network.get("dims") if isinstance(network, Mapping) else None
    if isinstance(dims, list):
        changed = {place for place in range(len(dims)) if f"network.dims.{place}.fabric.switch" in given}
        kept = [_bare(dim) if place in changed else dim for place, dim in enumerate(dims)]
        found["network"] = {**network, "dims": kept} if isinstance(network, Mapping) else network
    return found


def _bare(dim: Any) -> Any:
    stated = isinstance(dim, Mapping) and isinstance(dim.get("fabric"), Mapping)
    return {**dim, "fabric": _without(dim["fabric"], FIGURES)} if stated else dim


def _without(stated: Mapping[Any, Any], keys: tuple[str, ...]) -> dict[Any, Any]:
    return {key: value for key, value in stated.items() if as_key(key) not in keys}

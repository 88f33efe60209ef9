"""Which prices and powers of a cluster's parts nobody knows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cosmic.design.batch import batch_of
from cosmic.design.fabric import BY_BANDWIDTH, INCLUDED
from cosmic.design.point import DesignPoint
from cosmic.pricing.clusters import POWERS, PRICES, parts_of

NETWORK = "network."
"""How quantities begin that are of the network alone."""
PARTS = {"circuit_ports": "ports of circuit switches"}
"""Parts that are called otherwise than in a bill."""


def needed_figures(point: DesignPoint, quantity: str) -> dict[str, str]:
    """Return the paths of all figures that a quantity of *point* is made of, each with the part it is of.

    A *quantity* is ``price`` or ``power`` of the cluster, or ``network.price`` of its network alone.

    >>> from cosmic.mapping.completing import load_design
    >>> needed_figures(load_design("llama3-8b@dgx-h100:16"), "power")
    {'compute.power': 'h100-sxm-80gb', 'node.host_power': 'the host of dgx-h100', \
'network.dims.1.fabric.switch_power': 'switches of network.dims.1', \
'network.dims.1.fabric.optic_power': 'optics of network.dims.1'}
    """
    return dict(_figures(point, quantity, only_unknown=False))


def unknown_parts(point: DesignPoint, quantity: str) -> tuple[str, ...]:
    """Return the parts of *point* of which a *quantity* needs a figure that is unknown."""
    return tuple(part for _, part in _figures(point, quantity, only_unknown=True))


def _figures(point: DesignPoint, quantity: str, *, only_unknown: bool) -> Iterator[tuple[str, str]]:
    """Yield the paths of figures with their parts; parts are counted only where that is needed."""
    kind = quantity.removeprefix(NETWORK)
    if kind == quantity:
        own, host = (point.compute.price_usd, point.node.host_price_usd)
        if kind == "power":
            own, host = (point.compute.power_w, point.node.host_power_w)
        if own is None or not only_unknown:
            yield f"compute.{kind}", point.compute.accelerator or "the accelerator"
        if point.node.name and (host is None or not only_unknown):
            yield f"node.host_{kind}", f"the host of {point.node.name}"
    for place, dim in enumerate(point.network.dims):
        if dim.fabric.build in (BY_BANDWIDTH, INCLUDED):
            continue
        where, suffix = f"network.dims.{place}", "_usd" if kind == "price" else "_w"
        for part, key in (PRICES if kind == "price" else POWERS).items():
            unknown = getattr(dim.fabric, key + suffix) is None
            if (unknown or not only_unknown) and parts_of(batch_of(point), place)[part] > 0:
                yield f"{where}.fabric.{key}", f"{PARTS.get(part, part)} of {where}"


def in_words(missing: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    """Return why something is unknown: of each quantity, the parts that want it; empty if none does.

    >>> in_words([("price", ("a",)), ("power", ("a",))]), in_words([("price", ("a", "b")), ("power", ())])
    ('no price and no power is known for a', 'no price is known for a, b')
    """
    by_parts: dict[tuple[str, ...], list[str]] = {}
    for quantity, parts in missing:
        if parts:
            by_parts.setdefault(parts, []).append(quantity.removeprefix(NETWORK))
    said = (f"no {' and no '.join(these)} is known for {_listed(parts)}" for parts, these in by_parts.items())
    return "; ".join(said)


def _listed(parts: tuple[str, ...]) -> str:
    """Return parts of several dimensions together, where they are of one kind.

    >>> _listed(("tpu-v4", "cables of network.dims.0", "cables of network.dims.1"))
    'tpu-v4, cables of network.dims.0 and 1'
    """
    whole: dict[str, list[str]] = {}
    for part in parts:
        kind, of, place = part.partition(" of network.dims.")
        whole.setdefault(kind + of, []).append(place)
    return ", ".join(kind + " and ".join(filter(None, places)) for kind, places in whole.items())

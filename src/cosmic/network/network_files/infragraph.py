"""InfraGraph: infrastructure as instances of devices, whose components are joined by links.

A vertex is ``instance.i.component.j``. Components of the kind ``npu`` are accelerators; all others (NICs, ports, switch
chips, CPUs) forward data and keep none. Those that lead nowhere are left out, and one between just two others is part
of the cable: its two links are one with the lower bandwidth and both latencies. Every edge carries both directions.

Not read, as its public documentation does not say enough: rings of endpoints, devices composed of devices, and
bandwidths in transfers a second, which need the width of the link.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from cosmic.base.errors import UnknownName, require
from cosmic.network.link_graph import LinkGraph
from cosmic.network.network_files.named_nodes import (
    NamedLink,
    assemble_graph,
    check_size,
    read_number,
    read_whole_number,
)

_SLICE = re.compile(r"([^\[\]]+?)(?:\[(\d*)(:?)(\d*)\])?")
BANDWIDTHS = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}
LATENCIES = {"ms": 1e3, "us": 1e6, "ns": 1e9}
"""Units that go into a second."""


class _Cable(NamedTuple):
    """An edge: both ends, and what it carries."""

    ends: tuple[str, str]
    bandwidth_bytes_per_s: float
    latency_s: float


def is_infragraph(tree: Any) -> bool:
    """Return whether what a file holds is an infrastructure."""
    inner = tree.get("infrastructure", tree) if isinstance(tree, dict) else None
    return isinstance(inner, dict) and "devices" in inner and "instances" in inner


def graph_of_infragraph(tree: dict[str, Any], where: str) -> LinkGraph:
    """Return the network of an infrastructure."""
    inner = tree.get("infrastructure", tree)
    devices = _index_by_name(inner, "devices", where)
    instances = _index_by_name(inner, "instances", where)
    npus: list[str] = []
    cables: list[_Cable] = []
    counts = {name: _count_components(device, f"{where}: {name}") for name, device in devices.items()}
    for name, instance in instances.items():
        location = f"{where}: instances.{name}"
        device = instance.get("device")
        if device not in devices:
            raise UnknownName.among(f"{location}.device", device, "device", devices)
        copies = read_whole_number(instance.get("count"), f"{location}.count", 1)
        check_size(copies * sum(count for count, _ in counts[device].values()), location)
        inner_cables = list(_device_cables(devices[device], counts[device], f"{where}: {device}"))
        for copy in range(copies):
            start = f"{name}.{copy}."
            for part, (count, kind) in counts[device].items():
                npus += [f"{start}{part}.{number}" for number in range(count)] if kind == "npu" else []
            cables += [cable._replace(ends=(start + cable.ends[0], start + cable.ends[1])) for cable in inner_cables]
    cables += _outer_cables(inner, instances, counts, where)
    require(bool(npus), where, f"{len(instances)} instances", "no component is an npu")
    kept = _drop_dead_ends(cables, set(npus))
    switches = dict.fromkeys(end for cable in kept for end in cable.ends if end not in set(npus))
    links = [direction for cable in kept for direction in _both_directions(cable)]
    return assemble_graph([*npus, *switches], switches.keys(), links, where)


def _both_directions(cable: _Cable) -> tuple[NamedLink, NamedLink]:
    link = NamedLink(*cable.ends, cable.bandwidth_bytes_per_s, cable.latency_s)
    return link, link.turned()


def _index_by_name(tree: dict[str, Any], key: str, where: str) -> dict[str, dict[str, Any]]:
    """Return the members of a list of mappings, by their names."""
    entries = tree.get(key) or []
    mappings = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    fits = isinstance(entries, list) and len(mappings) == len(entries)
    fits = fits and all(isinstance(mapping.get("name"), str) for mapping in mappings)
    require(fits, f"{where}: {key}", entries, "must be a list of mappings, each with a name")
    return {mapping["name"]: mapping for mapping in mappings}


def _count_components(device: dict[str, Any], where: str) -> dict[str, tuple[int, str]]:
    """Return the number and the kind of each component of a device."""
    counts: dict[str, tuple[int, str]] = {}
    for name, part in _index_by_name(device, "components", where).items():
        kind = part.get("choice", part.get("type", "custom"))
        require(kind != "device", f"{where}: {name}", kind, "devices composed of devices are not read")
        counts[name] = (read_whole_number(part.get("count", 1), f"{where}: {name}.count", 1), str(kind))
    return counts


def _device_cables(device: dict[str, Any], counts: dict[str, tuple[int, str]], where: str) -> Iterator[_Cable]:
    links = _index_by_name(device, "links", where)
    for index, edge in enumerate(_read_edges(device, where)):
        ends = []
        for key in ("ep1", "ep2"):
            component = _read_endpoint(edge, key, f"{where}: edges.{index}").get("component")
            ends.append(_expand_slice(component, counts, f"{where}: edges.{index}.{key}"))
        yield from _join_endpoints(ends[0], ends[1], edge, links, f"{where}: edges.{index}")


def _outer_cables(
    tree: dict[str, Any],
    instances: dict[str, dict[str, Any]],
    counts: dict[str, dict[str, tuple[int, str]]],
    where: str,
) -> Iterator[_Cable]:
    links = _index_by_name(tree, "links", where)
    copies = {name: (int(instance["count"]), "") for name, instance in instances.items()}
    for index, edge in enumerate(_read_edges(tree, where)):
        ends = []
        for key in ("ep1", "ep2"):
            location, point = f"{where}: edges.{index}.{key}", _read_endpoint(edge, key, f"{where}: edges.{index}")
            outer = _expand_slice(point.get("instance"), copies, location)
            device = instances[outer[0].rpartition(".")[0]]["device"]
            inner = _expand_slice(point.get("component"), counts[device], location)
            ends.append([f"{copy}.{part}" for copy in outer for part in inner])
        yield from _join_endpoints(ends[0], ends[1], edge, links, f"{where}: edges.{index}")


def _read_edges(tree: dict[str, Any], where: str) -> list[dict[str, Any]]:
    edges = tree.get("edges") or []
    fits = isinstance(edges, list) and all(isinstance(edge, dict) for edge in edges)
    require(fits, f"{where}: edges", edges, "must be a list of mappings")
    return list(edges)


def _read_endpoint(edge: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    point = edge.get(key)
    require(isinstance(point, dict), f"{where}.{key}", point, "must be a mapping with a component")
    return dict(point or {})


def _expand_slice(text: Any, counts: dict[str, tuple[int, str]], where: str) -> list[str]:
    """Expand a name with a slice, such as ``nic[0:2]``; a name alone stands for all."""
    match = _SLICE.fullmatch(text) if isinstance(text, str) else None
    require(match is not None, where, text, "is a name with a slice, such as nic[0:2]")
    name, first, colon, stop = match.groups() if match else ("", "", "", "")
    if name not in counts:
        raise UnknownName.among(where, name, "component or instance", counts)
    count = counts[name][0]
    begin = int(first) if first else 0
    end = begin + 1 if first and not colon else int(stop) if stop else count
    require(begin < end <= count, where, text, f"there are {count} of them, from 0")
    return [f"{name}.{number}" for number in range(begin, end)]


def _join_endpoints(
    firsts: list[str], seconds: list[str], edge: dict[str, Any], links: dict[str, dict[str, Any]], where: str
) -> Iterator[_Cable]:
    """Yield the cables of an edge: each end with its counterpart, or each with each."""
    scheme = edge.get("scheme", "many2many" if edge.get("many2many") is True else "one2one")
    require(scheme in ("one2one", "many2many"), f"{where}.scheme", scheme, "is not read: one2one and many2many are")
    if edge.get("link") not in links:
        raise UnknownName.among(f"{where}.link", edge.get("link"), "link", links)
    rate, latency = _read_link(links[edge["link"]], f"{where}: link {edge['link']}")
    if scheme == "one2one":
        rule = f"one2one joins as many ends to as many: here {len(firsts)} to {len(seconds)}"
        require(len(firsts) == len(seconds), where, scheme, rule)
        pairs = list(zip(firsts, seconds, strict=True))
    else:
        pairs = [(first, second) for first in firsts for second in seconds]
    seen: set[frozenset[str]] = set()
    for first, second in pairs:
        if first != second and (both := frozenset((first, second))) not in seen:
            seen.add(both)
            yield _Cable((first, second), rate, latency)


def _read_link(link: dict[str, Any], where: str) -> tuple[float, float]:
    """Return the bandwidth and the latency of a link."""
    physical = link.get("physical") or {}
    bandwidth = physical.get("bandwidth") if isinstance(physical, dict) else None
    rates = bandwidth if isinstance(bandwidth, dict) else {}
    rule = f"states no bandwidth in {' or '.join(BANDWIDTHS)}"
    require(bool(set(BANDWIDTHS) & set(rates)), where, bandwidth, rule)
    rate = next(read_number(rates[key], where) * worth for key, worth in BANDWIDTHS.items() if key in rates)
    late = physical.get("latency") or {}
    require(isinstance(late, dict), where, late, "states its latency as a mapping, such as {ns: 300}")
    return rate, next((read_number(late[key], where) / worth for key, worth in LATENCIES.items() if key in late), 0.0)


def _drop_dead_ends(cables: list[_Cable], npus: set[str]) -> list[_Cable]:
    """Return the cables without dead ends, and with what lies between just two others as part of the cable."""
    remaining = dict(enumerate(cables))
    cables_at: dict[str, set[int]] = defaultdict(set)
    for number, cable in remaining.items():
        for end in cable.ends:
            cables_at[end].add(number)
    pending = [end for end in cables_at if end not in npus]
    while pending:
        node = pending.pop()
        own = sorted(cables_at[node])
        if not 0 < len(own) <= 2:
            continue
        ends = [next(end for end in remaining[number].ends if end != node) for number in own]
        for number, end in zip(own, ends, strict=True):
            cables_at[end].discard(number)
        merged = [remaining.pop(number) for number in own]
        cables_at[node].clear()
        if len(own) == 2 and ends[0] != ends[1]:
            # A node between just two others, such as a NIC, is part of the cable: the slower rate, and both latencies.
            rate, late = min(cable[1] for cable in merged), merged[0].latency_s + merged[1].latency_s
            remaining[own[0]] = _Cable((ends[0], ends[1]), rate, late)
            for end in ends:
                cables_at[end].add(own[0])
        pending += [end for end in ends if end not in npus]
    return list(remaining.values())

"""Operators of a program in YAML whose windows slide: convolutions and poolings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from cosmic.errors import require
from cosmic.programs.entries import Dims, Entry
from cosmic.workload.graph import Operator
from cosmic.workload.sharding.halo import halo_rows


def _numbers(entry: Entry, key: str, count: int, usual: int) -> tuple[int, ...]:
    tree = entry.tree.get(key, usual)
    found = tuple(tree) if isinstance(tree, list) else (tree,) * count
    fits = len(found) == count and all(isinstance(each, int) and not isinstance(each, bool) for each in found)
    require(fits and min(found) >= (key != "padding"), f"{entry.where}.{key}", tree, f"must be {count} whole numbers")
    return found


@dataclass(frozen=True, slots=True)
class Window:
    """A window along one dimension: the dimension that it reads and the one that it makes."""

    read: str
    made: str
    rows: int
    stride: int
    padding: int
    dilation: int = 1


def windows(entry: Entry, made: Dims, rows: tuple[int, ...], read: Dims) -> tuple[Window, ...]:
    """Return the windows of a convolution or a pooling, and check the sizes of what they make."""
    count = len(rows)
    strides, dilation = _numbers(entry, "strides", count, 1), _numbers(entry, "dilation", count, 1)
    said = entry.tree.get("padding", "same")
    found = []
    for place, (source, target) in enumerate(zip(read, made, strict=True)):
        size, step, reach = entry.state.sizes[source], strides[place], (rows[place] - 1) * dilation[place] + 1
        if said == "same":
            length = -(-size // step)
            pad = max(0, (length - 1) * step + reach - size) // 2
        else:
            pad = 0 if said == "valid" else _numbers(entry, "padding", count, 0)[place]
            length = (size + 2 * pad - reach) // step + 1
        rule = f"is {entry.state.sizes[target]} long, where windows over {source} make {length}"
        require(entry.state.sizes[target] == length, f"{entry.where}.to", target, rule)
        found.append(Window(source, target, rows[place], step, pad, dilation[place]))
    return tuple(found)


def _slid(found: tuple[Window, ...]) -> dict[str, Any]:
    """Return the dimensions that are one inside an operator with windows, and the rows that shards lack."""
    halos = ((each.read, *halo_rows(each.rows, each.stride, each.padding, each.dilation)) for each in found)
    return {
        "same": tuple((each.made, each.read) for each in found if each.made != each.read),
        "halo": tuple(halo for halo in halos if any(halo[1:])),
    }


def convolution(entry: Entry) -> Operator:
    """Return a convolution: what weight and picture share are channels, what weight and result share are filters."""
    entry.takes(2)
    read, weight = entry.inputs
    made = entry.to()
    channels = [dim for dim in weight.dims if dim in read.dims]
    filters = [dim for dim in weight.dims if dim in made and dim not in read.dims]
    sliding = [dim for dim in weight.dims if dim not in channels and dim not in filters]
    sources = tuple(dim for dim in read.dims if dim not in weight.dims)[-len(sliding) :] if sliding else ()
    targets = tuple(dim for dim in made if dim not in weight.dims)[-len(sliding) :] if sliding else ()
    rule = "filters must share channels with what they read, and their other dimensions with what they make"
    require(bool(channels) and bool(filters or made), f"{entry.where}.convolution", weight.name, rule)
    require(len(sources) == len(sliding) == len(targets), f"{entry.where}.convolution", weight.name, rule)
    rows = tuple(entry.state.sizes[dim] for dim in sliding)
    return entry.operator("convolution", made, **_slid(windows(entry, targets, rows, sources)))


def pooling(entry: Entry) -> Operator:
    """Return a pooling: an operation for each element of a window."""
    entry.takes(1)
    made, (read,) = entry.to(), entry.inputs
    tree = entry.tree.get("window")
    count = len(tree) if isinstance(tree, list) else 2
    rows = _numbers(entry, "window", count, 1)
    places = (
        [place for place in range(len(made)) if made[place] != read.dims[place]] if len(made) == len(read.dims) else []
    )
    rule = "must have the dimensions of what it reads, with other names where the window slides"
    require(len(places) == count, f"{entry.where}.to", list(made), rule)
    found = windows(entry, tuple(made[p] for p in places), rows, tuple(read.dims[p] for p in places))
    operator = entry.operator("pooling", made, **_slid(found))
    return replace(operator, flop_per_element=float(prod(rows)))

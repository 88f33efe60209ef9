"""NeMo and Megatron-Bridge: recipes and configurations in YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cosmic.catalog.yaml_files import parse_yaml
from cosmic.errors import as_key, require
from cosmic.importing.launches import Reading, Request
from cosmic.importing.megatron_files import design
from cosmic.importing.nested import arguments_of
from cosmic.importing.scale import MOST, NONE, Scale

NODES = ("num_nodes", "nnodes")
PER_NODE = ("devices", "num_gpus_per_node", "gpus_per_node", "nproc_per_node", "ntasks_per_node")
TOTAL = ("num_gpus", "world_size")


def read(request: Request) -> Reading:
    """Return the design of a recipe."""
    suffix = request.path.suffix.lower()
    require(suffix in (".yaml", ".yml", ".json"), "file", str(request.path), "is no YAML file, which recipes are")
    tree = parse_yaml(request.text(), request.where)
    require(isinstance(tree, dict), request.where, tree, "must be a mapping of keys to values")
    arguments = arguments_of(tree, request)
    require(bool(arguments.given), request.where, tree, "has no key of a recipe, such as model.num_layers")
    return design(request, arguments, scale_of(tree), dropout=0.0)


def scale_of(tree: Mapping[Any, Any]) -> Scale:
    """Return the accelerators of a recipe: nodes by devices.

    >>> scale_of({"trainer": {"num_nodes": 4, "devices": 8}}).npus
    32
    """
    found = dict(_numbers(tree, ()))
    total = next((each for each in found.items() if each[0].rpartition(".")[2] in TOTAL), None)
    if total is not None:
        return Scale(total[1], f"{total[0]} {total[1]}")
    nodes = next((each for each in found.items() if each[0].rpartition(".")[2] in NODES), None)
    devices = next((each for each in found.items() if each[0].rpartition(".")[2] in PER_NODE), None)
    if nodes is None or devices is None:
        return NONE
    return Scale(nodes[1] * devices[1], f"{nodes[0]} {nodes[1]} × {devices[0]} {devices[1]}")


def _numbers(tree: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers that count nodes or devices."""
    for key, value in tree.items():
        place = (*path, as_key(key))
        if isinstance(value, Mapping):
            yield from _numbers(value, place)
        elif place[-1] in (*NODES, *PER_NODE, *TOTAL) and type(value) is int and 1 <= value <= MOST:
            yield ".".join(place), value

"""NeMo and Megatron-Bridge: recipes and configurations in YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cosmic.base.errors import as_key, require
from cosmic.design.plain_data import parse_yaml
from cosmic.frameworks.launch_readers import ImportedLayers, ImportRequest
from cosmic.frameworks.launch_scale import MOST_NPUS, NO_SCALE, LaunchScale
from cosmic.frameworks.megatron_arguments import nested_arguments
from cosmic.frameworks.megatron_files import design_of_arguments

NODES = ("num_nodes", "nnodes")
PER_NODE = ("devices", "num_gpus_per_node", "gpus_per_node", "nproc_per_node", "ntasks_per_node")
TOTAL = ("num_gpus", "world_size")


def read_nemo(request: ImportRequest) -> ImportedLayers:
    """Return the design of a recipe."""
    suffix = request.path.suffix.lower()
    require(suffix in (".yaml", ".yml", ".json"), "file", str(request.path), "is no YAML file, which recipes are")
    tree = parse_yaml(request.text(), request.where)
    require(isinstance(tree, dict), request.where, tree, "must be a mapping of keys to values")
    arguments = nested_arguments(tree, request)
    require(bool(arguments.given), request.where, tree, "has no key of a recipe, such as model.num_layers")
    return design_of_arguments(request, arguments, nemo_scale(tree), dropout=0.0)


def nemo_scale(tree: Mapping[Any, Any]) -> LaunchScale:
    """Return the accelerators of a recipe: nodes by devices.

    >>> nemo_scale({"trainer": {"num_nodes": 4, "devices": 8}}).npus
    32
    """
    counts = dict(_find_counts(tree, ()))
    total = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in TOTAL), None)
    if total is not None:
        return LaunchScale(total[1], f"{total[0]} {total[1]}")
    nodes = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in NODES), None)
    devices = next((entry for entry in counts.items() if entry[0].rpartition(".")[2] in PER_NODE), None)
    if nodes is None or devices is None:
        return NO_SCALE
    return LaunchScale(nodes[1] * devices[1], f"{nodes[0]} {nodes[1]} × {devices[0]} {devices[1]}")


def _find_counts(tree: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers that count nodes or devices."""
    for key, value in tree.items():
        key_path = (*path, as_key(key))
        if isinstance(value, Mapping):
            yield from _find_counts(value, key_path)
        elif key_path[-1] in (*NODES, *PER_NODE, *TOTAL) and type(value) is int and 1 <= value <= MOST_NPUS:
            yield ".".join(key_path), value

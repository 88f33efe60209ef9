"""From what a user writes to the links of a network: a network file, a design, or a system of the catalog."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from cosmic import catalog
from cosmic.catalog.systems import YAML_ENDINGS, names_both, split_size, system
from cosmic.catalog.yaml_files import load_yaml
from cosmic.cost.wiring import network_graph
from cosmic.design import schema
from cosmic.design.network import Network
from cosmic.errors import SpecError, require
from cosmic.files import exists, is_file
from cosmic.graphs.degrading import degraded
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.nodes import check_size
from cosmic.graphs.reading import graph_of_data, is_network_data, read_graph
from cosmic.loading.trees import merge_inside

TREES = (*YAML_ENDINGS, ".json")
NEITHER = "is no network: give a file of links, a design, MODEL@SYSTEM:N or SYSTEM:N of the catalog"


def load_network(source: str, failures: Sequence[str] = ()) -> LinkGraph:
    """Return the links of the network that *source* names, without those that *failures* name.

    *source* is the path of a network file of any format, or of a design; ``MODEL@SYSTEM:N`` or ``SYSTEM:N``.

    >>> graph = load_network("dgx-h100:16", ["0-s0*0.5"])
    >>> graph.npus, graph.switches > 0
    (16, True)
    """
    return degraded(_loaded(source), failures, "--fail")


def _loaded(source: str) -> LinkGraph:
    if is_file(source):
        return _of_file(source)
    if names_both(source):
        model, _, name = source.rpartition("@")
        if not exists(model):
            catalog.entry("models", model)
        return _of_tree({"system": name}, Path())
    if catalog.known_as("systems", split_size(source)[0]) or split_size(source)[0].endswith(YAML_ENDINGS):
        return _of_tree({"system": source}, Path())
    require(not exists(source), "network", source, "is a directory, a pipe or a device, and not a file")
    raise SpecError("network", source, NEITHER)


def _of_file(path: str) -> LinkGraph:
    """Return the network of a file, which may be a design."""
    if not path.lower().endswith(TREES):
        return read_graph(path)
    tree = load_yaml(Path(path))
    if is_network_data(tree) or not isinstance(tree, dict) or not {"network", "system"} & set(tree):
        return graph_of_data(tree, Path(path).name)
    return _of_tree(tree, Path(path).parent)


def _of_tree(tree: Mapping[str, Any], folder: Path) -> LinkGraph:
    """Return the network of a design, as `load_design` completes it; nothing else of the design is needed."""
    name = tree.get("system")
    require(name is None or isinstance(name, str), "system", name, "must be the name of a system")
    base = system(name, folder) if isinstance(name, str) else {}
    merged = merge_inside(base.get("network", {}), tree.get("network", {}), "network")
    network: Network = schema.read(Network, merged, "network")
    check_size(prod(dim.npus for dim in network.dims), "network")
    return network_graph(network)

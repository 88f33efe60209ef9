"""The machine of a design: accelerators, memory, network, collectives and node of a system, and what a file changes.

A dimension of the network may name a file in place of its list of links; the file is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from cosmic.base import units
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design import catalog_entries, schema
from cosmic.design.catalog_parts import fill_switches, node_figures, outer_tiers
from cosmic.design.collective_layer import Collective
from cosmic.design.compute_layer import Compute
from cosmic.design.facility_layer import Node
from cosmic.design.memory_layer import Memory
from cosmic.design.network_layer import GRAPH, Network, topologies
from cosmic.design.plain_data import merge_at_key, merge_trees
from cosmic.design.run_layer import Run, npu_mtbf_s
from cosmic.design.schema import read_source
from cosmic.design.systems import NO_FILES_RULE, YAML_ENDINGS, read_system

NETWORK_MODULE = "cosmic.network.network_files.network_file"
"""The module that reads files of links: called by its name, as it is in a room above, and only by designs with one."""

# ---- Dimensions of a network whose links are in a file: the path of one in place of the list


def read_link_files(network: Any, folder: Path | None) -> Any:
    """Return the content of a network with the links of files in place of their paths, relative to *folder*."""
    dims = network.get("dims") if isinstance(network, Mapping) else None
    if not isinstance(dims, list):
        return network
    return {**network, "dims": [_read_links(dim, folder, f"network.dims.{index}") for index, dim in enumerate(dims)]}


def _read_links(dim: Any, folder: Path | None, where: str) -> Any:
    """Return a dimension with its links listed; the file also says how many NPUs there are."""
    if not (isinstance(dim, Mapping) and isinstance(dim.get("links"), str)):
        return dim
    where = f"{where}.links"
    path = read_source(dim["links"], where)
    require(folder is not None, where, path, NO_FILES_RULE)
    graph = import_module(NETWORK_MODULE).read_graph((folder or Path()) / path, where)
    columns = (graph.sources, graph.targets, graph.bandwidth_bytes_per_s, graph.latency_s)
    links = [
        {
            "source": source,
            "target": target,
            "bandwidth": units.format_quantity(bandwidth, units.BYTES_PER_S),
            "latency": units.format_quantity(latency, units.SECONDS),
        }
        for source, target, bandwidth, latency in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return {"topology": GRAPH, "npus": graph.npus, **dim, "links": links}


# ---- What a design runs on: accelerators, memory, network, collectives and node of a system, and what a file changes


def spell_out_layers(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return *tree* with names that stand for a layer turned into mappings, so that keys can be added to them."""
    spelled = dict(tree)
    for layer, key in (("model", "base"), ("compute", "accelerator"), ("node", "name")):
        if isinstance(spelled.get(layer), str):
            spelled[layer] = {key: spelled[layer]}
    return spelled


def system_layers(name: str) -> dict[str, Any]:
    """Return the layers of a system of the catalog at the size that *name* asks for: all but model and workload.

    >>> layers = system_layers("dgx-h100:64")
    >>> sorted(layers), layers["network"].npus
    (['collective', 'compute', 'memory', 'network', 'node'], 64)
    """
    return build_machine_layers({}, read_system(name, None), None)


def build_machine_layers(tree: Mapping[str, Any], base: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return the layers of a machine: those of the system *base*, changed by what *tree* says."""
    compute, memory = _build_accelerator(tree, base, folder)
    network = _build_network(tree, base, folder)
    collective = _build_collective(tree, base, network)
    return {
        "collective": collective,
        "network": network,
        "compute": compute,
        "memory": memory,
        "node": _build_node(tree, base),
    }


def write_machine_layers(tree: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return what a design runs on as files write it, in full: no mapping is needed for it."""
    base = read_system(schema.read_value(str, tree["system"], "system"), folder) if "system" in tree else {}
    layers = build_machine_layers(spell_out_layers(tree), base, folder)
    return {key: schema.write_value(layers[key]) for key in ("compute", "network", "node")}


def accelerator_layers(name: str, where: str) -> tuple[Compute, Memory]:
    """Return the compute and memory layers that an accelerator of the catalog brings along."""
    return _read_accelerator(_accelerator_entry(name, where), {"accelerator": name}, {})


def _accelerator_entry(name: str, where: str) -> Mapping[str, Any]:
    names = catalog_entries.entry_names("accelerators")
    if name not in names:
        raise UnknownName.among(where, name, "accelerator", names)
    return catalog_entries.read_entry("accelerators", name)


def _build_accelerator(tree: Mapping[str, Any], base: Mapping[str, Any], folder: Path | None) -> tuple[Compute, Memory]:
    """Return compute and memory: the accelerator's, changed by what the system and *tree* say."""
    compute = tree.get("compute", {})
    if not isinstance(compute, Mapping):
        raise SpecError("compute", compute, "must be an accelerator's name or a mapping of keys to values")
    where = "compute.accelerator"
    name = compute.get("accelerator", base.get("accelerator", ""))
    name = schema.read_source(name, where)
    if name == base.get("accelerator"):  # what the system says of its own accelerator
        compute = merge_at_key(base.get("compute", {}), compute, "compute")
    inline = "bf16" in compute and name not in catalog_entries.entry_names("accelerators")
    entry: Mapping[str, Any] = {}
    if folder is not None and name.endswith(YAML_ENDINGS):
        entry, name = catalog_entries.load_mapping(folder / name), Path(name).stem
    elif not inline:
        require(bool(name), where, schema.Absent(), "name an accelerator, or give its rates: at least bf16")
        entry = _accelerator_entry(name, where)
    memory = merge_trees(_add_node_tiers(tree, base), tree.get("memory", {}))
    if isinstance(memory, Mapping) and memory.get("tiers") == NODE_TIERS:
        memory = {**memory, "tiers": _find_node_tiers(tree, base)}
    return _read_accelerator(entry, {**compute, "accelerator": name}, memory)


NODE_TIERS = "node"
"""What stands for the tiers of memory that the catalog knows of a node."""


def _find_node_tiers(tree: Mapping[str, Any], base: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tiers that the catalog knows of the node; raise a `SpecError` if it knows none."""
    tiers = outer_tiers(_node_name(tree, base), base)
    name = _node_name(tree, base) or "the system"
    require(bool(tiers), "memory.tiers", NODE_TIERS, f"no memory behind the accelerators is known of {name}: state it")
    return tiers


def _add_node_tiers(tree: Mapping[str, Any], base: Mapping[str, Any]) -> Any:
    """Return what a system says of memory; with the tiers of its node, if something is to live there.

    Otherwise a design has none: nothing of it depends on them.
    """
    own, memory = base.get("memory", {}), tree.get("memory", {})
    if not isinstance(memory, Mapping) or "tiers" in own or isinstance(memory.get("tiers"), list | str):
        return own
    workload = tree.get("workload", {})
    offloads = isinstance(workload, Mapping) and bool(workload.get("offload"))
    if not (offloads or memory.get("placement") or "tiers" in memory):
        return own
    tiers = outer_tiers(_node_name(tree, base), base)
    return {**own, "tiers": tiers} if tiers else own


def _node_name(tree: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    node = tree.get("node", {})
    name = node.get("name", base.get("node", "")) if isinstance(node, Mapping) else ""
    return name if isinstance(name, str) else ""


def _read_accelerator(entry: Mapping[str, Any], compute: Any, memory: Any) -> tuple[Compute, Memory]:
    """Return the layers of a catalog *entry*, changed by the keys of *compute* and *memory*."""
    first: Compute = schema.read_value(Compute, merge_trees(entry.get("compute", {}), compute), "compute")
    second: Memory = schema.read_value(Memory, merge_trees(entry.get("memory", {}), memory), "memory")
    return first, second


def _build_network(tree: Mapping[str, Any], base: Mapping[str, Any], folder: Path | None) -> Network:
    require("network" in tree or bool(base), "network", schema.Absent(), "give a network or a system")
    merged = merge_at_key(base.get("network", {}), tree.get("network", {}), "network")
    network: Network = schema.read_value(Network, fill_switches(read_link_files(merged, folder)), "network")
    return network


def _build_node(tree: Mapping[str, Any], base: Mapping[str, Any]) -> Node:
    """Return the node: the system's, or the one that *tree* names, changed by what it says."""
    settings = tree.get("node", {})
    if not isinstance(settings, Mapping):
        raise SpecError("node", settings, "must be a node's name or a mapping of keys to values")
    name = (
        schema.read_source(settings.get("name", base.get("node", "")), "node.name")
        if "name" in settings or base
        else ""
    )
    node: Node = schema.read_value(Node, merge_trees(node_figures(name) if name else {}, settings), "node")
    return node


def read_run_layer(tree: Any, accelerator: str) -> Run:
    """Return the run layer; accelerators are interrupted as often as is published, if nobody states it."""
    if not isinstance(tree, Mapping):
        raise SpecError("run", tree, "must be a mapping of keys to values")
    run: Run = schema.read_value(Run, tree, "run")
    return run if "npu_mtbf" in tree else replace(run, npu_mtbf_s=npu_mtbf_s(accelerator)[0])


def _build_collective(tree: Mapping[str, Any], base: Mapping[str, Any], network: Network) -> Collective:
    """Return the collective layer; an algorithm that is not given is the one that suits its dimension."""
    fitting = ["ring" if dim.topology == GRAPH else topologies[dim.topology].algorithm for dim in network.dims]
    of_system = base.get("collective", {})
    if len(of_system.get("algorithms", [])) != len(fitting) or not fitting:
        of_system = {**of_system, "algorithms": fitting}
    merged = merge_at_key(of_system, tree.get("collective", {}), "collective")
    chosen: Collective = schema.read_value(Collective, merged, "collective")
    return chosen

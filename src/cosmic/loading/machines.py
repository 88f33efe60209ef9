"""What a design runs on: accelerators, memory, network, collectives and node of a system, and what a file changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cosmic import catalog
from cosmic.catalog.fabrics import with_switches
from cosmic.catalog.hosts import node_of, outer_tiers
from cosmic.catalog.reliability import npu_mtbf_s
from cosmic.catalog.systems import YAML_ENDINGS, system
from cosmic.design import schema
from cosmic.design.collective import Collective
from cosmic.design.compute import Compute
from cosmic.design.memory import Memory
from cosmic.design.network import GRAPH, Network, topologies
from cosmic.design.node import Node
from cosmic.design.run import Run
from cosmic.errors import SpecError, UnknownName, require
from cosmic.loading.links import with_links
from cosmic.loading.trees import merge, merge_inside


def spell_out(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return *tree* with names that stand for a layer turned into mappings, so that keys can be added to them."""
    spelled = dict(tree)
    for layer, key in (("model", "base"), ("compute", "accelerator"), ("node", "name")):
        if isinstance(spelled.get(layer), str):
            spelled[layer] = {key: spelled[layer]}
    return spelled


def machine_layers(name: str) -> dict[str, Any]:
    """Return the layers of a system of the catalog at the size that *name* asks for: all but model and workload.

    >>> layers = machine_layers("dgx-h100:64")
    >>> sorted(layers), layers["network"].npus
    (['collective', 'compute', 'memory', 'network', 'node'], 64)
    """
    return machine_of({}, system(name, None), None)


def machine_of(tree: Mapping[str, Any], base: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return the layers of a machine: those of the system *base*, changed by what *tree* says."""
    compute, memory = _accelerator(tree, base, folder)
    network = _network(tree, base, folder)
    collective = _collective(tree, base, network)
    return {
        "collective": collective,
        "network": network,
        "compute": compute,
        "memory": memory,
        "node": _node(tree, base),
    }


def written_machine(tree: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Return what a design runs on as files write it, in full: no mapping is needed for it."""
    base = system(schema.read(str, tree["system"], "system"), folder) if "system" in tree else {}
    layers = machine_of(spell_out(tree), base, folder)
    return {key: schema.write(layers[key]) for key in ("compute", "network", "node")}


def accelerator_layers(name: str, where: str) -> tuple[Compute, Memory]:
    """Return the compute and memory layers that an accelerator of the catalog brings along."""
    return _read_accelerator(_accelerator_entry(name, where), {"accelerator": name}, {})


def _accelerator_entry(name: str, where: str) -> Mapping[str, Any]:
    known = catalog.names("accelerators")
    if name not in known:
        raise UnknownName.among(where, name, "accelerator", known)
    return catalog.entry("accelerators", name)


def _accelerator(tree: Mapping[str, Any], base: Mapping[str, Any], folder: Path | None) -> tuple[Compute, Memory]:
    """Return compute and memory: the accelerator's, changed by what the system and *tree* say."""
    given = tree.get("compute", {})
    if not isinstance(given, Mapping):
        raise SpecError("compute", given, "must be an accelerator's name or a mapping of keys to values")
    where = "compute.accelerator"
    name = given.get("accelerator", base.get("accelerator", ""))
    name = schema.read_source(name, where)
    if name == base.get("accelerator"):  # what the system says of its own accelerator
        given = merge_inside(base.get("compute", {}), given, "compute")
    inline = "bf16" in given and name not in catalog.names("accelerators")
    entry: Mapping[str, Any] = {}
    if folder is not None and name.endswith(YAML_ENDINGS):
        entry, name = catalog.load_mapping(folder / name), Path(name).stem
    elif not inline:
        require(bool(name), where, schema.Absent(), "name an accelerator, or give its rates: at least bf16")
        entry = _accelerator_entry(name, where)
    memory = merge(_with_tiers(tree, base), tree.get("memory", {}))
    if isinstance(memory, Mapping) and memory.get("tiers") == OF_NODE:
        memory = {**memory, "tiers": _tiers_of_node(tree, base)}
    return _read_accelerator(entry, {**given, "accelerator": name}, memory)


OF_NODE = "node"
"""What stands for the tiers of memory that the catalog knows of a node."""


def _tiers_of_node(tree: Mapping[str, Any], base: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the tiers that the catalog knows of the node; raise a `SpecError` if it knows none."""
    found = outer_tiers(_node_name(tree, base), base)
    name = _node_name(tree, base) or "the system"
    require(bool(found), "memory.tiers", OF_NODE, f"no memory behind the accelerators is known of {name}: state it")
    return found


def _with_tiers(tree: Mapping[str, Any], base: Mapping[str, Any]) -> Any:
    """Return what a system says of memory; with the tiers of its node, if something is to live there.

    Otherwise a design has none: nothing of it depends on them.
    """
    own, given = base.get("memory", {}), tree.get("memory", {})
    if not isinstance(given, Mapping) or "tiers" in own or isinstance(given.get("tiers"), list | str):
        return own
    workload = tree.get("workload", {})
    offloads = isinstance(workload, Mapping) and bool(workload.get("offload"))
    if not (offloads or given.get("placement") or "tiers" in given):
        return own
    found = outer_tiers(_node_name(tree, base), base)
    return {**own, "tiers": found} if found else own


def _node_name(tree: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    given = tree.get("node", {})
    name = given.get("name", base.get("node", "")) if isinstance(given, Mapping) else ""
    return name if isinstance(name, str) else ""


def _read_accelerator(entry: Mapping[str, Any], compute: Any, memory: Any) -> tuple[Compute, Memory]:
    """Return the layers of a catalog *entry*, changed by what is said of *compute* and *memory*."""
    first: Compute = schema.read(Compute, merge(entry.get("compute", {}), compute), "compute")
    second: Memory = schema.read(Memory, merge(entry.get("memory", {}), memory), "memory")
    return first, second


def _network(tree: Mapping[str, Any], base: Mapping[str, Any], folder: Path | None) -> Network:
    require("network" in tree or bool(base), "network", schema.Absent(), "give a network or a system")
    merged = merge_inside(base.get("network", {}), tree.get("network", {}), "network")
    network: Network = schema.read(Network, with_switches(with_links(merged, folder)), "network")
    return network


def _node(tree: Mapping[str, Any], base: Mapping[str, Any]) -> Node:
    """Return the node: the system's, or the one that *tree* names, changed by what it says."""
    given = tree.get("node", {})
    if not isinstance(given, Mapping):
        raise SpecError("node", given, "must be a node's name or a mapping of keys to values")
    name = schema.read_source(given.get("name", base.get("node", "")), "node.name") if "name" in given or base else ""
    node: Node = schema.read(Node, merge(node_of(name) if name else {}, given), "node")
    return node


def run_of(given: Any, accelerator: str) -> Run:
    """Return the run layer; accelerators are interrupted as often as is published, if nobody states it."""
    if not isinstance(given, Mapping):
        raise SpecError("run", given, "must be a mapping of keys to values")
    run: Run = schema.read(Run, given, "run")
    return run if "npu_mtbf" in given else replace(run, npu_mtbf_s=npu_mtbf_s(accelerator)[0])


def _collective(tree: Mapping[str, Any], base: Mapping[str, Any], network: Network) -> Collective:
    """Return the collective layer; an algorithm that is not given is the one that suits its dimension."""
    fitting = ["ring" if dim.topology == GRAPH else topologies[dim.topology].algorithm for dim in network.dims]
    of_system = base.get("collective", {})
    if len(of_system.get("algorithms", [])) != len(fitting) or not fitting:
        of_system = {**of_system, "algorithms": fitting}
    merged = merge_inside(of_system, tree.get("collective", {}), "collective")
    chosen: Collective = schema.read(Collective, merged, "collective")
    return chosen

"""What `cosmic trace convert` reads: a text workload, a network of LIBRA or ASTRA-sim, and a communicator."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from cosmic.catalog import load_mapping
from cosmic.cli.trace_convert import MOST_NPUS
from cosmic.errors import SpecError, require
from cosmic.provisioning import libra
from cosmic.simulation.event.inputs import read_network
from cosmic.traces.text_workloads import Communicator, Layer, read_layers


@dataclass(frozen=True, slots=True)
class Inputs:
    """A workload, and where it runs."""

    layers: tuple[Layer, ...]
    npus: tuple[int, ...]
    """In each dimension, innermost first; one dimension if nothing is known of the network."""
    communicator: Communicator | None
    network: str
    """The file of the network, if simulations read it, too."""


def inputs(file: str, npus: int | None, network: str, communicator: str) -> Inputs:
    """Return what the options of the command name; they are checked against each other."""
    layers = read_layers(file)
    if not network:
        require(not communicator, "--communicator", communicator, "needs --network, whose dimensions it divides")
        if npus is None:
            raise SpecError("--npus", None, "state how many ranks there are, or the --network")
        return Inputs(layers, (npus,), None, "")
    found, simulated = _network(network)
    total = prod(found.npus)
    require(npus in (None, total), "--npus", npus, f"{Path(network).name} has {total:,} NPUs")
    require(total <= MOST_NPUS, "--network", network, f"has {total:,} NPUs, and a text workload at most {MOST_NPUS:,}")
    groups = libra.read_communicator(communicator, found) if communicator else None
    return Inputs(layers, found.npus, groups, network if simulated else "")


def _network(path: str) -> tuple[libra.LibraNetwork, bool]:
    """Return a network of LIBRA or of ASTRA-sim, and whether it is of ASTRA-sim."""
    if libra.is_libra_network(load_mapping(Path(path))):
        return libra.read_network(path), False
    npus = tuple(dim.npus for dim in read_network(path))
    return libra.LibraNetwork(("ring",) * len(npus), npus, ("",) * len(npus)), True

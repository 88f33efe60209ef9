"""What `cosmic trace convert` reads: a text workload, a network of LIBRA or ASTRA-sim, and a communicator."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

from cosmic.base.errors import SpecError, require
from cosmic.cli.trace_convert_command import MOST_NPUS
from cosmic.design.catalog_entries import load_mapping
from cosmic.search.provision import libra
from cosmic.simulate.events.astra_sim_inputs import read_astra_sim_network
from cosmic.traces.chakra.text_workloads import Communicator, TextLayer, read_layers


@dataclass(frozen=True, slots=True)
class TextWorkloadInputs:
    """A workload, and where it runs."""

    layers: tuple[TextLayer, ...]
    npus: tuple[int, ...]
    """In each dimension, innermost first; one dimension if nothing is known of the network."""
    communicator: Communicator | None
    network: str
    """The file of the network, if simulations read it, too."""


def read_text_workload_inputs(file: str, npus: int | None, network: str, communicator: str) -> TextWorkloadInputs:
    """Return what the options of the command name; they are checked against each other."""
    layers = read_layers(file)
    if not network:
        require(not communicator, "--communicator", communicator, "needs --network, whose dimensions it divides")
        if npus is None:
            raise SpecError("--npus", None, "state how many ranks there are, or the --network")
        return TextWorkloadInputs(layers, (npus,), None, "")
    libra_network, simulated = _read_network(network)
    total = prod(libra_network.npus)
    require(npus in (None, total), "--npus", npus, f"{Path(network).name} has {total:,} NPUs")
    require(total <= MOST_NPUS, "--network", network, f"has {total:,} NPUs, and a text workload at most {MOST_NPUS:,}")
    groups = libra.read_communicator(communicator, libra_network) if communicator else None
    return TextWorkloadInputs(layers, libra_network.npus, groups, network if simulated else "")


def _read_network(path: str) -> tuple[libra.LibraNetwork, bool]:
    """Return a network of LIBRA or of ASTRA-sim, and whether it is of ASTRA-sim."""
    if libra.is_libra_network(load_mapping(Path(path))):
        return libra.read_network(path), False
    npus = tuple(dim.npus for dim in read_astra_sim_network(path))
    return libra.LibraNetwork(("ring",) * len(npus), npus, ("",) * len(npus)), True

"""Profiles of PyTorch, and workloads of other tools, converted to Chakra traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from cosmic.base.errors import SpecError, require
from cosmic.design.catalog_entries import load_mapping
from cosmic.search.provision import libra
from cosmic.simulate.events.astra_sim_inputs import read_astra_sim_network
from cosmic.traces.chakra.workload_files import (
    Communicator,
    TextLayer,
    read_layers,
    read_workload_graph,
    traces_of_layers,
)
from cosmic.traces.profiles.profile_conversion import InputKind, convert_profiles, sort_inputs
from cosmic.traces.trace import TraceSet
from cosmic.traces.trace_jobs import write_job

MOST_NPUS = 2**17
"""Ranks of a text workload, each of which is a file."""


@dataclass(frozen=True, slots=True)
class TextWorkloadInputs:
    """A text workload, and where it runs."""

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
    dims, simulated = _read_network(network)
    total = prod(dims.npus)
    require(npus in (None, total), "--npus", npus, f"{Path(network).name} has {total:,} NPUs")
    require(total <= MOST_NPUS, "--network", network, f"has {total:,} NPUs, and a text workload at most {MOST_NPUS:,}")
    groups = libra.read_communicator(communicator, dims) if communicator else None
    return TextWorkloadInputs(layers, dims.npus, groups, network if simulated else "")


def _read_network(path: str) -> tuple[libra.LibraNetwork, bool]:
    """Return a network of LIBRA or of ASTRA-sim, and whether it is of ASTRA-sim."""
    if libra.is_libra_network(load_mapping(Path(path))):
        return libra.read_network(path), False
    npus = tuple(dim.npus for dim in read_astra_sim_network(path))
    return libra.LibraNetwork(("ring",) * len(npus), npus, ("",) * len(npus)), True


@dataclass(frozen=True, slots=True)
class ConvertedTraces:
    """The traces of a job that were files of another kind."""

    traces: TraceSet
    groups: Mapping[str, Sequence[int]]
    metadata: tuple[Mapping[str, str], ...] = ()
    """What each rank's file says of its origin, of profiles."""
    notes: tuple[str, ...] = ()
    """What was left out or assumed."""


def convert_files(
    files: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    step: int | None = None,
    accelerator: str = "",
    npus: int | None = None,
    network: str | Path = "",
    communicator: str | Path = "",
    passes: int = 1,
) -> ConvertedTraces:
    """Return profiles of PyTorch, a text workload of ASTRA-sim 1.0, or JSON graphs of Chakra as traces.

    Of profiles, *step* is the recorded one to take, and *accelerator* predicts kernels where no Kineto trace has their
    times. Of a text workload, *npus* is the number of ranks, or *network* and *communicator* are files that say more,
    and *passes* the number of training passes. With *out*, a prefix, the traces are written.

        cosmic.trace.convert(["gpt.et.json.gz", "gpt.kineto.json.gz"], out="runs/gpt").traces.nodes  # 412
    """
    named = [str(file) for file in ([files] if isinstance(files, str | Path) else files)]
    kind, profiles = sort_inputs(named)
    where = str(out or "trace")
    if kind is InputKind.TEXT:
        inputs = read_text_workload_inputs(named[0], npus, str(network), str(communicator))
        job = traces_of_layers(inputs.layers, inputs.npus, inputs.communicator, passes=passes)
        converted = ConvertedTraces(job.traces, job.groups)
    elif kind is InputKind.GRAPH:
        graphs = [read_workload_graph(file) for file in named]
        notes = tuple(note for _, said in graphs for note in said)
        converted = ConvertedTraces(TraceSet(tuple(trace for trace, _ in graphs), where), {}, (), notes)
    else:
        recorded = convert_profiles(profiles, step=step, accelerator=accelerator or None, where=where)
        converted = ConvertedTraces(recorded.traces, recorded.groups, recorded.metadata, recorded.notes)
    if out is not None:
        write_job(converted.traces, converted.groups, out, converted.metadata)
    return converted

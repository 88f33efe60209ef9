"""A suite of benchmark traces: designs with every choice stated, generated when they run, and the cycles to expect.

`suite.yaml` holds the cases. A case is simulated on the inputs that others would give to ASTRA-sim: its system, network
and groups, and the traces of one step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cosmic.base.errors import SpecError, UnknownName
from cosmic.design.loading import parse_overrides
from cosmic.design.plain_data import load_yaml, parse_yaml
from cosmic.frameworks.launch import Launch
from cosmic.frameworks.targets.astra_sim import launch_astra_sim
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.events.astra_sim_inputs import AstraSimDimension, system_from_keys
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_simulation import simulate_job
from cosmic.traces.trace import TraceSet

CASES = Path(__file__).with_name("trace_suite.yaml")
SYSTEM, NETWORK, GROUPS = "system.json", "network.yml", "comm_groups.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A design, and what its step takes."""

    name: str
    about: str
    design: str
    """MODEL@SYSTEM:NPUS."""
    settings: tuple[str, ...]
    """Fields of the design, PATH=VALUE."""
    cycles: int
    """Nanoseconds until the last rank ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """What a case took."""

    name: str
    """Name of the case."""
    ranks: int
    """Ranks."""
    nodes: int
    """Nodes of all ranks."""
    cycles: int
    """When the last rank ends."""
    expected: int
    """When it should end."""
    ok: bool
    """Whether both are equal."""
    seconds: float
    """Elapsed time, to make its traces and simulate them."""


class SuiteInputs(Protocol):
    """ASTRA-sim's inputs: what `cosmic.frameworks.targets.astra_sim` makes of a design."""

    @property
    def files(self) -> Mapping[str, str]:
        """Texts of files by name."""

    @property
    def traces(self) -> TraceSet | None:
        """The traces of a step."""


def list_cases(only: str | None = None) -> list[Case]:
    """Return the cases, or the one that is named *only*."""
    cases = [
        Case(
            name=name,
            about=entry["about"],
            design=entry["design"],
            settings=tuple(f"{path}={value}" for path, value in entry["settings"].items()),
            cycles=entry["cycles"],
        )
        for name, entry in load_yaml(CASES).items()
    ]
    if only is None:
        return cases
    if chosen := [case for case in cases if case.name == only]:
        return chosen
    raise UnknownName.among("--only", only, "case", [case.name for case in cases])


def run_case(case: Case, build: Callable[[Case], SuiteInputs]) -> CaseOutcome:
    """Return what a case takes on the inputs that *build* makes of its design."""
    began = time.perf_counter()
    inputs = build(case)
    traces = inputs.traces
    if traces is None:
        raise SpecError("case", case.name, "a design without a network has no traces")
    cycles = simulate_job(job_of(inputs, traces)).cycles
    return CaseOutcome(
        name=case.name,
        ranks=len(traces.ranks),
        nodes=traces.nodes,
        cycles=cycles,
        expected=case.cycles,
        ok=cycles == case.cycles,
        seconds=time.perf_counter() - began,
    )


def run_suite(*, only: str = "") -> list[CaseOutcome]:
    """Simulate the benchmark traces, or the case that is named *only*, and compare their cycles with what is expected.

    >>> import cosmic
    >>> [case.ok for case in cosmic.trace.suite(only="dense-8")]
    [True]
    """
    return [run_case(case, launch_case) for case in list_cases(only or None)]


def launch_case(case: Case) -> Launch:
    """Return a case's inputs for ASTRA-sim."""
    return launch_astra_sim(load_design(case.design, parse_overrides(list(case.settings))))


def job_of(inputs: SuiteInputs, traces: TraceSet) -> Job:
    """Return the simulation of *inputs*."""
    network = parse_yaml(inputs.files[NETWORK], NETWORK)
    keys = ("topology", "npus_count", "bandwidth", "latency")
    dims = tuple(
        AstraSimDimension(topology, npus, float(bandwidth), float(latency))
        for topology, npus, bandwidth, latency in zip(*(network[key] for key in keys), strict=True)
    )
    return Job(
        traces=traces,
        groups={name: tuple(ranks) for name, ranks in json.loads(inputs.files[GROUPS]).items()},
        system=system_from_keys(json.loads(inputs.files[SYSTEM]), where=SYSTEM),
        network=SimulatedNetwork(dims),
    )

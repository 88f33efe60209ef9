"""Faster compute: when the network becomes the bottleneck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from common import Effort, Section, percent
from scenarios_designs import LARGEST, MODELS, TIME, Design, best_mapping, cases, full_stack, given_gb_per_s, seconds

from cosmic import catalog
from cosmic.pages import Axis, Figure, Part, Series, Table, Text, lines
from cosmic.space import ParameterSet

SYSTEM = "cosmic-1024"
PEAKS = (10, 20, 40, 80)
"""TFLOP/s of an NPU; the system has the first."""
MEMORY = 50
"""GB/s of an NPU's memory in the system."""
SCARCE, GIVEN, AMPLE = "a tenth", "as given", "tenfold"
NETWORKS = {SCARCE: 0.1, "a third": 1 / 3, GIVEN: 1.0, AMPLE: 10.0}
"""Factors on the bandwidths of the network."""
FIXED, GROWN = "fixed", "grown"
"""Whether memory keeps its bandwidth, or scales with the peak."""


@dataclass(frozen=True)
class Sweep:
    """The best mapping for each policy of memory, peak and network."""

    peaks: Sequence[int]
    designs: Mapping[tuple[str, int, str], Design]

    @property
    def cases(self) -> list[tuple[str, int]]:
        """The policies and peaks of the sweep."""
        return list(dict.fromkeys((policy, peak) for policy, peak, _ in self.designs))

    def step(self, policy: str, peak: int, wires: str) -> float:
        """Return the shortest step."""
        return self.designs[policy, peak, wires].step_s

    def lost(self, policy: str, peak: int, wires: str) -> float:
        """Return the relative excess over the step with ten times the given bandwidth."""
        return self.step(policy, peak, wires) / self.step(policy, peak, AMPLE) - 1


def memory_gb_per_s(policy: str, peak: int) -> int:
    """Return the bandwidth of memory."""
    return MEMORY if policy == FIXED else MEMORY * peak // PEAKS[0]


def mapping_space(peak: int, memory: int, wires: float) -> ParameterSet:
    """Return the space of the largest model on NPUs with another peak, the network scaled by a factor."""
    given = catalog.show("systems", SYSTEM)["network"]["dims"]
    widths = [f"{each * wires:g} GB/s" for each in given_gb_per_s(SYSTEM)]
    base = {
        "model": MODELS[LARGEST],
        "compute": {"accelerator": "cosmic-10tf", "bf16": f"{peak} TFLOP/s"},
        "memory": {"bandwidth": f"{memory} GB/s"},
        "network": {"dims": [{**dim, "bandwidth": width} for dim, width in zip(given, widths, strict=True)]},
    }
    return full_stack(1024, base, f"{peak} TFLOP/s")


def speed_up(effort: Effort) -> Sweep:
    """Return the best mapping with each peak, memory and network."""
    peaks = cases(effort, PEAKS)
    policies = [*product((GROWN,), peaks), *product((FIXED,), peaks[1:])]  # at the first peak both are the same
    designs = {
        (policy, peak, wires): best_mapping(mapping_space(peak, memory_gb_per_s(policy, peak), factor), TIME)
        for (policy, peak), (wires, factor) in product(policies, NETWORKS.items())
    }
    return Sweep(peaks, designs)


def faster_compute(effort: Effort) -> Section:
    """Return the speed of compute from which the network matters."""
    sweep, given = speed_up(effort), sum(given_gb_per_s(SYSTEM))
    return Section(
        "Faster compute",
        "From which speed of compute on does the network matter?",
        f"With {given:g} GB/s per NPU it hardly matters up to {PEAKS[-1]} TFLOP/s"
        f" ({percent(sweep.lost(GROWN, PEAKS[-1], GIVEN))} of a step); it does below 10 GB/s per TFLOP/s.",
        body(sweep, given),
    )


def body(sweep: Sweep, given: float) -> list[Part]:
    """Return the steps, and the share that the network costs."""
    rows = []
    for policy, peak in sweep.cases:
        here = sweep.designs[policy, peak, GIVEN]
        times = [seconds(sweep.step(policy, peak, wires)) for wires in NETWORKS]
        memory = f"{memory_gb_per_s(policy, peak)} GB/s"
        rows.append([peak, memory, *times, percent(here.metrics["mfu"]), here.mapping])
    return [
        Text(
            f"""{LARGEST} on 1,024 NPUs of 10, 20, 40 and 80 TFLOP/s. The mapping is searched exhaustively for each; the
            network is the given one ({given:g} GB/s per NPU over four dimensions), a tenth or a third of it, or ten
            times as much. Memory bandwidth scales with compute, or stays at {MEMORY} GB/s as in the original."""
        ),
        Table(
            ["TFLOP/s", "memory", *(f"step, {name}" for name in NETWORKS), "MFU, as given", "mapping, as given"],
            rows,
            "The shortest step of any mapping, by the bandwidth of the network.",
        ),
        Figure(
            lines(
                [Series(f"{peak} TFLOP/s", losses(sweep, peak, given)) for peak in sweep.peaks],
                x=Axis("network bandwidth per compute", "GB/s per TFLOP/s", log=True),
                y=Axis("longer than with ten times the given network", "%", log=True, better="lower"),
                title="The cost of the network, by bandwidth per compute",
            ),
            "compute",
            "Memory scales with compute. Curves of different peaks are close: the ratio matters.",
        ),
        Text(said(sweep)),
    ]


def losses(sweep: Sweep, peak: int, given: float) -> list[tuple[float, float]]:
    """Return the excess of a step in percent, by GB/s of network per TFLOP/s."""
    return [
        (given * factor / peak, 100 * sweep.lost(GROWN, peak, wires))
        for wires, factor in NETWORKS.items()
        if wires != AMPLE
    ]


def said(sweep: Sweep) -> str:
    """Return when the network starts to matter."""
    low, middle, high = sweep.peaks[0], sweep.peaks[1], sweep.peaks[-1]
    tenth = {peak: sweep.lost(GROWN, peak, SCARCE) for peak in sweep.peaks}
    fixed, grown = (sweep.step(GROWN, low, GIVEN) / sweep.step(policy, high, GIVEN) for policy in (FIXED, GROWN))
    return f"""If memory scales too, the given network costs {percent(sweep.lost(GROWN, low, GIVEN))} of the step at
        {low} TFLOP/s and {percent(sweep.lost(GROWN, high, GIVEN))} at {high}. A tenth of it at {low} TFLOP/s, nearly
        the same bandwidth per TFLOP/s as the latter, costs {percent(tenth[low])}, and {percent(tenth[middle], 0)}
        at {middle} TFLOP/s, {percent(tenth[high], 0)} at {high}: below 4 GB/s per TFLOP/s the step is network-bound.
        With memory at {MEMORY} GB/s memory is the first bottleneck: {high // low} times the peak makes a step
        {fixed:.1f} times as fast, against {grown:.1f} if memory scales."""

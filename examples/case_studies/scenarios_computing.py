"""Faster compute: from which speed on the network matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from common import Effort, Section, percent
from scenarios_designs import LARGEST, MODELS, TIME, Design, best_mapping, cases, full_stack, given_gb_per_s, seconds

from cosmic import catalog
from cosmic.psa.space import ParameterSet
from cosmic.reporting.charts import Axis, Series, lines
from cosmic.reporting.page import Figure, Part, Table, Text

SYSTEM = "cosmic-1024"
PEAKS = (10, 20, 40, 80)
"""TFLOP/s of a NPU; the system has the first."""
MEMORY = 50
"""GB/s of a NPU's memory, as the system has it."""
SCARCE, GIVEN, AMPLE = "a tenth", "as given", "tenfold"
NETWORKS = {SCARCE: 0.1, "a third": 1 / 3, GIVEN: 1.0, AMPLE: 10.0}
"""By what the bandwidths of the network are multiplied."""
FIXED, GROWN = "fixed", "grown"
"""Whether memory keeps its bandwidth, or grows with the peak."""


@dataclass(frozen=True)
class Sweep:
    """The best mapping for each policy of memory, peak and network."""

    peaks: Sequence[int]
    designs: Mapping[tuple[str, int, str], Design]

    @property
    def cases(self) -> list[tuple[str, int]]:
        """The policies and peaks that were looked at."""
        return list(dict.fromkeys((policy, peak) for policy, peak, _ in self.designs))

    def step(self, policy: str, peak: int, wires: str) -> float:
        """Return the shortest step."""
        return self.designs[policy, peak, wires].step_s

    def lost(self, policy: str, peak: int, wires: str) -> float:
        """Return how much longer it is than with ten times the given bandwidth."""
        return self.step(policy, peak, wires) / self.step(policy, peak, AMPLE) - 1


def memory_gb_per_s(policy: str, peak: int) -> int:
    """Return the bandwidth of memory."""
    return MEMORY if policy == FIXED else MEMORY * peak // PEAKS[0]


def mapping_space(peak: int, memory: int, wires: float) -> ParameterSet:
    """Return the designs of the largest model on NPUs of another speed, their network changed by a factor."""
    given = catalog.entry("systems", SYSTEM)["network"]["dims"]
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
    policies = [*product((GROWN,), peaks), *product((FIXED,), peaks[1:])]  # at the first peak they are the same
    designs = {
        (policy, peak, wires): best_mapping(mapping_space(peak, memory_gb_per_s(policy, peak), factor), TIME)
        for (policy, peak), (wires, factor) in product(policies, NETWORKS.items())
    }
    return Sweep(peaks, designs)


def faster_compute(effort: Effort) -> Section:
    """Return from which speed of compute on the network matters."""
    sweep, given = speed_up(effort), sum(given_gb_per_s(SYSTEM))
    return Section(
        "Faster compute",
        "From which speed of compute on does the network matter?",
        f"With {given:g} GB/s a NPU hardly up to {PEAKS[-1]} TFLOP/s"
        f" ({percent(sweep.lost(GROWN, PEAKS[-1], GIVEN))} of a step); it does below 10 GB/s for each TFLOP/s.",
        body(sweep, given),
    )


def body(sweep: Sweep, given: float) -> list[Part]:
    """Return the steps, and what the network costs of them."""
    rows = []
    for policy, peak in sweep.cases:
        here = sweep.designs[policy, peak, GIVEN]
        times = [seconds(sweep.step(policy, peak, wires)) for wires in NETWORKS]
        memory = f"{memory_gb_per_s(policy, peak)} GB/s"
        rows.append([peak, memory, *times, percent(here.metrics["mfu"]), here.mapping])
    return [
        Text(
            f"""{LARGEST} on 1,024 NPUs of 10, 20, 40 and 80 TFLOP/s. The mapping is chosen anew for each, from all
            there are; the network is the given one ({given:g} GB/s a NPU over four dimensions), a tenth or a third of
            it, or ten times as much. Memory grows with the compute, or keeps its {MEMORY} GB/s as in the original."""
        ),
        Table(
            ["TFLOP/s", "memory", *(f"step, {name}" for name in NETWORKS), "MFU, as given", "mapping, as given"],
            rows,
            "The shortest step of any mapping, by the bandwidth of the network.",
        ),
        Figure(
            lines(
                [Series(f"{peak} TFLOP/s", losses(sweep, peak, given)) for peak in sweep.peaks],
                x=Axis("network bandwidth for compute", "GB/s a TFLOP/s", log=True),
                y=Axis("longer than with ten times the given network", "%", log=True, better="lower"),
                title="What the network costs, by bandwidth for compute",
            ),
            "compute",
            "Memory grows with compute. Curves of different peaks lie close: it is the ratio that counts.",
        ),
        Text(said(sweep)),
    ]


def losses(sweep: Sweep, peak: int, given: float) -> list[tuple[float, float]]:
    """Return how many percent longer a step is, by GB/s of network for each TFLOP/s."""
    return [
        (given * factor / peak, 100 * sweep.lost(GROWN, peak, wires))
        for wires, factor in NETWORKS.items()
        if wires != AMPLE
    ]


def said(sweep: Sweep) -> str:
    """Return when the network begins to matter."""
    low, middle, high = sweep.peaks[0], sweep.peaks[1], sweep.peaks[-1]
    tenth = {peak: sweep.lost(GROWN, peak, SCARCE) for peak in sweep.peaks}
    fixed, grown = (sweep.step(GROWN, low, GIVEN) / sweep.step(policy, high, GIVEN) for policy in (FIXED, GROWN))
    return f"""If memory grows too, the given network costs {percent(sweep.lost(GROWN, low, GIVEN))} of the step at
        {low} TFLOP/s and {percent(sweep.lost(GROWN, high, GIVEN))} at {high}. A tenth of it at {low} TFLOP/s, nearly
        the same bandwidth for each TFLOP/s as the latter, costs {percent(tenth[low])}, and {percent(tenth[middle], 0)}
        at {middle} TFLOP/s, {percent(tenth[high], 0)} at {high}: below 4 GB/s for each TFLOP/s it rules the step.
        With memory at {MEMORY} GB/s something else comes first: {high // low} times the peak makes a step {fixed:.1f}
        times as fast, against {grown:.1f} if memory grows, as NPUs wait for their own memory."""

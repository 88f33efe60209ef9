"""Recorded steps re-priced from shapes alone: the sum of kernel times, predicted and recorded, by class of kernel.

    python benchmarks/kernel_prices.py FOLDER [--accelerator NAME] [--kineto-only] [--worst N] [--json]

FOLDER holds pairs NAME.et.json.gz and NAME.kineto.json.gz, as calibration/measure_traces.py records them. *known* is
the share of the recorded kernel time whose work is known. Kernels of CUDA graphs have no operators: they take the works
of kernels of the same name and launch in that other recording of the folder which has most of them.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.design.machine_layers import accelerator_layers
from cosmic.step.kernel_prices import KernelWork, kernel_seconds
from cosmic.traces.profiles.operator_kernels import KernelLaunch, operator_works, works_by_kernel
from cosmic.traces.profiles.profiled_operators import ProfiledOperator, operator_of_execution_trace, operator_of_kineto

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
GRAPHED = 0.5
"""Share of the time that is known in a recording at most, for it to count as one of CUDA graphs."""
MICRO = 1e-6
CLASSES = {
    "gemm": "GEMM",
    "grouped_gemm": "GEMM",
    "attention": "attention",
    "attention_backward": "attention",
    "convolution": "convolution",
    "stream": "stream",
}


@dataclass
class Recorded:
    """One kernel of a recording."""

    start_us: float
    took_us: float
    name: str
    launch: KernelLaunch
    work: KernelWork | None
    operator: str


def read(path: Path) -> Any:
    """Return a packed JSON file."""
    with gzip.open(path, "rb") as file:
        return json.load(file)


def recording(folder: Path, name: str, kineto_only: bool) -> list[Recorded]:
    """Return the kernels of a recording in the order in which they began."""
    events = read(folder / f"{name}.kineto.json.gz")["traceEvents"]
    nodes = {} if kineto_only else host_nodes(read(folder / f"{name}.et.json.gz")["nodes"])
    calls, ran = {}, {}
    for event in events:
        given = event.get("args", {})
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in given:
            calls[given["correlation"]] = given.get("External id")
        elif event.get("cat") == "cpu_op":
            ran[given.get("External id")] = event
    groups: dict[Any, list[Any]] = defaultdict(list)
    for event in sorted((each for each in events if each.get("cat") in DEVICE), key=lambda each: float(each["ts"])):
        given = event["args"]
        groups[calls.get(given.get("correlation"), given.get("External id"))].append(event)
    found = []
    for key, kernels in groups.items():
        operator = operator_of(ran.get(key), nodes)
        launches = [launch_of(each["args"]) for each in kernels]
        works = operator_works(operator, [each["name"] for each in kernels], launches)
        for event, launch, work in zip(kernels, launches, works, strict=True):
            place = float(event["ts"]), float(event["dur"]), str(event["name"])
            found.append(Recorded(*place, launch, work, operator.name if operator else ""))
    return sorted(found, key=lambda each: each.start_us)


def host_nodes(nodes: list[Any]) -> dict[int, Any]:
    """Return the nodes of an execution trace by their record function id."""
    found = {}
    for node in nodes:
        ids = [each["value"] for each in node.get("attrs", []) if each["name"] == "rf_id"]
        found.update(dict.fromkeys(ids, node))
    return found


def operator_of(event: Any, nodes: dict[int, Any]) -> ProfiledOperator | None:
    """Return the operator of an event on the CPU, as the execution trace describes it where it does."""
    if event is None:
        return None
    node = nodes.get(event["args"].get("Record function id"))
    if node is None:
        return operator_of_kineto(event["name"], event["args"])
    return operator_of_execution_trace(node["name"], node["inputs"], node["outputs"])


def launch_of(given: Any) -> KernelLaunch:
    """Return how a kernel was launched, from the arguments of its event."""
    return KernelLaunch(tuple(given.get("grid", ())), tuple(given.get("block", ())), given.get("bytes"))


def idle_share(kernels: list[Recorded]) -> float:
    """Return the share of a recording in which no kernel ran."""
    busy, end, start = 0.0, -1.0, kernels[0].start_us
    for each in kernels:
        ended = each.start_us + each.took_us
        busy += max(ended - max(end, each.start_us), 0.0)
        end = max(end, ended)
    return max(0.0, 1 - busy / (end - start)) if end > start else 0.0


def class_of(work: KernelWork) -> str:
    """Return the class that a work is counted in."""
    return "optimizer" if work.walk in ("optimizer", "foreach") else CLASSES.get(work.kind, "copies")


def judged(kernels: list[Recorded], accelerator: str) -> dict[str, Any]:
    """Return the sums of predicted and recorded time, and each kernel's."""
    took = np.array([each.took_us for each in kernels]) * MICRO
    idle = idle_share(kernels)
    works = [each.work for each in kernels]
    priced = kernel_seconds(works, *accelerator_layers(accelerator, "accelerator"), idle=idle)
    known = ~np.isnan(priced)
    classes: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for work, predicted, recorded in zip(works, priced, took, strict=True):
        if work is not None:
            classes[class_of(work)][0] += predicted
            classes[class_of(work)][1] += recorded
    return {
        "kernels": len(kernels),
        "recorded_ms": 1e3 * float(took.sum()),
        "known": float(took[known].sum() / took.sum()),
        "idle": idle,
        "predicted_ms": 1e3 * float(priced[known].sum()),
        "error": float(priced[known].sum() / took[known].sum() - 1),
        "classes": {
            name: {"share": sums[1] / float(took.sum()), "error": sums[0] / sums[1] - 1}
            for name, sums in sorted(classes.items(), key=lambda each: -each[1][1])
        },
        "priced": priced,
    }


def matched(name: str, every: dict[str, list[Recorded]]) -> list[KernelWork | None]:
    """Return the works of kernels of CUDA graphs: those of the same kernels in another recording."""
    own = every[name]
    kernels = [(each.name, each.launch) for each in own]
    best: list[KernelWork | None] = [each.work for each in own]
    for other, known in every.items():
        if other != name:
            works = works_by_kernel(kernels, [(each.name, each.launch, each.work) for each in known])
            joined = [each.work or work for each, work in zip(own, works, strict=True)]
            best = max(best, joined, key=lambda each: known_us(own, each))
    return best


def known_us(kernels: list[Recorded], works: list[KernelWork | None]) -> float:
    """Return the recorded time of kernels whose work is known."""
    return sum(each.took_us for each, work in zip(kernels, works, strict=True) if work is not None)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accelerator", default="h200-sxm-141gb")
    parser.add_argument("--kineto-only", action="store_true")
    parser.add_argument("--worst", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    names = sorted(path.name.removesuffix(".kineto.json.gz") for path in given.folder.glob("*.kineto.json.gz"))
    every = {name: recording(given.folder, name, given.kineto_only) for name in names}
    graphed = {
        name: matched(name, every)
        for name, kernels in every.items()
        if known_us(kernels, [each.work for each in kernels]) < GRAPHED * sum(each.took_us for each in kernels)
    }
    for name, works in graphed.items():
        for kernel, work in zip(every[name], works, strict=True):
            kernel.work = work
    found = {name: judged(kernels, given.accelerator) for name, kernels in every.items() if kernels}
    priced = {name: each.pop("priced") for name, each in found.items()}
    if given.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'recording':22} {'kernels':>7} {'known':>6} {'recorded':>10} {'predicted':>10} {'error':>7}  by class")
    for name, each in found.items():
        parts = ", ".join(
            f"{word} {part['error']:+.0%} of {part['share']:.0%}" for word, part in each["classes"].items()
        )
        sums = f"{each['recorded_ms']:7.2f} ms {each['predicted_ms']:7.2f} ms"
        print(f"{name:22} {each['kernels']:7} {each['known']:6.1%} {sums} {each['error']:+7.1%}  {parts}")
    worst(every, priced, given.worst)


def worst(every: dict[str, list[Recorded]], priced: dict[str, Any], count: int) -> None:
    """Print the works that are the most off, over all recordings."""
    sums: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for name, kernels in every.items():
        for each, predicted in zip(kernels, priced.get(name, ()), strict=True):
            if each.work is not None:
                for place, value in enumerate((predicted / MICRO, each.took_us, 1)):
                    sums[name, each.operator, each.work.text][place] += value
    for (name, operator, text), (predicted, took, times) in sorted(
        sums.items(), key=lambda item: -abs(item[1][0] - item[1][1])
    )[:count]:
        print(f"{predicted - took:+9.0f} us  {took / times:8.1f} us each, {times:4.0f} x {text}  {operator} in {name}")


if __name__ == "__main__":
    main()

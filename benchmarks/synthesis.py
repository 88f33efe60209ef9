"""How near synthesised collectives come to their bounds, and what they take to make, on one core: prints JSON.

python benchmarks/synthesis.py [--json] [--only NAME] [--links FOLDER]

*networks*: all-gather and reduce-scatter of 1 GiB on every list of links in the folder, ../shared/reference/collectives
unless another is stated, beside the best that TACOS is recorded with: *tacos_over_bound* (its causal variant where it
was measured) and its CPU seconds. *over_bound* is time over the bound of any number of chunks, *over_chunked_bound*
over that of the number that was chosen. *sizes*: hypercubes, tori, meshes and rings of 64 to 16,384 NPUs, 1 MiB for
each, and tori with one link failed, which have no symmetry. --only takes networks with NAME in their names.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from cosmic.network.link_graph import LinkGraph, graph_of
from cosmic.network.schedules.collective_schedule import Kind
from cosmic.network.synthesis.lower_bounds import collective_bounds
from cosmic.network.synthesis.schedule_synthesis import synthesize

REFERENCE = Path(__file__).parents[2] / "shared" / "reference" / "collectives"
GIB = 2**30
SIZES = (64, 256, 1024, 4096, 16384)
MOST_ASYMMETRIC = 1024
"""The most NPUs of networks without symmetry."""


def read_links(path: Path) -> LinkGraph:
    """Return the network of a list of links: the number of NPUs, then source, target, GiB/s and µs a line."""
    first, *rows = [line.split() for line in path.read_text().splitlines() if line.strip()]
    links = [(int(row[0]), int(row[1]), float(row[2]) * GIB, float(row[3]) * 1e-6) for row in rows]
    return graph_of(int(first[0]), links)


def grid(sizes: tuple[int, ...], *, wrap: bool = True) -> LinkGraph:
    """Return a torus, or a mesh, of links of 50 GiB/s and 0.5 µs."""
    npus = np.arange(int(np.prod(sizes)))
    sources, targets, stride = [], [], 1
    for size in sizes:
        at = npus // stride % size
        for step in (1,) if size == 2 and wrap else (1, -1):
            to = at + step
            kept = np.ones(len(npus), bool) if wrap else (to >= 0) & (to < size)
            sources.append(npus[kept])
            targets.append((npus + (to % size - at) * stride)[kept])
        stride *= size
    begins, ends = np.concatenate(sources), np.concatenate(targets)
    return LinkGraph(len(npus), begins, ends, np.full(len(begins), 50.0 * GIB), np.full(len(begins), 5e-7))


def without_first_link(graph: LinkGraph) -> LinkGraph:
    """Return a network with one link failed."""
    bandwidth, latency = graph.bandwidth_bytes_per_s[1:], graph.latency_s[1:]
    return LinkGraph(graph.npus, graph.sources[1:], graph.targets[1:], bandwidth, latency)


def generated() -> Iterator[tuple[str, LinkGraph]]:
    """Yield networks of growing size."""
    for npus in SIZES:
        power = npus.bit_length() - 1
        side = 2 ** (power // 2)
        yield f"hypercube {npus}", grid((2,) * power)
        yield f"torus {side}x{npus // side}", grid((side, npus // side))
        yield f"torus 4x{side // 2}x{npus // side // 2}", grid((4, side // 2, npus // side // 2))
        yield f"ring {npus}", grid((npus,))
        if npus <= MOST_ASYMMETRIC:
            yield f"mesh {side}x{npus // side}", grid((side, npus // side), wrap=False)
            yield f"torus {side}x{npus // side} with a failed link", without_first_link(grid((side, npus // side)))


def measure(name: str, graph: LinkGraph, kind: Kind, size_bytes: float) -> dict[str, Any]:
    """Return how near the bound a schedule comes, and the CPU seconds of both."""
    began = process_time()
    bound = collective_bounds(graph, kind, size_bytes)
    bounded = process_time()
    schedule = synthesize(graph, kind, size_bytes)
    done = process_time()
    chunked = collective_bounds(graph, kind, size_bytes, chunks=schedule.chunks_per_npu)
    return {
        "network": name,
        "npus": graph.npus,
        "links": graph.links,
        "collective": kind,
        "size_bytes": size_bytes,
        "time_s": schedule.time_s,
        "bound_s": bound.seconds,
        "over_bound": round(schedule.time_s / bound.seconds, 4),
        "over_chunked_bound": round(schedule.time_s / chunked.seconds, 4),
        "chunks_per_npu": schedule.chunks_per_npu,
        "transfers": schedule.transfers,
        "bound_cpu_s": round(bounded - began, 3),
        "synthesis_cpu_s": round(done - bounded, 3),
    }


def tacos(folder: Path) -> dict[tuple[str, str], dict[str, float]]:
    """Return the best seconds of TACOS at 1 GiB, and the CPU seconds of its fastest run, by network and collective."""
    causal: dict[tuple[str, str], float] = {}
    for row in rows_of(folder / "tacos_hetero_causal.csv"):
        key = row["topology"], row["chunks_per_npu"]
        causal[key] = min(causal.get(key, np.inf), float(row["causal_best_us"]))
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows_of(folder / "tacos_bounds.csv"):
        if float(row["total_size_bytes"]) == GIB:
            best = causal.get((row["topology"], row["chunks_per_npu"]), float(row["tacos_best_us"])) * 1e-6
            own = found.setdefault((row["topology"], row["collective"]), {"time_s": np.inf})
            own["time_s"] = min(own["time_s"], best)
    for row in rows_of(folder / "tacos.csv"):
        if float(row["total_size_bytes"]) == GIB:
            own = found.setdefault((row["topology"], row["collective"]), {"time_s": float(row["time_us_best"]) * 1e-6})
            own["cpu_s"] = min(own.get("cpu_s", np.inf), float(row["synth_cpu_s_per_run"]))
    return found


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table; none where there is none."""
    if not path.is_file():
        return []
    with path.open() as file:
        return list(csv.DictReader(file))


def networks(folder: Path, only: str) -> Iterator[dict[str, Any]]:
    """Yield a row for every list of links and collective."""
    recorded = tacos(folder)
    kinds: tuple[Kind, ...] = ("all_gather", "reduce_scatter")
    for path in sorted(folder.glob("tacos_links/*.txt")):
        if path.name.endswith(".rev.txt") or only not in path.stem:
            continue
        graph = read_links(path)
        for kind in kinds:
            row = measure(path.stem, graph, kind, GIB)
            best = recorded.get((path.stem, kind))
            if best is not None:
                row |= {"tacos_over_bound": round(best["time_s"] / row["bound_s"], 4), "tacos_cpu_s": best.get("cpu_s")}
            yield row


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    parser.add_argument("--only", default="")
    parser.add_argument("--links", type=Path, default=REFERENCE, help="a folder with tacos_links, and TACOS' results")
    given = parser.parse_args()
    rows: dict[str, list[dict[str, Any]]] = {"networks": [], "sizes": []}
    for row in networks(given.links, given.only):
        rows["networks"].append(row)
        sys.stderr.write(f"{json.dumps(row)}\n")
    for name, graph in generated():
        if given.only in name:
            rows["sizes"].append(measure(name, graph, "all_gather", graph.npus * 2.0**20))
            sys.stderr.write(f"{json.dumps(rows['sizes'][-1])}\n")
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

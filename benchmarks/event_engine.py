"""Measure generation, reading and simulation of traces, in CPU seconds of whole processes on one core; print JSON.

python benchmarks/event_engine.py [--stage FOLDER] [--repeats 3]

Each case is its own `cosmic simulate` process; start-up, reading of files and output count. *cpu_s* is the best of some
runs, *engine_cpu_s* what the command itself reports (reading included, imports not), *astra_sim_cpu_s* the time of
ASTRA-sim for the same case: at commit 518bd51, one run each, on two cores at 2 to 3 GHz. Traces are generated ones, and
those of STAGE with the same mapping if --stage names their folder (NAME/gpt.RANK.et, NAME/gpt.json). Bytecode is
compiled before timing.

Ranks fold where they are alike. In some cases they do not: computations of every rank differ by up to 2 %, or folding
is off. *core* is one collective message by message, compiled and in Python, in events per CPU second.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.json_types import json_object
from cosmic.base.native.library import native_library
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.events.astra_sim_inputs import (
    AstraSimDimension,
    read_astra_sim_network,
    read_system,
    system_from_keys,
)
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_job import Job
from cosmic.simulate.events.trace_simulation import simulate_job
from cosmic.simulate.trace_generation import generate_traces
from cosmic.traces.chakra.trace_reader import read_trace, read_traces
from cosmic.traces.chakra.trace_writer import write_traces
from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, TraceSet, read_groups, template_of, write_groups

SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "collective-optimization": "localBWAware",
    "local-mem-bw": 3350,
    "peak-perf": 900,
    "roofline-enabled": 1,
    **{f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")},
}
MAPPINGS = {
    256: {"dp": 8, "tp": 8, "cp": 2, "pp": 2, "global_batch": 64, "micro_batch": 2},
    1024: {"dp": 16, "tp": 8, "cp": 2, "pp": 4, "global_batch": 128, "micro_batch": 2},
}
"""Mappings of the STAGE traces that ASTRA-sim was timed on: 8 layers, hidden size 4096."""
ASTRA_SIM = {
    ("unaware", 256): 11.8,
    ("aware", 256): 12.14,
    ("unaware", 1024): 27.3,
    ("aware", 1024): 34.98,
    ("ring", 1024): 13.54,
    ("STAGE", 1024): 19.1,
}
BIG_NODES = 100_000
JITTER = 0.02


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage", type=Path, help="a folder with STAGE traces: n256/gpt.0.et ...")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    parser.add_argument("--unfolded", nargs=4, metavar=("PREFIX", "SYSTEM", "NETWORK", "BACKEND"), help="simulate once")
    options = parser.parse_args()
    if options.unfolded:
        print(json.dumps(_unfolded(*options.unfolded)))
        return
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(here / "bytecode")
        generated = {ranks: _generate(here, ranks) for ranks in MAPPINGS}
        cases = list(_cases(here, options.stage))
        found = [_simulate(case, options.repeats) for case in cases]
        print(json.dumps({"generation": generated, "reading": _read(here), "cases": found, "core": _core()}, indent=2))


def _generate(here: Path, ranks: int) -> dict[str, Any]:
    """Write the traces of a design to files; return the CPU seconds."""
    settings: dict[str, Any] = {f"workload.{key}": value for key, value in MAPPINGS[ranks].items()}
    point = load_design(f"gpt3-6.7b@dgx-h100:{ranks}", {"model.layers": 8, **settings})
    times = []
    for _ in range(2):
        start = time.process_time()
        job = generate_traces(point)
        times.append(time.process_time() - start)
    start = time.process_time()
    prefix = here / f"generated{ranks}"
    write_traces(job.traces, prefix)
    write_groups(job.groups, f"{prefix}.json")
    written = time.process_time()
    write_traces(_jittered(job.traces), here / f"jittered{ranks}")
    return {
        "nodes": job.traces.nodes,
        "first_cpu_s": times[0],
        "again_cpu_s": times[1],
        "write_cpu_s": written - start,
        "stage_cpu_s": ASTRA_SIM.get(("STAGE", ranks)),
    }


def _jittered(traces: TraceSet) -> TraceSet:
    """Return traces in which no two ranks compute for equally long."""
    random = np.random.default_rng(1)
    ranks = []
    for rank in traces.ranks:
        template = rank.template
        factor = random.uniform(1 - JITTER, 1 + JITTER, template.nodes)
        operations, sizes = (
            np.where(column > 0, (column * factor).astype(np.int64), column)
            for column in (template.num_ops, template.tensor_size)
        )
        ranks.append(replace(rank, template=replace(template, num_ops=operations, tensor_size=sizes)))
    return TraceSet(tuple(ranks))


def _unfolded(prefix: str, system: str, network: str, backend: str) -> dict[str, Any]:
    """Simulate every rank, though many are alike."""
    net = SimulatedNetwork(read_astra_sim_network(network))
    traces, groups = read_traces(prefix, net.npus), read_groups(f"{prefix}.json")
    job = Job(traces=traces, groups=groups, system=read_system(system), network=net, backend=backend)
    return json_object(simulate_job(job, folded=False))


def _cases(here: Path, stage: Path | None) -> Iterator[dict[str, Any]]:
    (here / "system.json").write_text(json.dumps(SYSTEM))
    for ranks in MAPPINGS:
        text = f"topology: [Switch]\nnpus_count: [{ranks}]\nbandwidth: [400.0]\nlatency: [936.25]\n"
        (here / f"switch{ranks}.yml").write_text(text)
    for ranks in MAPPINGS:
        for backend in ("unaware", "aware"):
            common = ["--system", here / "system.json", "--network", here / f"switch{ranks}.yml", "--backend", backend]
            prefix = here / f"generated{ranks}"
            inputs = ["--workload", prefix, "--comm-groups", f"{prefix}.json", *common]
            yield {"case": f"generated, {ranks} ranks, {backend}", "inputs": inputs}
            if stage is not None and (stage / f"n{ranks}").exists():
                prefix = stage / f"n{ranks}" / "gpt"
                inputs = ["--workload", prefix, "--comm-groups", f"{prefix}.json", *common]
                yield {
                    "case": f"STAGE, {ranks} ranks, {backend}",
                    "inputs": inputs,
                    "astra_sim_cpu_s": ASTRA_SIM[backend, ranks],
                }
    for ranks, backend in ((1024, "unaware"), (256, "aware")):
        common = ["--system", here / "system.json", "--network", here / f"switch{ranks}.yml", "--backend", backend]
        inputs = ["--workload", here / f"jittered{ranks}", "--comm-groups", here / f"generated{ranks}.json", *common]
        yield {"case": f"jittered, {ranks} ranks, {backend}", "inputs": inputs}
    named = {"generated": here / "generated256"}
    if stage is not None and (stage / "n256").exists():
        named["STAGE"] = stage / "n256" / "gpt"
    for name, prefix in named.items():
        inputs = [prefix, here / "system.json", here / "switch256.yml", "aware"]
        yield {"case": f"{name}, 256 ranks, aware, unfolded", "unfolded": True, "inputs": inputs}
    yield {"case": "ring all-reduce, 1,024 NPUs", "inputs": _ring(here), "astra_sim_cpu_s": ASTRA_SIM["ring", 1024]}


def _ring(here: Path) -> list[Any]:
    """Write an all-reduce of 64 MiB in 4 chunks."""
    node = {"id": 0, "type": NodeType.COMM_COLL, "comm_type": CollectiveType.ALL_REDUCE, "comm_size": 2**26}
    rank = RankTrace(template_of([node]))
    write_traces(TraceSet((rank,) * 1024), here / "ring")
    (here / "ring.json").write_text(json.dumps(SYSTEM | {"local-mem-bw": 1600}))
    (here / "ring.yml").write_text("topology: [Ring]\nnpus_count: [1024]\nbandwidth: [100.0]\nlatency: [500.0]\n")
    return ["--workload", here / "ring", "--system", here / "ring.json", "--network", here / "ring.yml"]


def _simulate(case: dict[str, Any], repeats: int) -> dict[str, Any]:
    own = [__file__, "--unfolded"] if case.pop("unfolded", False) else ["-m", "cosmic", "simulate", "--json"]
    command = [sys.executable, *own, *map(str, case.pop("inputs"))]
    times = []
    for place in range(repeats + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        output = subprocess.run(command, check=True, capture_output=True).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if place:  # the first run compiles
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    result = json.loads(output)
    found = case | {
        "cycles": result["cycles"],
        "cpu_s": min(times),
        "engine_cpu_s": result["cpu_s"],
        "events": result["events"],
        "events_per_s": result["events"] / result["cpu_s"],
        "simulated_ranks": result["simulated_ranks"],
        "peak_memory_mb": _peak_mb(command),
    }
    if "astra_sim_cpu_s" in case:
        found["times_faster"] = case["astra_sim_cpu_s"] / min(times)
    return found


def _core() -> dict[str, Any]:
    """Return the events per second of an all-reduce of 64 MiB among 128 NPUs whose links are queues, unfolded."""
    node = {"id": 0, "type": NodeType.COMM_COLL, "comm_type": CollectiveType.ALL_REDUCE, "comm_size": 2**26}
    traces = TraceSet((RankTrace(template_of([node])),) * 128)
    net = SimulatedNetwork((AstraSimDimension("Ring", 128, 100.0, 500.0),))
    job = Job(traces=traces, groups={}, system=system_from_keys(SYSTEM), network=net, backend="aware")
    found: dict[str, Any] = {"compiled": native_library() is not None}
    before = os.environ.get("COSMIC_NATIVE")
    for name, switch in (("events_per_s", "1"), ("python_events_per_s", "0")):
        os.environ["COSMIC_NATIVE"] = switch
        results = [simulate_job(job, folded=False) for _ in range(2)]
        found |= {"events": results[0].events, name: max(each.events / each.cpu_s for each in results)}
    os.environ.pop("COSMIC_NATIVE")
    if before is not None:
        os.environ["COSMIC_NATIVE"] = before
    return found


def _peak_mb(command: list[str]) -> float:
    """Return the peak resident memory of the command, in MB."""
    code = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    kilobytes = subprocess.run([sys.executable, "-c", code, *command], check=True, capture_output=True).stdout
    return int(kilobytes) / 1024


def _read(here: Path) -> dict[str, Any]:
    """Return the rate of decoding one trace of many distinct nodes."""
    rows = [
        {
            "id": node,
            "type": NodeType.COMP,
            "name": f"operator {node}",
            "data": [node - 1, node - 2] if node > 1 else [],
            "num_ops": 1000 * node,
            "tensor_size": 64 * node,
        }
        for node in range(BIG_NODES)
    ]
    write_traces(TraceSet((RankTrace(template_of(rows)),)), here / "big")
    times = []
    for _ in range(3):
        start = time.process_time()
        nodes = read_trace(here / "big.0.et").template.nodes
        times.append(time.process_time() - start)
    return {"nodes": nodes, "cpu_s": min(times), "nodes_per_s": nodes / min(times)}


if __name__ == "__main__":
    main()

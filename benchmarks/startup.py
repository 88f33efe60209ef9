"""Measure how long commands take from a cold start, as whole processes; print JSON.

python benchmarks/startup.py [--repeats 5]

Each command is run some times, for up to 20 s, after one run that compiles bytecode. *seconds* is the shortest time on
the clock, *cpu_s* the least processor time, which other programs on the machine disturb less.
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
from pathlib import Path
from typing import Any

DESIGNS = ("llama3-70b@dgx-h100:512", "deepseek-v3@gb200-nvl72:64", "gpt3-175b@cosmic-1024")
LONG_S = 20.0
"""How long one command is repeated."""
COSMIC = [sys.executable, "-m", "cosmic"]
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "import numpy": [sys.executable, "-c", "import numpy"],
    "import cosmic": [sys.executable, "-c", "import cosmic"],
    "--help": [*COSMIC, "--help"],
    **{f"evaluate {design}": [*COSMIC, "evaluate", design, "--json"] for design in DESIGNS},
    "demo": [*COSMIC, "demo", "--json"],
}


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        print(
            json.dumps({name: measure(command, Path(folder), repeats) for name, command in COMMANDS.items()}, indent=2)
        )


def measure(command: list[str], folder: Path, repeats: int) -> dict[str, Any]:
    """Return the shortest times of a command, run in an empty folder."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    stated = [os.path.abspath(each) for each in kept.get("PYTHONPATH", "").split(os.pathsep) if each]
    kept["PYTHONPATH"] = os.pathsep.join(stated)  # a relative path would mean something else in the folder
    environment = kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    clock: list[float] = []
    cpu: list[float] = []
    for place in range(repeats + 1):
        with tempfile.TemporaryDirectory(dir=folder) as empty:
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, check=True, capture_output=True, cwd=empty, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if place:  # the first run compiles
            clock.append(time.perf_counter() - start)
            cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        if sum(clock) > LONG_S:
            break
    return {"seconds": round(min(clock), 4), "cpu_s": round(min(cpu), 4)}


if __name__ == "__main__":
    main()

"""Measure what studies of many trials cost to write, resume, report and export; print JSON.

python benchmarks/studies.py [--trials 100000 1000000] [--folder DIR]

*studies*: for each number of trials, a random search of the full stack that keeps a study, the same resumed for one
more batch, its report, and its tables (CSV, CSV without parts, JSON lines, Parquet, a DataFrame), each in a process of
its own; a table whose library is not installed is null. *seconds* are on the clock, *cpu_s* of this process: both
include the start of Python. *evaluating_s* is the part of the search that evaluates designs, *storing_s* the part that
writes the study. *storing*: what a study costs alone, by the trials of a batch: on the disk, which every batch has to
reach before the search goes on, and in a file system in memory, if there is one.
Budgets: 2 µs a trial to store in memory in batches of 256 or more; a million trials resumed in 3 s and reported in 8 s,
each in 500 MB; exported to a file in 300 MB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from command import SPACE

SIZES = (30, 256, 10_000)
MEMORY = Path("/dev/shm")
STORED = 100_000
"""Trials that are stored in each size of batches; a tenth in small ones, which wait for the disk."""


def watched(function: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Return *function*, its seconds added to *spent*."""

    def timed(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        found = function(*given, **named)
        spent[0] += time.perf_counter() - began
        return found

    return timed


def write(folder: Path, trials: int) -> dict[str, float]:
    """Write a study."""
    from cosmic.search.problem import Problem  # noqa: PLC0415  part of what is measured
    from cosmic.search.search_loop import search  # noqa: PLC0415
    from cosmic.search.study.trial_storage import Storage  # noqa: PLC0415

    evaluating, storing = [0.0], [0.0]
    Problem.evaluate = watched(Problem.evaluate, evaluating)  # type: ignore[method-assign]
    Storage.append = watched(Storage.append, storing)  # type: ignore[method-assign]
    found = search(SPACE, agent="random", trials=trials, seed=1, out=folder)
    size = (folder / "trials.db").stat().st_size
    return {
        "evaluating_s": evaluating[0],
        "storing_s": storing[0],
        "kept": len(found.trials),
        "bytes": size,
        "bytes_per_trial": size / len(found.trials),
    }


def resume(folder: Path, trials: int) -> dict[str, float]:
    """Resume a study for one more batch."""
    from cosmic.search.search_loop import resume_study  # noqa: PLC0415  part of what is measured

    return {"computed": resume_study(folder, trials=trials + 4096).computed}


def report(folder: Path, _: int) -> dict[str, float]:
    """Write the report of a study."""
    from cosmic.report.study_report import report as made  # noqa: PLC0415  part of what is measured

    page = made(folder).write(folder / "report.html")
    return {"page_bytes": page.stat().st_size}


def export(folder: Path, suffix: str, *, parts: bool = True) -> dict[str, float]:
    """Write a study as a table."""
    from cosmic.search.study.study import export_trials as written  # noqa: PLC0415  part of what is measured

    file = folder / f"trials.{suffix}"
    rows, columns = written(folder, file, parts=parts)
    size = file.stat().st_size
    file.unlink()
    return {"rows": rows, "columns": columns, "table_bytes": size}


def frame(folder: Path, _: int) -> dict[str, float]:
    """Give a study to a notebook."""
    from cosmic.search.study.study import open_study  # noqa: PLC0415  part of what is measured

    rows, columns = open_study(folder).to_pandas().shape
    return {"rows": rows, "columns": columns}


def store(folder: Path, size: int) -> dict[str, float]:
    """Store trials in batches of *size*, every batch committed to disk."""
    from cosmic.search.problem import make_problem  # noqa: PLC0415  not in the process that starts the others
    from cosmic.search.space.space_files import load_space  # noqa: PLC0415
    from cosmic.search.study.trial_storage import BatchRecord, Storage  # noqa: PLC0415
    from cosmic.search.trials import Trials  # noqa: PLC0415

    problem = make_problem(load_space(SPACE))
    rows = problem.space.sample(10_000, np.random.default_rng(0))
    some = Trials(rows, problem.evaluate(rows))
    batches = [some.part(slice(at, at + size)) for at in range(0, len(some), size)]
    wanted, done, place = STORED if size >= 256 else STORED // 10, 0, 0
    folder.mkdir()
    with Storage.opened(folder / "trials.db", write=True) as storage:
        began, before = time.perf_counter(), time.process_time()
        while done < wanted:
            batch = batches[place % len(batches)]
            storage.append(BatchRecord(place, size, len(batch)), batch, done)
            place, done = place + 1, done + len(batch)
        spent, own = time.perf_counter() - began, time.process_time() - before
    return {
        "batches_of": size,
        "us_per_trial": 1e6 * spent / done,
        "cpu_us_per_trial": 1e6 * own / done,
        "us_per_batch": 1e6 * spent / place,
        "bytes_per_trial": (folder / "trials.db").stat().st_size / done,
    }


STEPS: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "search": write,
    "resume": resume,
    "report": report,
    "csv": lambda folder, _: export(folder, "csv"),
    "csv_without_parts": lambda folder, _: export(folder, "csv", parts=False),
    "jsonl": lambda folder, _: export(folder, "jsonl"),
    "parquet": lambda folder, _: export(folder, "parquet"),
    "pandas": frame,
    "storing": store,
}
LIBRARIES = {"parquet": "pyarrow", "pandas": "pandas"}
"""What a step needs; it is left out where that is not installed."""


def alone(step: str, folder: Path, number: int) -> dict[str, float] | None:
    """Return the figures of one step in a process of its own, with its time and its peak memory."""
    if step in LIBRARIES and find_spec(LIBRARIES[step]) is None:
        return None
    began = time.perf_counter()
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--trials", str(number)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return {"seconds": time.perf_counter() - began, **json.loads(done.stdout)}


def measured(step: str, folder: Path, number: int) -> dict[str, float]:
    """Return the figures of one step in this process."""
    found = STEPS[step](folder, number)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu_s": used.ru_utime + used.ru_stime, "peak_memory_bytes": used.ru_maxrss * 1024, **found}


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, help="where studies are kept while they are measured")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="no effect: output is always JSON")
    options = parser.parse_args()
    if options.step:
        print(json.dumps(measured(options.step, options.folder, options.trials[0])))
        return
    studies = []
    with TemporaryDirectory(dir=options.folder) as kept:
        for trials in options.trials:
            steps = {step: alone(step, Path(kept) / str(trials), trials) for step in STEPS if step != "storing"}
            studies.append({"trials": trials, **steps})
        storing = {"disk": [alone("storing", Path(kept) / f"batches-{size}", size) for size in SIZES]}
    if MEMORY.is_dir():
        with TemporaryDirectory(dir=MEMORY) as kept:
            storing["memory"] = [alone("storing", Path(kept) / f"batches-{size}", size) for size in SIZES]
    print(json.dumps({"space": SPACE, "studies": studies, "storing": storing}, indent=2))


if __name__ == "__main__":
    main()

"""What is right: designs, spaces, studies, traces and inputs of ASTRA-sim that trials copy and spoil."""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from tests.relations.random_designs import random_designs

from cosmic.accuracy.measured_rows import CARRIED
from cosmic.cli.dispatch import main
from cosmic.design import catalog_entries
from cosmic.design.design_point import design_to_tree
from cosmic.search.search_loop import search

DESIGNS = 12
ROWS = 6
"""Measured rows of a file."""
SMALL_SPACE: Mapping[str, Any] = {
    "version": 1,
    "base": "llama3-8b@dgx-h100:16",
    "parameters": {
        "workload.tp": [1, 2, 4, 8],
        "workload.pp": {"powers_of_two": [1, 4]},
        "workload.micro_batch": {"from": 1, "to": 4, "step": 1},
        "workload.recompute": ["none", "full"],
        "network.dims.0.bandwidth": {"from": "100 GB/s", "to": "400 GB/s", "step": "100 GB/s"},
    },
    "derived": {"workload.dp": "npus // (tp * pp)"},
    "constraints": ["tp * pp <= npus", "memory_bytes <= 80 GB"],
    "objective": "step_s",
}
STUDIES: Mapping[str, Mapping[str, Any]] = {
    "genetic": {"agent": "genetic"},
    "random": {"agent": "random", "objectives": ["step_s", "memory_bytes"]},
    "annealing": {"agent": "annealing", "constraints": ["step_s <= 1 ns"]},
}
"""The studies: one objective, several, and one in which nothing runs."""
TRIALS = 40
TINY = {"model.layers": 1, "model.vocab": 512, "workload.sequence": 128, "workload.global_batch": 8}
"""Makes traces of few nodes."""
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "profiles"
RECORDED = {"recorded-a": ("streams",), "recorded-b": ("decode_graph",), "recorded-c": ("ddp.0", "ddp.1")}
"""Recordings of each folder, one for each rank."""


@dataclass(frozen=True)
class Stock:
    """The folder of what is right, and what is kept in memory."""

    folder: Path
    designs: tuple[dict[str, Any], ...] = ()
    spaces: tuple[dict[str, Any], ...] = ()
    studies: tuple[str, ...] = ()
    traces: tuple[str, ...] = ()
    """Prefixes of traces in the folder."""
    inputs: tuple[str, ...] = ()
    """Folders of ASTRA-sim's inputs, with their traces."""
    recorded: tuple[str, ...] = ()
    """Folders of traces that were recorded."""
    rows: tuple[str, ...] = field(default=())
    """CSV files of measured rows."""

    def copy(self, name: str, to: Path) -> Path:
        """Copy a study, or a folder of traces or inputs."""
        shutil.copytree(self.folder / name, to)
        return to


def make(folder: Path, *, studies: bool = True, traces: bool = True) -> Stock:
    """Fill *folder*; studies and traces take seconds, and are made where they are needed."""
    designs = tuple(design_to_tree(point) for point in random_designs(DESIGNS, seed=1))
    spaces = (
        dict(SMALL_SPACE),
        *(dict(catalog_entries.read_entry("spaces", name)) for name in catalog_entries.entry_names("spaces")),
    )
    return Stock(
        folder,
        designs,
        spaces,
        studies=_studies(folder) if studies else (),
        traces=_traces(folder) if traces else (),
        inputs=_inputs(folder) if traces else (),
        recorded=_recorded(folder) if traces else (),
        rows=_rows(folder),
    )


def _studies(folder: Path) -> tuple[str, ...]:
    for name, options in STUDIES.items():
        search(SMALL_SPACE, **options, trials=TRIALS, seed=3, out=folder / f"study-{name}")
    return tuple(f"study-{name}" for name in STUDIES)


def _run(*words: str) -> None:
    """Run a command silently; it must succeed."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(words)
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"{words} ended with {ended.code}: {said.getvalue()}") from None


def _settings(**more: Any) -> list[str]:
    return [word for path, value in (TINY | more).items() for word in ("--set", f"{path}={value}")]


def _recorded(folder: Path) -> tuple[str, ...]:
    for name, pairs in RECORDED.items():
        files = [str(EXAMPLES / f"{pair}.{kind}.json.gz") for pair in pairs for kind in ("et", "kineto")]
        _run("trace", "convert", *files, "--out", str(folder / name / "p"))
    return tuple(RECORDED)


def _traces(folder: Path) -> tuple[str, ...]:
    _run("trace", "generate", "llama3-8b@dgx-h100:4", *_settings(tp=2, pp=1), "--out", str(folder / "traces-a" / "t"))
    _run("trace", "generate", "mixtral-8x7b@dgx-h100:2", *_settings(), "--out", str(folder / "traces-b" / "t"))
    return ("traces-a", "traces-b")


def _inputs(folder: Path) -> tuple[str, ...]:
    words = (
        "design",
        "export",
        "llama3-8b@dgx-h100:4",
        *_settings(tp=2, pp=2, **{"model.layers": 2}),
        "--to",
        "astra-sim",
    )
    _run(*words, "--out", str(folder / "astra-a"))
    return ("astra-a",)


def _rows(folder: Path) -> tuple[str, ...]:
    """Copy the first rows of each file of measurements."""
    for path in sorted(CARRIED.glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            (folder / f"rows-{path.name}").write_text("".join(islice(file, ROWS + 1)), encoding="utf-8")
    return tuple(sorted(path.name for path in folder.glob("rows-*.csv")))

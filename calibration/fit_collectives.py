"""Fit how communication libraries drive links; ``python calibration/fit_collectives.py`` writes it into the catalog.

The script reads ``data/collectives.csv.gz`` (measurements with their sources), fits the latency and the `Transport` of
each link class by least squares of log(predicted / measured), and rewrites those two keys and the residuals of
``catalog/links/NAME.yaml``. The formulas are those of `cosmic.network.transport_protocols`.

Errors are relative: predicted / measured - 1. *Held out* is five-fold: each fold is predicted by a fit to the other
four. A row is one call of nccl-tests: its size is the whole buffer.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from cosmic.base.units import BYTES_PER_S
from cosmic.base.units import read_quantity as quantity
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.network_layer import Dimension, Transport
from cosmic.network.collective_costs import one_dimension_seconds

HERE = Path(__file__).parent
LINKS = HERE.parent / "src" / "cosmic" / "design" / "catalog" / "links"
FOLDS = 5
LARGE = 2**20
HUGE = 2**30
WEIGHTS = {"small": 0.6, "large": 1.0, "huge": 2.5}
"""Weights of rows: messages below 1 MiB matter less; those from 1 GiB on are few, and show the rate."""
ROUGH = 0.05
"""Errors above it count by their size, not their square: versions of a library differ by as much."""

Numbers = npt.NDArray[np.float64]
BASIC = ("overhead_s", "latency_s", "efficiency", "small_efficiency", "bulk_s", "bulk_latency_s")
DIRECT = ("direct_share", "direct_small_share")
ADDING = (*BASIC, *DIRECT, "reduction_efficiency")
COMMON = {"copy_share": 0.45, "reduction_s": 80e-6}
"""Shared by all generations of NVLink. Fitted alone, NVLink 3 would have 0.38, and NVLink 4 0.43 and 73 us: no
significant difference. On PCIe, copies take no notable time."""
MOST = {"efficiency": 1.0, "small_efficiency": 1.0, "reduction_efficiency": 1.0, "contention": 4.0}
START = {
    "overhead_s": 6e-6,
    "latency_s": 0.5e-6,
    "efficiency": 0.8,
    "small_efficiency": 0.35,
    "bulk_s": 12e-6,
    "bulk_latency_s": 0.4e-6,
    "direct_share": 0.9,
    "direct_small_share": 0.3,
    "reduction_efficiency": 0.65,
    "contention": 1.0,
}


MEMBERS = range(2, 9)
"""Group sizes in the fit: those of one node."""


@dataclass(frozen=True)
class Link:
    """A class of links: the hardware on which it was measured, and its free parameters."""

    hardware: tuple[str, ...]
    bandwidth: str
    free: tuple[str, ...] = BASIC
    given: tuple[str, ...] = ()
    """Parameters taken from `COMMON`."""
    topology: str = "switch"


FITTED = {
    "nvlink2": Link(("v100_sxm",), "150 GB/s", topology="hybrid_cube_mesh"),
    "nvlink3": Link(("a100_sxm",), "300 GB/s", (*BASIC, *DIRECT), ("copy_share",)),
    "nvlink4": Link(("h100_sxm", "h200_sxm"), "450 GB/s", ADDING, tuple(COMMON)),
    "nvlink5": Link(("b200_sxm", "b300_sxm", "gb200", "gb300"), "900 GB/s", ADDING, tuple(COMMON)),
    "pcie4": Link(("l40s",), "32 GB/s", (*BASIC, *DIRECT, "contention")),
    "pcie5": Link(("rtx_pro_6000_server",), "63 GB/s", (*BASIC, *DIRECT, "contention")),
}


@dataclass(frozen=True)
class Rows:
    """The measurements, as columns."""

    kind: npt.NDArray[Any]
    ranks: Numbers
    size: Numbers
    seconds: Numbers
    in_switch: npt.NDArray[np.bool_]
    """Whether the library could reduce in the switch."""
    hardware: npt.NDArray[Any]
    source: npt.NDArray[Any]

    def at(self, places: Any) -> Rows:
        """Return some of the rows."""
        return Rows(*(getattr(self, name)[places] for name in self.__dataclass_fields__))


def measured(link: Link) -> Rows:
    """Return the measurements on a *link* inside one node."""
    with gzip.open(HERE / "data" / "collectives.csv.gz", "rt") as file:
        rows = [row for row in csv.DictReader(file) if row["hardware"] in link.hardware and row["n_nodes"] == "1"]
    rows = [row for row in rows if int(row["n_ranks"]) in MEMBERS]
    return Rows(
        np.array([row["collective"] for row in rows]),
        np.array([float(row["n_ranks"]) for row in rows]),
        np.array([float(row["size_bytes"]) for row in rows]),
        np.array([1e-6 * float(row["time_us"]) for row in rows]),
        np.array([not row["algo"].startswith("Ring") for row in rows]),
        np.array([row["hardware"] for row in rows]),
        np.array([row["source"] for row in rows]),
    )


def predicted(dim: Dimension, rows: Rows) -> Numbers:
    """Return the predicted seconds of each row on *dim*."""
    found = np.zeros(len(rows.size))
    rings_only = replace(dim, transport=replace(dim.transport, reduction_efficiency=0.0))
    for kind in get_args(CollectiveKind):
        for each, allowed in ((dim, True), (rings_only, False)):
            here = (rows.kind == kind) & (rows.in_switch == allowed)
            if here.any():
                found[here] = one_dimension_seconds(kind, "auto", rows.ranks[here], rows.size[here], each)
    return found


def dimension(link: Link, values: dict[str, float]) -> Dimension:
    """Return a dimension of eight NPUs over a *link* with these parameters."""
    shares = {name: COMMON[name] for name in link.given} | values
    latency = shares.pop("latency_s")
    rate = quantity(link.bandwidth, BYTES_PER_S)
    return Dimension(
        topology=link.topology, npus=8, bandwidth_bytes_per_s=rate, latency_s=latency, transport=Transport(**shares)
    )


def fit(link: Link, rows: Rows, start: dict[str, float] | None = None) -> dict[str, float]:
    """Return the parameters that fit *rows* best, from several starts, or from *start* alone."""
    weights = np.select([rows.size >= HUGE, rows.size >= LARGE], [WEIGHTS["huge"], WEIGHTS["large"]], WEIGHTS["small"])

    def errors(logs: Numbers) -> Numbers:
        values = dict(zip(link.free, np.exp(logs), strict=True))
        found: Numbers = np.log(predicted(dimension(link, values), rows) / rows.seconds) * weights
        return found

    centre = np.log([(start or START)[name] for name in link.free])
    random = np.random.default_rng(0)
    starts = [centre] if start else [centre, *(centre + random.normal(0, 0.3, len(centre)) for _ in range(3))]
    most = np.log([MOST.get(name, np.inf) for name in link.free])
    inside = [np.minimum(each, most - 1e-3) for each in starts]
    tries = [
        least_squares(errors, each, bounds=(-np.inf, most), loss="soft_l1", f_scale=ROUGH, max_nfev=60)
        for each in inside
    ]
    best = min(tries, key=lambda each: float(each.cost))
    return dict(zip(link.free, map(float, np.exp(best.x)), strict=True))


def held_out(link: Link, rows: Rows, start: dict[str, float]) -> Numbers:
    """Return each row's error under a fit to the other folds."""
    errors = np.zeros(len(rows.size))
    fold = np.arange(len(rows.size)) % FOLDS
    for each in range(FOLDS):
        unseen = rows.at(fold == each)
        values = fit(link, rows.at(fold != each), start)
        errors[fold == each] = predicted(dimension(link, values), unseen) / unseen.seconds - 1
    return errors


def summary(errors: Numbers) -> str:
    """Return mean, median and worst absolute error and the bias."""
    if not len(errors):
        return "none"
    size = np.abs(errors)
    shown = [f"{100 * value:.1f} %" for value in (size.mean(), np.median(size), size.max(), errors.mean())]
    return f"n {len(errors)}, mean {shown[0]}, median {shown[1]}, worst {shown[2]}, bias {shown[3]}"


def residuals(rows: Rows, errors: Numbers, unseen: Numbers) -> dict[str, str]:
    """Return the residuals from 1 MiB on and below, fitted and held out."""
    large = rows.size >= LARGE
    sizes = {"from_1_mib": large, "below_1_mib": ~large}
    return {key: f"{summary(errors[here])}; held out {summary(unseen[here])}" for key, here in sizes.items()}


def shown(name: str, value: float) -> str:
    """Return a parameter as the file has it."""
    return f"{value * 1e6:.4g} us" if name.endswith("_s") else f"{value:.3g}"


def write(name: str, link: Link, values: dict[str, float], notes: dict[str, str]) -> None:
    """Rewrite the fitted keys in the file of a link; the lines before them stay."""
    path = LINKS / f"{name}.yaml"
    kept = path.read_text(encoding="utf-8").split("latency:")[0]
    fitted = {key: value for key, value in values.items() if key != "latency_s"}
    fitted |= {key: COMMON[key] for key in link.given}
    lines = [f"latency: {shown('latency_s', values['latency_s'])}", "transport:"]
    lines += [f"  {key.removesuffix('_s')}: {shown(key, value)}" for key, value in fitted.items()]
    lines += ["residuals:", *(f'  {key}: "{text}"' for key, text in notes.items())]
    path.write_text(kept + "\n".join(lines) + "\n", encoding="utf-8")


def report(rows: Rows, errors: Numbers) -> None:
    """Print the errors by hardware, by kind and by source."""
    large = rows.size >= LARGE
    for column in (rows.hardware, rows.kind, rows.ranks, rows.source):
        for value in np.unique(column):
            here = column == value
            print(f"    {value!s:75} >= 1 MiB: {summary(errors[here & large])} | {summary(errors[here & ~large])}")


def main() -> None:
    """Fit each link class, print its residuals and rewrite its file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("links", nargs="*", default=list(FITTED), help="link classes to fit; all of them if none")
    parser.add_argument("--dry-run", action="store_true", help="only print")
    parser.add_argument("--details", action="store_true", help="print errors by hardware, kind, ranks and source")
    options = parser.parse_args()
    for name in options.links:
        link = FITTED[name]
        rows = measured(link)
        values = fit(link, rows)
        errors = predicted(dimension(link, values), rows) / rows.seconds - 1
        notes = residuals(rows, errors, held_out(link, rows, values))
        print(name, {key: shown(key, value) for key, value in values.items()})
        for key, text in notes.items():
            print(f"  {key}: {text}")
        if options.details:
            report(rows, errors)
        if not options.dry_run:
            write(name, link, values, notes)


if __name__ == "__main__":
    main()

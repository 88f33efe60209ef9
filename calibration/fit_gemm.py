"""Fit the GEMM rates of accelerators; ``python calibration/fit_gemm.py`` writes them into the catalog.

The model is `cosmic.step.gemm`; the parameters are fields of an accelerator, one set for all its formats:

    bf16, fp8, fp8_block, fp4   share of the peak that the inner loop reaches, in each format
    operand                     share of the memory bandwidth at which operands are read
    ramps, launch, casts        seconds
    sustained, burst            share of the rate left at the power limit, and seconds until it is reached

that is 6 to 13 parameters for 280 to 1,600 GEMMs. The two sources measure differently:

    aiconfigurator  kernels alone in CUDA graphs, few repeats: no gap between kernels, a cool chip
    own             eager PyTorch, caches flushed before each GEMM, many repeats: a warm chip, and host time between
                    the events, the fitted `gap`

Errors are relative; large ones count linearly, so that single rows do not dominate (clocks differ by a tenth between
runs of the same GEMM). ``data/gemm_measured.csv.gz`` has aiconfigurator's GEMMs; our own are among the rows that the
package carries (`cosmic.accuracy.rows`). ``--data FILE`` first replaces the former from a file with the columns of the
package's ``gemm.csv``, which has every 30th row.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from cosmic.accuracy.measured_rows import CARRIED as VALIDATED
from cosmic.accuracy.measured_rows import read_rows
from cosmic.base.units import SECONDS, format_quantity
from cosmic.design.machine_layers import accelerator_layers
from cosmic.design.measured_hardware import AICONFIGURATOR
from cosmic.step.gemm import gemm_seconds, matrix_unit

HERE = Path(__file__).parent
CARRIED = HERE / "data" / "gemm_measured.csv.gz"
CATALOG = HERE.parent / "src" / "cosmic" / "design" / "catalog" / "accelerators"
OFFSETS = CATALOG.parent / "measurement_offsets.yaml"
COLUMNS = ("accelerator", "format", "source", "m", "n", "k", "us")
COLLECTED, OWN = "aiconfigurator", "own"
OWN_ACCELERATOR, OWN_ROWS = "h200-sxm-141gb", VALIDATED / "h200_gemm.csv"
SOURCES = {COLLECTED: "NVIDIA aiconfigurator gemm_perf (Apache-2.0)", OWN: "measured by us, PyTorch 2.11"}
"""As the catalog cites them."""

Rows = npt.NDArray[np.float64]
"""m, n, k and seconds, a row for each GEMM."""
Key = tuple[str, str, str]
"""Accelerator, format and source of a set of GEMMs."""

FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "fp4"}
SHARES = {
    "bf16": "gemm_efficiency",
    "fp8": "fp8_efficiency",
    "fp8_block": "fp8_block_efficiency",
    "fp4": "fp4_efficiency",
}

SMS = {
    "v100-sxm2-32gb": 80,
    "a100-sxm-80gb": 108,
    "a100-sxm-40gb": 108,
    "a100-pcie-80gb": 108,
    "h100-sxm-80gb": 132,
    "h100-pcie-80gb": 114,
    "h800-sxm-80gb": 132,
    "gh200-96gb": 132,
    "h200-sxm-141gb": 132,
    "l40s": 142,
    "b200-sxm-180gb": 148,
    "b300-sxm": 148,
    "gb200": 152,
    "gb300": 152,
    "rubin-vr200": 224,
    "mi250x": 220,
    "mi300x": 304,
    "mi325x": 304,
    "mi355x": 256,
}
"""Streaming multiprocessors (AMD: compute units), from data sheets."""
RELATIVES = {
    "v100-sxm2-32gb": "a100-sxm-80gb",
    "a100-sxm-40gb": "a100-sxm-80gb",
    "a100-pcie-80gb": "a100-sxm-80gb",
    "l40s": "a100-sxm-80gb",
    "h100-pcie-80gb": "h100-sxm-80gb",
    "h800-sxm-80gb": "h100-sxm-80gb",
    "gh200-96gb": "h100-sxm-80gb",
    "rubin-vr200": "gb300",
    "mi250x": "a100-sxm-80gb",
    "mi300x": "h100-sxm-80gb",
    "mi325x": "h100-sxm-80gb",
    "mi355x": "h100-sxm-80gb",
}
"""For an accelerator without measurements, the one whose parameters it takes as an estimate."""
SPLITTING = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb")
"""Accelerators whose 16-bit kernels use split-k; those for Blackwell do not."""
SPLIT_K = 8

SPANS = {
    "gemm_efficiency": (0.85, 0.3, 0.97),
    "fp8_efficiency": (0.8, 0.3, 0.97),
    "fp8_block_efficiency": (0.7, 0.3, 0.97),
    "fp4_efficiency": (0.6, 0.3, 0.97),
    "sustained_efficiency": (0.8, 0.5, 1.0),
    "burst": (5e-3, 1e-5, 1e-2),
    "tile_ramp": (1e-6, 1e-8, 1e-5),
    "fp4_ramp": (1e-6, 1e-8, 1e-5),
    "operand_efficiency": (0.82, 0.4, 0.97),
    "launch": (3e-6, 1e-7, 1e-5),
    "fp8_cast": (8e-6, 1e-7, 1e-4),
    "block_cast": (2e-6, 1e-8, 1e-4),
    "gap": (1.6e-5, 1e-6, 1e-4),
}
"""Start, lower and upper bound of each parameter."""
TIMES = ("burst", "tile_ramp", "fp4_ramp", "launch", "fp8_cast", "block_cast", "gap")
SIZES = {">= 10 GFLOP": (1e10, np.inf), "1-10 GFLOP": (1e9, 1e10), "< 1 GFLOP": (0.0, 1e9), "all": (0.0, np.inf)}


# ---------------------------------------------------------------------------------------------------- data


def collected(path: Path) -> list[dict[str, str]]:
    """Return the GEMMs of an aiconfigurator file, with the columns of the carried file."""
    rows = []
    for row in read_rows(path)[1]:
        key = AICONFIGURATOR[row["hardware"]], FORMATS[row["gemm_dtype"]], COLLECTED
        rows.append((*key, row["m"], row["n"], row["k"], f"{1e3 * float(row['latency']):.5g}"))
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def carry(rows: list[dict[str, str]], path: Path = CARRIED) -> None:
    """Write the carried file; the same rows give the same bytes."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def measured(path: Path = CARRIED) -> dict[Key, Rows]:
    """Return all GEMMs by accelerator, format and source."""
    sets: dict[Key, list[tuple[float, ...]]] = {}
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            key = (row["accelerator"], row["format"], row["source"])
            sizes = (float(row["m"]), float(row["n"]), float(row["k"]))
            sets.setdefault(key, []).append((*sizes, 1e-6 * float(row["us"])))
    for own in read_rows(OWN_ROWS)[1]:
        sizes = (float(own["m"]), float(own["n"]), float(own["k"]))
        sets.setdefault((OWN_ACCELERATOR, own["dtype"], OWN), []).append((*sizes, 1e-3 * float(own["ms"])))
    return {key: np.array(rows) for key, rows in sets.items()}


# ------------------------------------------------------------------------------------------------- fitting


def stated(name: str) -> dict[str, Any]:
    """Return an accelerator's fields that come from its data sheet, by key."""
    compute, memory = accelerator_layers(name, "accelerator")
    rates = {"bf16": compute.bf16_flop_per_s, "fp8": compute.fp8_flop_per_s, "fp4": compute.fp4_flop_per_s}
    split = SPLIT_K if RELATIVES.get(name, name) in SPLITTING else 1
    return {**rates, "bandwidth": memory.bandwidth_bytes_per_s, "sms": SMS[name], "split_k": split}


def predicted(key: Key, rows: Rows, fields: Mapping[str, Any]) -> Rows:
    """Return the predicted seconds of GEMMs, timed as their source times them."""
    _, form, source = key
    unit = matrix_unit(fields.get, fields["bandwidth"], form, load="repeated" if source == OWN else "alone")
    seconds: Rows = np.asarray(gemm_seconds(1, rows[:, 0], rows[:, 1], rows[:, 2], unit))
    return seconds + (fields["gap"] if source == OWN else 0.0)


def errors(key: Key, rows: Rows, fields: Mapping[str, Any]) -> Rows:
    """Return the relative error of each GEMM."""
    return predicted(key, rows, fields) / rows[:, 3] - 1


def free(sets: Mapping[Key, Rows]) -> list[str]:
    """Return the parameters that GEMMs of these formats and sources determine."""
    forms = {form for _, form, _ in sets}
    names = [SHARES[form] for form in SHARES if form in forms]
    names += ["sustained_efficiency", "burst", "tile_ramp", "operand_efficiency", "launch"]
    names += ["fp8_cast"] if "fp8" in forms else []
    names += ["fp4_ramp"] if "fp4" in forms else []
    names += ["block_cast"] if forms & {"fp8_block", "fp4"} else []
    return names + (["gap"] if any(source == OWN for *_, source in sets) else [])


def fit(sets: Mapping[Key, Rows], known: Mapping[str, Any]) -> dict[str, float]:
    """Return the parameters of one accelerator that fit its GEMMs best."""
    names = free(sets)
    start, low, high = (np.log([SPANS[name][column] for name in names]) for column in range(3))

    def residuals(logs: Rows) -> Rows:
        fields = {**known, **dict(zip(names, np.exp(logs), strict=True))}
        return np.concatenate([errors(key, rows, fields) for key, rows in sets.items()])

    best = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.05, max_nfev=80)
    return {name: float(f"{value:.3g}") for name, value in zip(names, np.exp(best.x), strict=True)}


def cross_validated(sets: Mapping[Key, Rows], known: Mapping[str, Any], folds: int = 5) -> dict[Key, Rows]:
    """Return the error of each GEMM, predicted by a fit to the other folds."""
    found = {key: np.zeros(len(rows)) for key, rows in sets.items()}
    for fold in range(folds):
        kept = {key: rows[np.arange(len(rows)) % folds != fold] for key, rows in sets.items()}
        fields = {**known, **fit(kept, known)}
        for key, rows in sets.items():
            left = np.arange(len(rows)) % folds == fold
            found[key][left] = errors(key, rows[left], fields)
    return found


def summary(rows: Rows, error: Rows) -> dict[str, tuple[int, float, float, float, float]]:
    """Return for each size class n, and in percent the mean, median and worst absolute error and the bias."""
    work = 2 * rows[:, 0] * rows[:, 1] * rows[:, 2]
    found = {}
    for name, (low, high) in SIZES.items():
        part = 100 * error[(work >= low) & (work < high)]
        if len(part):
            size = np.abs(part)
            found[name] = (len(part), size.mean(), float(np.median(size)), size.max(), part.mean())
    return found


# ------------------------------------------------------------------------------------------------- writing


def write_entry(name: str, fields: Mapping[str, str], notes: Mapping[str, str], what: str = "gemm") -> None:
    """Write *fields* into the compute layer of an accelerator's file, and *notes* on *what* at its end."""
    path = CATALOG / f"{name}.yaml"
    kept: list[str] = []
    block = ""
    for line in path.read_text().splitlines():
        block = block if line.startswith(" ") else line.partition(":")[0]
        key = line.strip().partition(":")[0]
        old = key in fields if block == "compute" else block == "calibration" and key.startswith(what)
        if not old:
            kept.append(line)
    _insert(kept, "compute", [f"  {key}: {value}" for key, value in fields.items()])
    if "calibration:" not in kept:
        kept.append("calibration:")
    _insert(kept, "calibration", [f'  {key}: "{text}"' for key, text in notes.items()])
    path.write_text("\n".join(kept) + "\n")


def _insert(lines: list[str], block: str, added: list[str]) -> None:
    """Insert lines at the end of the block of an outer key."""
    place = lines.index(f"{block}:") + 1
    while place < len(lines) and lines[place].startswith(" "):
        place += 1
    lines[place:place] = added


def write_offsets(fields: Mapping[str, float]) -> None:
    """Write the offsets of our own measurements, in seconds, into the catalog; the other lines stay."""
    lines = OFFSETS.read_text().splitlines()
    for name, value in fields.items():
        place = next(place for place, line in enumerate(lines) if line.startswith(f"  {name}:"))
        lines[place] = f"  {name}: {format_quantity(value, SECONDS)}"
    OFFSETS.write_text("\n".join(lines) + "\n")


def as_text(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return parameters as the file has them."""
    shown = {name: value for name, value in fields.items() if name != "gap"}
    return {key: format_quantity(value, SECONDS) if key in TIMES else f"{value:.4g}" for key, value in shown.items()}


def note(rows: Rows, error: Rows, held_out: Rows) -> str:
    """Return the residuals of a set in one line: fitted, and cross-validated."""
    tested = summary(rows, held_out)
    parts = [
        f"{name} {mean:.1f} % mean ({tested[name][1]:.1f} % cross-validated), {worst:.0f} % worst"
        for name, (_, mean, _, worst, _) in summary(rows, error).items()
        if name != "all"
    ]
    return f"{len(rows)} GEMMs; {'; '.join(parts)}"


def calibrate(name: str, sets: Mapping[Key, Rows]) -> dict[str, float]:
    """Fit one accelerator, print the residuals, write its file; return the parameters."""
    known = stated(name)
    found = fit(sets, known)
    tested = cross_validated(sets, known)
    sources = sorted({source for *_, source in sets})
    notes = {"gemm": f"fitted by calibration/fit_gemm.py; sources: {', '.join(SOURCES[key] for key in sources)}"}
    for key, rows in sets.items():
        error = errors(key, rows, {**known, **found})
        notes[f"gemm {key[1]} {key[2]}"] = note(rows, error, tested[key])
        held_out = summary(rows, tested[key])
        for size, (count, mean, median, worst, bias) in summary(rows, error).items():
            label = f"{name:16} {key[1]:10} {key[2]:15} {size:12} n {count:4d}"
            means = f"mean {mean:5.1f} (cv {held_out[size][1]:5.1f})"
            print(f"{label} {means} median {median:5.1f} worst {worst:5.0f} bias {bias:+5.1f}")
    print(f"{name:16} {found}")
    if "gap" in found:
        notes["gemm gap"] = f"{1e6 * found['gap']:.3g} us beside each of our own GEMMs: eager, one event to the next"
        write_offsets({"gemm": found["gap"]})
    fields = {"sms": str(known["sms"]), "split_k": str(known["split_k"]), **as_text(found)}
    write_entry(name, {**fields, "provenance": "calibrated"}, notes)
    return found


def estimate(name: str, relative: str, found: Mapping[str, float]) -> None:
    """Write the parameters of its nearest relative into the file of an accelerator without measurements."""
    known = stated(name)
    compute, _ = accelerator_layers(name, "accelerator")
    taken = {key: value for key, value in found.items() if key != "gap"}
    note_ = f"as the {relative}, its nearest relative: not measured"
    if name.startswith("mi"):  # AMD's kernels differ: take no shares of the peak
        taken = {key: value for key, value in taken.items() if key not in SHARES.values()}
        best = compute.achieved_bf16_flop_per_s
        if best is None:
            taken = {key: value for key, value in taken.items() if key not in ("sustained_efficiency", "burst")}
        else:
            taken["gemm_efficiency"] = best / compute.bf16_flop_per_s
        note_ += "; the share of the peak is the best measured, or the usual"
    if compute.fp4_flop_per_s is None:
        taken = {key: value for key, value in taken.items() if not key.startswith("fp4")}
    fields = {"sms": str(known["sms"]), "split_k": str(known["split_k"]), **as_text(taken)}
    write_entry(name, {**fields, "provenance": "estimate"}, {"gemm": note_})


def main() -> None:
    """Read, fit, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, help="a file of aiconfigurator's GEMMs that replaces the carried one")
    path = parser.parse_args().data
    if path is not None:
        carry(collected(path))
    sets = measured()
    found = {
        name: calibrate(name, {key: rows for key, rows in sets.items() if key[0] == name})
        for name in AICONFIGURATOR.values()
    }
    for name, relative in RELATIVES.items():
        estimate(name, relative, found[relative])


if __name__ == "__main__":
    main()

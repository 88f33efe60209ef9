"""Parameters that only whole runs determine: their priors, and what they set in a design.

A parameter is a logarithm x with a prior, normal around `mean` with the deviation `spread`. A quantity of a design is
made of the sum Σ of its parameters:

    quantity     parameters summed                          value
    steady       all + architecture + accelerator           share = exp(-exp Σ), so that exp Σ is what is lost
    narrow       all + architecture + accelerator           the same, in 8 and 4 bits
    dp, tp, ep   one each                                   share of communication that compute can hide: the same
    link         one                                        share of the rate of links between nodes: the same
    slack        one                                        exp Σ
    host         one for each generation of hosts           exp Σ, in seconds

Accelerators with few runs so take the values of their architecture, and architectures with few runs those of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from fit_gemm import CATALOG, write_entry

from cosmic.design import catalog_entries
from cosmic.design.design_point import DesignPoint
from cosmic.design.prediction_accuracy import architecture

Floats = npt.NDArray[np.float64]
QUANTITIES = ("steady", "narrow", "slack", "host", "dp", "link", "tp", "ep")
SHARES = frozenset({"steady", "narrow", "dp", "link", "tp", "ep"})
LINKS = ("infiniband-hdr", "infiniband-ndr", "roce")
"""Links between nodes whose rate nobody measured alone."""
MEASURED_HOST = "h200-sxm-141gb"
"""The accelerator whose host was measured: no run sets it."""
OLD_HOSTS = frozenset({"Volta", "Ampere"})
GRACE = ("gb200", "gb300", "gh200")
"""How accelerators begin whose host is a Grace CPU: it took 2.5 to 2.7 times as long as a Xeon for the same calls of
PyTorch (github.com/NVIDIA/TransformerEngine, issue 2053)."""
WHOLE_PROGRAMS = frozenset({"TPU", "Gaudi", "Trainium"})
"""Architectures that run whole programs: their hosts launch no single kernels."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What is known of a parameter before any run: its mean, as a value, and its spread, in logarithms."""

    value: float
    spread: float


def _lost(share: float) -> float:
    """Return the logarithm of what is lost, by the share that is kept."""
    return float(np.log(-np.log(share)))


PRIORS = {
    "steady": Prior(_lost(0.93), 0.2),
    "narrow": Prior(_lost(0.90), 0.2),
    "steady Ampere": Prior(-1.0, 0.6),
    "slack": Prior(float(np.log(0.012)), 0.4),
    "host old": Prior(float(np.log(28e-6)), 0.1),
    "host new": Prior(float(np.log(25e-6)), 0.1),
    "host grace": Prior(float(np.log(62e-6)), 0.1),
    "dp": Prior(_lost(0.55), 0.4),
    "link": Prior(_lost(0.90), 0.4),
    "tp": Prior(_lost(0.5), 0.4),
    "ep": Prior(_lost(0.7), 0.5),
}
"""Of parameters that all accelerators share: data sheets, kernels measured alone, and what overlap is known to cost.
An A100 holds its clock under GEMMs at its 400 W, which later accelerators do not: it loses a third of what they do."""
OF_ARCHITECTURE = Prior(0.0, 0.2)
OF_ACCELERATOR = Prior(0.0, 0.6)
"""Of what an architecture differs from all, and an accelerator from its architecture: a factor on the loss."""


def prior(name: str) -> Prior:
    """Return the prior of a parameter.

    >>> prior("steady Hopper") == OF_ARCHITECTURE, prior("steady h100-sxm-80gb") == OF_ACCELERATOR
    (True, True)
    """
    if name in PRIORS:
        return PRIORS[name]
    return OF_ARCHITECTURE if name.partition(" ")[2][:1].isupper() else OF_ACCELERATOR


def names_of(accelerator: str, *, linked: bool = True) -> dict[str, tuple[str, ...]]:
    """Return the parameters of each quantity of a design on *accelerator*; *linked* if runs set its outer links."""
    family = architecture(accelerator)
    levels = ("", f" {family}", f" {accelerator}")
    found = {kind: tuple(f"{kind}{level}" for level in levels) for kind in ("steady", "narrow")}
    found |= {kind: (kind,) for kind in ("slack", "dp", "tp", "ep")}
    if accelerator != MEASURED_HOST and family not in WHOLE_PROGRAMS:
        found["host"] = (_host(accelerator, family),)
    if linked:
        found["link"] = ("link",)
    return found


def _host(accelerator: str, family: str) -> str:
    if accelerator.startswith(GRACE):
        return "host grace"
    return "host old" if family in OLD_HOSTS else "host new"


def value(quantity: str, total: Any) -> Any:
    """Return a quantity, by the sum of its parameters.

    >>> round(float(value("steady", np.log(-np.log(0.9)))), 6)
    0.9
    """
    return np.exp(-np.exp(total)) if quantity in SHARES else np.exp(total)


def paths(point: DesignPoint) -> dict[str, str]:
    """Return the field of a design that each quantity is; tp and ep are constants of the catalog, without a field."""
    found = {
        "steady": "compute.steady_efficiency",
        "narrow": "compute.narrow_steady_efficiency",
        "slack": "compute.straggler_slack",
        "host": "compute.host_launch",
        "dp": "collective.overlap_efficiency",
    }
    places = len(point.network.dims)
    return found | ({"link": f"network.dims.{places - 1}.transport.efficiency"} if places > 1 else {})


def is_linked(point: DesignPoint) -> bool:
    """Return whether the outermost links of a design are of a kind whose rate runs set."""
    if len(point.network.dims) < 2:
        return False
    return point.network.dims[-1].transport.efficiency in _link_efficiencies()


@cache
def _link_efficiencies() -> frozenset[float]:
    return frozenset(float(catalog_entries.read_entry("links", name)["transport"]["efficiency"]) for name in LINKS)


@dataclass(frozen=True, slots=True)
class Values:
    """Parameters in a fixed order."""

    names: tuple[str, ...]
    numbers: Floats

    def total(self, names: Iterable[str]) -> float:
        """Return the sum of some parameters; those that no run has are as their prior says."""
        known = dict(zip(self.names, self.numbers.tolist(), strict=True))
        return float(sum(known.get(name, prior(name).value) for name in names))

    def of(self, accelerator: str) -> dict[str, float]:
        """Return every quantity of designs on *accelerator*."""
        return {kind: float(value(kind, self.total(names))) for kind, names in names_of(accelerator).items()}


def start(names: Sequence[str]) -> Values:
    """Return parameters as their priors say."""
    return Values(tuple(names), np.array([prior(name).value for name in names]))


# ------------------------------------------------------------------------------------------------- the catalog

FIELDS = {
    "slack": "straggler_slack",
    "steady": "steady_efficiency",
    "narrow": "narrow_steady_efficiency",
}


def write(found: Values, folder: Path = CATALOG) -> None:
    """Write the parameters into the files of accelerators, systems, links and constants."""
    for path in sorted(folder.glob("*.yaml")):
        if "sms:" in path.read_text() or f"steady {path.stem}" in found.names:
            mine = found.of(path.stem)
            fields = {field: f"{mine[kind]:.3g}" for kind, field in FIELDS.items()}
            if "host" in mine:
                fields["host_launch"] = f"{1e6 * mine['host']:.3g} us"
            write_entry(path.stem, fields, {"runs": "fitted by calibration/fit_runs.py on published runs"}, "runs")
    common = found.of("")
    for axis in ("tp", "ep"):
        _rewrite(folder.parent / "constants" / "overlap.yaml", rf"^({axis}:\n  value: )[\d.]+", common[axis])
    for path in sorted((folder.parent / "systems").glob("*.yaml")):
        _rewrite(path, r"(\boverlap_efficiency: )[\d.]+", common["dp"])
    for name in LINKS:
        _rewrite(folder.parent / "links" / f"{name}.yaml", r"^(  efficiency: )[\d.]+", common["link"])


def _rewrite(path: Path, pattern: str, number: float) -> None:
    """Put a *number* behind what the *pattern* keeps; a folder without the file is left alone."""
    if path.exists():
        path.write_text(re.sub(pattern, rf"\g<1>{number:.3g}", path.read_text(), flags=re.MULTILINE))

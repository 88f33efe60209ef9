"""What Pathways states of islands, pipelines and controllers, beside what we compute: rows in ``pathways.yaml``.

    published_rows() ──▶ PublishedRow: published, ours, their ratio, what was assumed, why it is off

Inputs that are not published are assumed once for all rows of a kind. No constant is fitted to a row; only the two
thresholds of parity are inputs of the model themselves (`cosmic.step.kernel_launches`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cosmic import SpecError, evaluate, load_design
from cosmic.catalog import load_mapping
from cosmic.design import DesignPoint, Infeasible, batch_of, controller_dispatch_s, network_loads, profile_step

ROWS_FILE = Path(__file__).with_name("pathways.yaml")
SHAPES = "megatron-3.6b"
"""A decoder of the catalog whose sizes rows replace."""


@dataclass(frozen=True, slots=True)
class PathwaysRow:
    """One published number, and ours."""

    name: str
    published: float
    ours: float
    unit: str
    """Empty for shares."""
    within: float
    """How far off our number may be, relative to the published one."""
    assumed: str
    """What is not published."""
    missed: str
    """Why it is further off; empty where it is not."""
    source: str
    fitted: bool = False
    """Whether the model was fitted to this very figure: then ours says nothing."""

    @property
    def ratio(self) -> float:
        """Ours over the published."""
        return self.ours / self.published

    @property
    def holds(self) -> bool:
        """Whether our number is as near as it should be."""
        return abs(self.ratio - 1) <= self.within


def published_rows(path: Path = ROWS_FILE) -> tuple[PathwaysRow, ...]:
    """Return every row of *path*, in its order.

    Relative rows are those of their own run over those of the run `to` which they name, published and ours alike.
    """
    tree = load_mapping(path)
    found: dict[str, float] = {}
    stated: dict[str, float] = {}
    rows: list[PathwaysRow] = []
    for entry in tree["rows"]:
        kind = tree["kinds"][entry["kind"]]
        quantity: str = entry["quantity"]
        ours = QUANTITIES[quantity](entry, tree["kinds"])
        found[entry["name"]], stated[entry["name"]] = ours, float(entry["published"])
        published = stated[entry["name"]]
        if quantity == "relative":
            ours, published = ours / found[entry["to"]], published / stated[entry["to"]]
        rule, source, fitted = kind["assumed"], tree["source"], kind.get("fitted", False)
        row = PathwaysRow(entry["name"], published, ours, entry["unit"], entry["within"], rule, "", source, fitted)
        rows.append(row if row.holds else _missed(row, kind))
    return tuple(rows)


def _missed(row: PathwaysRow, kind: Mapping[str, Any]) -> PathwaysRow:
    return replace(row, missed=kind.get("missed", "not known"))


def design_of(entry: Mapping[str, Any], kinds: Mapping[str, Any], joined: bool = False) -> DesignPoint:
    """Return the design of a row; *joined*, with its islands as one."""
    kind = kinds[entry["kind"]]
    shared = kinds[kind["like"]]["settings"] if "like" in kind else {}
    settings = {**shared, **kind["settings"], **entry.get("set", {}), **(kind["joined"] if joined else {})}
    return load_design(f"{entry.get('model', SHAPES)}@{entry['system']}", settings)


def between_bytes(point: DesignPoint) -> float:
    """Return the bytes that all accelerators send between islands in a step: into the outermost dimension.

    For islands that data parallelism joins; of a pipeline, all transfers count as if they crossed it.
    """
    last = len(point.network.dims) - 1
    loads = network_loads(profile_step(batch_of(point), "first"))
    return sum(load.bytes for load in loads if load.dimension == last) * point.network.npus


def _tokens_per_s(point: DesignPoint) -> float:
    outcome = evaluate(point)
    if isinstance(outcome, Infeasible):
        raise SpecError("published row", point.identity, outcome.reasons[0])
    return outcome.throughput_per_s


def _parity(entry: Mapping[str, Any], _: Mapping[str, Any]) -> float:
    return float(controller_dispatch_s(entry["hosts"]))


def _rate(entry: Mapping[str, Any], kinds: Mapping[str, Any]) -> float:
    return _tokens_per_s(design_of(entry, kinds))


def _share(entry: Mapping[str, Any], kinds: Mapping[str, Any]) -> float:
    """Return the rate of islands over that of one of all their cores."""
    return _rate(entry, kinds) / _tokens_per_s(design_of(entry, kinds, joined=True))


def _between(entry: Mapping[str, Any], kinds: Mapping[str, Any]) -> float:
    return between_bytes(design_of(entry, kinds))


QUANTITIES: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], float]] = {
    "parity": _parity,
    "tokens_per_s": _rate,
    "relative": _rate,
    "share": _share,
    "between_bytes": _between,
}
"""How each quantity of a row is computed."""

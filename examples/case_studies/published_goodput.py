"""Goodput that others reported beside ours, from their inputs: ``published_goodput.yaml``, with what had to be assumed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cosmic import SpecError
from cosmic.catalog import load_mapping
from cosmic.cluster import healthy_domains, run_fields, run_goodput, spares_needed
from cosmic.design import Run, read_value

FILE = Path(__file__).with_name("published_goodput.yaml")
Basis = Literal["published", "derived", "assumed", "fitted"]
Relation = Literal["about", "at least"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedInput:
    """One number that a row needs, and where it comes from."""

    name: str
    value: str
    basis: Basis
    """fitted: so that the row comes out, which is then no evidence."""
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """A figure that was published, and ours."""

    name: str
    title: str
    quantity: str
    """effective share, healthy domains, or share of spares."""
    published: float
    relation: Relation
    ours: float
    source: str
    grade: str
    """read, abstract, secondary or recalled: how well the source is known."""
    inputs: tuple[PublishedInput, ...]

    @property
    def difference(self) -> float:
        """Ours less the published figure."""
        return self.ours - self.published

    @property
    def bases(self) -> frozenset[Basis]:
        """What the row rests on."""
        return frozenset(input_.basis for input_ in self.inputs)


def published_rows() -> list[PublishedRow]:
    """Return every published figure beside ours.

    >>> [row.name for row in published_rows() if "fitted" in row.bases]
    ['ft-hsdp-synchronous', 'tpu-superpod', 'delta']
    """
    data = load_mapping(FILE)
    runs = [_run_row(name, entry) for name, entry in data["runs"].items()]
    return runs + [_domain_row(name, entry) for name, entry in data["domains"].items()]


def _run_row(name: str, entry: dict[str, Any]) -> PublishedRow:
    """Return a run whose effective share was published."""
    run = read_value(Run, entry["run"], f"{name}.run")
    found = run_goodput(run_fields(run), entry["npus"], entry["dp"], entry["state_bytes_per_npu"])
    if found is None:
        raise SpecError(f"{name}.run.npu_mtbf", None, "is required")
    values = {"npus": entry["npus"], "dp": entry["dp"], "state_bytes_per_npu": entry["state_bytes_per_npu"]}
    return _published_row(name, entry, "effective share", float(found.effective_share), values | entry["run"])


def _domain_row(name: str, entry: dict[str, Any]) -> PublishedRow:
    """Return a statement on healthy domains."""
    domains, availability, probability = (entry[key] for key in ("domains", "availability", "probability"))
    if entry["kind"] == "healthy":
        found = float(healthy_domains(domains, availability, probability))
        return _published_row(name, entry, f"healthy domains of {domains}", found, entry)
    share = spares_needed(domains, availability, probability) / domains
    return _published_row(name, entry, "share of spares", share, entry)


def _published_row(
    name: str, entry: dict[str, Any], quantity: str, ours: float, values: dict[str, Any]
) -> PublishedRow:
    inputs = tuple(PublishedInput(name=key, value=str(values[key]), **about) for key, about in entry["inputs"].items())
    return PublishedRow(
        name=name,
        title=entry["title"],
        quantity=quantity,
        published=float(entry["published"]),
        relation=entry.get("relation", "about"),
        ours=ours,
        source=entry["source"],
        grade=entry["grade"],
        inputs=inputs,
    )

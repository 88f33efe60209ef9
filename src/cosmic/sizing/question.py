"""What a buyer asks: a model to train on so many tokens, and what may be spent on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from cosmic import catalog, units
from cosmic.errors import SpecError, require

OBJECTIVES = ("train_days", "train_usd", "train_energy_j", "train_co2_kg", "cost_usd")
"""What may be made small."""
SECONDS_PER_DAY = 86_400.0
EXAMPLES = {units.USD: "200 M USD", units.WATTS: "25 MW", units.SECONDS: "90 day"}
"""An amount of each kind, as people write it."""
ASKED_ELSEWHERE = {
    "model": "is the model of the question: name it there",
    "system": "name systems with --systems",
    "run.tokens": "state them with --tokens",
}
"""Fields that the question itself states, each with where."""
RECENT = 2022
"""Systems of accelerators from this year on are looked at, if nobody says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about clusters: at least one limit is given."""

    model: str
    tokens: float
    budget_usd: float | None = None
    """To buy the cluster with."""
    power_w: float | None = None
    """At the meter."""
    accelerators: int | None = None
    """Most accelerators."""
    deadline_days: float | None = None
    """By when the model must be trained: then the least expensive cluster is looked for that makes it."""
    objective: str = "train_days"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every design, as files write them."""

    def __post_init__(self) -> None:
        limits = (self.budget_usd, self.power_w, self.accelerators, self.deadline_days)
        rule = "say what may be spent: --budget, --power, --accelerators or --deadline"
        require(any(each is not None for each in limits), "size", self.model, rule)
        for name, value in (
            ("--tokens", self.tokens),
            ("--budget", self.budget_usd),
            ("--power", self.power_w),
            ("--accelerators", self.accelerators),
            ("--deadline", self.deadline_days),
        ):
            require(value is None or value > 0, name, value, "must be above 0")
            require(value is None or isfinite(value), name, value, "must be above 0 and finite")
        require(self.objective in OBJECTIVES, "--objective", self.objective, f"must be one of {', '.join(OBJECTIVES)}")
        for path, rule in ASKED_ELSEWHERE.items():
            require(path not in self.overrides, f"--set {path}", self.overrides.get(path), rule)
        if self.objective == "cost_usd":
            rule = "one node costs least: say by when with --deadline"
            require(self.deadline_days is not None, "--objective", self.objective, rule)


def read_amount(text: str | float | None, option: str, dimension: units.PhysicalDimension) -> float | None:
    """Return a limit as people write it: with its unit, or as a plain number of SI units.

    >>> read_amount("200 M USD", "--budget", units.USD), read_amount("25MW", "--power", units.WATTS)
    (200000000.0, 25000000.0)
    >>> read_amount("200M", "--budget", units.USD)
    200000000.0
    """
    if text is None or isinstance(text, int | float):
        return text
    count = units.read_count(text)
    if count is not None:
        return count
    try:
        return float(text.replace(",", ""))
    except ValueError:
        pass
    try:
        return units.read(text, dimension)
    except SpecError as error:
        example = EXAMPLES.get(dimension)
        rule = f"write a number and its unit, such as '{example}'" if example else error.rule
        raise SpecError(option, text, rule) from None


def read_days(text: str | float | None, option: str) -> float | None:
    """Return days as people write them: with a unit of time, or as a plain number of days.

    >>> read_days("90 day", "--deadline"), read_days("12 h", "--deadline"), read_days("7.5", "--deadline")
    (90.0, 0.5, 7.5)
    """
    if text is None or isinstance(text, int | float):
        return text
    try:
        return float(text.replace(",", ""))
    except ValueError:
        seconds = read_amount(text, option, units.SECONDS)
    return None if seconds is None else seconds / SECONDS_PER_DAY


def systems_asked(given: list[str] | tuple[str, ...]) -> list[str]:
    """Return the systems to look at, by their names in the catalog: those given, or all recent ones that are sold."""
    if given:
        names = [catalog.known_as("systems", name) or name for name in given]
        for place, name in enumerate(names):
            catalog.entry("systems", name)  # refuses what there is not
            require(name not in names[:place], "--systems", name, "is there twice")
        return names
    return [name for name in catalog.names("systems") if _is_recent(name)]


def _is_recent(name: str) -> bool:
    entry = catalog.entry("systems", name)
    made = catalog.entry("accelerators", entry["accelerator"]).get("year", 0)
    return "node" in entry and made >= RECENT

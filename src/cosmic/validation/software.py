"""What the software of a measured run does: its framework and date, read from the row, and the practice they had.

A row's own words come first: columns such as framework, software_date or attention, then its source, notes and address.
A framework that no word names follows from the mapping and the accelerator. The date is that of a release (24.07), of
an archive's number (2205.05198), or a year; a paper measures what was there a year before; without any, it is the year
after the accelerator's. ``catalog/software.yaml`` says what a framework does from which date on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from functools import cache
from typing import Any

from cosmic import catalog
from cosmic.design.workload import Workload
from cosmic.validation.accelerators import year_of
from cosmic.validation.rows import Fields

NAMING = ("framework", "source", "notes", "schedule", "url", "source_loc", "set")
"""Columns that may name a framework, the most telling first."""
DATING = ("software_date", "source", "source_loc", "url", "notes")
"""Columns that may date a run, the most telling first."""
UNKNOWN = "unknown"
FLASH_2 = "2023-07"
"""When FlashAttention-2 was published."""
TUNED = "2024-07"
"""Since when frameworks run the accelerator's best attention kernels, where a run says that they are on chip."""
VENUES = "SC|ISC|MICRO|ISCA|HPCA|ASPLOS|OSDI|SOSP|NSDI|MLSYS|NEURIPS|ICML|ICLR|ATC|PPOPP|EUROSYS|SIGCOMM|ACL|VLDB|KDD"
RELEASE = re.compile(r"(?<![\d.])(2[0-9])\.(0[1-9]|1[0-2])(?![\d])(?!\s*min)(?!\d*%)")
ARCHIVED = re.compile(r"(?<!\d)(2[0-9])(0[1-9]|1[0-2])\.\d{4,5}(?!\d)")
DATED = re.compile(r"(?<!\d)(20[12]\d)[-_./]?(0[1-9]|1[0-2])(?!\d)")
PUBLISHED = re.compile(rf"\b(?:{VENUES})\s*['’]?\s*(?:20)?([12]\d)(?!\d)", re.IGNORECASE)
ROUND = re.compile(r"(?:mlperf training|training_results_|training results )\s*v?(\d)\.([01])", re.IGNORECASE)
"""Rounds of MLPerf Training: v5.0 is of June 2025, v5.1 of November."""
YEAR = re.compile(r"(?<!\d)(20[12]\d)(?!\d)")


@dataclass(frozen=True, slots=True)
class Software:
    """The software of a run, and what it does unless the run says otherwise."""

    framework: str
    date: str
    """Year and month."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the workload."""
    selective: str = "selective"
    """What its selective recomputation is."""
    staged_zero3: str = "zero3"
    """What fully sharded weights are in a pipeline."""
    precision: str = "bf16"
    sharding: str = "zero1"
    next_tokens: bool = False
    """Whether models with a module for the token after next train it."""
    recipe: str = ""
    microbatches: str = ""
    """How a pipeline splits its batch: into as many as stages, or single sequences; empty if nothing is usual."""
    offloads: bool = False
    """Whether it may keep activations in the memory of the host."""
    adapters: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the workload where it trains adapters."""
    counts: str = "full"
    """Pairs of query and key that its counter of operations counts: full or causal."""
    interleaves: bool = False
    """Whether its guides ask for virtual stages."""

    @property
    def year(self) -> int:
        """The year of its date."""
        return int(self.date[:4])


def software_of(fields: Fields, accelerator: str) -> Software:
    """Return the software of a row that runs on an accelerator of the catalog."""
    framework, made = framework_of(fields), catalog.entry("accelerators", accelerator)
    date = date_of(fields, year_of(accelerator))
    merged: dict[str, Any] = {}
    for step in _steps(framework):
        if made.get("vendor") in step.get("vendors", [made.get("vendor")]) and (
            str(step["since"]) <= date or not merged
        ):
            merged |= step
    apart = {each.name: merged[each.name] for each in fields_of(Software) if each.name in merged}
    settings = usable({key: value for key, value in merged.items() if key not in apart})
    return Software(framework, date, settings or {"attention": of_era(date)}, **apart)


def usable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are fields of a workload."""
    known = {each.name for each in fields_of(Workload)}
    listed = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}
    return {key: value for key, value in listed.items() if key in known}


def of_era(date: str) -> str:
    """Return the kernels that attention on chip had at a date.

    >>> [of_era(each) for each in ("2021-05", "2022-12", "2024-01", "2025-01")]
    ['unfused', 'flash1', 'flash2', 'fused']
    """
    if date < "2022-06":
        return "unfused"
    return "flash1" if date < FLASH_2 else "flash2" if date < TUNED else "fused"


@cache
def _table() -> dict[str, Any]:
    return catalog.load_mapping(catalog.FOLDER / "software.yaml")


def _steps(framework: str) -> list[dict[str, Any]]:
    """Return what a framework does, by date: what it shares with others first."""
    entry = _table().get(framework)
    if entry is None:
        return []
    shared = _steps(entry["like"]) if "like" in entry else []
    own = [dict(each) for each in entry["practice"]]
    started = str(own[0]["since"])
    # what it took over before it began is there from its beginning; what its model does later, it does later
    return sorted([*shared, *own], key=lambda each: (str(each["since"]), str(each["since"]) >= started))


# ------------------------------------------------------------------------------------------------ framework


def framework_of(fields: Fields) -> str:
    """Return the framework that a row names, or that its mapping and accelerator make likely.

    >>> framework_of(Fields({"source": "MLPerf Training v5.1", "source_loc": "nemo/config"}))
    'mlperf'
    >>> framework_of(Fields({"schedule": "1f1b", "tp": "8", "pp": "4"})), framework_of(Fields({"zero_stage": "3"}))
    ('megatron-lm', 'pytorch')
    """
    for column in NAMING:
        if found := _named(fields.text(column).lower(), "words"):
            return found
    if found := _named(fields.text("accel").lower(), "words"):
        return found
    if found := _named(fields.text("model").lower(), "models"):
        return found
    return _structural(fields)


def _named(text: str, key: str) -> str:
    """Return the framework with the longest of the words that *text* has."""
    found = [
        (len(word), name)
        for name, entry in _table().items()
        for word in entry.get(key, ())
        if re.search(rf"(?<![a-z]){re.escape(word)}(?![a-z])", text)
    ]
    return max(found)[1] if found else ""


def _structural(fields: Fields) -> str:
    """Return the framework that a mapping makes likely: whoever splits tensors or stages uses Megatron-LM's code."""
    split = any(fields.text(axis) not in ("", "1", "1.0") for axis in ("tp", "pp"))
    if split or "1f1b" in fields.text("schedule").lower():
        return "megatron-lm"
    stage = fields.text("zero_stage").removesuffix(".0")
    return "pytorch" if stage == "3" else "deepspeed" if stage == "2" else UNKNOWN


# ----------------------------------------------------------------------------------------------------- date


def date_of(fields: Fields, year: int) -> str:
    """Return the year and month of a run's software; *year* is that of its accelerator.

    >>> date_of(Fields({"source": "performance summary 24.07", "notes": "26.08 min"}), 2022)
    '2024-07'
    >>> date_of(Fields({"source": "Narayanan et al. SC'21", "url": "https://arxiv.org/abs/2104.04473"}), 2020)
    '2021-04'
    >>> date_of(Fields({"source": "a study (MICRO 24)"}), 2020), date_of(Fields({}), 2022)
    ('2023-06', '2023-06')
    """
    texts = [fields.text(name) for name in DATING]
    return max(next(_dates(texts), f"{year + 1}-06"), f"{year}-01")


def _dates(texts: Sequence[str]) -> Iterator[str]:
    """Yield the dates that texts have, the most telling first."""
    for pattern in (RELEASE, ARCHIVED, DATED):
        yield from (f"20{found[1][-2:]}-{found[2]}" for text in texts for found in pattern.finditer(text))
    for text in texts:
        yield from (f"202{found[1]}-{'11' if found[2] == '1' else '06'}" for found in ROUND.finditer(text))
    for text in texts:
        yield from (f"{1999 + int(found[1])}-06" for found in PUBLISHED.finditer(text))
    for text in texts:
        yield from (f"{found[1]}-06" for found in YEAR.finditer(text))

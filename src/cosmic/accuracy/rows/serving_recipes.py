"""How the engines of published serving rows were set: documented practice, found by the columns of a row.

``catalog/serving_recipes.yaml`` has it. Of its practice every entry that fits a row sets what it names, a later one
overrides. Its pools say how disaggregated runs were split into instances, where a row does not, and how many requests
an instance decodes at once, which no column says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

from cosmic.base.errors import require
from cosmic.design import catalog_entries, schema

FILE = "serving_recipes.yaml"
DAY = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
FIXED = "gap-analysis"
"""Marks the source of rows with exact lengths."""
DUMP = "db-dump"
"""Marks the source of rows that never draft."""
LISTED = ("engine", "model", "system", "precision", "isl", "osl", "tp")
"""Columns of which an entry lists the values that fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The columns of a row that say which recipe it followed."""

    engine: str
    version: str
    model: str
    """The catalog's name."""
    system: str
    precision: str
    isl: int
    osl: int
    concurrency: float
    tp: int = 1
    dp: int = 1
    """Ranks of attention data parallelism of an instance."""
    spread_experts: bool = False
    """Whether the row says that experts lie on several GPUs, whole."""
    split: bool = False
    """Whether the run is disaggregated; tp and dp are then of the pool in question."""
    source: str = ""

    @property
    def day(self) -> str:
        """The day of the run; empty if the row does not say it."""
        match = DAY.search(self.source)
        return match[1] if match else ""

    @property
    def client(self) -> str:
        """Whether lengths are exact, or drawn."""
        return "exact" if FIXED in self.source else "drawn"

    @property
    def file(self) -> str:
        """Whether the row is from the dump of a database, or from a file of one day."""
        return "db" if DUMP in self.source else "csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRecipe:
    """What a recipe sets of an engine; None leaves the engine's default."""

    chunk_tokens: int | None = None
    """Most tokens of a step that prefills."""
    chunk_prompts: int | None = None
    """The same in longest prompts."""
    max_running: int | None = None
    """Most requests that run at once, of each rank of attention."""
    kv_bits: int | None = None
    memory_fraction: float | None = None
    """As in `cosmic.design.serving_engine.Engine`."""
    poll_steps: int = 0
    """Steps between two looks for new requests."""
    hold_steps: int = 0
    """Most steps for which a prefill is held back."""
    drafts: int = 0
    """Tokens that are drafted a step."""
    eager: bool = False
    """Whether decode steps launch their kernels one by one."""
    cold_s: float = 0.0
    """For which the first request of each client waits longer, as nothing warmed the server up."""
    in_flight: int | None = None
    """Requests in flight that wait as long as those of the run, where the client did not keep what the row says."""

    def chunk(self, isl: int) -> int | None:
        """Return the most tokens of a step that prefills."""
        return self.chunk_prompts * isl if self.chunk_prompts else self.chunk_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Effects of recipes, fitted with the engines."""

    acceptance: float
    """Share of drafted tokens that are accepted, one after the other."""
    polled: float
    """Mean wait for a poll, over the steps between two polls."""
    held: float
    """Mean wait for prompts of other ranks of attention, over the most steps that it may be."""

    def tokens_of(self, drafts: int) -> float:
        """Return the tokens that a request gains a step: 1 + a + a² + … of accepted drafts.

        >>> Fitted(acceptance=0.5, polled=0, held=0).tokens_of(2)
        1.75
        """
        return float(sum(self.acceptance**index for index in range(drafts + 1)))


@dataclass(frozen=True, slots=True)
class Instances:
    """Equal instances of an engine."""

    count: int
    tp: int = 1
    dp: int = 1

    @property
    def npus(self) -> int:
        """GPUs of all of them."""
        return self.count * self.tp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How a disaggregated run was split."""

    prefill: Instances
    decode: Instances
    batch: int | None = None
    """Most requests that a rank of attention decodes at once."""
    drafts: int = 0

    @property
    def npus(self) -> int:
        """GPUs of both pools."""
        return self.prefill.npus + self.decode.npus


@cache
def _entries() -> Mapping[str, Any]:
    return catalog_entries.load_mapping(catalog_entries.CATALOG_FOLDER / FILE)


@cache
def fitted_effects() -> Fitted:
    """Return what was fitted of the recipes."""
    effects: Fitted = schema.read_value(Fitted, _entries()["recipes"], f"{FILE} recipes")
    return effects


def recipe_of(row: Setting) -> EngineRecipe:
    """Return what the recipe of a row sets."""
    recipe = EngineRecipe()
    for entry in _entries()["practice"]:
        if _fits_row(entry, row):
            recipe = replace(recipe, **entry["sets"])
    return recipe


def split_of(row: Setting, npus: int | None = None, decode: tuple[int, int] | None = None) -> Split | None:
    """Return how the run of a row was split; None if no recipe is known.

    *npus* are the GPUs of both pools together, *decode* the instances that decode and the GPUs of each, where a row
    says them: they tell recipes of the same load apart.
    """
    for entry in _entries()["pools"]:
        if not _fits_row(entry, row) or row.concurrency not in entry["at"]:
            continue
        split = Split(
            prefill=read_instances(entry["prefill"]),
            decode=read_instances(entry["decode"]),
            batch=entry.get("batch"),
            drafts=entry.get("drafts", 0),
        )
        width = split.decode.tp * split.decode.dp
        if npus in (None, split.npus) and decode in (None, (split.decode.count, width)):
            return split
    return None


def read_instances(text: str) -> Instances:
    """Return the instances that an entry describes.

    >>> read_instances("4 tp8"), read_instances("1 dp32").npus
    (Instances(count=4, tp=8, dp=1), 32)
    """
    match = re.fullmatch(r"(\d+) (tp|dp)(\d+)", text)
    require(match is not None, "instances", text, "must be as 4 tp8 or 1 dp32")
    assert match is not None  # noqa: S101  as was required
    return Instances(int(match[1]), **{match[2]: int(match[3])})


def _fits_row(entry: Mapping[str, Any], row: Setting) -> bool:
    """Return whether an entry is about a row."""
    if any(getattr(row, key) not in _listed(entry[key]) for key in LISTED if key in entry):
        return False
    if any(getattr(row, key) != entry[key] for key in ("client", "file") if key in entry):
        return False
    if "version" in entry and not row.version.startswith(tuple(entry["version"])):
        return False
    if "dp" in entry and (entry["dp"] == "wide") != (row.dp > 1):
        return False
    if entry.get("split", row.split) != row.split:
        return False
    if "experts" in entry and (entry["experts"] == "split") == row.spread_experts:
        return False
    if row.concurrency * row.isl < entry.get("burst", 0):
        return False
    if not entry.get("from", 0) <= row.concurrency <= entry.get("to", float("inf")):
        return False
    dated = "since" in entry or "until" in entry
    return not dated or (bool(row.day) and str(entry.get("since", "")) <= row.day <= str(entry.get("until", "9")))


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


KEYS = {*LISTED, "client", "file", "version", "dp", "experts", "split", "burst", "from", "to", "since", "until"}
"""Keys by which an entry of the practice chooses rows."""


def unknown_keys() -> set[str]:
    """Return keys of the catalog's file that nothing reads."""
    entries = _entries()
    settings = {field.name for field in fields(EngineRecipe)}
    unknown = {key for entry in entries["practice"] for key in entry} - KEYS - {"sets"}
    unknown |= {key for entry in entries["practice"] for key in entry["sets"]} - settings
    return unknown | {key for entry in entries["pools"] for key in entry} - KEYS - {
        "prefill",
        "decode",
        "batch",
        "drafts",
        "at",
    }

"""The values that Typer offers a shell for arguments and options: each function returns those that match.

A shell calls them at every TAB, so they import as little as they can: NumPy only for fields whose values a registry
knows, such as topologies.
A candidate that ends in '@' or '=' is continued: the scripts of `cosmic completion` write no space behind it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

PLAIN_WORD = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
"""What a shell takes literally: it would run what else is in the name of a user's file, once that is completed."""
PLACES = ("0", "1", "2", "3")
"""Places of a list that are offered: no system of the catalog has more network dimensions."""


def complete_one_of(*values: str) -> Callable[[str], list[str]]:
    """Return the candidates of an option that takes one of *values*."""

    def candidates(incomplete: str) -> list[str]:
        return _matching_words(values, incomplete)

    return candidates


def complete_designs(incomplete: str) -> list[str]:
    """Return MODEL@, and MODEL@SYSTEM once the model is written."""
    from cosmic.design.catalog_entries import entry_names  # noqa: PLC0415  only where a design is completed

    model, at, _ = incomplete.partition("@")
    found = (
        (f"{model}@{name}" for name in entry_names("systems")) if at else (f"{name}@" for name in entry_names("models"))
    )
    return _matching_words(found, incomplete)


def complete_models(incomplete: str) -> list[str]:
    """Return the models of the catalog."""
    from cosmic.design.catalog_entries import entry_names  # noqa: PLC0415  only where a model is completed

    return _matching_words(entry_names("models"), incomplete)


def complete_systems(incomplete: str) -> list[str]:
    """Return the systems of the catalog."""
    from cosmic.design.catalog_entries import entry_names  # noqa: PLC0415  only where a system is completed

    return _matching_words(entry_names("systems"), incomplete)


def complete_spaces(incomplete: str) -> list[str]:
    """Return the parameter sets of the catalog."""
    from cosmic.design.catalog_entries import entry_names  # noqa: PLC0415  only where a space is completed

    return _matching_words(entry_names("spaces"), incomplete)


def complete_designs_and_spaces(incomplete: str) -> list[str]:
    """Return what can be searched: designs, and parameter sets of the catalog."""
    return [*complete_spaces(incomplete), *complete_designs(incomplete)]


def complete_settings(incomplete: str) -> list[str]:
    """Return PATH= for each field of a design, also by its short name, and PATH=VALUE where a field takes only some."""
    from cosmic.design.design_point import NESTED_PATTERNS, field_patterns  # noqa: PLC0415  only where a field is completed

    fields = field_patterns()
    named = [path for path in fields if path.rpartition(".")[0] not in NESTED_PATTERNS]
    ends = Counter(path.rpartition(".")[2] for path in named)
    short = {end: path for path in named if ends[end := path.rpartition(".")[2]] == 1 and "*" not in path}
    name, equals, _ = incomplete.partition("=")
    if not equals:
        whole = (path.replace("*", place, 1) for path in fields for place in (PLACES if "*" in path else ("",)))
        return _matching_words((f"{path}=" for path in (*short, *whole)), incomplete)
    slot = fields.get(".".join("*" if part.isdecimal() else part for part in short.get(name, name).split(".")))
    if slot is None:
        return []
    values = ("true", "false") if slot.hint is bool else sorted(slot.choices() or ())
    return _matching_words((f"{name}={value}" for value in values), incomplete)


def complete_fields(incomplete: str) -> list[str]:
    """Return the fields of a design, also by their short names, separated by commas."""
    return complete_several(
        lambda last: [setting.removesuffix("=") for setting in complete_settings(last) if setting.endswith("=")]
    )(incomplete)


def complete_engines(*others: str) -> Callable[[str], list[str]]:
    """Return a completion of engines: COSMIC's own, *others*, and those that others bring."""

    def complete(incomplete: str) -> list[str]:
        from cosmic.simulate.user_engines import engines  # noqa: PLC0415  only where an engine is completed

        return _matching_words(["analytic", "event", *others, *engines], incomplete)

    return complete


def complete_metrics(incomplete: str) -> list[str]:
    """Return the metrics that a search can better or limit."""
    from cosmic.search.design_wording import METRICS  # noqa: PLC0415  only where a metric is completed

    return _matching_words(METRICS, incomplete)


def complete_agents(incomplete: str) -> list[str]:
    """Return the agents by the files that hold them: the registry would import them all."""
    from cosmic.base.registry import user_files  # noqa: PLC0415  only where an agent is completed

    own = (Path(__file__).parents[1] / "search" / "agents").glob("[!_]*.py")
    return _matching_words(sorted(path.stem for path in (*own, *user_files("agents", "*.py"))), incomplete)


def complete_several(candidates: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the candidates of an option that takes several values, separated by commas, each once."""

    def continued(incomplete: str) -> list[str]:
        first, comma, last = incomplete.rpartition(",")
        return [f"{first}{comma}{candidate}" for candidate in candidates(last) if candidate not in first.split(",")]

    return continued


def complete_stacks(incomplete: str) -> list[str]:
    """Return the layers of a design, separated by commas."""
    from cosmic.design.design_point import STACK_LAYERS  # noqa: PLC0415  only where a layer is completed

    return complete_several(complete_one_of(*STACK_LAYERS))(incomplete)


def _matching_words(values: Iterable[str], incomplete: str) -> list[str]:
    return [value for value in values if value.startswith(incomplete) and PLAIN_WORD.fullmatch(value)]

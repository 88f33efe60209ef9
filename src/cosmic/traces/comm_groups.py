"""Communicator groups, from files and from the metadata nodes of traces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cosmic.base.errors import SpecError, require
from cosmic.base.files import read_text, write_text
from cosmic.traces.trace import Template, TraceSet

ALL_RANKS = ("", "0")
"""Names of the group of all ranks; a node without a group means the first."""

GROUP_ID = re.compile(r"[1-9][0-9]*", re.ASCII)


def read_groups(path: str | Path) -> dict[str, tuple[int, ...]]:
    """Return the groups in the JSON file at *path*: ``{"<id from 1>": [rank, ...], ...}``."""
    path, text = Path(path), read_text(path)
    try:
        pairs = json.loads(text, object_pairs_hook=_Pairs)
    except RecursionError:
        raise SpecError("file", str(path), "is nested too deeply") from None
    except ValueError as error:
        raise SpecError("file", str(path), f"is not JSON: {error}") from None
    require(isinstance(pairs, _Pairs), path.name, pairs, 'must be an object, such as {"1": [0, 1], "2": [2, 3]}')
    groups: dict[str, tuple[int, ...]] = {}
    for name, ranks in pairs:
        require(bool(GROUP_ID.fullmatch(name)), f"{path.name}: group", name, "is named by a whole number from 1 on")
        require(name not in groups, f"{path.name}: group", name, "is defined twice")
        groups[name] = _check_ranks(ranks, f"{path.name}: group {name}")
    return groups


def write_groups(groups: Mapping[str, Sequence[int]], path: str | Path) -> None:
    """Write *groups* in the format of `read_groups`."""
    write_text(path, groups_text(groups))


def groups_text(groups: Mapping[str, Sequence[int]]) -> str:
    """Return *groups* in the format of `read_groups`, one per line."""
    lines = [f"{json.dumps(name)}: {json.dumps(list(ranks))}" for name, ranks in groups.items()]
    return "{" + ",\n ".join(lines) + "}\n"


class _Pairs(list[tuple[str, Any]]):
    """The pairs of a JSON object, repeated keys included."""


def _check_ranks(ranks: Any, where: str) -> tuple[int, ...]:
    """Return *ranks* if they are distinct ranks."""
    require(type(ranks) is list, where, ranks, "must be a list of ranks")
    require(bool(ranks), where, ranks, "has no ranks")
    seen = set()
    for rank in ranks:
        require(type(rank) is int and rank >= 0, where, rank, "a rank is a whole number from 0 on")
        require(rank not in seen, where, rank, "the rank is listed twice")
        seen.add(rank)
    return tuple(ranks)


def known_groups(traces: TraceSet, groups: Mapping[str, Sequence[int]] | None = None) -> dict[str, tuple[int, ...]]:
    """Return all groups by name: that of all ranks, those of metadata nodes, and *groups*, which take precedence."""
    everyone = tuple(range(len(traces.ranks)))
    explicit = {name: tuple(ranks) for name, ranks in (groups or {}).items()}
    return {**dict.fromkeys(ALL_RANKS, everyone), **stated_groups(traces), **explicit}


def stated_groups(traces: TraceSet) -> dict[str, tuple[int, ...]]:
    """Return PyTorch's process groups from metadata nodes; one that lists no ranks has all."""
    everyone = tuple(range(len(traces.ranks)))
    texts = {text for template in traces.templates() for text in template.process_groups.values()}
    groups: dict[str, tuple[int, ...]] = {}
    for name, ranks in (group for text in sorted(texts) for group in _parse_process_groups(text, traces.where)):
        members = ranks or everyone
        require(
            groups.setdefault(name, members) == members,
            f"{traces.where}: process group {name}",
            list(members),
            f"another node says {list(groups[name])}",
        )
    return groups


def _parse_process_groups(text: str, where: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the groups of a metadata node's text: a JSON list of objects, within a list in Python's syntax."""
    start, stop = text.find("[{"), text.rfind("}]")
    if start < 0 or stop < start:
        return  # metadata of another kind
    where = f"{where}: process groups"
    try:
        entries = json.loads(text[start : stop + 2])
    except (ValueError, RecursionError):
        raise SpecError(where, text, "must be a JSON list of objects with pg_name and ranks") from None
    for entry in entries:
        valid = isinstance(entry, dict) and "pg_name" in entry and isinstance(entry.get("ranks", []), list)
        require(valid, where, entry, "must be an object with pg_name and a list of ranks")
        ranks = entry.get("ranks", [])
        yield str(entry["pg_name"]), _check_ranks(ranks, f"{where}: {entry['pg_name']}") if ranks else ()


def ranks_by_template(traces: TraceSet) -> list[tuple[Template, list[int]]]:
    """Return every distinct template with the ranks that run it."""
    by_template: dict[int, tuple[Template, list[int]]] = {}
    for number, rank in enumerate(traces.ranks):
        by_template.setdefault(id(rank.template), (rank.template, []))[1].append(number)
    return list(by_template.values())

"""Checked look-ups in a nested configuration (TOML, JSON): who reads what is noted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cosmic.design.schema import Absent
from cosmic.errors import SpecError, as_key, suggestion
from cosmic.importing.arguments import NotModelled

RULES = {int: "must be a whole number", bool: "must be true or false", str: "must be text"}


class Keyed:
    """The keys of a file by dotted path."""

    def __init__(self, tree: Mapping[str, Any], where: str) -> None:
        self.where = where
        self.values = dict(_flat(tree, ""))
        self.asked: set[str] = set()
        self.assumed: list[str] = []
        self.not_modelled: list[NotModelled] = []

    def __contains__(self, path: str) -> bool:
        return path in self.values

    def get(self, path: str, default: Any = None) -> Any:
        """Return a value as it is."""
        self.asked.add(path)
        return self.values.get(path, default)

    def whole(self, path: str, default: int | None = None, least: int = 1) -> int | None:
        """Return a whole number; *default* if it is not there."""
        value = self.get(path)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(path, RULES[int])
        if value < least:
            raise self.error(path, f"must be at least {least}")
        return value

    def flag(self, path: str, *, default: bool = False) -> bool:
        """Return whether something is switched on."""
        value = self.get(path)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(path, RULES[bool])
        return value

    def text(self, path: str, default: str = "", choices: tuple[str, ...] = ()) -> str:
        """Return a text."""
        value = self.get(path)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(path, RULES[str])
        if choices and value not in choices:
            raise self.error(path, f"must be one of {', '.join(choices)}{suggestion(value, choices, shown=0)}")
        return value

    def error(self, path: str, rule: str) -> SpecError:
        """Return the error about a key."""
        return SpecError(f"{self.where} {path}", self.values.get(path, Absent()), rule)

    def leave_out(self, path: str, why: str) -> None:
        """Note that a key, if it is there, is not modelled."""
        self.asked.add(path)
        if path in self.values:
            self.not_modelled.append(NotModelled(f"{path} = {_shown(self.values[path])}", why))

    def assume(self, sentence: str) -> None:
        """Note something that the file does not say."""
        self.assumed.append(sentence)

    def finish(self, without_cost: re.Pattern[str], effects: Mapping[str, str]) -> None:
        """List what nobody asked for, but for what is off or has no cost."""
        for path, value in self.values.items():
            if path in self.asked or without_cost.fullmatch(path) or value in (None, False, "", [], 0, "none"):
                continue
            self.leave_out(path, effects.get(path, "unknown to COSMIC"))


def _flat(tree: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = f"{before}{as_key(key)}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{path}.")
        else:
            yield path, value


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Checked look-ups in a Hugging Face ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from cosmic.design.schema import Absent
from cosmic.errors import SpecError, check_text, join, require

T = TypeVar("T", bool, int, str, list[Any])

RULES = {
    bool: "must be true or false",
    int: "must be a whole number",
    str: "must be text",
    list: "must be a list",
}


@dataclass(frozen=True, slots=True)
class Config:
    """The keys of a file, and its name for messages. Each look-up checks the type; null counts as absent."""

    keys: Mapping[str, Any]
    where: str

    def get(self, name: str, default: T) -> T:
        """Return the value of *name*, which must have the type of *default*."""
        value = self.keys.get(name)
        if value is None:
            return default
        require(type(value) is type(default), join(self.where, name), value, RULES[type(default)])
        if isinstance(value, str):
            check_text(value, join(self.where, name))
        found: T = value
        return found

    def size(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """Return the whole number under the first of *names* that is present."""
        name = next((name for name in names if self.keys.get(name) is not None), names[0])
        if default is None and self.keys.get(name) is None:
            raise SpecError(join(self.where, name), self.keys.get(name, Absent()), RULES[int])
        value = self.get(name, default or 0)
        require(value >= least, join(self.where, name), value, f"must be at least {least}")
        return value

    def optional(self, name: str, absent: int | None = None) -> int | None:
        """Return the whole number under *name*; None if it is null, *absent* if it is missing."""
        if name not in self.keys:
            return absent
        return None if self.keys[name] is None else self.size(name)

    def inner(self, name: str) -> Config:
        """Return the mapping under *name*, empty if there is none."""
        value = self.keys.get(name)
        whole = value is None or isinstance(value, Mapping)
        require(whole, join(self.where, name), value, "must be a mapping of keys to values")
        return Config(value or {}, join(self.where, name))

    def fixed(self, name: str, value: T, rule: str) -> None:
        """Refuse anything but *value* under *name*, because the model layer cannot express it."""
        self.refuse(self.get(name, value) != value, name, rule)

    def refuse(self, holds: bool, name: str, rule: str) -> None:
        """Raise a `SpecError` about *name* if *holds*."""
        require(not holds, join(self.where, name), self.keys.get(name, Absent()), rule)

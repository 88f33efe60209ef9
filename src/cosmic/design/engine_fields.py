"""Fields of engines that users bring: what such an engine has to choose from, besides the fields of a design.

A subclass is a frozen dataclass with a default for each field, and so it is read, written, addressed and checked as the
layers of a design are: `scratch_bytes` in Python is ``scratch: 64 KiB`` in a file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cosmic.base.digests import digest
from cosmic.design import schema


@dataclass(frozen=True)
class EngineFields:
    """One choice of an engine's own fields. It has the functions of a design that are about paths, and no layers."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, without caches."""
        return {slot.name: self.__dict__[slot.name] for slot in schema.slots_of(self).values()}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Every leaf field, by its path."""
        return dict(schema.leaf_fields(self))

    @property
    def compact(self) -> EngineFields:
        """The same: nothing is padded."""
        return self

    def padded(self, _: int) -> EngineFields:
        """Return the same: there are no dimensions."""
        return self

    @cached_property
    def identity(self) -> str:
        """A short hash that names the choice."""
        content = [type(self).__qualname__, schema.write_value(self)]
        return digest(json.dumps(content, sort_keys=True))[:16]

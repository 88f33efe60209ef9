"""Fields that are not those of a design: what an engine of somebody else has to choose from (`cosmic.engines`).

A subclass is a frozen dataclass with a default for each field, and so it is read, written, addressed and checked as the
layers of a design are: `scratch_bytes` in Python is ``scratch: 64 KiB`` in a file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cosmic.design import schema
from cosmic.digests import digest


@dataclass(frozen=True)
class Fields:
    """One choice of an engine's own fields. It has the functions of a design that are about paths, and no layers."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, without caches."""
        return {slot.name: self.__dict__[slot.name] for slot in schema.slots_of(self).values()}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Every leaf field, by its path."""
        return dict(schema.leaves(self))

    @property
    def compact(self) -> Fields:
        """The same: nothing is padded."""
        return self

    def padded(self, _: int) -> Fields:
        """Return the same: there are no dimensions."""
        return self

    @cached_property
    def identity(self) -> str:
        """A short hash that names the choice."""
        content = [type(self).__qualname__, schema.write(self)]
        return digest(json.dumps(content, sort_keys=True))[:16]

"""What to change in a launch: the arguments in which two designs differ, in the syntax of their target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cosmic.design.point import DesignPoint
from cosmic.launching.launch import Launch, targets
from cosmic.launching.quoting import Value, export, options, toml

Kind = Literal["argument", "key", "environment", "launcher"]


@dataclass(frozen=True, slots=True)
class Change:
    """An argument, key or variable that one launch has and the other has not, or has with another value."""

    kind: Kind
    name: str
    before: str | None
    """As the first launch writes it; None if it is not there."""
    after: str | None
    """As the second launch writes it; None if it is not there."""

    def __str__(self) -> str:
        """Return the change as a line of a patch: ``-`` goes, ``+`` comes, ``~`` changes.

        >>> print(Change("argument", "--bf16", None, "--bf16"))
        + --bf16
        >>> print(Change("argument", "--micro-batch-size", "--micro-batch-size 1", "--micro-batch-size 2"))
        ~ --micro-batch-size 1 → --micro-batch-size 2
        """
        if self.before is None or self.after is None:
            return f"+ {self.after}" if self.before is None else f"- {self.before}"
        return f"~ {self.before} → {self.after}"


def difference(before: DesignPoint, after: DesignPoint, target: str) -> list[Change]:
    """Return what differs between the launches of two designs, in the order of the second one.

    >>> from cosmic.mapping.completing import load_design
    >>> first = load_design("llama3-8b@dgx-h100:8", {"tp": 2, "micro_batch": 1})
    >>> print(*difference(first, first.changed({"workload.micro_batch": 2}), "megatron"), sep="; ")
    ~ --micro-batch-size 1 → --micro-batch-size 2
    """
    targets.check(target, "target")
    old, new = (dict(_entries(targets[target](point))) for point in (before, after))
    names = [*new, *(name for name in old if name not in new)]
    return [Change(name[0], name[1], old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]


def _entries(launch: Launch) -> Iterator[tuple[tuple[Kind, str], str]]:
    """Yield everything that a launch sets, as it is written there."""
    if launch.command:
        yield ("launcher", "launcher"), launch.command[0]
    for name, text in launch.environment.items():
        yield ("environment", name), export(name, text)
    for name, value in launch.arguments.items():
        if name.startswith("-"):
            yield ("argument", name), options({name: value})[0]
        else:
            yield ("key", name), _key(name, value)
    for file, content in launch.files.items():
        for path, found in _leaves(json.loads(content), "") if file.endswith(".json") else ():
            yield ("key", path), f"{path} = {json.dumps(found)}"


def _key(name: str, value: Value) -> str:
    """Return a dotted key of a TOML file with its value."""
    return f"{name} = {toml({name: value}).partition(' = ')[2].strip()}"


def _leaves(tree: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value

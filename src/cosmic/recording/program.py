"""A recorded program: what is left of a tape once equal operations are one and needless ones are gone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cosmic.recording.tape import LISTED, Guard, Known, Lookup, Tape, reads

T = TypeVar("T")
Whole = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Program:
    """Operations over nodes: constants, inputs and the results of earlier operations."""

    nodes: Whole
    """A row for each node: see `cosmic.recording.tape.Node`."""
    lists: Whole
    """Operands of the nodes that have more than three."""
    constants: Mapping[int, float]
    inputs: Mapping[str, int]
    """The node of each field of a design that is read."""
    tables: tuple[Known, ...]
    lookups: tuple[Lookup, ...]
    guards: tuple[Guard, ...]
    results: Mapping[str, int]
    """The node of each result, measured ones first."""
    measured: int
    """How many of the results are numbers of a design that runs; the others are rules that it must meet."""
    known: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Cache: what follows from the instructions."""

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what *compute* gives, computed the first time that *key* is asked for."""
        if key not in self.known:
            self.known[key] = compute()
        found: T = self.known[key]
        return found


def program_of(tape: Tape, measured: Mapping[str, Any], rules: Mapping[str, Any]) -> Program:
    """Return what of a tape is needed for the metrics *measured* and for the *rules*."""
    wanted = {name: tape.place_of(value) for name, value in (*measured.items(), *rules.items())}
    live = _live(tape, [*wanted.values(), *(guard.node for guard in tape.guards)])
    place = {old: new for new, old in enumerate(live)}
    nodes: list[tuple[int, ...]] = []
    lists: list[int] = []
    for old in live:
        node = tape.nodes[old]
        read = [place[each] for each in reads(node, tape.lists)]
        if node[0] in LISTED:
            nodes.append((node[0], node[1], len(lists), node[3]))
            lists += read
        else:
            nodes.append((node[0], *read, *node[1 + len(read) :]))
    return Program(
        nodes=np.array(nodes, dtype=np.int32).reshape(-1, 4),
        lists=np.array(lists, dtype=np.int32),
        constants={place[old]: value for old, value in tape.constants.items() if old in place},
        inputs={path: place[old] for old, path in tape.inputs.items() if old in place},
        tables=tuple(tape.tables),
        lookups=tuple(tape.lookups),
        guards=tuple(guard._replace(node=place[guard.node]) for guard in tape.guards),
        results={name: place[old] for name, old in wanted.items()},
        measured=len(measured),
    )


def _live(tape: Tape, wanted: Iterable[int]) -> list[int]:
    """Return the nodes that some results need, in order."""
    found: set[int] = set()
    waiting = list(wanted)
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += reads(tape.nodes[place], tape.lists)
    return sorted(found)

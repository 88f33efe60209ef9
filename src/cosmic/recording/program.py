"""A recorded program: what is left of a tape once equal operations are one and needless ones are gone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cosmic.recording.tape import GATHER, INDEX, Guard, Instruction, Known, Lookup, Tape, reads

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions over nodes: constants, inputs and the results of earlier instructions."""

    nodes: tuple[Instruction, ...]
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

    def varying(self, inputs: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return which nodes depend on some of the *inputs*."""
        given = {self.inputs[path] for path in inputs if path in self.inputs}
        found = [False] * len(self.nodes)
        for place, node in enumerate(self.nodes):
            found[place] = place in given or (node[0] >= 0 and any(found[read] for read in reads(node)))
        return np.array(found)


def program_of(tape: Tape, measured: Mapping[str, Any], rules: Mapping[str, Any]) -> Program:
    """Return what of a tape is needed for the metrics *measured* and for the *rules*."""
    wanted = {name: tape.place_of(value) for name, value in (*measured.items(), *rules.items())}
    live = _live(tape, [*wanted.values(), *(guard.node for guard in tape.guards)])
    place = {old: new for new, old in enumerate(live)}
    nodes = tuple(_moved(tape.nodes[old], place) for old in live)
    return Program(
        nodes=nodes,
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
            node = tape.nodes[place]
            waiting += reads(node) if node[0] >= 0 else ()
    return sorted(found)


def _moved(node: Instruction, place: Mapping[int, int]) -> Instruction:
    if node[0] < 0:
        return node
    if node[0] == GATHER:
        return (GATHER, place[node[1]], *node[2:])
    if node[0] == INDEX:
        return (INDEX, node[1], *(place[read] for read in node[2:]))
    return (node[0], *(place[read] for read in node[1:]))

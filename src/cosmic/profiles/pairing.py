"""Whether an execution trace and a Kineto trace are of one recording, and which operators are the same."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from cosmic.errors import SpecError
from cosmic.profiles.arrays import is_in, sorted_distinct
from cosmic.profiles.execution_traces import ExecutionTrace
from cosmic.profiles.kineto import OPERATOR, Kineto

MOST_NAMES = 0x10FFFF
"""Each name is looked for as one character."""
ALIKE = 0.5
"""Of operators that both have, at least this share must have the same name."""
SHARED = 2 / 3
"""Of the names of operators of an execution trace, at least this share must be in the Kineto trace beside it.

Two runs of one program have more of them in common, two programs mostly fewer.
"""


def check_pair(kineto: Kineto, trace: ExecutionTrace, wanted: int) -> None:
    """Refuse traces of two processes, or whose operators have other numbers or names; *wanted* were looked for.

    Ranks of one job number the same operators alike, so that only the process tells them apart.
    """
    host = kineto.host
    processes = {kineto.threads[at][0] for at in sorted_distinct(host.thread[host.category == OPERATOR]).tolist()}
    if trace.process and processes and trace.process not in processes:
        rule = f"is of another process ({', '.join(sorted(processes))}) than {trace.where} ({trace.process})"
        raise SpecError("file", kineto.where, rule)
    same = other = 0
    known = np.fromiter(trace.details, np.int64, len(trace.details))
    entries = np.flatnonzero(is_in(host.function, sorted_distinct(known)) & (host.category == OPERATOR))
    for function, name in zip(host.function[entries].tolist(), host.name[entries].tolist(), strict=True):
        alike = trace.details[function].name == kineto.names[name]
        same += alike
        other += not alike
    if wanted and not is_in(host.function, sorted_distinct(known)).any():
        rule = f"is of another recording than {trace.where}: no operator that launches a kernel is in both"
        raise SpecError("file", kineto.where, rule)
    if other and same < ALIKE * (same + other):
        rule = f"is of another recording than {trace.where}: {other} of {same + other} operators have other names there"
        raise SpecError("file", kineto.where, rule)


def operators_of_run(kineto: Kineto, trace: ExecutionTrace) -> tuple[ExecutionTrace | None, list[str]]:
    """Link operators by their sequence: older profilers number them only in one of the traces.

    The names that a thread of *trace* began, one after the other, are looked for in each thread of *kineto*; wherever
    they all follow each other there, the operators are the same. Sets `Kineto.host.function`.
    """
    host = kineto.host
    wanted = _sequences(trace)
    known = {name: at for at, name in enumerate(kineto.names)}
    linked = 0
    if len(kineto.names) >= MOST_NAMES:
        return None, [f"{kineto.where}: it has too many names to find operators of {trace.where} by them"]
    order = np.lexsort((-host.end, host.start, host.thread))
    order = order[host.category[order] == OPERATOR]
    bounds = np.flatnonzero(np.diff(host.thread[order], prepend=-1, append=-1)).tolist()
    for first, last in pairwise(bounds):
        entries = order[first:last].tolist()
        text = "".join(chr(name + 1) for name in host.name[order[first:last]].tolist())
        for names, functions in wanted:
            sought = "".join(chr(known.get(name, -1) + 1) for name in names)
            place = text.find(sought)
            while place >= 0 and sought and "\0" not in sought:
                for offset, function in enumerate(functions):
                    host.function[entries[place + offset]] = function
                linked += len(functions)
                place = text.find(sought, place + len(functions))
    if linked:
        return trace, []
    begun = {name for names, _ in wanted for name in names}
    both = len(begun & known.keys())
    if len(order) and both < SHARED * len(begun):
        rule = f"is of another program than {trace.where}: it has {both} of the {len(begun)} names of operators there"
        raise SpecError("file", kineto.where, rule)
    return None, [f"{trace.where}: its operators do not follow each other in {kineto.where}: only the latter is used"]


def _sequences(trace: ExecutionTrace) -> list[tuple[list[str], list[int]]]:
    """Return the names and functions of each thread's operators, in their order; annotations are left out."""
    threads: dict[int, tuple[list[str], list[int]]] = {}
    for at, function in enumerate(trace.function):
        name = trace.names[trace.name[at]]
        if function and not name.startswith(("[", "#", "Optimizer.", "enumerate(", "ProfilerStep", "nccl:", "gloo:")):
            names, functions = threads.setdefault(trace.thread[at], ([], []))
            names.append(name)
            functions.append(function)
    return sorted(threads.values(), key=lambda each: -len(each[0]))

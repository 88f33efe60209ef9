"""What a collective sends in each dimension of a hierarchical network, by LIBRA's rules.

Data enters the innermost dimension first and is shared out over its p members before it enters the next:

    all-reduce       2 S (p - 1) / p     then S / p
    reduce-scatter     S (p - 1) / p     then S / p
    all-gather         S (p - 1)         then S p, from the outermost dimension inwards; S is what an NPU begins with
    all-to-all         S (p - 1) / p     in every dimension

A switch that reduces takes an NPU's data once and returns the sum once: an all-reduce sends S, and not 2 S (p - 1) / p.
"""

from __future__ import annotations

from collections.abc import Sequence

from cosmic.traces.text_workloads import Kind


def bytes_of_dims(
    kind: Kind, size_bytes: float, members: Sequence[int], reducing: Sequence[bool] = ()
) -> tuple[float, ...]:
    """Return the bytes that an NPU sends in each dimension; *reducing* says in which of them switches reduce.

    >>> bytes_of_dims("ALLREDUCE", 64.0, (4, -1, 2)), bytes_of_dims("ALLGATHER", 8.0, (4, -1, 2))
    ((96.0, 0.0, 16.0), (48.0, 0.0, 8.0))
    >>> bytes_of_dims("ALLREDUCE", 64.0, (4, -1, 2), (True, True, False)), bytes_of_dims("ALLTOALL", 64.0, (4, 2))
    ((64.0, 0.0, 16.0), (48.0, 32.0))
    """
    sent = [0.0] * len(members)
    places = [place for place, count in enumerate(members) if count > 1]
    left = size_bytes
    for place in reversed(places) if kind == "ALLGATHER" else places:
        count = members[place]
        if kind == "ALLGATHER":
            sent[place] = left * (count - 1)
            left *= count
            continue
        sent[place] = left * (count - 1) / count
        if kind == "ALLREDUCE":
            summed = place < len(reducing) and reducing[place]
            sent[place] = min(left, 2.0 * sent[place]) if summed else 2.0 * sent[place]
        if kind != "ALLTOALL":
            left /= count
    return tuple(sent)

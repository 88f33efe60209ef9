"""Small profiles of several ranks, in microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.traces.profiles.profile_conversion import ConvertedProfiles, RankProfile, convert_profiles
from cosmic.traces.replay import ReplayChanges, Replayed, recorded_times, replay_traces
from cosmic.traces.trace import COMMUNICATION_TYPES
from tests.traces.profiles.making import Event, call, kernel, operator, write_kineto

NCCL = "ncclDevKernel_"


def said(kind: str, sent: int, received: int, ranks: Sequence[int], group: str = "0", **more: Any) -> dict[str, Any]:
    """Return what PyTorch states of a collective of 4-byte elements."""
    return {
        "Collective name": kind,
        "In msg nelems": sent,
        "Out msg nelems": received,
        "dtype": "Float",
        "Group size": len(ranks),
        "Process Group Name": group,
        "Process Group Ranks": str(list(ranks)),
        **more,
    }


class Rank:
    """A rank's profile, event by event."""

    def __init__(
        self, rank: int, size: int, groups: Mapping[str, Sequence[int]] | None = None, clock_us: int = 0
    ) -> None:
        listed = groups if groups is not None else {"0": range(size)}
        own = [{"pg_name": name, "ranks": list(ranks)} for name, ranks in listed.items() if rank in ranks]
        self.rest: dict[str, Any] = {"baseTimeNanoseconds": 10**18 + 1000 * clock_us}
        self.rest["distributedInfo"] = {"rank": rank, "world_size": size, "pg_config": own}
        self.events: list[Event] = [operator("step", 0, 10)]

    def launch(self, name: str, at: int, start: int, took: int, stream: int = 20, **args: Any) -> Rank:
        """Launch a kernel at a moment, which starts later."""
        number = len(self.events)
        self.events += [call("cudaLaunchKernel", at, 5, number), kernel(name, start, took, number, stream, **args)]
        return self

    def issue(self, at: int, **args: Any) -> Rank:
        """Issue a communication without a kernel of its own."""
        self.events.append(operator("record_param_comms", at, 3, **args))
        return self


def job(folder: Path, *ranks: Rank) -> ConvertedProfiles:
    """Return the traces of a job."""
    files = (write_kineto(folder / f"{at}.json", each.events, **each.rest) for at, each in enumerate(ranks))
    return convert_profiles([RankProfile(each) for each in files])


def sizes(made: ConvertedProfiles) -> list[list[int]]:
    """Return the bytes of each rank's communications."""
    return [
        rank.template.comm_size[np.isin(rank.template.type, list(COMMUNICATION_TYPES))].tolist()
        for rank in made.traces.ranks
    ]


def tags(made: ConvertedProfiles) -> list[list[int]]:
    """Return the tags of each rank's collectives."""
    return [rank.template.comm_tag[rank.template.comm_type >= 0].tolist() for rank in made.traces.ranks]


def rows(made: ConvertedProfiles, rank: int, name: str) -> list[int]:
    """Return the rows of a rank's kernels with a name."""
    template = made.traces.ranks[rank].template
    return [at for at, each in enumerate(template.names) if name in each and not template.on_cpu[at]]


def ends(made: ConvertedProfiles, times: Replayed, name: str) -> list[list[int]]:
    """Return when the kernels with a name end on each rank, in microseconds."""
    return [[int(times.ended[rank][row]) // 1000 for row in rows(made, rank, name)] for rank in range(len(times.ended))]


def later(made: ConvertedProfiles, late: int, name: str, *ranks: int) -> Replayed:
    """Replay with the kernels with a name that come later by some microseconds on some ranks."""
    same = recorded_times(made.traces)
    delay = [each.copy() for each in same.delay_ns]
    for rank in ranks:
        delay[rank][rows(made, rank, name)] += 1000 * late
    return replay_traces(made.traces, made.groups, ReplayChanges(same.duration_ns, tuple(delay)))


def is_exact(made: ConvertedProfiles) -> bool:
    """Return whether a replay gives the recorded times."""
    times = replay_traces(made.traces, made.groups)
    return all(
        begun.tolist() == rank.template.start_ns.tolist()
        and ended.tolist() == (rank.template.start_ns + rank.template.duration_ns).tolist()
        for begun, ended, rank in zip(times.begun, times.ended, made.traces.ranks, strict=True)
    )

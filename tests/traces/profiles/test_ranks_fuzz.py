"""Random jobs of several ranks: whatever they recorded, a replay gives the recorded times."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traces.profiles.ranks import NCCL, Rank, is_exact, job, said, tags

Call = tuple[tuple[str, str, int, int], bool, int]
GROUPS = {"0": [0, 1, 2], "a": [0, 1], "b": [1, 2], "c": [0, 1, 2]}
KINDS = ("allreduce", "broadcast", "_allgather_base", "gather", "all_to_allv", "barrier", "send", "recv")
collectives = st.tuples(st.sampled_from(sorted(GROUPS)), st.sampled_from(KINDS), st.integers(0, 3), st.integers(-1, 3))
ranks = st.lists(st.tuples(collectives, st.booleans(), st.integers(1, 200)), max_size=6)


@settings(max_examples=30, deadline=None)
@given(st.tuples(ranks, ranks, ranks), st.tuples(*[st.sampled_from([0, 0, 30, 5000, 10**10])] * 3))
def test_any_job_is_replayed_as_it_was_recorded(jobs: tuple[list[Call], ...], clocks: tuple[int, ...]) -> None:
    made = []
    for number, calls in enumerate(jobs):
        rank, now = Rank(number, 3, GROUPS, clocks[number]), 20
        for (group, kind, count, sequence), states, took in calls:
            told = said(kind, count, count, GROUPS[group], group, **({"Seq": sequence} if sequence >= 0 else {}))
            if kind in ("send", "recv"):
                told["Dst Rank" if kind == "send" else "Src Rank"] = (number + 1) % 3
            if not states:
                rank.issue(now, **told)
            rank.launch(NCCL + "SendRecv", now + 5, now + 15, took, **(told if states else {}))
            now += took + 30
        made.append(rank)
    with TemporaryDirectory() as folder:
        found = job(Path(folder), *made)
    assert is_exact(found)
    assert len(tags(found)) == 3

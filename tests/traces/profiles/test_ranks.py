"""Profiles of several ranks: groups, clocks, and which collectives are the same, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.traces.profiles.profile_conversion import ConvertedProfiles, RankProfile, convert_profiles
from cosmic.traces.profiles.profiled_collectives import find_communications
from cosmic.traces.trace import CollectiveType, NodeType
from cosmic.traces.trace_checks import list_problems
from tests.traces.profiles.making import call, event, kernel, kineto_of, operator, write_kineto
from tests.traces.profiles.ranks import NCCL, Rank, ends, is_exact, job, later, rows, said, sizes, tags

PAIRS = {"0": [0, 1, 2, 3], "a": [0, 1], "b": [2, 3]}


def starts(made: ConvertedProfiles, name: str) -> list[list[int]]:
    """Return when kernels start on each rank, in microseconds."""
    return [
        [int(rank.template.start_ns[row]) // 1000 for row in rows(made, number, name)]
        for number, rank in enumerate(made.traces.ranks)
    ]


# ---- clocks


def stage(rank: int, clock_us: int = 0) -> Rank:
    """Return a rank of two pairs, whose second all-reduces 1 ms after the first."""
    made = Rank(rank, 4, PAIRS, clock_us)
    first = 30 if rank < 2 else 1030
    for at in range(3):
        group = "a" if rank < 2 else "b"
        made.launch(
            NCCL + "AllReduce",
            first - 10 + 100 * at,
            first + 100 * at,
            50,
            **said("allreduce", 9, 9, PAIRS[group], group),
        )
    return made


def test_clocks_of_groups_that_work_one_after_the_other_are_kept(tmp_path: Path) -> None:
    made = job(tmp_path, *(stage(rank) for rank in range(4)))
    assert starts(made, NCCL) == [[30, 130, 230]] * 2 + [[1030, 1130, 1230]] * 2


def test_a_clock_is_corrected_by_the_group_of_its_rank(tmp_path: Path) -> None:
    """Rank 3 is 7 ms ahead; it shares collectives with rank 2 alone, whose clock agrees with those of 0 and 1."""
    made = job(tmp_path, *(stage(rank, 7000 if rank == 3 else 0) for rank in range(4)))
    assert starts(made, NCCL) == [[30, 130, 230]] * 2 + [[1030, 1130, 1230]] * 2


def test_a_wrong_clock_does_not_move_those_that_agree(tmp_path: Path) -> None:
    """Rank 1 leaves 3 us after rank 0, which their clocks allow; that of rank 2 is 9 ms ahead."""
    ranks = []
    for number, (clock, took) in enumerate(((0, 50), (0, 53), (9000, 50))):
        one = Rank(number, 3, clock_us=clock)
        ranks.append(one.launch(NCCL + "AllReduce", 20, 30, took, **said("allreduce", 9, 9, range(3))))
    made = job(tmp_path, *ranks)
    assert starts(made, NCCL)[:2] == [[30], [30]]
    assert starts(made, NCCL)[2][0] in (30, 33)  # it leaves when rank 0 or rank 1 does


def ring(rank: int, clock_us: int) -> Rank:
    """Return a rank that reduces with the one before it at 100, 200 ... us and with the next 100 us later."""
    groups = {f"g{at}": [at, at + 1] for at in range(3)}
    made = Rank(rank, 4, groups, clock_us)
    for at in (rank - 1, rank):
        if 0 <= at < 3:
            begin = 100 * (at + 1)
            made.launch(NCCL + "AllReduce", begin - 10, begin, 50, **said("allreduce", 9, 9, [at, at + 1], f"g{at}"))
    return made


def test_offsets_follow_the_groups_that_ranks_share(tmp_path: Path) -> None:
    """Ranks 0 and 3 share no group: the clock of 3, 5 ms late, is found over those of 1 and 2, which are 9 ms ahead."""
    made = job(tmp_path, *(ring(rank, clock) for rank, clock in enumerate((0, 9000, 9000, -5000))))
    assert starts(made, NCCL) == [[100], [100, 200], [200, 300], [300]]


def data_parallel(rank: int, clock_us: int = 0, *, extra: bool = False, numbered: bool = True) -> Rank:
    """Return a rank that all-reduces 4, 8 and 12 bytes; with *extra*, 28 bytes before."""
    made = Rank(rank, 2, clock_us=clock_us)
    counts = [7, 1, 2, 3] if extra else [1, 2, 3]
    for at, count in enumerate(counts, 4 - len(counts)):
        more: dict[str, Any] = {"Seq": at} if numbered else {}
        made.launch(
            NCCL + "AllReduce", 20 + 100 * at, 30 + 100 * at, 50, **said("allreduce", count, count, [0, 1], **more)
        )
    return made


@pytest.mark.parametrize("numbered", [True, False])
def test_a_clock_is_corrected_if_ranks_recorded_different_collectives(tmp_path: Path, numbered: bool) -> None:
    first, second = data_parallel(0, numbered=numbered), data_parallel(1, 5000, extra=True, numbered=numbered)
    made = job(tmp_path, first, second)
    assert starts(made, NCCL) == [[130, 230, 330], [30, 130, 230, 330]]
    assert is_exact(made)


# ---- groups


def test_two_groups_of_one_name_are_two_groups(tmp_path: Path) -> None:
    ranks = []
    for rank in range(4):
        own, late = [0, 1] if rank < 2 else [2, 3], 20 * (rank % 2)
        one = Rank(rank, 4, {"0": range(4), "1": own})
        ranks.append(one.launch(NCCL + "AllReduce", 20, 30 + late, 80 - late, **said("allreduce", 9, 9, own, "1")))
    made = job(tmp_path, *ranks)
    assert made.groups == {"1": (0, 1), "2": (2, 3)}
    assert ends(made, later(made, 500, NCCL, 1), NCCL) == [[610], [610], [110], [110]]  # 550 and the 60 that it takes
    assert ends(made, later(made, 500, NCCL, 3), NCCL) == [[110], [110], [610], [610]]


def test_two_communicators_of_all_ranks_do_not_meet(tmp_path: Path) -> None:
    ranks = []
    for rank in range(2):
        one, order = Rank(rank, 2, {"0": [0, 1], "5": [0, 1]}), [("0", 10, 30), ("5", 90, 300)]
        for at, (group, count, took) in enumerate(order if rank == 0 else order[::-1]):
            told = said("allreduce", count, count, [0, 1], group)
            one.launch(NCCL + "AllReduce_" + group, 20 + 10 * at, 50, took, 20 + int(group), **told)
        ranks.append(one)
    made = job(tmp_path, *ranks)
    assert made.groups == {"1": (0, 1)}
    assert [sorted(each) for each in sizes(made)] == [[40, 360], [40, 360]]
    times = later(made, 500, "AllReduce_0", 1)
    assert ends(made, times, "AllReduce_0") == [[580], [580]]
    assert ends(made, times, "AllReduce_5") == [[350], [350]]


def test_the_ranks_that_a_collective_names_are_in_the_job(tmp_path: Path) -> None:
    told = said("allreduce", 9, 9, range(4))
    path = write_kineto(
        tmp_path / "k.json", [call("cudaLaunchKernel", 0, 5, 1), kernel(NCCL + "AllReduce", 9, 5, 1, **told)]
    )
    made = convert_profiles([RankProfile(path)])
    assert (made.groups, made.metadata[0]["world_size"]) == ({"1": (0, 1, 2, 3)}, "4")


def test_the_default_group_holds_the_ranks_that_it_states(tmp_path: Path) -> None:
    groups = {"0": [0, 1], "x": [0, 1, 2]}
    ranks = [
        Rank(at, 3, groups).launch(NCCL + "AllReduce", 20, 30, 9, **said("allreduce", 9, 9, [0, 1])) for at in range(2)
    ]
    made = job(tmp_path, *ranks, Rank(2, 3, groups))
    assert made.groups == {"1": (0, 1), "2": (0, 1, 2)}
    assert [rank.groups for rank in made.traces.ranks] == [("1",), ("1",), ()]


def test_more_ranks_than_a_job_may_have_are_refused(tmp_path: Path) -> None:
    told = said("allreduce", 9, 9, [0, 1]) | {"Group size": 10**12}
    path = write_kineto(tmp_path / "k.json", [kernel(NCCL + "AllReduce", 9, 5, **told)])
    with pytest.raises(SpecError, match="up to 1,048,576 ranks"):
        convert_profiles([RankProfile(path)])


def gloo(rank: int, threads: list[int], took: list[int]) -> Rank:
    """Return a rank in two groups of gloo, whose collectives ran on *threads*."""
    made = Rank(rank, 2, {"0": [0, 1], "1": [0, 1]})
    for at, (thread, long) in enumerate(zip(threads, took, strict=True)):
        shapes = {"Input Dims": [[4]], "Input type": ["float"], "Record function id": 10 * at + 10}
        made.events.append(operator("c10d::allreduce_", 20 + 20 * at, 5, **shapes))
        work = {"Record function id": 10 * at + 11, "tid": thread}
        made.events.append(event("user_annotation", "gloo:all_reduce", 22 + 20 * at, long, **work))
    return made


def test_threads_of_gloo_tell_its_groups(tmp_path: Path) -> None:
    """The default group was used once: one of its threads is seen. The other group used both of its own."""
    made = job(tmp_path, gloo(0, [50, 60, 61], [9, 9, 9]), gloo(1, [52, 64, 66], [9, 9, 9]))
    assert made.notes == ()
    for rank in made.traces.ranks:
        assert rank.groups == ("1",)
        assert sorted(rank.template.group[rank.template.comm_type >= 0].tolist()) == [-1, 0, 0]


def test_collectives_of_unknown_groups_take_what_they_took(tmp_path: Path) -> None:
    """One group of two was used, and nobody knows which."""
    made = job(tmp_path, gloo(0, [60, 61], [9, 9]), gloo(1, [60, 61], [30, 9]))
    assert len(made.notes) == 2
    assert "the groups of 2 of 2 communications are not recorded" in made.notes[0]
    assert tags(made) == [[0, 1], [2, 3]]  # nobody's equals another's
    assert is_exact(made)
    assert not list_problems(made.traces, made.groups)


# ---- which is which


def test_collectives_meet_by_their_sequence_numbers(tmp_path: Path) -> None:
    made = job(tmp_path, data_parallel(0), data_parallel(1, extra=True))
    assert sizes(made) == [[4, 8, 12], [28, 4, 8, 12]]
    assert tags(made) == [[0, 1, 2], [3, 0, 1, 2]]
    assert made.notes == ()
    times = later(made, 500, NCCL, 1)  # on rank 1 each starts 500 us after the one before has ended, 20 to 40 us later
    assert ends(made, times, NCCL)[0] == ends(made, times, NCCL)[1][1:]


def test_a_collective_that_one_rank_lost_shifts_no_other(tmp_path: Path) -> None:
    ranks = [Rank(0, 2), Rank(1, 2)]
    for number, at in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 2)):
        told = said("allreduce", 9, 9, [0, 1], Seq=40 + at)
        ranks[number].launch(NCCL + "AllReduce", 20 + 100 * at, 30 + 100 * at, 50, **told)
    made = job(tmp_path, *ranks)
    assert tags(made) == [[0, 1, 2], [0, 2]]
    assert made.notes == ()


def test_collectives_without_numbers_are_counted_from_the_end(tmp_path: Path) -> None:
    made = job(tmp_path, data_parallel(0, numbered=False), data_parallel(1, extra=True, numbered=False))
    assert tags(made) == [[0, 1, 2], [3, 0, 1, 2]]
    assert "from 3 to 4: counted from the end" in made.notes[0]


def plain(rank: int, *counts: int) -> Rank:
    """Return a rank that all-reduces some elements, without sequence numbers."""
    made = Rank(rank, 2)
    for at, count in enumerate(counts):
        made.launch(NCCL + "AllReduce", 20 + 100 * at, 30 + 100 * at, 50, **said("allreduce", count, count, [0, 1]))
    return made


def test_collectives_that_fit_from_the_start_are_counted_from_there(tmp_path: Path) -> None:
    made = job(tmp_path, plain(0, 1, 2, 3), plain(1, 1, 2))
    assert tags(made) == [[0, 1, 2], [0, 1]]
    assert "counted from the start" in made.notes[0]


def test_collectives_that_fit_both_ways_are_counted_as_clocks_say(tmp_path: Path) -> None:
    """All are alike: rank 1 ends its recording before the last."""
    made = job(tmp_path, plain(0, 2, 2, 2), plain(1, 2, 2))
    assert tags(made) == [[0, 1, 2], [0, 1]]
    assert ends(made, later(made, 500, NCCL, 1), NCCL)[0][0] == 580
    assert is_exact(made)


def test_collectives_that_fit_nowhere_do_not_meet(tmp_path: Path) -> None:
    made = job(tmp_path, plain(0, 1, 2, 3), plain(1, 4, 5))
    assert tags(made) == [[0, 1, 2], [3, 4]]
    assert sizes(made) == [[4, 8, 12], [16, 20]]
    assert "they take what they took, whoever is late" in made.notes[0]


def test_sequence_numbers_that_contradict_the_collectives_do_not_count(tmp_path: Path) -> None:
    ranks = [plain(0, 1, 2), plain(1, 1, 2)]
    for at, each in enumerate(ranks):
        for number, found in enumerate(row for row in each.events if row["cat"] == "kernel"):
            found["args"]["Seq"] = number + at
    made = job(tmp_path, *ranks)
    assert tags(made) == [[-1, -1], [-1, -1]]
    assert ends(made, later(made, 500, NCCL, 1), NCCL)[0][0] == 580


def test_a_collective_that_one_rank_issued_before_the_step_does_not_shift_the_others(tmp_path: Path) -> None:
    """The step of rank 0 has its second and third collective, that of rank 1 only the third."""
    files = []
    for rank, first in enumerate((150, 280)):
        made = data_parallel(rank, numbered=False)
        made.events.append(event("user_annotation", "ProfilerStep#4", first, 500 - first))
        files.append(RankProfile(write_kineto(tmp_path / f"{rank}.json", made.events, **made.rest)))
    found = convert_profiles(files, step=4)
    assert sizes(found) == [[8, 12], [12]]
    assert tags(found) == [[0, 1], [1]]


def test_ranks_with_equal_collectives_need_no_tags(tmp_path: Path) -> None:
    made = job(tmp_path, data_parallel(0), data_parallel(1))
    assert tags(made) == [[-1, -1, -1], [-1, -1, -1]]


# ---- sizes


def test_gathers_and_scatters_move_the_whole_buffer(tmp_path: Path) -> None:
    ranks = []
    for rank in range(4):
        whole, one = (400 if rank == 0 else 0), Rank(rank, 4)
        one.launch(NCCL + "SendRecv", 20, 30, 50, **said("gather", 100, whole, range(4)))
        ranks.append(one.launch(NCCL + "SendRecv", 120, 130, 50, **said("scatter", whole, 100, range(4))))
    made = job(tmp_path, *ranks)
    assert sizes(made) == [[1600, 1600]] * 4
    assert not list_problems(made.traces, made.groups)


def test_a_gather_of_one_rank_moves_the_whole_buffer(tmp_path: Path) -> None:
    (found,) = find_communications(
        kineto_of(tmp_path, [kernel(NCCL + "SendRecv", 5, 10, 1, **said("gather", 100, 0, range(4)))])
    )
    assert found.size == 1600


def test_uneven_sizes_of_an_all_to_all_stay(tmp_path: Path) -> None:
    ranks = [
        Rank(at, 2).launch(NCCL + "SendRecv", 20, 30, 50, **said("all_to_allv", sent, received, [0, 1]))
        for at, (sent, received) in enumerate(((300, 0), (0, 300)))
    ]
    assert sizes(job(tmp_path, *ranks)) == [[1200], [0]]


# ---- messages


def test_peers_of_nccl_are_ranks_of_the_job(tmp_path: Path) -> None:
    groups = {"0": range(4), "pp": [1, 3]}
    ranks = [Rank(rank, 4, groups) for rank in range(4)]
    ranks[3].launch(NCCL + "SendRecv", 20, 30, 50, **said("send", 9, 9, [1, 3], "pp", **{"Dst Rank": 1}))
    ranks[1].launch(NCCL + "SendRecv", 20, 30, 50, **said("recv", 9, 9, [1, 3], "pp", **{"Src Rank": 3}))
    made = job(tmp_path, *ranks)
    assert [rank.peers for rank in made.traces.ranks] == [(), (3,), (), (1,)]
    assert not list_problems(made.traces, made.groups)


def batch(rank: int, kinds: list[tuple[str, int]], at: int = 20, made: Rank | None = None, size: int = 2) -> Rank:
    """Return a rank that issues sends and receives together: one kernel that states nothing runs them, 500 us long."""
    made = made or Rank(rank, size)
    for place, (kind, peer) in enumerate(kinds):
        side: dict[str, Any] = {"Dst Rank" if kind == "send" else "Src Rank": peer}
        made.issue(at + 5 * place, **said(kind, 100, 100, range(size), **side))
    return made.launch(NCCL + "SendRecv(ncclDevKernelArgsStorage<4096ul>)", at + 30, at + 40, 500)


def test_messages_in_one_kernel_are_one_exchange(tmp_path: Path) -> None:
    made = job(tmp_path, *(batch(rank, [("send", 1 - rank), ("recv", 1 - rank)]) for rank in range(2)))
    for number, rank in enumerate(made.traces.ranks):
        (row,) = rows(made, number, NCCL)
        assert (rank.template.type[row], rank.template.comm_type[row]) == (
            NodeType.COMM_COLL,
            CollectiveType.ALL_TO_ALL,
        )
        assert made.groups[rank.groups[rank.template.group[row]]] == (0, 1)
    assert sizes(made) == [[400], [400]]
    assert ends(made, later(made, 100, NCCL, 1), NCCL) == [[660], [660]]  # 60 + 100 + 500
    assert not list_problems(made.traces, made.groups)
    assert is_exact(made)


def test_one_message_in_a_kernel_without_arguments_is_a_send_or_a_receive(tmp_path: Path) -> None:
    made = job(tmp_path, batch(0, [("send", 1)]), batch(1, [("recv", 0)]))
    kinds = [rank.template.type[rows(made, at, NCCL)[0]] for at, rank in enumerate(made.traces.ranks)]
    assert kinds == [NodeType.COMM_SEND, NodeType.COMM_RECV]
    assert not list_problems(made.traces, made.groups)


def test_a_message_whose_other_side_is_in_an_exchange_is_one_too(tmp_path: Path) -> None:
    """Rank 1 receives from rank 0 and sends to rank 2 in one kernel."""
    ranks = [
        batch(0, [("send", 1)], size=3),
        batch(1, [("recv", 0), ("send", 2)], size=3),
        batch(2, [("recv", 1)], size=3),
    ]
    made = job(tmp_path, *ranks)
    assert [rank.template.type[rows(made, at, NCCL)[0]] for at, rank in enumerate(made.traces.ranks)] == [
        NodeType.COMM_COLL
    ] * 3
    assert sorted(made.groups.values()) == [(0, 1), (0, 1, 2), (1, 2)]
    assert is_exact(made)


def test_a_kernel_of_nccl_of_which_nothing_is_known_communicates(tmp_path: Path) -> None:
    made = job(tmp_path, *(Rank(rank, 2).launch("ncclDevKernel_Generic_4(x)", 20, 30, 50 + rank) for rank in range(2)))
    assert [rank.template.type[rows(made, at, NCCL)[0]] for at, rank in enumerate(made.traces.ranks)] == [
        NodeType.COMM_COLL
    ] * 2
    assert ends(made, later(made, 100, NCCL, 1), NCCL) == [[80], [181]]  # nobody knows whom it waits for
    assert len(made.notes) == 2


def test_collectives_that_are_issued_together_are_one(tmp_path: Path) -> None:
    made = Rank(0, 2).issue(20, **said("allreduce", 10, 10, [0, 1])).issue(25, **said("allreduce", 30, 30, [0, 1]))
    found = job(tmp_path, made.launch(NCCL + "AllReduce", 40, 50, 9))
    assert sizes(found) == [[160]]

"""Ranks that wait for each other: no silent hang, but a sentence that names them and their nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.cli.dispatch import main
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.trace_simulation import AGREED, simulate_job
from tests.simulate.files import words, write_job
from tests.simulate.jobs import Node, collective, computation, job, network, receive, send

pytestmark = pytest.mark.usefixtures("engine")
TWO = network(("Ring", 2, 50.0, 500.0))
FOUR = network(("Switch", 4, 50.0, 500.0))
OVERLAPPING = {"1": (0, 1, 2), "2": (0, 1, 3)}


def mistake(ranks: list[list[Node]], net: SimulatedNetwork = TWO, **more: Any) -> str:
    """Return why a job deadlocks, the same with and without folding."""
    sentences = []
    for folded in (True, False):
        with pytest.raises(SpecError) as caught:
            simulate_job(job(ranks, net, **more), folded=folded)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]
    return sentences[0]


def test_a_receive_without_a_send() -> None:
    assert mistake([[receive(1, 8, 3)], [computation(1, 1)]]) == (
        "trace: rank 0: node 0 'node 0' receives from rank = 1: has no send of 8 bytes with tag 3"
    )


def test_a_send_without_a_receive_waits_for_ever_for_a_ready_receiver() -> None:
    ranks = [[send(1, 8)], [computation(1, 1)]]
    assert "sends to rank = 1: has no receive of 8 bytes" in mistake(ranks, rendezvous=True)
    assert simulate_job(job(ranks, TWO)).cycles > 0  # else it has arrived, and that is all


def test_a_send_and_a_receive_of_different_sizes_do_not_match() -> None:
    found = mistake([[send(1, 8)], [receive(0, 9)]])
    assert "sends to rank = 1: has no receive of 8 bytes with tag 0, but node 0 'node 0' there receives 9" in found


def test_two_ranks_that_receive_before_they_send() -> None:
    found = mistake([[receive(peer, 8), send(peer, 8, after=[0])] for peer in (1, 0)])
    assert found == (
        "trace = '2 ranks deadlock': rank 0 node 0 'node 0' waits for rank 1 to send to it; "
        "rank 1 node 0 'node 0' waits for rank 0 to send to it, and so on back to rank 0"
    )


def test_two_ranks_that_send_before_they_receive_wait_only_for_ready_receivers() -> None:
    ranks = [[send(peer, 8), receive(peer, 8, after=[0])] for peer in (1, 0)]
    assert simulate_job(job(ranks, TWO)).cycles == 500
    found = mistake(ranks, rendezvous=True)
    assert "rank 0 node 0 'node 0' waits for rank 1 to receive from it; rank 1 node 0" in found


def test_a_ring_of_ranks_that_each_wait_for_the_one_before() -> None:
    found = mistake([[receive((r - 1) % 4, 8), send((r + 1) % 4, 8, after=[0])] for r in range(4)], FOUR)
    assert "'4 ranks deadlock'" in found
    assert "rank 0 node 0 'node 0' waits for rank 3 to send to it; rank 3 " in found


@pytest.mark.parametrize("backend", ["unaware", "aware"])
def test_two_groups_joined_in_different_orders(backend: str) -> None:
    orders = ["12", "21", "1", "2"]
    ranks = [[collective("all_reduce", 64, name) for name in order] for order in orders]
    assert mistake(ranks, FOUR, groups=OVERLAPPING, backend=backend) == (
        "trace = '4 ranks deadlock': rank 0 node 0 'node 0' waits for rank 1 to join; "
        "rank 1 node 0 'node 0' waits for rank 0 to join, and so on back to rank 0"
    )


def test_nodes_that_wait_in_a_circle() -> None:
    circle = [computation(1, 1, [1]), computation(1, 1, [2]), computation(1, 1, [0])]
    assert "nodes in a cycle = 3: each waits for the next: node 0 'node 0' -> node 1 " in mistake([circle, circle])


@pytest.mark.parametrize("group", [None, "1"])
def test_a_collective_that_one_member_lacks(group: str | None) -> None:
    ranks: list[list[Node]] = [[collective("all_reduce", 64, group)] for _ in range(4)]
    ranks[2] = [computation(1, 1)]
    ranks[3] = [computation(1, 1)] if group else ranks[3]
    found = mistake(ranks, FOUR, groups=OVERLAPPING)
    name = f"group {group}" if group else "all ranks"
    assert found.startswith(
        f"trace: rank 2: collective 1 of {name} = 'none': rank 0 has ALL_REDUCE of 64 bytes, node 0"
    )


@pytest.mark.parametrize("other", [collective("all_gather", 64), collective("all_reduce", 4096)])
def test_members_that_disagree_on_what_they_run(other: Node) -> None:
    assert "rank 0 has ALL_REDUCE of 64 bytes" in mistake([[collective("all_reduce", 64)], [other]])


def test_the_command_says_so_and_ends_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ranks = [[send(peer, 8), receive(peer, 8, after=[0])] for peer in (1, 0)]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *words(write_job(tmp_path, ranks)), "--rendezvous"])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert "'2 ranks deadlock': rank 0 node 0 'node 0' waits for rank 1 to receive from it" in err


def test_ranks_that_only_disagree_on_the_order_within_a_moment_are_taken_to_agree() -> None:
    """Themis on equal dimensions: chunks reach a queue together, from two dimensions."""
    net = network(*[("Ring", 2, 100.0, 500.0)] * 3)
    themis = {"inter_dimension_scheduling": "offlineGreedy", "preferred_dataset_splits": 3}
    work = job([[collective("all_reduce", 2**20)]] * 8, net, ["ring"] * 3, **themis)
    folded, simulated = simulate_job(work), simulate_job(work, folded=False, closed_forms=False)
    assert folded.cycles == simulated.cycles
    assert folded.warnings == simulated.warnings == (AGREED,)


def test_messages_of_two_groups_that_a_rank_does_not_name() -> None:
    ranks = [[computation(1, 1)], [collective("all_reduce", 8, "1")], [collective("all_reduce", 8, "2")]]
    sentence = mistake(ranks, network(("Ring", 3, 50.0, 500.0)), groups={"1": (0, 1), "2": (0, 2)}, backend="aware")
    assert sentence == (
        "trace: rank 1: collective 1 of group 1 = \"ALL_REDUCE of 8 bytes, node 0 'node 0'\": rank 0 has none there"
    )

"""Collectives, sends and receives of small profiles, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.traces.profiles.profile_conversion import RankProfile, convert_profiles
from cosmic.traces.profiles.profiled_collectives import find_communications
from cosmic.traces.trace import CollectiveType, NodeType
from tests.traces.profiles.making import call, converted, et_node, event, kernel, kineto_of, operator, write_kineto

SAID: dict[str, Any] = {
    "Collective name": "_reduce_scatter_base",
    "In msg nelems": 800,
    "Out msg nelems": 200,
    "dtype": "BFloat16",
    "Process Group Name": "1",
    "Process Group Ranks": "[0, 2, 4, 6]",
    "Group size": 4,
}


def test_a_kernel_of_nccl_states_what_it_moves_and_in_which_group(tmp_path: Path) -> None:
    name = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    (found,) = find_communications(
        kineto_of(tmp_path, [call("cudaLaunchKernelExC", 0, 2, 1), kernel(name, 5, 10, 1, **SAID)])
    )
    assert (found.node_type, found.kind) == (NodeType.COMM_COLL, CollectiveType.REDUCE_SCATTER)
    assert (found.size, found.group, found.ranks, found.group_size) == (1600, "1", (0, 2, 4, 6), 4)
    assert (found.kernel, found.start, found.end) == (0, 5_000, 15_000)


def test_a_kernel_of_nccl_without_arguments_is_known_by_its_name(tmp_path: Path) -> None:
    (found,) = find_communications(kineto_of(tmp_path, [kernel("ncclDevKernel_AllGather_RING_LL(x)", 5, 10, 1)]))
    assert (found.kind, found.size) == (CollectiveType.ALL_GATHER, -1)


def test_the_collective_of_a_single_process_needs_no_kernel(tmp_path: Path) -> None:
    inputs = {"Input Dims": [[[4, 8]], []], "Input type": ["TensorList", "Scalar"], "Record function id": 3}
    inputs["Input type"] = ["GenericList[Tensor(float)]", "Scalar"]
    made = converted(tmp_path, [operator("c10d::allreduce_", 0, 5, **inputs), operator("next", 6, 1)])
    template = made.traces.ranks[0].template
    row = template.type.tolist().index(int(NodeType.COMM_COLL))
    assert (template.comm_type[row], template.comm_size[row]) == (CollectiveType.ALL_REDUCE, 128)
    assert (template.start_ns[row], template.duration_ns[row]) == (5_000, 0)


GLOO = [
    operator("c10d::allreduce_", 0, 5, **{"Record function id": 10, "Input Dims": [[4]], "Input type": ["float"]}),
    operator("c10d::broadcast_", 6, 5, **{"Record function id": 20, "Input Dims": [[2]], "Input type": ["float"]}),
    event("user_annotation", "gloo:broadcast", 30, 9, tid=8, **{"Record function id": 21}),
    event("user_annotation", "gloo:all_reduce", 3, 20, tid=7, **{"Record function id": 11}),
]


def test_the_work_of_gloo_belongs_to_the_operator_numbered_before_it(tmp_path: Path) -> None:
    first, second = find_communications(kineto_of(tmp_path, GLOO))
    assert (first.kind, first.start, first.end, first.size) == (CollectiveType.ALL_REDUCE, 3_000, 23_000, 16)
    assert (second.kind, second.start, second.end, second.size) == (CollectiveType.BROADCAST, 30_000, 39_000, 8)
    assert (first.annotations, second.annotations) == ((3,), (2,))


def test_sends_and_receives_state_peers_and_tags(tmp_path: Path) -> None:
    def side(name: str, peer: int) -> list[Any]:
        inputs = {
            "Input Dims": [[[4]], [], [], []],
            "Input type": ["GenericList[Tensor(float)]", "", "Scalar", "Scalar"],
        }
        inputs["Concrete Inputs"] = ["", "", str(peer), "5"]
        return [operator(name, 0, 5, **inputs)]

    files = []
    for rank, events in enumerate((side("c10d::send", 1), side("c10d::recv_", 0))):
        job = {"rank": rank, "world_size": 2}
        files.append(RankProfile(write_kineto(tmp_path / f"{rank}.json", events, distributedInfo=job)))
    made = convert_profiles(files)
    sends, receives = (rank.template for rank in made.traces.ranks)
    assert NodeType.COMM_SEND in sends.type.tolist()
    assert NodeType.COMM_RECV in receives.type.tolist()
    assert [rank.peers for rank in made.traces.ranks] == [(1,), (0,)]
    assert sends.comm_tag.max() == receives.comm_tag.max() == 5
    assert sends.comm_size.max() == receives.comm_size.max() == 16


@pytest.mark.parametrize("name", ["record_param_comms", "_c10d_functional::all_reduce"])
def test_an_execution_trace_says_what_kineto_does_not(tmp_path: Path, name: str) -> None:
    inputs = {
        "values": [[1, 2, 0, 6, 4, "cpu"], "sum", "7"],
        "shapes": [[6], [], []],
        "types": ["Tensor(float)", "String", "String"],
    }
    said = {} if name.startswith("_") else {"collective_name": "allreduce", "dtype": "Float", "pg_name": "7"}
    node = et_node(5, name, 3, inputs=inputs, said=said)
    if said:
        node["attrs"].append({"name": "in_msg_nelems", "type": "uint64", "value": 6})
    rest = {"distributedInfo": {"rank": 0, "world_size": 4, "pg_config": [{"pg_name": "7", "ranks": [0, 1]}]}}
    made = converted(tmp_path, [operator(name, 0, 5, **{"Record function id": 3})], [node], **rest)
    template = made.traces.ranks[0].template
    assert template.comm_size.max() == 24
    assert made.groups[made.traces.ranks[0].groups[0]] == (0, 1)

"""Known counts: what the usual strategies are known to communicate follows from their annotations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from cosmic.workload.operator_graph import Graph, Operator, Tensor
from cosmic.workload.sharding.autodiff import differentiate
from cosmic.workload.sharding.graph_partition import MODES, Mode, Partitioned, partition
from cosmic.workload.sharding.propagation import propagate
from cosmic.workload.sharding.tensor_sharding import Annotation, annotate
from tests.workload.sharding.layers import HEADS, WEIGHTS, layer, mirrored, moe, with_gradients

SIZES = {"batch": 32, "sequence": 2048, "context": 2048, "hidden": 12288, "ffn": 49152, "heads": 96, "head_dim": 128}
MESH = {"dp": 32, "tp": 8}
TRAINED = with_gradients(layer())
STREAM = ("x", "attended", "between", "down", "out")

TENSOR = {name: annotate({"heads": "tp"}) for name in ("w_q", "w_k", "w_v", "w_o")}
TENSOR |= {name: annotate({"ffn": "tp"}) for name in ("w_up", "w_down")}
MEGATRON = TENSOR | {"x": annotate({"batch": "dp"})}
# What the weights say comes first; the stream between them is split over what is left.
SEQUENCE = TENSOR | {name: annotate({"batch": "dp", "sequence": "tp"}, priority=1) for name in STREAM}
FSDP = {"x": annotate({"batch": "dp"})} | {name: annotate({"hidden": "dp"}, priority=1) for name in WEIGHTS}


def split(
    graph: Graph, annotations: Mapping[str, Annotation], sizes: Mapping[str, int], mode: Mode = "best"
) -> Partitioned:
    propagation = propagate(graph, mirrored(graph, annotations), sizes=sizes)
    return partition(graph, propagation, sizes=sizes, mode=mode)


def counts(partitioned: Partitioned, axis: str) -> Counter[tuple[str, str]]:
    """How often each collective occurs along *axis* in each phase."""
    return Counter((each.phase, each.kind) for each in partitioned.collectives if each.axes == (axis,))


def test_megatron_has_four_all_reduces_per_layer() -> None:
    found = split(TRAINED, MEGATRON, SIZES | MESH)
    assert counts(found, "tp") == {("forward", "all_reduce"): 2, ("backward", "all_reduce"): 2}
    tokens = SIZES["batch"] // 32 * SIZES["sequence"] * SIZES["hidden"]
    assert {each.elements(SIZES | MESH) for each in found.collectives if each.axes == ("tp",)} == {tokens}


def test_data_parallelism_reduces_each_weight_gradient_once() -> None:
    found = split(TRAINED, MEGATRON, SIZES | MESH)
    assert counts(found, "dp") == {("backward", "all_reduce"): len(WEIGHTS)}


def test_sequence_parallelism_has_gathers_and_scatters_in_place_of_reductions() -> None:
    found = split(TRAINED, SEQUENCE, SIZES | MESH)
    assert counts(found, "tp") == {
        ("forward", "all_gather"): 2,
        ("forward", "reduce_scatter"): 2,
        # Two of gradients, mirroring the forward scatters, and two of activations again, for the weight gradients.
        ("backward", "all_gather"): 2 + 2,
        ("backward", "reduce_scatter"): 2,
    }


def test_activations_kept_from_the_forward_phase_need_no_second_gather() -> None:
    propagation = propagate(TRAINED, mirrored(TRAINED, SEQUENCE), sizes=SIZES | MESH)
    found = partition(TRAINED, propagation, sizes=SIZES | MESH, share_phases=True)
    assert counts(found, "tp")["backward", "all_gather"] == 2


def test_fsdp_gathers_each_weight_twice_and_scatters_each_gradient_once() -> None:
    found = split(TRAINED, FSDP, SIZES | MESH)
    by_tensor = Counter((each.tensor, each.phase, each.kind) for each in found.collectives)
    expected = {(name, phase, "all_gather"): 1 for name in WEIGHTS for phase in ("forward", "backward")}
    assert by_tensor == expected | {(f"d_{name}", "backward", "reduce_scatter"): 1 for name in WEIGHTS}


@pytest.mark.parametrize("mode", MODES)
def test_an_moe_has_four_all_to_alls(mode: Mode) -> None:
    forward = moe()
    graph = Graph(forward.operators + differentiate(forward, ("out",)).operators)
    sizes = {"batch": 32, "sequence": 2048, "experts": 64, "slots": 2048, "hidden": 4096, "ffn": 4096, "dp": 4, "ep": 8}
    tokens, slots = annotate({"batch": ("dp", "ep")}), annotate({"experts": "ep", "slots": "dp"})
    weights = {name: annotate({"experts": "ep"}) for name in ("w_up", "w_down")}
    found = split(graph, weights | {"x": tokens, "out": tokens, "sent": slots, "down": slots}, sizes, mode)
    assert counts(found, "ep") == {("forward", "all_to_all"): 2, ("backward", "all_to_all"): 2}
    assert counts(found, "dp") == {("backward", "all_reduce"): 2}
    per_device = 64 * 2048 * 4096 // 32
    assert {each.elements(sizes) for each in found.collectives if each.axes == ("ep",)} == {per_device}


def test_context_parallelism_gathers_keys_and_values_and_scatters_their_gradients() -> None:
    q, k, v = Tensor("q", HEADS), Tensor("k", HEADS), Tensor("v", HEADS)
    seen = ("batch", "context", "heads", "head_dim")
    keys, values, out = Tensor("keys", seen), Tensor("values", seen), Tensor("out", HEADS)
    view = (("sequence", "context"),)
    forward = Graph(
        (
            Operator("keys", "view", (k,), (keys,), same=view),
            Operator("values", "view", (v,), (values,), same=view),
            Operator("attention", "attention", (q, keys, values), (out,), whole=("context",)),
        )
    )
    graph = Graph(forward.operators + differentiate(forward, ("out",)).operators)
    sizes = SIZES | {"cp": 4, "dp": 2}
    stream = annotate({"batch": "dp", "sequence": "cp"})
    found = split(graph, dict.fromkeys(("q", "k", "v", "out"), stream), sizes)
    assert counts(found, "cp") == {
        ("forward", "all_gather"): 2,
        ("backward", "all_gather"): 2,
        ("backward", "reduce_scatter"): 2,
    }


def test_payloads_and_local_sizes_are_functions_of_arrays() -> None:
    found = split(TRAINED, MEGATRON, SIZES | MESH)
    arrays = SIZES | {"dp": np.array([1, 32, 32]), "tp": np.array([1, 8, 5])}
    (first, *_) = found.collectives
    assert first.kind == "all_reduce"
    assert np.asarray(first.elements(arrays)).tolist() == [32 * 2048 * 12288, 2048 * 12288, 2048 * 12288]
    assert np.asarray(first.wire_elements(arrays)).tolist() == [0, 1.75 * 2048 * 12288, 1.6 * 2048 * 12288]
    up = next(part for part in found.operators if part.operator.name == "up")
    assert np.asarray(up.local("ffn", arrays)).tolist() == [49152, 6144, 9831]  # the last does not divide: padded
    assert np.asarray(up.elements(up.operator.dims, arrays))[1] == 2048 * 12288 * 6144


def test_every_collective_says_why() -> None:
    (attended, *_) = split(TRAINED, MEGATRON, SIZES | MESH).collectives
    assert str(attended) == (
        "all_reduce of attended over tp: attended makes it [batch: dp, partial: tp], it is kept [batch: dp]"
    )


FOUR_AXES = {
    name: annotate({"hidden": "fs", inner: "tp"}, priority={"hidden": 2})
    for name, inner in zip(WEIGHTS, ("heads",) * 4 + ("ffn",) * 2, strict=True)
} | {name: annotate({"batch": ("dp", "fs"), "sequence": ("cp", "tp")}, priority={"sequence": 1}) for name in STREAM}


def test_four_kinds_of_parallelism_combine() -> None:
    found = split(TRAINED, FOUR_AXES, SIZES | {"dp": 4, "fs": 4, "cp": 2, "tp": 8})
    assert counts(found, "tp") == {
        ("forward", "all_gather"): 2,
        ("forward", "reduce_scatter"): 2,
        ("backward", "all_gather"): 4,
        ("backward", "reduce_scatter"): 2,
    }
    assert counts(found, "cp") == {  # keys and values
        ("forward", "all_gather"): 2,
        ("backward", "all_gather"): 2,
        ("backward", "reduce_scatter"): 2,
    }
    assert counts(found, "fs") == {  # weights
        ("forward", "all_gather"): 6,
        ("backward", "all_gather"): 6,
        ("backward", "reduce_scatter"): 6,
    }
    rest = Counter(each.kind for each in found.collectives if each.axes == ("cp", "dp"))
    assert rest == {"all_reduce": 6}  # what is left of the weight gradients' sums
    assert sum(rest.values()) + sum(counts(found, axis).total() for axis in ("tp", "cp", "fs")) == len(
        found.collectives
    )

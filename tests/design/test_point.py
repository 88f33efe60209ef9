"""Design points: complete, frozen, identified by their content, and the same after any round trip."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.collective_layer import Collective, algorithms
from cosmic.design.compute_layer import Compute
from cosmic.design.design_point import DesignPoint, design_to_tree
from cosmic.design.loading import dump_design
from cosmic.design.memory_layer import Memory
from cosmic.design.model_layer import MLA, Experts, Image, Model, Recommender, StateSpace, Transformer
from cosmic.design.network_layer import Dimension, Fault, Link, Network
from cosmic.design.plain_data import parse_yaml
from cosmic.design.workload_layer import AXES, Workload
from cosmic.search.mapping.design_completion import load_design


def from_tree(tree: Any) -> DesignPoint:
    """Return the design point of a complete tree."""
    point: DesignPoint = schema.read_value(DesignPoint, tree, "")
    return point


POINT = DesignPoint(
    model=Transformer(name="tiny", layers=2, hidden=8, heads=2, ffn=32, vocab=100),
    workload=Workload(sequence=128, global_batch=16, dp=4, tp=2),
    collective=Collective(algorithms=("ring", "direct")),
    network=Network(
        dims=(
            Dimension(topology="ring", npus=2, bandwidth_bytes_per_s=50e9, latency_s=5e-07),
            Dimension(topology="switch", npus=4, bandwidth_bytes_per_s=12.5e9, latency_s=2e-06),
        )
    ),
    compute=Compute(bf16_flop_per_s=1e13),
    memory=Memory(capacity_bytes=2.0**34, bandwidth_bytes_per_s=1e12),
)

# ---- random designs

SIZES = st.integers(1, 2**20)
POSITIVE = st.floats(1, 1e12)
PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
NAMES = st.text(PRINTABLE, max_size=12).filter(lambda name: not name.endswith((".yaml", ".yml")))  # they are files


def values(cls: type, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return values of *cls*: each field as *known* says, or any of its choices, or its default."""
    for slot in schema.slots(cls).values():
        if slot.name not in known and slot.hint is bool:
            known[slot.name] = st.booleans()
        elif slot.name not in known and (choices := slot.choices()):
            known[slot.name] = st.sampled_from(sorted(choices))
    return st.builds(cls, **known)


EXPERTS = st.integers(1, 64).flatmap(
    lambda count: values(
        Experts,
        count=st.just(count),
        active=st.integers(1, count),
        ffn=SIZES,
        shared_ffn=st.integers(0, 9),
        capacity_factor=st.none() | POSITIVE,
    )
)
LATENT_ATTENTION = values(
    MLA,
    q_lora_rank=st.none() | SIZES,
    kv_lora_rank=SIZES,
    qk_rope_head_dim=st.integers(0, 9),
    v_head_dim=SIZES,
)
IMAGES = st.builds(
    lambda patch, count, **rest: Image(size=patch * count, patch=patch, **rest),
    patch=st.integers(1, 32),
    count=st.integers(1, 20),
    class_token=st.booleans(),
)


STATE_SPACES = st.builds(
    lambda groups, each, **rest: StateSpace(heads=groups * each, groups=groups, **rest),
    groups=st.integers(1, 8),
    each=st.integers(1, 8),
    kind=st.sampled_from(["mamba2", "delta"]),
    head_dim=SIZES,
    state=SIZES,
    conv_bias=st.booleans(),
    norm=st.booleans(),
)


@st.composite
def transformers(draw: st.DrawFn) -> Transformer:
    """Draw a transformer of any family."""
    family = draw(st.sampled_from(["decoder", "encoder", "encoder_decoder", "vision"]))
    kv_heads, group = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    pattern = draw(st.text("*MP", max_size=8)) if family == "decoder" else ""
    model: Transformer = draw(
        values(
            Transformer,
            name=NAMES,
            family=st.just(family),
            layers=st.integers(1, 4096) if pattern else SIZES,
            pattern=st.just(pattern),
            single_mixers=st.just(False),
            ssm=STATE_SPACES if {"M", "P"} & set(pattern) else st.none(),
            mtp_layers=st.integers(0, 3) if family == "decoder" else st.just(0),
            encoder_layers=SIZES if family == "encoder_decoder" else st.just(0),
            hidden=SIZES,
            heads=st.just(kv_heads * group),
            kv_heads=st.just(kv_heads),
            head_dim=SIZES,
            ffn=SIZES,
            vocab=SIZES,
            norms_per_layer=st.integers(1, 4),
            biases=st.lists(st.sampled_from(["qkv", "out", "ffn"]), unique=True).map(tuple),
            window=st.none() | SIZES,
            experts=st.none() | EXPERTS,
            mla=st.none() | LATENT_ATTENTION,
            image=IMAGES if family == "vision" else st.none(),
        )
    )
    return model


RECOMMENDERS = SIZES.flatmap(
    lambda width: values(
        Recommender,
        name=NAMES,
        dense_features=SIZES,
        tables=st.lists(SIZES, min_size=1, max_size=4).map(tuple),
        embedding=st.just(width),
        bottom=st.lists(SIZES, max_size=3).map(lambda widths: (*widths, width)),
        top=st.lists(SIZES, min_size=1, max_size=3).map(tuple),
    )
)
DIMENSIONS = values(
    Dimension,
    npus=st.integers(2, 64),
    bandwidth_bytes_per_s=POSITIVE,
    latency_s=st.just(0.0) | st.floats(1e-15, 1e9),
    oversubscription=st.floats(1, 1e9),
)
RATES = {name: st.none() | POSITIVE for name in ("fp32_flop_per_s", "fp8_flop_per_s", "power_w", "price_usd")}
MODELS: st.SearchStrategy[Model] = transformers() | RECOMMENDERS


@st.composite
def points(draw: st.DrawFn) -> DesignPoint:
    """Draw a design of any shape; its layers need not fit together."""
    dims = tuple(draw(st.lists(DIMENSIONS, max_size=4)))
    degrees = {axis: st.integers(1, 64) for axis in (*AXES, "ep", "micro_batch", "virtual_stages")}
    placement = st.permutations(AXES).map(tuple)
    chosen = [st.sampled_from(sorted(algorithms)) for _ in dims]
    return DesignPoint(
        model=draw(MODELS),
        workload=draw(values(Workload, sequence=SIZES, global_batch=SIZES, placement=placement, **degrees)),
        collective=draw(values(Collective, chunks=st.integers(1, 1024), algorithms=st.tuples(*chosen))),
        network=Network(dims=dims),
        compute=draw(values(Compute, accelerator=NAMES, bf16_flop_per_s=POSITIVE, **RATES)),
        memory=draw(values(Memory, capacity_bytes=POSITIVE, bandwidth_bytes_per_s=POSITIVE)),
    )


every_point = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@given(points())
@every_point
def test_a_design_is_the_same_after_becoming_a_tree(point: DesignPoint) -> None:
    assert from_tree(design_to_tree(point)) == point
    assert schema.read_value(DesignPoint, schema.write_value(point, brief=True), "") == point
    assert schema.read_value(DesignPoint, schema.write_value(point), "") == point


@pytest.mark.long
@given(points())
@every_point
def test_a_design_is_the_same_after_becoming_a_file(point: DesignPoint) -> None:
    text = dump_design(point)
    assert load_design(parse_yaml(text, "design")) == point
    assert yaml.safe_load(text) == parse_yaml(text, "design")


@pytest.mark.long
@given(points(), points())
@every_point
def test_designs_share_their_identity_only_if_they_are_equal(left: DesignPoint, right: DesignPoint) -> None:
    assert (left.identity == right.identity) == (left == right)
    assert from_tree(design_to_tree(left)).identity == left.identity
    assert hash(from_tree(design_to_tree(left))) == hash(left)


# ---- one design


def test_a_design_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        POINT.workload = replace(POINT.workload, tp=4)  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        POINT.workload.tp = 4  # type: ignore[misc]


def test_equal_designs_are_one_key() -> None:
    assert len({POINT, replace(POINT), from_tree(design_to_tree(POINT))}) == 1


def test_a_tree_has_the_layout_of_a_design_file() -> None:
    tree = design_to_tree(POINT)
    assert tree["model"] == {
        "name": "tiny",
        "family": "decoder",
        "layers": 2,
        "hidden": 8,
        "heads": 2,
        "kv_heads": 2,
        "head_dim": 4,
        "ffn": 32,
        "vocab": 100,
    }
    assert tree["collective"] == {
        "scheduling": "lifo",
        "chunks": 4,
        "multi_dim": "blueconnect",
        "overlap_efficiency": 1.0,
        "all_to_all": "hierarchical",
        "algorithms": ["ring", "direct"],
    }
    assert tree["network"]["dims"] == [
        {"topology": "ring", "npus": 2, "bandwidth": "50 GB/s", "latency": "500 ns"},
        {"topology": "switch", "npus": 4, "bandwidth": "12.5 GB/s", "latency": "2 us"},
    ]
    assert tree["compute"] == {"bf16": "10 TFLOP/s"}
    assert tree["memory"] == {"capacity": "16 GiB", "bandwidth": "1 TB/s"}


def test_a_tree_has_the_workload_in_full_as_that_is_what_one_tunes() -> None:
    unset = {"grad_reduce_in_fp32", "recompute_num_layers", "offload_num_layers"}
    unset |= {"first_stage_layers", "last_stage_layers", "lora_rank", "packed_length", "moe_expert_capacity_factor"}
    assert set(design_to_tree(POINT)["workload"]) == set(schema.slots(Workload)) - unset - {
        "etp"
    }  # which follows from others
    chosen = {"dp": 4, "tp": 2, "pp": 1, "sequence_parallel": True, "placement": ["tp", "cp", "dp", "pp"]}
    assert chosen.items() <= design_to_tree(POINT)["workload"].items()


def test_every_change_of_a_field_changes_the_identity() -> None:
    others = {str: "other", int: 6, float: 7.5, bool: False, type(None): 3.0}
    chosen = {
        "model.family": "encoder",
        "model.norm": "rmsnorm",
        "model.pattern": "*",
        "workload.task": "decode",
        "workload.precision": "fp8",
        "workload.weight_sharding": "zero1",
        "workload.schedule": "gpipe",
        "workload.recompute": "full",
        "collective.scheduling": "fifo",
        "collective.multi_dim": "themis",
        "collective.algorithms.0": "double_binary_tree",
        "collective.algorithms.1": "double_binary_tree",
        "network.dims.0.topology": "fully_connected",
        "network.dims.1.topology": "fully_connected",
        "compute.gemm_efficiency": 0.5,
        "compute.fp8_efficiency": 0.5,
        "compute.fp8_block_efficiency": 0.5,
        "compute.fp4_efficiency": 0.5,
        "compute.sustained_efficiency": 0.5,
        "compute.operand_efficiency": 0.5,
        "compute.attention_efficiency": 0.5,
        "compute.attention_backward_efficiency": 0.5,
        "compute.memory_efficiency": 0.5,
        "compute.provenance": "measured",
        "workload.sync_compression": 0.5,
        "workload.optimizer_device": "cpu",
        "memory.usable": 0.5,
        "memory.context": 0.0,
        "memory.fits": 0.5,
        "memory.prefetch": "step",
        "memory.expansion": "parallel",
        "memory.active_experts": 0.5,
        "memory.expert_cache": 0.5,
        "run.checkpoint": "blocking",
        "run.recovery": "replica",
        "run.remote_share": 0.5,
        "run.slow_node_share": 0.5,
        "network.dims.0.fabric.build": "included",
        "network.dims.1.fabric.build": "included",
        "compute.steady_efficiency": 0.5,
        "compute.narrow_steady_efficiency": 0.5,
        "collective.overlap_efficiency": 0.5,
        **{
            f"network.dims.{place}.transport.{key}": 0.5
            for place in (0, 1)
            for key in ("efficiency", "small_efficiency", "reduction_efficiency", "direct_share", "direct_small_share")
        },
    }
    parts = ("experts", "mla", "image", "ssm", "single_mixers", "sparse", "residual_streams")
    alone = ("model.encoder_layers", "model.kv_heads", *(f"model.{part}" for part in parts))
    seen = {POINT.identity}
    apart = ("placement", "links")  # tuples that are set as a whole
    leaves = [path for path, _ in schema.leaf_fields(POINT) if path not in alone and not {*apart} & {*path.split(".")}]
    for path in leaves:
        current = schema.get_field(POINT, path)
        other = chosen.get(path, (not current) if isinstance(current, bool) else others[type(current)])
        seen.add(schema.assign_fields(POINT, {path: other}).identity)
    seen.add(schema.assign_fields(POINT, {"workload.placement": ("pp", "dp", "cp", "tp")}).identity)
    assert len(seen) == len(leaves) + 2


def test_every_change_of_a_link_or_a_fault_changes_the_identity() -> None:
    there = Link(source=0, target=1, bandwidth_bytes_per_s=50e9, latency_s=5e-07)
    back = Link(source=1, target=0, bandwidth_bytes_per_s=50e9, latency_s=5e-07)
    changes: tuple[dict[str, Any], ...] = (
        {"source": 2, "target": 0},
        {"target": 2},
        {"bandwidth_bytes_per_s": 40e9},
        {"latency_s": 4e-07},
    )
    lists = [(there, back), (there, back, back), *((there, back, replace(there, **change)) for change in changes)]
    faults = [Fault(npu=0, dim=0), Fault(npu=1, dim=0), Fault(npu=0, dim=1), Fault(npu=0, dim=0, peer=1)]
    faults.append(Fault(npu=0, dim=0, speed=0.5))
    seen = {POINT.identity}
    for links in lists:
        changed = {"network.dims.0.topology": "graph", "network.dims.0.links": links}
        seen.add(schema.assign_fields(POINT, changed).identity)
    for fault in faults:
        seen.add(replace(POINT, network=replace(POINT.network, faults=(fault,))).identity)
    assert len(seen) == 1 + len(lists) + len(faults)


def test_a_whole_number_where_a_float_belongs_does_not_change_the_identity() -> None:
    whole = schema.assign_fields(POINT, {"network.dims.0.oversubscription": 2, "memory.capacity": 2**34})
    broken = schema.assign_fields(POINT, {"network.dims.0.oversubscription": 2.0})
    assert whole == broken
    assert whole.identity == broken.identity


def test_the_identity_is_the_same_in_every_release() -> None:
    """Studies and caches on disk are found again by it."""
    assert POINT.identity == "3cd31e8ef5fae39c"


def test_the_identity_is_the_same_in_every_process() -> None:
    program = "from cosmic import load_design; print(load_design('gpt3-175b@cosmic-1024').identity)"
    identities = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert identities == {load_design("gpt3-175b@cosmic-1024").identity}


def test_there_is_one_algorithm_for_each_dimension() -> None:
    with pytest.raises(SpecError) as caught:
        replace(POINT, collective=Collective(algorithms=("ring",)))
    rule = "the network has 2 dimensions, and each takes one algorithm"
    assert str(caught.value) == f"collective.algorithms = ['ring']: {rule}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network.dims.1.npus": 1}, "network.dims.1.npus = 1: a dimension joins at least 2 NPUs"),
        (
            {"network.dims.0.topology": "rign"},
            "network.dims.0.topology = 'rign': no such topology; did you mean 'ring'?",
        ),
        ({"network.dims.0.bandwidth": 0.0}, "network.dims.0.bandwidth = 0.0: must be positive"),
        ({"network.dims.0.latency": -1.0}, "network.dims.0.latency = -1.0: must not be negative"),
        (
            {"network.dims.0.oversubscription": 0.5},
            "network.dims.0.oversubscription = 0.5: must be at least 1, which is none",
        ),
        (
            {"network.dims.0.npus": 2**31},
            "network.dims = [2147483648, 4]: their sizes multiply to more than 4,294,967,296 NPUs",
        ),
        ({"workload.tp": 0}, "workload.tp = 0: must be at least 1"),
        ({"workload.placement": ("tp",)}, "workload.placement = ['tp']: must hold each of tp, cp, dp, pp once"),
        ({"collective.chunks": 0}, "collective.chunks = 0: must be at least 1"),
        (
            {"collective.algorithms.1": "rign"},
            "collective.algorithms.1 = 'rign': no such algorithm; did you mean 'ring'?",
        ),
        ({"compute.bf16": 0.0}, "compute.bf16 = 0.0: must be positive"),
        ({"compute.achieved_bf16": -1.0}, "compute.achieved_bf16 = -1.0: must be positive"),
        ({"memory.capacity": 0.0}, "memory.capacity = 0.0: must be positive"),
    ],
    ids=str,
)
def test_each_layer_states_its_rules(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        schema.assign_fields(POINT, changes)
    assert str(caught.value) == message

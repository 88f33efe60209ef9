"""Generated traces: what they hold, and that simulating them takes as long as the closed forms say."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Experts
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.analytic_step import compute_step_seconds
from cosmic.simulate.events.design_simulation import simulate_design
from cosmic.simulate.stage_traces import cut_into_pieces
from cosmic.simulate.trace_generation import StepTraces, estimated_nodes, generate_traces
from cosmic.step.step_profile import profile_step
from cosmic.traces.dependencies import checked_dependencies
from cosmic.traces.trace import CollectiveType, NodeType, Template
from cosmic.workload.mesh_sizes import microbatches
from cosmic.workload.pipeline_schedule import schedules
from tests.step.tiny import point as tiny
from tests.traces.reference_simulator import simulate_job

ALONE = {"dp": 1, "tp": 1, "cp": 1, "pp": 1, "ep": 1, "weight_sharding": "none"}


def design(name: str = "gpt3-175b@dgx-h100:8", layers: int | None = 8, **workload: Any) -> DesignPoint:
    """Return a design whose mapping is given in full."""
    settings = {f"workload.{key}": value for key, value in (ALONE | workload).items()}
    point = load_design(name, settings, plain=True)
    return point if layers is None else _assigned(point, {"model.layers": layers})


def _assigned(point: DesignPoint, changes: dict[str, Any]) -> DesignPoint:
    changed: DesignPoint = schema.assign_fields(point, changes)
    return changed


def analytic_seconds(point: DesignPoint) -> float:
    batch = batch_of(point)
    return float(compute_step_seconds(batch).seconds)


def collectives(template: Template, of: str) -> Counter[str]:
    """Count the collectives whose names match, by kind."""
    rows = np.flatnonzero(template.type == NodeType.COMM_COLL).tolist()
    names = [CollectiveType(template.comm_type[row]).name for row in rows if re.search(of, template.names[row])]
    return Counter(names)


# ---- known counts


def test_tensor_parallelism_is_two_all_reduces_each_way_per_layer() -> None:
    job = generate_traces(design(tp=8, global_batch=2, sequence_parallel=False))
    (template,) = job.traces.templates()
    for microbatch in (0, 1):
        assert collectives(template, rf"^mb{microbatch}\.layer3\.") == {"ALL_REDUCE": 4}


def test_sequence_parallelism_gathers_and_scatters_instead() -> None:
    (template,) = generate_traces(design(tp=8, global_batch=1)).traces.templates()
    forward = [name for name in template.names if re.search(r"^mb0\.layer3\.[a-z_]+\.(all|reduce)", name)]
    assert [name.rsplit(".", 1)[1] for name in forward if ".d_" not in name][:4] == [
        "all_gather",
        "reduce_scatter",
        "all_gather",
        "reduce_scatter",
    ]


def test_sharded_weights_are_gathered_twice_and_their_gradients_scattered_once() -> None:
    (template,) = generate_traces(design(dp=8, global_batch=8, weight_sharding="zero3")).traces.templates()
    found = collectives(template, r"^mb0\.layer3\.")
    assert found.pop("ALL_REDUCE") == 1  # of the few that are not sharded, such as those of norms
    assert found == {"ALL_GATHER": 2, "REDUCE_SCATTER": 1}


def test_gradients_are_reduced_once_a_step() -> None:
    (template,) = generate_traces(design(dp=8, global_batch=32)).traces.templates()
    assert collectives(template, r"layer3\.") == {"ALL_REDUCE": 1}
    (template,) = generate_traces(design(dp=8, global_batch=32, weight_sharding="zero1")).traces.templates()
    assert collectives(template, r"layer3\.") == {"REDUCE_SCATTER": 1, "ALL_GATHER": 1}


def test_experts_are_two_all_to_alls_each_way() -> None:
    (template,) = generate_traces(design("mixtral-8x7b@dgx-h100:8", dp=8, ep=8, global_batch=8)).traces.templates()
    assert collectives(template, r"^mb0\.moe_layer3\.")["ALL_TO_ALL"] == 4


def test_the_size_of_a_gather_is_one_shard() -> None:
    (template,) = generate_traces(design(tp=8, global_batch=1, sequence=2048)).traces.templates()
    rows = {name: row for row, name in enumerate(template.names)}
    stream = 2048 * 12288 * 2
    assert template.comm_size[rows["mb0.layer3.ffn_norm.all_gather"]] == stream // 8
    assert template.comm_size[rows["mb0.layer3.ffn_down.reduce_scatter"]] == stream


@pytest.mark.parametrize("schedule", list(schedules))
def test_every_send_has_its_receive(schedule: str) -> None:
    virtual = 2 if schedule == "interleaved" else 1
    job = generate_traces(design(pp=4, dp=2, global_batch=16, schedule=schedule, virtual_stages=virtual))
    count = dict.fromkeys((NodeType.COMM_SEND, NodeType.COMM_RECV), 0)
    for template in job.traces.templates():
        for kind in count:
            count[kind] += int((template.type == kind).sum())
    assert set(count.values()) == {2 * 8 * (4 * virtual - 1)}
    assert simulate_job(job, streams=2) > 0  # which matches them one by one, and ends every node


@pytest.mark.parametrize("schedule", list(schedules))
def test_a_stage_does_its_tasks_in_the_order_of_the_schedule(schedule: str) -> None:
    virtual = 2 if schedule == "interleaved" else 1
    job = generate_traces(design(pp=4, dp=2, global_batch=16, schedule=schedule, virtual_stages=virtual))
    for stage, template in enumerate(job.traces.templates()):
        computed = [name for name, kind in zip(template.names, template.type, strict=True) if kind == NodeType.COMP]
        found = [(name.split(".")[0], "forward" in name) for name in computed if name.startswith("mb")]
        wanted = [
            (f"mb{task.microbatch}", task.kind == "F") for task in schedules[schedule].order(stage, 4, 8, virtual)
        ]
        assert _distinct(found) == _distinct(wanted)


def _distinct(items: list[Any]) -> list[Any]:
    return [item for place, item in enumerate(items) if place == 0 or item != items[place - 1]]


def test_each_part_of_the_work_is_a_node() -> None:
    (template,) = generate_traces(design(dp=8, global_batch=16, recompute="full")).traces.templates()
    for name in ("forward", "recompute", "backward", "weight_gradient"):
        assert f"mb1.layer5.attention.{name}" in template.names
        assert f"mb1.layer5.ffn.{name}" in template.names
    assert any(name.endswith("layer5.optimizer") for name in template.names)
    assert any(name.endswith("layer5.gradients.all_reduce") for name in template.names)


# ---- groups and peers


def test_the_first_axis_of_the_placement_is_the_fastest() -> None:
    point = design("gpt3-175b@dgx-h100:16", tp=2, dp=4, pp=2, global_batch=8, placement=["dp", "tp", "pp", "cp"])
    job = generate_traces(point)
    assert {job.groups[name] for rank in job.traces.ranks for name in rank.groups} == set(job.groups.values())
    assert (0, 4) in job.groups.values()  # tp, inside which dp is placed
    assert (0, 1, 2, 3) in job.groups.values()  # dp
    assert (0, 1, 2, 3, 4, 5, 6, 7) in job.groups.values()  # gradients of norms, of which tp ranks hold the same
    assert [rank.template is job.traces.ranks[0].template for rank in job.traces.ranks] == [True] * 8 + [False] * 8
    assert job.traces.ranks[3].peers[:2] == (11, 11)
    assert min(int(name) for name in job.groups) == 1


def test_experts_divide_the_ranks_that_tensor_parallelism_leaves() -> None:
    job = generate_traces(design("mixtral-8x7b@dgx-h100:16", dp=8, tp=2, ep=4, global_batch=8))
    groups = set(job.groups.values())
    assert {(0, 2, 4, 6), (9, 11, 13, 15)} <= groups  # ep: neighbours in dp, inside which is tp
    assert {(0, 1), (14, 15)} <= groups  # tp, which splits experts too
    assert {(0, 8), (7, 15)} <= groups  # of an expert's gradients: those who hold the same part of it


@pytest.mark.parametrize("settings", [{"dp": 2, "tp": 2, "cp": 2, "pp": 2}, {"dp": 2, "cp": 4, "ep": 8, "pp": 2}])
def test_members_of_a_group_list_the_same_collectives_in_the_same_order(settings: dict[str, int]) -> None:
    model = "mixtral-8x7b" if "ep" in settings else "gpt3-175b"
    job = generate_traces(design(f"{model}@dgx-h100:16", **settings, global_batch=8, cp_comm_type="all_gather"))
    listed: dict[str, dict[int, list[tuple[int, int]]]] = {name: {} for name in job.groups}
    for number, rank in enumerate(job.traces.ranks):
        template = rank.template
        for row in np.flatnonzero(template.type == NodeType.COMM_COLL):
            calls = listed[rank.groups[template.group[row]]].setdefault(number, [])
            calls.append((int(template.comm_type[row]), int(template.comm_size[row])))
    for name, members in job.groups.items():
        assert set(listed[name]) == set(members)
        assert len({tuple(calls) for calls in listed[name].values()}) == 1


def test_keys_and_values_go_round() -> None:
    job = generate_traces(design(cp=8, global_batch=1, cp_comm_type="ring"))
    assert [rank.peers[2:] for rank in job.traces.ranks][:2] == [(1, 7), (2, 0)]
    (template,) = job.traces.templates()
    beside = [name for name in template.names if "layer3" in name and "ring.send" in name]
    assert len(beside) == 2  # forward and backward


# ---- sizes


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt3-175b@dgx-h100:8", {"tp": 2, "pp": 4, "schedule": "zero_bubble", "recompute": "full"}),
        ("mixtral-8x7b@dgx-h100:8", {"dp": 4, "ep": 4, "pp": 2, "weight_sharding": "zero3"}),
        ("gpt3-175b@dgx-h100:8", {"pp": 4, "dp": 2, "schedule": "dualpipe"}),
        ("llama3-8b@dgx-h100:8", {"cp": 8}),
    ],
)
def test_all_ranks_together_do_the_flop_of_the_workload(name: str, settings: dict[str, Any]) -> None:
    point = design(name, **settings, global_batch=16)
    job = generate_traces(point)
    batch = batch_of(schema.assign_fields(point, {"workload.pp": 1, "workload.schedule": "1f1b"}))
    each = point.workload.ranks / point.workload.pp * int(microbatches(batch_of(point))) / int(microbatches(batch))
    wanted = each * sum(float(cost.use.flop * cost.runs) for cost in profile_step(batch, "first").operators)
    found = 0
    for template in job.traces.templates():
        computes = np.flatnonzero(template.type == NodeType.COMP).tolist()
        work = [row for row in computes if "optimizer" not in template.names[row]]
        found += int(template.num_ops[work].sum()) * point.workload.ranks // point.workload.pp
    assert found == pytest.approx(wanted, rel=1e-6)


def test_layers_are_dealt_as_memory_is_counted() -> None:
    job = generate_traces(design(pp=4, dp=2, layers=10, global_batch=16))
    held = [{match[0] for name in each.names if (match := re.search(r"layer\d+", name))} for each in _templates(job)]
    assert [len(layers) for layers in held] == [3, 3, 2, 2]
    assert generate_traces(design(pp=8, layers=9, global_batch=16, schedule="zero_bubble")).traces.nodes > 0


def test_every_second_layer_has_experts_on_every_stage() -> None:
    """8 layers on 2 stages: layers 1 and 3 have experts on the first, 5 and 7 on the second."""
    model = {"layers": 8, "experts": Experts(count=2, active=1, ffn=4, every=2)}
    for template in _templates(generate_traces(tiny(pp=2, global_batch=4, model=model))):
        held = {match[0] for name in template.names if (match := re.search(r"(moe_)?layer\d+", name))}
        assert sorted(name.startswith("moe") for name in held) == [False, False, True, True]


def test_one_stage_has_no_virtual_stages() -> None:
    divided = tiny(schedule="interleaved", virtual_stages=2, global_batch=4)
    assert _templates(generate_traces(divided))[0].names == _templates(generate_traces(tiny(global_batch=4)))[0].names


def _templates(job: StepTraces) -> list[Template]:
    return job.traces.templates()


@pytest.mark.parametrize(
    "settings", [{"pp": 4, "dp": 2, "schedule": "dualpipe"}, {"dp": 8, "weight_sharding": "zero3"}]
)
def test_nothing_waits_for_itself(settings: dict[str, Any]) -> None:
    for template in generate_traces(design(**settings, global_batch=64)).traces.templates():
        starts, needed = checked_dependencies(template)
        waits = np.diff(starts)
        owners = np.repeat(np.arange(template.nodes), waits)
        after = needed.argsort(kind="stable")
        first = np.searchsorted(needed[after], np.arange(template.nodes + 1))
        free, ended = list(np.flatnonzero(waits == 0)), 0
        while free:
            row = free.pop()
            ended += 1
            for later in owners[after[first[row] : first[row + 1]]]:
                waits[later] -= 1
                if waits[later] == 0:
                    free.append(later)
        assert ended == template.nodes


def test_what_cannot_run_has_no_trace() -> None:
    with pytest.raises(SpecError, match="ranks on 8 NPUs"):
        generate_traces(design(tp=2))


def test_a_thousand_ranks_share_a_template_for_each_stage() -> None:
    job = generate_traces(design("gpt3-175b@dgx-h100:1024", tp=8, pp=4, dp=32, global_batch=1536))
    assert len(job.traces.ranks) == 1024
    assert len(job.traces.templates()) == 4


# ---- agreement


def test_without_communication_a_simulation_takes_as_long_as_the_closed_form() -> None:
    cases: list[dict[str, Any]] = [{}, {"recompute": "full"}, {"task": "prefill"}, {"task": "decode"}]
    for settings in cases:
        point = design("gpt3-13b@dgx-h100:1", **settings, global_batch=4)
        assert simulate_job(generate_traces(point)) == pytest.approx(analytic_seconds(point), rel=1e-9)


SILENT = ("vit-large", "dlrm-criteo", "bert-base")
"""Models that write no text."""


@pytest.mark.parametrize(
    ("name", "task"),
    [
        *product((*SILENT, "t5-base", "gpt-oss-20b", "deepseek-v2"), ("training", "prefill")),
        *product(("t5-base", "gpt-oss-20b", "deepseek-v2"), ("decode",)),
    ],
)
def test_every_kind_of_model_can_be_simulated(name: str, task: str) -> None:
    settings = {"workload.task": task, "workload.pp": 1, "workload.weight_sharding": "none"}
    point = load_design(f"{name}@dgx-h100:16", settings, plain=True)
    point = schema.assign_fields(point, {"workload.global_batch": point.workload.dp * point.workload.micro_batch * 4})
    late = 0.13 if name == "bert-base" else 0.08  # it waits for the host, block by block or all in all
    assert simulate_job(generate_traces(point), streams=2) == pytest.approx(analytic_seconds(point), rel=late)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zero_bubble"])
@pytest.mark.parametrize("pp", [1, 2])
def test_adapters_can_be_simulated_though_frozen_blocks_make_no_gradients(schedule: str, pp: int) -> None:
    point = design("llama3-8b@dgx-h100:8", lora_rank=16, pp=pp, dp=8 // pp, schedule=schedule, global_batch=32)
    assert simulate_job(generate_traces(point), streams=2) == pytest.approx(analytic_seconds(point), rel=0.08)


def test_decoding_is_a_round_of_the_pipeline() -> None:
    for count in (2, 4, 8):
        point = design("megatron-145.6b@dgx-h100:8", 32, task="decode", pp=4, dp=2, global_batch=2 * count)
        assert simulate_job(generate_traces(point)) == pytest.approx(analytic_seconds(point), rel=0.05)


def test_updated_weights_of_the_step_before_are_seen_and_gradients_where_the_newest_goes_first() -> None:
    names = {}
    for order in ("lifo", "fifo"):
        point = design("gpt3-175b@dgx-h100:64", dp=64, global_batch=64, weight_sharding="zero1")
        job = generate_traces(schema.assign_fields(point, {"collective.scheduling": order}))
        names[order] = [name for name in job.traces.templates()[0].names if name.startswith("previous.")]
    for found in names.values():
        assert "previous.layer3.weights.all_gather" in found
    assert not any("reduce_scatter" in name or "optimizer" in name for name in names["fifo"])
    assert "previous.embedding.optimizer" in names["lifo"]  # its gradients come last
    assert any("reduce_scatter" in name for name in names["lifo"])


def test_traces_that_would_take_hours_are_refused_before_work_begins() -> None:
    with pytest.raises(SpecError, match=r"^trace nodes = \d+: at most 20,000,000 are generated: choose fewer "):
        generate_traces(design(layers=100_000_000, dp=8, global_batch=64))
    with pytest.raises(SpecError, match=r"^ranks = 2097152: at most 1,048,576 are traced: choose fewer NPUs$"):
        generate_traces(design("llama3-8b@dgx-h100:2097152", None, dp=2097152, global_batch=2097152))


def test_nodes_are_estimated_well_before_they_are_made() -> None:
    for point in (design(dp=8, global_batch=64), design(tp=2, pp=4, global_batch=16), design(cp=8, global_batch=4)):
        whole = profile_step(batch_of(point))
        estimate = estimated_nodes(cut_into_pieces(whole), int(whole.microbatches))
        made = sum(template.nodes for template in generate_traces(point).traces.templates())
        assert 0.5 < estimate / made < 2


def test_times_beyond_the_clock_of_the_event_engine_are_refused() -> None:
    slow = _assigned(design(tp=8, global_batch=64), {"network.dims.0.latency": 1e9})
    with pytest.raises(SpecError, match=r"^simulated time = "):
        simulate_design(slow)

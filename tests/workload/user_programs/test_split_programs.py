"""What splitting a program costs, by hand: formats, boundary rows, recurrences, scatters, sub-axes, padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.evaluation import evaluate
from cosmic.search.mapping.design_completion import load_design
from cosmic.search.sharding.automatic_sharding import shard
from cosmic.simulate.metrics import Infeasible, Metrics
from cosmic.simulate.trace_generation import generate_traces
from cosmic.step.communication import CollectiveUse
from cosmic.step.step_profile import OperatorCost, profile_step
from cosmic.traces.trace import NodeType
from cosmic.workload.user_programs.program_models import model_of
from cosmic.workload.user_programs.program_yaml import read_program

MESH = {"tp": 4, "dp": 2, "pp": 1, "cp": 1, "tp_overlap": False, "weight_sharding": "none"}
BF16 = 2
EXAMPLES = Path(__file__).parents[3] / "examples" / "programs"


def design(tmp_path: Path, program: dict[str, Any], **changes: Any) -> DesignPoint:
    """Return a program on eight accelerators: four along tp, two replicas."""
    file = tmp_path / "program.yaml"
    file.write_text(yaml.safe_dump(program, sort_keys=False))
    return load_design(f"{file}@dgx-h100:8", {**MESH, **changes})


def sent(point: DesignPoint) -> dict[tuple[str, str, str], CollectiveUse]:
    """Return the collectives of a step by their tensor, pass and kind."""
    uses = (use for use in profile_step(batch_of(point)).collectives if use.group > 1)
    return {(use.tensor, use.phase, use.kind): use for use in uses}


def costs(point: DesignPoint) -> dict[tuple[str, str], OperatorCost]:
    """Return the operators of a step by their name and pass."""
    return {(each.use.name, each.use.phase): each for each in profile_step(batch_of(point)).operators}


def both_engines(point: DesignPoint) -> tuple[Metrics, Metrics]:
    ours, event = evaluate(point), evaluate(point, engine="event")
    assert isinstance(ours, Metrics)
    assert isinstance(event, Metrics)
    return ours, event


# ---- samples


def test_a_program_without_a_sequence_counts_samples(tmp_path: Path) -> None:
    """64 rows a step: their number over the time of the step, and no tokens."""
    for found in both_engines(design(tmp_path, PERCEPTRON, micro_batch=32)):
        assert found.samples_per_s == pytest.approx(64 / found.step_s)
        assert (found.tokens_per_s, found.cost_usd_per_token, found.effective_tokens_per_s) == (None, None, None)
        assert "has no sequence" in found.unknown["tokens_per_s"]
        assert (found.counted, found.throughput_per_s) == ("samples", found.samples_per_s)
        assert found.samples_per_s_range is not None
        assert found.tokens_per_s_range is None


def test_a_program_with_a_sequence_counts_tokens(tmp_path: Path) -> None:
    program = {
        **PERCEPTRON,
        "dims": {"batch": 64, "sequence": 16, "inner": 1024, "outer": 4096},
        "inputs": {"x": ["batch", "sequence", "inner"]},
        "operators": [{**PERCEPTRON["operators"][0], "to": ["batch", "sequence", "outer"]}],
        "annotations": {"w": ["tp", "_"]},
    }
    found = evaluate(design(tmp_path, program, micro_batch=32))
    assert isinstance(found, Metrics)
    assert found.tokens_per_s == pytest.approx(64 * 16 / found.step_s)
    assert found.samples_per_s is None


# ---- formats

PERCEPTRON: dict[str, Any] = {
    "program": "perceptron",
    "dims": {"batch": 64, "inner": 1024, "outer": 4096},
    "inputs": {"x": ["batch", "inner"]},
    "operators": [
        {"name": "y", "einsum": ["x", "w"], "to": ["batch", "outer"], "weights": {"w": ["inner", "outer"]}},
        {"name": "z", "gelu": "y"},
        {"name": "v", "relu": "z"},
    ],
    "annotations": {"x": ["dp", "tp"], "w": ["tp", "_"]},
}


def test_tensors_in_other_formats_move_send_and_keep_their_bytes(tmp_path: Path) -> None:
    """With y in fp32: [32, 4096] on a device, made from a quarter of x and of w, and summed over tp."""
    usual, wide = (
        design(tmp_path, {**PERCEPTRON, "element_bytes": widths}, micro_batch=32) for widths in ({}, {"y": 4})
    )
    made, quarter = 32 * 4096, 1024 // 4
    operands = BF16 * (32 * quarter + quarter * 4096)
    assert costs(usual)["y", "forward"].use.bytes == operands + BF16 * made
    assert costs(wide)["y", "forward"].use.bytes == operands + 4 * made
    assert costs(wide)["z", "forward"].use.bytes == (4 + BF16) * made  # reads y, makes z
    assert costs(wide)["v", "forward"].use == costs(usual)["v", "forward"].use
    key = ("y", "forward", "all_reduce")
    assert (sent(usual)[key].bytes, sent(wide)[key].bytes) == (BF16 * made, 4 * made)
    kept = [evaluate(each) for each in (usual, wide)]  # a gelu keeps what it reads, y; a relu what it makes, v
    assert [each.memory["activations"] for each in kept] == [2 * BF16 * made, (BF16 + 4) * made]  # type: ignore[union-attr]
    slower = [costs(each)["z", "forward"].seconds for each in (usual, wide)]
    assert slower[1] > slower[0]
    ours, event = both_engines(wide)
    assert event.step_s == pytest.approx(ours.step_s, rel=0.05)


def test_cosmic_shard_prices_stated_formats_too() -> None:
    """All-reduce of y over tp, 2 (4 - 1) / 4 of [64, 4096] in bf16 or fp32."""
    fixed = {"x": ["_", "tp"], "y": ["_", "_"], "z": ["_", "_"], "v": ["_", "_"]}
    found = [
        shard(read_program({**PERCEPTRON, "annotations": {}, "element_bytes": widths}), "tp=4", annotate=fixed)
        for widths in ({}, {"y": 4})
    ]
    reduced = [[each.bytes for each in one.collectives if each.tensor == "y"] for one in found]
    assert reduced == [[64 * 4096 * 2], [64 * 4096 * 4]]


@pytest.mark.parametrize(
    ("widths", "rule"),
    [
        ({"w": 1}, "weights have the format"),
        ({"nothing": 1}, "no such tensor"),
        ({"y": 0}, "above 0"),
        ({"y": 17}, "up to 16"),
        ({"y": "wide"}, "number"),
        ([], "must map tensors"),
    ],
)
def test_formats_that_nothing_can_have_are_refused(widths: Any, rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        read_program({**PERCEPTRON, "element_bytes": widths})


# ---- boundary rows

PICTURE: dict[str, Any] = {
    "program": "picture",
    "dims": {"batch": 8, "height": 32, "width": 16, "channels": 4, "filters": 8, "rows": 3, "columns": 3}
    | {"down": 32, "across": 16},
    "like": {"down": "height", "across": "width"},
    "inputs": {"x": ["batch", "height", "width", "channels"]},
    "operators": [
        {
            "name": "y",
            "convolution": ["x", "w"],
            "to": ["batch", "down", "across", "filters"],
            "weights": {"w": ["rows", "columns", "channels", "filters"]},
        }
    ],
    "annotations": {"x": {"height": "tp"}, "y": {"down": "tp"}},
}


def test_boundary_rows_are_sent_to_neighbours_in_traces(tmp_path: Path) -> None:
    """A row of 16 columns and 4 channels before and after, forward and for the gradient of w, of one picture."""
    point = design(tmp_path, PICTURE, micro_batch=1)
    job = generate_traces(point)
    (template,) = job.traces.templates()
    row = 16 * 4 * BF16
    microbatches = 4
    for kind in (NodeType.COMM_SEND, NodeType.COMM_RECV):
        assert template.comm_size[template.type == kind].tolist() == [row] * (4 * microbatches)
    to, back = (rank.peers[4:] for rank in (job.traces.ranks[0], job.traces.ranks[3]))
    assert (tuple(to), tuple(back)) == ((1, 3), (0, 2))  # the next, and the one before, of four
    ours, event = both_engines(point)
    assert event.step_s == pytest.approx(ours.step_s, rel=0.05)


def test_a_split_picture_has_its_share_of_the_work(tmp_path: Path) -> None:
    flop = costs(design(tmp_path, PICTURE, micro_batch=1))["y", "forward"].use.flop
    assert flop == 2 * (8 * 16 * 8) * (3 * 3 * 4)  # 8 of 32 rows


def test_cosmic_shard_prices_boundary_rows() -> None:
    """Two rows forward and two for the gradient of w; that of w is summed."""
    found = shard(read_program(PICTURE), "tp=4", annotate={"w": ["_", "_", "_", "_"]}, objective="bytes")
    rows = [each for each in found.collectives if each.kind == "collective_permute"]
    assert [each.bytes for each in rows] == [8 * 16 * 4 * BF16] * 4
    assert found.value == sum(each.calls * each.wire_bytes for each in found.collectives)
    assert found.gap < 1e-9


# ---- recurrences

RECURRENCE: dict[str, Any] = {
    "program": "recurrence",
    "dims": {"batch": 64, "time": 16, "inputs": 512, "hidden": 1024, "hidden_before": 1024},
    "inputs": {"x": ["batch", "time", "inputs"]},
    "operators": [
        {
            "block": "cell",
            "over": "time",
            "state": {"before": ["batch", "time", "hidden"]},
            "carry": {"before": "h"},
            "weights": {"w_x": ["inputs", "hidden"], "w_h": ["hidden_before", "hidden"]},
            "operators": [
                {"name": "from_x", "einsum": ["x", "w_x"], "to": ["batch", "time", "hidden"]},
                {"name": "old", "rename": "before", "dims": {"hidden": "hidden_before"}},
                {"name": "from_h", "einsum": ["old", "w_h"], "to": ["batch", "time", "hidden"]},
                {"name": "summed", "add": ["from_x", "from_h"]},
                {"name": "h", "tanh": "summed"},
            ],
        }
    ],
    "annotations": {
        "w_x": ["_", "tp"],
        "w_h": ["_", "tp"],
        "h": ["_", "_", "tp"],
        "before": ["_", "_", "tp"],
    },
}


def test_every_step_of_a_recurrence_sends_its_own_state(tmp_path: Path) -> None:
    """16 steps of [32, 1024]: gathered before w_h, and summed for its gradient; gradients of weights travel once."""
    point = design(tmp_path, RECURRENCE, micro_batch=32)
    found = sent(point)
    step = 32 * 1024 * BF16
    gathered, scattered = found["old", "forward", "all_gather"], found["d_old", "backward", "reduce_scatter"]
    assert (gathered.bytes, gathered.calls) == (step, 16)
    assert (scattered.bytes, scattered.calls) == (step, 16)
    again = found["old", "backward", "all_gather"]  # all steps are known by then: once, for the gradient of w_h
    assert (again.bytes, again.calls) == (16 * step, 1)
    assert found["d_w_h", "step", "all_reduce"].calls == 1


def test_steps_of_a_recurrence_take_turns_in_traces(tmp_path: Path) -> None:
    point = design(tmp_path, RECURRENCE, micro_batch=32)
    (template,) = generate_traces(point).traces.templates()
    calls = [name for name in template.names if name.endswith("all_gather") and "old" in name]
    assert len(calls) == 16 + 1
    sizes = template.comm_size[[template.names.index(name) for name in calls]]
    assert sorted(sizes.tolist()) == [32 * 1024 * BF16 // 4] * 16 + [16 * 32 * 1024 * BF16 // 4]  # one rank's shard
    ours, event = both_engines(point)
    assert event.step_s == pytest.approx(ours.step_s, rel=0.02)


def test_cosmic_shard_prices_every_step_of_a_recurrence() -> None:
    found = shard(read_program(RECURRENCE), "dp=2,tp=4", system="dgx-h100")
    gathered = next(each for each in found.collectives if each.kind == "all_gather")
    assert (gathered.calls, gathered.bytes) == (16, 64 * 1024 * BF16)
    one = shard(read_program({**RECURRENCE, "dims": {**RECURRENCE["dims"], "time": 1}}), "dp=2,tp=4", system="dgx-h100")
    assert found.compute == pytest.approx(16 * one.compute)
    assert found.exposed == pytest.approx(16 * one.exposed)


def test_no_axis_splits_the_time_of_a_recurrence(tmp_path: Path) -> None:
    split = {**RECURRENCE, "annotations": {"before": ["_", "tp", "_"], "h": ["_", "tp", "_"]}}
    with pytest.raises(SpecError, match="runs through time step by step"):
        evaluate(design(tmp_path, split, micro_batch=32))


# ---- gather and scatter

SCATTER: dict[str, Any] = {
    "program": "scatter",
    "dims": {"batch": 64, "slots": 32, "rows": 4096, "width": 256},
    "inputs": {"keys": {"dims": ["batch", "slots"], "of": "rows"}, "gradient": ["batch", "slots", "width"]},
    "operators": [
        {"name": "values", "gelu": "gradient"},
        {"name": "table", "scatter": ["values", "keys"], "to": ["rows", "width"]},
    ],
}
"""The gradient of an embedding: rows of 256, added where 32 keys of each of 64 samples point, of 4,096 places."""
KEYS = 32 * 32 * BF16


def test_rows_are_added_where_they_are_kept(tmp_path: Path) -> None:
    """Split by rows, a device reads all values of its samples and adds to its 1,024 rows; the others' add to theirs."""
    point = design(tmp_path, {**SCATTER, "annotations": {"table": ["tp", "_"]}}, micro_batch=32)
    values, shard_ = 32 * 32 * 256, 1024 * 256
    added = costs(point)["table", "forward"].use
    assert (added.flop, added.bytes) == (values, BF16 * (values + shard_) + KEYS)
    found = sent(point)
    assert {key: use.bytes for key, use in found.items()} == {
        ("table", "forward", "all_reduce"): BF16 * shard_,  # samples are on two replicas
        ("d_values", "backward", "all_reduce"): BF16 * values,  # a row's gradient is on one device of tp
    }
    assert [found[key].axes for key in found] == [("dp",), ("tp",)]


def test_columns_are_added_without_the_others(tmp_path: Path) -> None:
    point = design(tmp_path, {**SCATTER, "annotations": {"table": ["_", "tp"]}}, micro_batch=32)
    values, shard_ = 32 * 32 * 64, 4096 * 64
    added = costs(point)["table", "forward"].use
    assert (added.flop, added.bytes) == (values, BF16 * (values + shard_) + KEYS)
    assert {key: use.bytes for key, use in sent(point).items()} == {("table", "forward", "all_reduce"): BF16 * shard_}


def test_rows_are_picked_where_they_are_kept(tmp_path: Path) -> None:
    """Of 128 tokens a device has 32: it picks those, and a sum joins them with what others pick."""
    program = {
        "program": "gather",
        "dims": {"batch": 64, "slots": 32, "tokens": 128, "width": 256},
        "inputs": {"keys": {"dims": ["batch", "slots"], "of": "tokens"}, "x": ["batch", "tokens", "width"]},
        "operators": [
            {"name": "u", "gelu": "x"},
            {"name": "picked", "gather": ["u", "keys"], "to": ["batch", "slots", "width"]},
        ],
        "annotations": {"x": ["dp", "tp", "_"], "u": ["dp", "tp", "_"], "picked": ["dp", "_", "_"]},
    }
    point = design(tmp_path, program, micro_batch=32)
    picked = 32 * 32 * 256
    assert costs(point)["picked", "forward"].use.bytes == BF16 * (32 * 32 * 256 + picked) + KEYS
    assert {key: use.bytes for key, use in sent(point).items()} == {("picked", "forward", "all_reduce"): BF16 * picked}


# ---- context, padding


@pytest.mark.parametrize("how", ["ring", "all_gather"])
def test_keys_of_a_program_go_around_as_those_of_the_catalog_do(how: str) -> None:
    mesh = {"tp": 2, "cp": 4, "dp": 8, "pp": 1, "global_batch": 64, "micro_batch": 1, "sequence_parallel": False}
    sizes = {"layers": 24, "hidden": 2048, "heads": 16, "ffn": 8192, "vocab": 50304, "gated": False, "rope": False}
    catalog = {"model": sizes, "system": "dgx-h100:64", "workload": {"sequence": 2048}}
    program = {"model.annotations": {"x": ["dp", "cp", "_"]}, **mesh, "cp_comm_type": how}
    mine = load_design(f"{EXAMPLES / 'gpt.yaml'}@dgx-h100:64", program)
    ours, theirs = evaluate(mine), evaluate(load_design(catalog, {**mesh, "cp_comm_type": how}))
    assert isinstance(ours, Metrics)
    assert isinstance(theirs, Metrics)
    assert ours.step_s == pytest.approx(theirs.step_s, rel=1e-9)
    event = evaluate(mine, engine="event")
    assert isinstance(event, Metrics)
    assert event.step_s == pytest.approx(ours.step_s, rel=0.08)


def test_a_program_has_no_ulysses() -> None:
    split = {"model.annotations": {"x": ["dp", "cp", "_"]}, "cp": 2, "cp_comm_type": "ulysses"}
    found = evaluate(load_design(f"{EXAMPLES / 'gpt.yaml'}@dgx-h100:64", split))
    assert isinstance(found, Infeasible)
    assert "ulysses" in found.reasons[0]


def test_what_an_axis_does_not_divide_is_padded(tmp_path: Path) -> None:
    """1,022 of x and w over four devices: 256 on each, the last of which computes two zeros."""
    uneven = {**PERCEPTRON, "dims": {**PERCEPTRON["dims"], "inner": 1022}}
    found = costs(design(tmp_path, uneven, micro_batch=32))["y", "forward"].use
    assert found == costs(design(tmp_path, PERCEPTRON, micro_batch=32))["y", "forward"].use
    assert found.flop == 2 * 32 * 256 * 4096


# ---- sub-axes

TWO_D: dict[str, Any] = {
    **PERCEPTRON,
    "axes": {"tp": "2*4"},
    "annotations": {"x": ["dp", "tp_0"], "w": ["tp_0", "tp_1"]},
}


def test_parts_of_an_axis_split_different_dimensions(tmp_path: Path) -> None:
    """A weight in 2 by 4 pieces: sums of [32, 1024] over the outer part of tp, whose ranks are four apart."""
    file = tmp_path / "program.yaml"
    file.write_text(yaml.safe_dump(TWO_D, sort_keys=False))
    point = load_design(f"{file}@dgx-h100:16", {**MESH, "tp": 8, "micro_batch": 32})
    reduced = sent(point)["y", "forward", "all_reduce"]
    assert (reduced.axes, reduced.group, reduced.bytes, reduced.role) == (("tp_0",), 2, 32 * 1024 * BF16, "tp")
    assert costs(point)["y", "forward"].use.flop == 2 * 32 * 512 * 1024
    groups = generate_traces(point).groups.values()
    assert {(0, 4), (1, 5), (2, 6), (3, 7)} < set(groups)
    ours, event = both_engines(point)
    assert event.step_s == pytest.approx(ours.step_s, rel=0.06)


def test_an_axis_that_is_cut_has_as_many_ranks_as_its_parts(tmp_path: Path) -> None:
    found = evaluate(design(tmp_path, TWO_D, micro_batch=32))
    assert isinstance(found, Infeasible)
    assert "the program cuts it into 2*4, set it to 8" in found.reasons[0]
    file = tmp_path / "program.yaml"  # as it was written
    assert load_design(f"{file}@dgx-h100:16").workload.tp == 8


def test_all_parts_of_an_axis_are_the_axis(tmp_path: Path) -> None:
    """The same collectives over tp_0 and tp_1 as over tp."""
    file, mesh = tmp_path / "whole.yaml", {**MESH, "tp": 8, "micro_batch": 32}
    found = []
    for cut in ({}, {"axes": {"tp": "2*4"}}):
        file.write_text(yaml.safe_dump({**PERCEPTRON, **cut}, sort_keys=False))
        found.append(evaluate(load_design(f"{file}@dgx-h100:16", mesh)))
    whole, cut_ = found
    assert isinstance(whole, Metrics)
    assert isinstance(cut_, Metrics)
    assert cut_.step_s == pytest.approx(whole.step_s)
    assert cut_.memory_bytes == whole.memory_bytes


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"axes": {"dp": "2*4"}}, "tp alone can be cut"),
        ({"axes": {"tp": "2*x"}}, "sizes with"),
        ({"axes": {"tp": "8"}}, "2 to 3 parts"),
        ({"axes": {"tp": "2*4"}, "annotations": {"w": ["tp", "tp_1"]}}, "once only"),
        ({"axes": {}, "annotations": {"w": ["tp_0", "_"]}}, "no such mesh axis"),
    ],
)
def test_axes_that_cannot_be_cut_so_are_refused(changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(SpecError, match=rule):
        model_of(read_program({**TWO_D, **changes}))

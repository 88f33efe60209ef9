"""State-space layers worked by hand: parameters, operations, states, caches, collectives and seconds of a scan."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design.design_batch import batch_of
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import (
    Experts,
    StateSpace,
    Transformer,
    count_active_parameters,
    count_parameters,
    layer_kinds,
    served_model,
)
from cosmic.evaluation import evaluate
from cosmic.search.advice.design_advice import mend_mapping
from cosmic.search.mapping.design_completion import load_design
from cosmic.simulate.metrics import Infeasible
from cosmic.step.communication import list_collectives
from cosmic.step.device_memory import footprint
from cosmic.step.operator_work import model_flop_per_token
from cosmic.step.scan import CONSTANTS, Scan, ScanRates, decode_scan_seconds, scan_bytes, scan_seconds
from cosmic.workload.attended_keys import attended_share
from cosmic.workload.mapping_rules import invalid_reasons
from cosmic.workload.mesh_sizes import layers_of_parts
from cosmic.workload.model_blocks import blocks
from cosmic.workload.pipeline_cut import heaviest_stage
from tests.relations.engine_agreement import compare_engines
from tests.relations.random_designs import random_design

MAMBA2 = StateSpace(heads=4, head_dim=8, groups=2, state=16, chunk=4)
DELTA = StateSpace(kind="delta", heads=4, head_dim=8, groups=2, state=16, conv_bias=False, chunk=4)
MAMBA1 = StateSpace(kind="mamba1", heads=32, state=16, rank=3)
BARE = Transformer(layers=2, hidden=10, heads=2, head_dim=4, ffn=6, vocab=7, norm="rmsnorm")
MESHES: tuple[dict[str, Any], ...] = ({"dp": 8}, {"tp": 8, "dp": 1})
NANO = "nemotron-3-nano@dgx-h100:8"


def hybrid(ssm: StateSpace, pattern: str = "M*", **changes: Any) -> Transformer:
    return replace(BARE, pattern=pattern, ssm=ssm, **changes)


def design(name: str = NANO, **workload: Any) -> DesignPoint:
    usual: dict[str, Any] = {"tp": 1, "cp": 1, "pp": 1, "ep": 1, "sequence": 1024, "global_batch": 8, "micro_batch": 1}
    return load_design(name, usual | workload, plain=True)


# ---- parameters


def test_a_mamba2_projects_convolves_decays_and_normalises() -> None:
    """Gate and values 32 each, B and C 2 × 16 each, 4 time steps: 132 columns; 96 channels with 4 taps and a bias."""
    projected = 32 + 32 + 2 * 16 + 2 * 16 + 4
    assert MAMBA2.parameters(10) == 10 * projected + 32 * 10 + 96 * 5 + 3 * 4 + 32


def test_a_gated_delta_net_has_two_numbers_per_head_and_one_norm_for_all() -> None:
    projected = 32 + 32 + 2 * 16 + 2 * 16 + 2 * 4
    assert DELTA.parameters(10) == 10 * projected + 32 * 10 + 96 * 4 + 2 * 4 + 8


def test_a_mamba1_projects_its_time_steps_through_a_low_rank() -> None:
    small = 3 + 2 * 16
    expected = 10 * 64 + 32 * 10 + 32 * 5 + 32 * small + 3 * 32 + 32 + small + 32 * 16 + 32
    assert MAMBA1.parameters(10) == expected


def test_layers_of_a_single_mixer_have_one_norm_each() -> None:
    experts = Experts(count=3, active=1, ffn=5, shared_ffn=2)
    model = hybrid(MAMBA2, "ME*-", single_mixers=True, norms_per_layer=1, experts=experts, layers=4)
    attention, ffn = 10 * 3 * 8 + 8 * 10, 2 * 10 * 6
    mixture = 3 * 2 * 10 * 5 + 2 * 10 * 2 + 3 * 10
    outside = 2 * 7 * 10 + 10
    assert count_parameters(model) == outside + 4 * 10 + MAMBA2.parameters(10) + attention + ffn + mixture
    assert count_parameters(model) - count_active_parameters(model) == 2 * 2 * 10 * 5
    assert layer_kinds(model) == {"state_layer": 1, "experts_layer": 1, "attention_layer": 1, "ffn_layer": 1}


def test_latent_experts_read_narrow_vectors_between_two_projections() -> None:
    plain = replace(BARE, experts=Experts(count=3, active=1, ffn=5))
    latent = replace(BARE, experts=Experts(count=3, active=1, ffn=5, latent_width=4))
    assert count_parameters(latent) - count_parameters(plain) == 2 * (2 * 10 * 4 - 3 * 2 * (10 - 4) * 5)


def test_a_pattern_repeats_and_experts_are_placed_in_it() -> None:
    model = hybrid(MAMBA1, "MMMM*MMM", layers=32, experts=Experts(count=4, active=2, ffn=6, every=2))
    assert layer_kinds(model) == {"state_layer": 12, "state_moe_layer": 16, "layer": 4}


def test_a_module_for_a_further_token_is_a_projection_a_layer_and_three_norms() -> None:
    more = replace(BARE, mtp_layers=2)
    layer = (count_parameters(replace(BARE, layers=3)) - count_parameters(BARE)) + 2 * 10 * 10 + 3 * 10
    assert count_parameters(more) == count_parameters(BARE) + 2 * layer
    assert served_model(more) == BARE
    head = 3 * 2 * 10 * 7
    gemms = model_flop_per_token(replace(BARE, layers=3), 64) - model_flop_per_token(BARE, 64) + 3 * 2 * 2 * 10 * 10
    assert model_flop_per_token(more, 64) - model_flop_per_token(BARE, 64) == pytest.approx(2 * (gemms + head))
    assert model_flop_per_token(more, 64, training=False) == model_flop_per_token(BARE, 64, training=False)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pattern": "M*"}, "ssm = None: layers M and P of the pattern need one"),
        ({"pattern": "*", "ssm": MAMBA2}, "the pattern has no layers M or P: leave it out"),
        ({"pattern": "M-", "ssm": MAMBA2}, "pattern = 'M-': must have the letters * M P W C H alone"),
        ({"single_mixers": True}, "single_mixers = True: needs a pattern of layers"),
        ({"pattern": "ME", "single_mixers": True, "ssm": MAMBA2}, "experts = None: layers E of the pattern need them"),
        ({"pattern": "M", "ssm": MAMBA2, "layers": 5000}, "layers = 5000: must be at most 4,096 with a pattern"),
        ({"family": "encoder", "pattern": "*"}, "pattern = '*': only decoders have one, not a encoder"),
    ],
)
def test_what_does_not_go_together_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        replace(BARE, **changes)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"groups": 3}, "groups = 3: must divide heads, 4"),
        ({"kind": "mamba1"}, "rank = 0: Mamba-1 needs one"),
        ({"rank": 2}, "rank = 2: mamba2 has none: leave it out"),
        ({"kind": "mamba1", "rank": 2}, "head_dim = 8: Mamba-1 has channels as heads"),
    ],
)
def test_a_state_space_is_checked(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        replace(MAMBA2, **changes)
    assert sentence in str(caught.value)


# ---- operations


def test_a_token_costs_the_products_of_its_chunk() -> None:
    """Chunks of 4 tokens: 2.5 before each on average. 2 groups, 4 heads of 8, states of 16."""
    model = hybrid(MAMBA2, "M", layers=1)
    gemms = 2 * (10 * 132 + 32 * 10 + 2 * 10 * 6 + 10 * 7)
    scan = 2 * 2.5 * 2 * 16 + 4 * (2 * 2.5 * 8 + 4 * 16 * 8)
    assert model_flop_per_token(model, 64, training=False) == gemms + scan
    assert model_flop_per_token(model, 64) == 3 * (gemms + scan)


def test_a_delta_rule_and_a_selective_scan_cost_theirs() -> None:
    delta = hybrid(DELTA, "M", layers=1)
    gemms = 2 * (10 * 136 + 32 * 10 + 2 * 10 * 6 + 10 * 7)
    scan = 4 * (2 * 2.5 * (3 * 16 + 2 * 8) + 6 * 16 * 8)
    assert model_flop_per_token(delta, 64, training=False) == gemms + scan
    one = hybrid(MAMBA1, "M", layers=1)
    gemms = 2 * (10 * 64 + 32 * 10 + 32 * 35 + 3 * 32 + 2 * 10 * 6 + 10 * 7)
    assert model_flop_per_token(one, 64, training=False) == gemms + 9 * 32 * 16


def test_a_long_sequence_costs_a_token_no_more() -> None:
    model = hybrid(MAMBA2, "M", layers=1)
    assert model_flop_per_token(model, 1 << 20) == model_flop_per_token(model, 64)
    short = model_flop_per_token(model, 1, training=False)  # one token has no chunk: 1 instead of 2.5
    assert short == model_flop_per_token(model, 64, training=False) - 1.5 * (2 * 2 * 16 + 4 * 2 * 8)


# ---- a scan


def test_a_scan_moves_streams_states_and_scores() -> None:
    """1,024 tokens of Nemotron 3 Nano: 4,096 wide, 8 groups and states of 128, chunks of 128, as figures say."""
    flop = 1024 * (2 * 64.5 * 8 * 128 + 64 * (2 * 64.5 * 64 + 4 * 128 * 64))
    nano = Scan("ssd_scan", 1, 1024, 64, 64, 8, 128, 128, flop=flop)
    moved = CONSTANTS.ssd_scan.forward
    per_token = 2 * (3 * 4096 + 4 * 1024) + 4 * 4 * 4096 * 128 / 128 + 2 * 4 * 8 * 128
    assert scan_bytes(nano, moved) == 1024 * per_token
    rates = ScanRates(bytes_per_s=4e12, sms=132, gap_s=1e-6)
    seconds = 1024 * per_token / (0.85 * 4e12) + flop / (1.5e12 * 132) + 5 * 1e-6
    assert scan_seconds(nano, "forward", rates) == pytest.approx(seconds)
    assert 2 < scan_seconds(nano, "backward", rates) / seconds < 4


def test_five_kernels_take_what_was_measured_on_an_h100() -> None:
    """128 heads of 64 by 128 in chunks of 256: 10.7 to 12.9 million tokens a second (vLLM, pull request 27299)."""
    flop = 32768 * (2 * 128.5 * 128 + 128 * (2 * 128.5 * 64 + 4 * 128 * 64))
    shape = Scan("ssd_scan", 1, 32768, 128, 64, 1, 128, 256, flop=flop)
    seconds = scan_seconds(shape, "forward", ScanRates(3e12, 132))
    assert 10.7e6 < 32768 / seconds < 12.95e6


def test_mamba1_takes_two_to_eight_times_as_long_as_mamba2() -> None:
    """With states of 16 against 64 (Dao and Gu, figure 10), both 4,096 wide, both passes, on an A100."""
    rates = ScanRates(1.6e12, 108)
    flop = 8192 * (2 * 128.5 * 64 + 64 * (2 * 128.5 * 64 + 4 * 64 * 64))
    old = Scan("selective_scan", 1, 8192, 4096, 1, 1, 64, 1)
    new = Scan("ssd_scan", 1, 8192, 64, 64, 1, 64, 256, flop=flop)
    both = [sum(scan_seconds(each, phase, rates) for phase in ("forward", "backward")) for each in (old, new)]
    assert 2 < both[0] / both[1] < 8


def test_decoding_reads_and_writes_the_state() -> None:
    shape = Scan("ssd_scan", 16, 1, 64, 64, 8, 128, 128)
    assert decode_scan_seconds(shape, ScanRates(4e12, 132)) == pytest.approx(16 * 2 * 4 * 64 * 64 * 128 / 4e12)


# ---- memory


def test_the_cache_is_of_attention_layers_and_states_of_the_others() -> None:
    """6 layers with 2 KV heads of 128 in 16 bits for each token, 23 states in single precision, whatever the length."""
    for sequence in (1024, 65536):
        point = design(task="decode", dp=8, sequence=sequence, global_batch=32)
        held = float(footprint(batch_of(point)).parts["kv_cache"])
        state = 23 * (4 * 64 * 64 * 128 + 2 * 6144 * 3)
        assert held == 4 * (6 * 2 * 2 * 128 * 2 * sequence + state)


def test_states_are_split_over_heads() -> None:
    whole, split = (
        float(footprint(batch_of(design(task="decode", sequence=1, global_batch=8, **mesh))).parts["kv_cache"])
        for mesh in MESHES
    )
    state, token = 23 * (4 * 64 * 64 * 128 + 2 * 6144 * 3), 6 * 2 * 128 * 2
    assert whole == state + 2 * token
    assert split == 8 * (state / 8 + token)  # two KV heads over eight ranks: one each


def test_a_fused_scan_makes_its_convolution_again() -> None:
    kept = [
        float(footprint(batch_of(design(dp=8, execution=execution, set_to_none=False))).parts["activations"])
        for execution in ("eager", "fused")
    ]
    assert kept[0] - kept[1] > 23 * 1024 * 2 * 6144 * 0.99


# ---- mapping


def test_tensor_parallel_heads_are_gathered_before_and_summed_after() -> None:
    point = design(tp=2, dp=4)
    uses = [use for use in list_collectives(batch_of(point)) if use.block == "state_layer" and use.axes == ("tp",)]
    assert [(use.kind, use.tensor) for use in uses if use.phase == "forward"] == [
        ("all_gather", "attention_norm"),
        ("reduce_scatter", "ssm_out"),
    ]


def test_context_parallel_sequences_become_whole_and_heads_are_split() -> None:
    point = design(cp=2, dp=4)
    uses = [use for use in list_collectives(batch_of(point)) if use.block == "state_layer" and use.axes == ("cp",)]
    sent = {use.tensor: float(use.bytes) for use in uses if use.phase == "forward" and use.kind == "all_to_all"}
    assert sent == {"ssm_in": 512 * 2 * 10304, "gated": 512 * 2 * 4096}


@pytest.mark.parametrize(
    ("name", "mesh", "sentence"),
    [
        (NANO, {"tp": 16}, "tp 16 does not divide the 8 groups of the state space: choose a divisor"),
        ("jamba-1.5-mini@dgx-h100:8", {"cp": 2}, "cp 2: the scan of Mamba-1 is not split over sequences, set cp to 1"),
        (
            "deepseek-v4-flash@dgx-h100:8",
            {"tp": 16},
            "tp 16 does not divide the groups of heads, model.sparse.o_groups",
        ),
        (NANO, {"tp": 8, "cp": 16}, "tp 8 × cp 16 does not divide the 64 heads of the state space: choose divisors"),
    ],
)
def test_a_mapping_that_cannot_run_says_why(name: str, mesh: dict[str, int], sentence: str) -> None:
    ranks = max(8, mesh.get("tp", 1) * mesh.get("cp", 1))
    point = design(name.replace(":8", f":{ranks}"), dp=ranks // (mesh.get("tp", 1) * mesh.get("cp", 1)), **mesh)
    assert any(reason.startswith(sentence) for reason in invalid_reasons(point))
    assert not invalid_reasons(point.changed(mend_mapping(point) or {}))
    assert isinstance(evaluate(point), Infeasible)


def test_a_pipeline_counts_the_kinds_of_its_stages() -> None:
    point = design(pp=4, dp=2)
    model = point.model
    assert isinstance(model, Transformer)
    parts = layers_of_parts(batch_of(point), blocks(model))
    letters = [model.pattern[start : start + 13] for start in range(0, 52, 13)]
    assert [part["state_layer"] for part in parts] == [each.count("M") for each in letters]
    assert [part["attention_layer"] for part in parts] == [each.count("*") for each in letters]
    assert heaviest_stage("layer=a moe_layer=b " + "ab" * 3 + "bb", "1 9", 4, 1, -1, -1) == (3.0, 0.0)
    assert heaviest_stage("layer=a b", "1", 1e9, 1, -1, -1) == (0.0, 0.0)  # more stages than anything has


@pytest.mark.parametrize("name", ["nemotron-3-super", "qwen3-next-80b-a3b", "jamba-1.5-mini", "nemotron-h-8b"])
@pytest.mark.parametrize("task", ["training", "prefill", "decode"])
def test_every_task_runs(name: str, task: str) -> None:
    capacity = {"memory.capacity": "10 TB", "ep": 1, "recompute": "full" if task == "training" else "none"}
    answer = evaluate(design(f"{name}@dgx-h100:8", task=task, tp=2, pp=2, dp=2, **capacity))
    assert not isinstance(answer, Infeasible)
    assert 0 < answer.step_s < 1e3


@pytest.mark.parametrize("seed", range(3))
def test_both_engines_agree(seed: int) -> None:
    point = random_design(Random(seed), family="hybrid", accelerators=8, task="training", recompute="none")
    found = compare_engines(point.changed({"memory.capacity": 1e15, "workload.offload": ()}))
    assert found is None or 0.85 < found.ratio < 1.15


# ---- attention to few keys


def test_a_query_reads_its_window_and_the_compressed_keys_that_it_picks() -> None:
    """4,096 tokens, a window of 128; blocks of 4, 512 of 1,024 picked; blocks of 128, all read."""
    model = design("deepseek-v4-flash@dgx-h100:8", dp=8).model
    assert isinstance(model, Transformer)
    shares = {kind: attended_share(model, kind, 4096.0) * 4096 for kind in layer_kinds(model)}
    window = 128 - 128 * 127 / 2 / 4096  # the first 127 tokens have fewer before them
    assert shares["window_moe_layer"] == pytest.approx(window)
    assert shares["sparse_moe_layer"] == pytest.approx(window + (256 * 2048 + 512 * 2048) / 4096)
    assert shares["heavy_moe_layer"] == pytest.approx(window + 16)
    decoded = attended_share(model, "sparse_moe_layer", 65536.0, decoding=True) * 65536
    assert decoded == pytest.approx(128 + 512)


def test_few_keys_are_cached() -> None:
    """Two layers with a window alone, 21 with a key for 4 tokens and one of the index, 20 with a key for 128."""
    point = design("deepseek-v4-flash@dgx-h100:8", task="decode", dp=8, sequence=65536, global_batch=8)
    held = float(footprint(batch_of(point)).parts["kv_cache"])
    recent, block = 43 * 128 * 512, 21 * 16384 * (512 + 128) + 20 * 512 * 512
    assert held == 2 * (recent + block)


def test_residual_streams_are_sent_between_stages() -> None:
    point = design("deepseek-v4-flash@dgx-h100:8", pp=2, dp=4)
    sent = [use for use in list_collectives(batch_of(point)) if use.kind == "send"]
    assert float(sent[0].bytes) == 1024 * 4 * 4096 * 2


def test_a_decoded_token_is_scanned_by_itself() -> None:
    """However long the sequence before it: 1 product instead of the 2.5 of a chunk."""
    model = hybrid(MAMBA2, "M", layers=1)
    alone = model_flop_per_token(model, 1, training=False)
    for sequence in (1, 2, 64):
        assert model_flop_per_token(model, sequence, training=False, decoding=True) == alone

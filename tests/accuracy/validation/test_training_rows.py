"""Published runs: the designs that rows describe, and what is assumed where they do not say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cosmic.accuracy.measured_rows import CARRIED, Fields, Row, read_rows
from cosmic.accuracy.rows.training_rows import compare_rows, read_run
from cosmic.base.errors import SpecError
from cosmic.design.measured_hardware import POWER_EXPONENT, build_machine
from cosmic.design.model_layer import Transformer, count_parameters
from tests.batches import check_all

PUBLISHED = {row["id"]: row for row in read_rows(CARRIED / "training_published.csv")[1]}


RATES = ("iter_time_s", "tokens_per_s_per_accel", "tflops_per_accel", "mfu", "hfu")


def run_of(identity: str, **changes: str) -> tuple[Any, Fields]:
    """Return the design of a published run, some of its cells changed, and its row's fields."""
    fields = Fields({**PUBLISHED[identity], **changes})
    return read_run(fields).point, fields


def test_a_complete_row_is_the_design_that_was_published_and_nothing_is_assumed() -> None:
    point, fields = run_of("korth-t5-530B-selective")
    w = point.workload
    assert (w.tp, w.pp, w.dp, w.virtual_stages, w.schedule) == (8, 35, 1, 3, "interleaved")
    assert (w.precision, w.recompute, w.sequence_parallel, w.weight_sharding) == ("fp16", "selective", True, "none")
    assert (w.attention, w.dropout, w.dp_overlap) == ("unfused", True, False)
    assert [dim.npus for dim in point.network.dims] == [8, 35]
    assert count_parameters(point.model) == pytest.approx(530e9, rel=0.01)
    assert fields.assumed == []


@pytest.mark.long
@check_all("identity", sorted(name for name in PUBLISHED if name.startswith("mosaic")), tests=3)
def test_models_have_the_parameters_that_were_published(identity: str) -> None:
    point, _ = run_of(identity)
    assert count_parameters(point.model) == pytest.approx(1e9 * float(PUBLISHED[identity]["n_params_b"]), rel=2e-3)


def test_defaults_are_taken_and_said() -> None:
    point, fields = run_of("korth-t5-22B-full", zero_stage="", precision="", dp="", seq_par="")
    assert (point.workload.precision, point.workload.dp, point.workload.weight_sharding) == ("bf16", 1, "none")
    assert not point.workload.sequence_parallel  # Megatron-LM has it since June 2022, after this run
    said = " ".join(fields.assumed)
    assert all(f"{name}: " in said for name in ("zero_stage", "precision", "dp", "seq_par"))


def test_embedding_and_head_may_be_virtual_stages() -> None:
    point, fields = run_of("mbridge-038")  # 126 layers in 16 × 8
    assert point.workload.virtual_stages == 8
    assert not any(text.startswith("vpp") for text in fields.assumed)


def test_more_stages_than_layers_are_the_most_that_there_can_be() -> None:
    point, fields = run_of("mbridge-038", vpp="9")
    assert point.workload.virtual_stages == 8
    assert any(text.startswith("vpp: 8 for 9") for text in fields.assumed)


def test_weights_are_sharded_where_whole_ones_cannot_fit() -> None:
    point, fields = run_of("mbridge-165", accel="GB200")  # 70 B parameters on each of 64
    assert point.workload.weight_sharding == "zero3"
    assert any(text.startswith("zero_stage: 3, ") for text in fields.assumed)


def test_recipes_say_what_tables_do_not() -> None:
    """DeepSeek-V3 on GB200 recomputes MLA's up-projections; LLaMA-3 70B, fully sharded, offloads 40 layers."""
    latent = run_of("mbridge-002")[0].workload
    assert (latent.recompute, latent.recompute_modules, latent.moments) == ("selective", ("mla_up_proj",), "bf16")
    assert (latent.grad_reduce_in_fp32, latent.loss) == (False, "fused")
    sharded = run_of("mbridge-268")[0]
    assert (sharded.workload.offload, sharded.workload.offload_num_layers) == (("activations",), 40)
    assert [tier.name for tier in sharded.memory.tiers] == ["host"]
    assert run_of("mbridge-002", recompute="none")[0].workload.recompute == "none"


def test_torchtitan_keeps_gathered_weights_in_pipelines_and_selects_every_other_product() -> None:
    staged, _ = run_of("titan-t5-1")
    selective, _ = run_of("titan-t1-2")
    assert staged.workload.weight_sharding == "zero1"
    assert selective.workload.weight_sharding == "zero3"
    assert selective.workload.recompute == "alternate"


def test_an_accelerator_held_to_less_power_is_slower_by_the_root_of_it() -> None:
    usual, held = build_machine("H100-SXM-80GB", 8), build_machine("H100-96GB-HBM2e-500W", 8)
    assert held.compute.bf16_flop_per_s / usual.compute.bf16_flop_per_s == pytest.approx((5 / 7) ** POWER_EXPONENT)
    assert held.memory.bandwidth_bytes_per_s == pytest.approx(2.4e12)
    assert held.memory.capacity_bytes == 96 * 2**30


def test_sources_ran_the_attention_kernels_of_their_time() -> None:
    first, _ = run_of("mosaic-107")
    second, _ = run_of("titan-t1-2")
    latest, _ = run_of("nemo2407-05")
    assert [each.workload.attention for each in (first, second, latest)] == ["flash1", "flash2", "fused"]
    assert latest.compute == build_machine("H100-SXM-80GB", 8).compute


def test_the_last_stage_has_room_for_what_predicts_further_tokens() -> None:
    """DeepSeek-V3: seven stages of 8 layers, and 5 beside the module; of virtual stages it is a layer like others."""
    staged, fields = run_of("mbridge-043")
    assert (staged.workload.pp, staged.workload.last_stage_layers, staged.model.mtp_layers) == (8, 5, 1)
    assert any(text.startswith("multi-token prediction") for text in fields.assumed)
    assert run_of("mbridge-001")[0].model.layers == 62
    assert run_of("mbridge-238")[0].model.layers == 61  # without


def test_tensor_parallel_overlap_needs_sequence_parallelism() -> None:
    assert run_of("mbridge-080")[0].workload.tp_overlap
    assert not run_of("mbridge-080", seq_par="0")[0].workload.tp_overlap


def test_a_batch_that_is_not_given_follows_from_time_and_rate_or_is_usual() -> None:
    given = run_of("mbridge-080")[0].workload.global_batch
    assert run_of("mbridge-080", gbs="")[0].workload.global_batch == given
    usual = run_of("mbridge-080", gbs="", iter_time_s="")[0].workload
    assert usual.global_batch * usual.sequence == 2**22


def test_a_run_of_no_published_mapping_is_predicted_with_its_range() -> None:
    mesh = dict.fromkeys(("tp", "pp", "cp", "dp", "vpp", "mbs", "zero_stage", "seq_par", "schedule"), "")
    [verdict] = compare_rows([{**PUBLISHED["nemo2407-05"], **mesh}])
    assert verdict.predicted_s is not None
    assert verdict.low_s == verdict.predicted_s
    assert verdict.high_s is not None
    assert verdict.predicted_s < verdict.high_s <= 1.1 * verdict.predicted_s
    assert any("the fastest that fits of" in text for text in verdict.assumed)


def test_a_rack_is_one_domain_as_far_as_the_count_allows() -> None:
    assert [dim.npus for dim in build_machine("GB200", 2560, per_node=4).network.dims] == [64, 40]
    assert [dim.npus for dim in build_machine("GB300", 8, per_node=4).network.dims] == [8]
    assert build_machine("H200-SXM-141GB", 1).network.dims == ()


def test_the_rate_between_nodes_is_the_row_s() -> None:
    point, _ = run_of("vtrain-m-002")
    assert point.network.dims[1].bandwidth_bytes_per_s == pytest.approx(100e9 / 8)


def test_times_follow_from_rates_where_no_time_is_given() -> None:
    row = PUBLISHED["korth-t5-22B-full"]
    given = float(row["iter_time_s"])
    fields = Fields({**row, "iter_time_s": ""})
    assert read_run(fields).measured_s == pytest.approx(given, rel=0.01)
    assert "measured_s: from tokens_per_s_per_accel" in fields.assumed
    fields = Fields({**row, "iter_time_s": "", "tokens_per_s_per_accel": ""})
    assert read_run(fields).measured_s == pytest.approx(given, rel=0.1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accel": "abacus"}, "accel = 'abacus': no such accelerator"),
        ({"model": "oracle", "arch": "", "n_layers": ""}, "the catalog has no such model"),
        ({"precision": "fp3"}, "precision = 'fp3': must be one of bf16"),
        ({"tp": "3"}, "n_accel = 8: does not divide"),
        ({"tp": "", "pp": "", "cp": "", "dp": "", "n_accel": "2", "recompute": "none"}, "not published, and none fits"),
        ({"gbs": "many"}, "gbs = 'many': must be a number"),
        ({"recompute": "some"}, "must be one of none, selective"),
        ({"zero_stage": "4"}, "must be 0, 1, 2 or 3"),
        ({"seq_par": "perhaps"}, "must be 0 or 1"),
        ({"gbs": "5"}, "global_batch 5 does not divide by dp 1 × micro_batch 4"),
        (dict.fromkeys(RATES, ""), "neither a time nor a rate"),
    ],
)
def test_a_row_that_cannot_be_built_is_skipped_with_the_reason(changes: dict[str, str], said: str) -> None:
    [verdict] = compare_rows([{**PUBLISHED["korth-t5-22B-full"], **changes}])
    assert verdict.predicted_s is None
    assert said in verdict.skipped


def test_a_run_on_one_node_is_predicted_within_a_fifth_and_its_memory_too() -> None:
    rows = [PUBLISHED["korth-t5-22B-full"], PUBLISHED["korth-t5-22B-selective"]]
    for verdict in compare_rows(rows):
        assert verdict.error is not None
        assert abs(verdict.error) < 0.2


CELLS = st.sampled_from(["", "0", "1", "2", "-3", "7", "1e9", "nan", "x", "8.5", "GB200", "llama", "fp8", "full", "∞"])


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(sorted(PUBLISHED["korth-t5-22B-full"])), CELLS, min_size=1, max_size=6))
@example({"n_experts": "1e9"})
def test_no_cell_stops_the_reading_of_a_row(cells: dict[str, str]) -> None:
    row: Row = {**PUBLISHED["korth-t5-22B-full"], **cells}
    try:
        point = read_run(Fields(row)).point
    except SpecError:
        return
    assert isinstance(point.model, Transformer)

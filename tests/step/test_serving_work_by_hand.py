"""What one device reads, computes and sends in a serving step, summed up here from the shapes alone.

The model has 2 layers, hidden 8, 2 heads of 4, ffn 16, vocab 10 and RMS norms. A layer has four matrices of 8 × 8 and
two of 8 × 16, 512 weights in all, and two norms of 8. Two sequences of 4 tokens are decoded: m = 2 rows in every GEMM.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from cosmic.design.batch import batch_of
from cosmic.errors import SpecError
from cosmic.loading.designs import load_design
from cosmic.step.serving_work import ServingWork, serving_work

MODEL = {"layers": 2, "hidden": 8, "heads": 2, "ffn": 16, "vocab": 10, "norm": "rmsnorm"}
ONE_NORM = {"parallel_block": True, "norms_per_layer": 1}
EXPERTS = {"count": 4, "active": 2, "ffn": 4}
LATENT = {"q_lora_rank": 3, "kv_lora_rank": 6, "qk_rope_head_dim": 2, "v_head_dim": 5}
AXES = {"dp": 1, "tp": 1, "cp": 1, "pp": 1, "ep": 1}
DECODE = {"task": "decode", "sequence": 4, "micro_batch": 2, "global_batch": 2, "weight_sharding": "none"}
PREFILL: dict[str, Any] = {"task": "prefill", "micro_batch": 1, "global_batch": 1}


def work(model: dict[str, Any] | None = None, cache: float | None = None, **workload: Any) -> ServingWork:
    """Return the work of the tiny model, changed by *model*, on as many accelerators as the mapping needs."""
    mapping = {**AXES, **DECODE, **workload}
    npus = mapping["dp"] * mapping["tp"] * mapping["cp"] * mapping["pp"]
    dims = [{"topology": "switch", "npus": npus, "bandwidth": "100 GB/s", "latency": "1 us"}] if npus > 1 else []
    tree = {
        "model": model if model and "tables" in model else {**MODEL, **(model or {})},
        "compute": {"bf16": "100 TFLOP/s"},
        "memory": {"capacity": "1 GiB", "bandwidth": "1 TB/s"},
        "network": {"dims": dims},
        "workload": mapping,
    }
    return serving_work(batch_of(load_design(tree)), cache)


LAYER_GEMMS = 4 * (8 + 8) + 2 * (8 + 16)
"""Rows and columns, n + k, of a layer's GEMMs."""
LAYER_STREAMS = (8 + 8) + 2 * (8 + 8) + (8 + 8 + 8) + (8 + 8) + (16 + 16) + (8 + 8 + 8)
"""For each token: a norm, two rotations, a sum, a norm, the GELU, a sum; norms read 8 weights besides."""


LAYER_MOVED = 2 * LAYER_GEMMS + 2 * LAYER_STREAMS + 2 * 8
EMBEDDING_MOVED = 2 * (1 + 8)
"""Two token ids, and the rows of the table."""
HEAD_MOVED = 2 * (10 + 8) + (2 * (8 + 8) + 8) + 2 * (10 + 1)
"""The GEMM, the norm, and what picks a token."""
MOVED = 2 * LAYER_MOVED + EMBEDDING_MOVED + HEAD_MOVED


def test_two_sequences_decode_on_one_accelerator() -> None:
    assert asdict(work()) == {
        "resident_bytes": 2 * (80 + 2 * 528 + 88),
        "weight_bytes": 2 * (2 * 512 + 80),
        "cache_bytes": 2 * 4 * 2 * 16 * 2,  # sequences, tokens, layers, keys and values of 8, bytes
        "wide_flop": 2 * 2 * (2 * 512 + 80),
        "narrow_flop": 0,
        "expert_flop": 0,
        "attention_flop": 2 * (2 * 2 * 1 * 4) * 2 * (4 + 4),
        "activation_bytes": 2 * MOVED,
        "exchanges": 0,
        "exchanged_bytes": 0,
        "group": 1,
    }


def test_a_prefill_runs_the_layers_alone_and_half_of_the_scores() -> None:
    """Of 4 tokens each sees those before it and itself: 10 of 16 pairs."""
    found = work(**PREFILL)
    assert found.resident_bytes == 2 * 1224
    assert found.weight_bytes == 2 * 2 * 512
    assert found.wide_flop == 2 * 4 * 2 * 512
    assert found.attention_flop == 2 * (2 * 10) * 2 * (4 + 4)
    assert found.activation_bytes == 2 * 2 * (4 * LAYER_GEMMS + 4 * LAYER_STREAMS + 2 * 8)
    assert found.cache_bytes == 4 * 2 * 16 * 2


def test_encoders_attend_to_everything() -> None:
    """Without rotations: 4 tokens see 4."""
    assert work({"family": "encoder"}, **PREFILL).attention_flop == 2 * (2 * 16) * 2 * (4 + 4)


def test_the_cache_can_be_in_a_format_of_its_own() -> None:
    assert work(cache=1).cache_bytes == 2 * 4 * 2 * 16
    assert work(cache=1).weight_bytes == 2 * (2 * 512 + 80)


@pytest.mark.parametrize(("precision", "width"), [("fp8", 1), ("fp4", 0.5625), ("int4", 0.5625)])
def test_narrow_gemms_are_those_of_the_layers(precision: str, width: float) -> None:
    found = work(ONE_NORM, precision=precision)
    assert found.resident_bytes == width * 2 * 512 + 2 * (2 * 8 + 80 + 88)
    assert found.weight_bytes == width * 2 * 512 + 2 * 80
    assert (found.narrow_flop, found.wide_flop, found.expert_flop) == (2 * 2 * 2 * 512, 2 * 2 * 80, 0)


def test_activations_have_the_bytes_of_their_format() -> None:
    assert work(precision="fp32").activation_bytes == 4 * MOVED
    assert work(precision="fp32").wide_flop == 2 * 2 * (2 * 512 + 80)


# --------------------------------------------------------------------------------------------------------- experts


def test_experts_that_no_token_picks_are_not_read() -> None:
    """Two tokens pick 2 of 4 experts each: 1 - (1 - 2/4)^2 = 3/4 of the experts are read."""
    found = work({"experts": EXPERTS})
    routed, others = 4 * 2 * 8 * 4, 256 + 32
    assert found.resident_bytes == 2 * (2 * (16 + others + routed) + 80 + 88)
    assert found.weight_bytes == pytest.approx(2 * (2 * (others + routed * 3 / 4) + 80))
    assert found.wide_flop == pytest.approx(2 * 2 * (2 * (others + 2 * 2 * 8 * 4) + 80))


def test_expert_gemms_are_counted_apart_where_they_are_narrow() -> None:
    found = work({**ONE_NORM, "experts": EXPERTS}, precision="fp8")
    assert found.expert_flop == pytest.approx(2 * 2 * 2 * (2 * 2 * 8 * 4))
    assert found.narrow_flop == 2 * 2 * 2 * 256
    assert found.wide_flop == 2 * 2 * (2 * 32 + 80)  # routers and the head
    four = work({**ONE_NORM, "experts": EXPERTS}, precision="fp4")
    assert (four.narrow_flop, four.wide_flop) == (0, 2 * 2 * (2 * (256 + 32) + 80))


def test_an_expert_layer_moves_what_is_chosen_sent_and_combined() -> None:
    """For each token: two experts of GEMMs 8 + 4 and 4 + 8 wide, the router's 4 scores and 2 choices, 2 · 8 sent."""
    gemms = 4 * 16 + (8 + 4) + 2 * 2 * (8 + 4)
    streams = 16 + 2 * 16 + 24 + 16 + 24  # norm, rotations, sum, norm, sum
    streams += (4 + 2) + (8 + 2 + 16) + 2 * (4 + 4) + (16 + 2 + 8)  # choose, send, GELU, combine
    layer = 2 * (gemms + streams) + 2 * 8
    moved = 2 * layer + EMBEDDING_MOVED + HEAD_MOVED
    assert work({"experts": EXPERTS}).activation_bytes == pytest.approx(2 * moved)


# -------------------------------------------------------------------------------------------------------------- MLA


def latent(**workload: Any) -> ServingWork:
    return work({"mla": LATENT}, **workload)


def test_mla_decodes_in_the_compressed_space() -> None:
    """2 sequences · 2 heads · 4 tokens: a query of 6 + 2 meets the cached vector, whose 6 are the value."""
    assert latent().attention_flop == 2 * (2 * 2 * 4) * 2 * (2 * 6 + 2)
    assert latent().cache_bytes == 2 * 4 * 2 * (6 + 2) * 2


def test_mla_prefills_with_the_heads_written_out() -> None:
    """Keys of 4 + 2 and values of 5; 10 of 16 pairs are seen."""
    assert latent(**PREFILL).attention_flop == 2 * (2 * 10) * 2 * (4 + 2 + 5)


# ------------------------------------------------------------------------------------------------------ collectives


def test_tensor_parallel_ranks_add_up_after_attention_and_after_the_feed_forward_network() -> None:
    """2 tokens of 8 in 2 bytes, twice a layer; decoding, also after the embedding, and a number a token in the end."""
    found = work(tp=2)
    assert (found.exchanges, found.group) == (2 * 2 + 1 + 1, 2)
    assert found.exchanged_bytes == 2 * (2 * 8) * (2 * 2 + 1) + 2 * 2
    assert found.resident_bytes == 2 * (40 + 2 * (16 + 256) + 8 + 40)
    assert found.weight_bytes == 2 * (2 * 256 + 40)
    assert found.wide_flop == 2 * 2 * (2 * 256 + 40)
    assert found.attention_flop == 2 * (2 * 1 * 1 * 4) * 2 * (4 + 4)
    assert found.cache_bytes == 2 * 4 * 2 * 8 * 2


def test_a_prefill_adds_up_in_its_layers_alone() -> None:
    found = work(tp=2, **PREFILL)
    assert (found.exchanges, found.exchanged_bytes) == (4, 4 * 2 * 4 * 8)


def test_replicas_exchange_nothing() -> None:
    found = work(dp=2, global_batch=4)
    assert (found.exchanges, found.exchanged_bytes, found.group) == (0, 0, 1)
    assert found.resident_bytes == 2 * 1224  # each has a copy


def test_the_outputs_of_split_experts_are_summed_per_token_before_they_are_exchanged() -> None:
    """Two experts' outputs make one vector of 8 for each of 2 tokens: as much as after attention."""
    found = work({"experts": EXPERTS}, tp=2)
    assert found.exchanges == 2 * 2 + 1 + 1
    assert found.exchanged_bytes == 2 * (2 * 8) * (2 * 2 + 1) + 2 * 2


def test_the_outputs_of_shared_experts_are_exchanged_with_those_of_the_routed_ones() -> None:
    found = work({"experts": {**EXPERTS, "shared_ffn": 6}}, tp=2)
    assert found.exchanges == 2 * 2 + 1 + 1
    assert found.exchanged_bytes == 2 * (2 * 8) * (2 * 2 + 1) + 2 * 2


def test_expert_parallel_ranks_send_each_token_to_its_experts_and_back() -> None:
    """Each of 2 replicas sends its 2 tokens to two experts each: 4 vectors of 8 there and 4 back, in 2 layers."""
    found = work({"experts": EXPERTS}, dp=2, ep=2, global_batch=4)
    assert (found.exchanges, found.group) == (2 * 2, 2)
    assert found.exchanged_bytes == 2 * 2 * (2 * 2 * 8 * 2)


def test_the_largest_group_counts() -> None:
    found = work({"experts": EXPERTS}, tp=2, dp=4, ep=4, global_batch=8)
    assert found.group == 4


# ------------------------------------------------------------------------------------------------------- what is not


def test_training_is_no_serving() -> None:
    with pytest.raises(SpecError, match="task = 'training': must be prefill or decode"):
        work(task="training")


def test_recommenders_are_not_served() -> None:
    model = {
        "family": "recommender",
        "name": "tiny",
        "dense_features": 4,
        "tables": [6, 10],
        "embedding": 2,
        "bottom": [3, 2],
        "top": [3, 1],
    }
    with pytest.raises(SpecError, match="model = 'tiny': only transformers are served"):
        work(model, sequence=1, task="prefill")

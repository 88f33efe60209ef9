"""Models: what they must satisfy, and how many parameters they have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.design.model_layer import (
    MLA,
    Experts,
    Image,
    Recommender,
    Transformer,
    attention_parameters,
    count_active_parameters,
    count_moe_layers,
    count_parameters,
    is_moe_layer,
)

BARE = Transformer(layers=1, hidden=4, heads=2, ffn=16, vocab=10, norm="rmsnorm")
"""Attention 4·4·4, feed-forward 2·4·16, three norms of 4, embedding and head 2·4·10: 284 parameters."""


def grown(**changes: Any) -> int:
    """Return how many parameters the bare model gains by *changes*."""
    return count_parameters(replace(BARE, **changes)) - count_parameters(BARE)


def test_parameters_are_the_sum_of_the_matrices_and_norms() -> None:
    assert count_parameters(BARE) == 4 * 4 * 4 + 2 * 4 * 16 + 3 * 4 + 2 * 4 * 10


@pytest.mark.parametrize(
    ("changes", "gain"),
    [
        ({"gated": True}, 4 * 16),
        ({"tied_embeddings": True}, -4 * 10),
        ({"kv_heads": 1}, -2 * 4 * 2),
        ({"head_dim": 3}, 4 * 4 * 2),
        ({"norm": "layernorm"}, 3 * 4),
        ({"norm": "layernorm", "norm_bias": False}, 0),
        ({"norms_per_layer": 4}, 2 * 4),
        ({"final_norm": False}, -4),
        ({"embedding_norm": True}, 4),
        ({"positions": 7}, 7 * 4),
        ({"segments": 2}, 2 * 4),
        ({"position_buckets": 32}, 32 * 2),
        ({"qk_norm": True}, 2 * 2),
        ({"sinks": True}, 2),
        ({"biases": ("qkv",)}, 3 * 4),
        ({"biases": ("out",)}, 4),
        ({"biases": ("ffn",)}, 16 + 4),
        ({"biases": ("ffn",), "gated": True}, 4 * 16 + 2 * 16 + 4),
        ({"biases": ("head",)}, 10),
        ({"pretraining_heads": True}, 2 * (4 * 4 + 4) + 4 + 2 * 4 + 2),
        ({"parallel_block": True}, 0),
        ({"window": 8, "full_attention_every": 2}, 0),
    ],
)
def test_each_field_adds_the_parameters_it_names(changes: dict[str, Any], gain: int) -> None:
    assert grown(**changes) == gain


def test_an_encoder_decoder_attends_twice_in_its_decoder() -> None:
    attention, ffn, norm = 4 * 4 * 4, 2 * 4 * 16, 4
    encoder = 3 * (attention + ffn + 2 * norm) + norm
    assert grown(family="encoder_decoder", encoder_layers=3) == encoder + attention + norm


def test_a_vision_transformer_embeds_patches_and_has_one_table_of_classes() -> None:
    image = Image(size=8, patch=2)
    assert image.tokens == 17
    assert grown(family="vision", image=image) == 4 * (3 * 2 * 2 + 1) + 4 - 4 * 10
    assert replace(image, class_token=False).tokens == 16


def test_an_moe_model_counts_all_experts_and_activates_a_few() -> None:
    experts = Experts(count=8, active=2, ffn=3, shared_ffn=5, shared_gate=True)
    model = replace(BARE, layers=4, gated=True, experts=experts)
    expert, rest = 3 * 4 * 3, 3 * 4 * 5 + 4 + 8 * 4
    dense = count_parameters(replace(model, experts=None)) - 4 * 3 * 4 * 16
    assert count_parameters(model) == dense + 4 * (8 * expert + rest)
    assert count_active_parameters(model) == dense + 4 * (2 * expert + rest)


def test_biases_of_experts_and_router_are_counted_per_expert() -> None:
    model = replace(BARE, gated=True, experts=Experts(count=8, active=2, ffn=3))
    biased = replace(model, biases=("experts", "router"))
    assert count_parameters(biased) - count_parameters(model) == 8 * (2 * 3 + 4) + 8
    assert count_active_parameters(biased) - count_active_parameters(model) == 2 * (2 * 3 + 4) + 8


def test_a_model_without_experts_activates_all_its_parameters() -> None:
    assert count_active_parameters(BARE) == count_parameters(BARE)


@given(layers=st.integers(1, 60), dense_first=st.integers(0, 70), every=st.integers(1, 9))
def test_the_number_of_moe_layers_is_that_of_the_layers_that_are(layers: int, dense_first: int, every: int) -> None:
    experts = Experts(count=2, active=1, ffn=1, dense_first=dense_first, every=every)
    model = replace(BARE, layers=layers, experts=experts)
    assert count_moe_layers(model) == sum(is_moe_layer(model, layer) for layer in range(layers))


def test_latent_attention_has_its_own_projections_and_norms() -> None:
    direct = MLA(kv_lora_rank=3, qk_rope_head_dim=2, v_head_dim=5)
    query, compress, expand, out = 4 * 2 * (2 + 2), 4 * (3 + 2) + 3, 3 * 2 * (2 + 5), 2 * 5 * 4
    assert attention_parameters(replace(BARE, mla=direct)) == query + compress + expand + out
    compressed = replace(BARE, mla=replace(direct, q_lora_rank=6))
    assert attention_parameters(compressed) == (4 * 6 + 6 + 6 * 2 * 4) + compress + expand + out


def test_a_recommender_counts_tables_and_perceptrons_and_activates_looked_up_rows() -> None:
    model = Recommender(dense_features=3, tables=(10, 20), embedding=2, lookups=4, bottom=(5, 2), top=(6, 1))
    interactions = 3 + 2  # pairs of three vectors, and the dense features themselves
    perceptrons = (3 + 1) * 5 + (5 + 1) * 2 + (interactions + 1) * 6 + (6 + 1) * 1
    assert count_parameters(model) == 30 * 2 + perceptrons
    assert count_active_parameters(model) == 2 * 4 * 2 + perceptrons


def test_heads_of_keys_and_their_width_follow_from_the_rest() -> None:
    assert (BARE.kv_heads, BARE.head_dim) == (2, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "model.layers = 0: must be at least 1"),
        ({"hidden": 5}, "model.hidden = 5: does not divide by heads, 2; give head_dim"),
        ({"kv_heads": 3}, "model.kv_heads = 3: must divide heads, 2"),
        ({"positions": -1}, "model.positions = -1: must not be negative"),
        ({"window": 0}, "model.window = 0: must be at least 1"),
        ({"encoder_layers": 1}, "model.encoder_layers = 1: a decoder has no separate encoder"),
        ({"family": "encoder_decoder"}, "model.encoder_layers = 0: an encoder_decoder needs some"),
        ({"family": "vision"}, "model.image = None: must say how images become tokens"),
        ({"biases": ["qvk"]}, "model.biases.0 = 'qvk': no such choice; did you mean 'qkv'?"),
        (
            {"experts": {"count": 2, "active": 3, "ffn": 1}},
            "model.experts.active = 3: must be 1 … 2, the experts there are",
        ),
        (
            {"mla": {"kv_lora_rank": 0, "qk_rope_head_dim": 1, "v_head_dim": 1}},
            "model.mla.kv_lora_rank = 0: must be at least 1",
        ),
    ],
)
def test_a_malformed_model_is_refused_with_place_and_rule(changes: dict[str, Any], message: str) -> None:
    tree = {"family": "decoder", "layers": 1, "hidden": 4, "heads": 2, "ffn": 16, "vocab": 10}
    with pytest.raises(SpecError) as caught:
        schema.read_value(Transformer | Recommender, tree | changes, "model")
    assert str(caught.value) == message


def test_images_must_be_whole_patches() -> None:
    with pytest.raises(SpecError, match="must be a multiple of the patch, 16"):
        Image(size=250, patch=16)


def test_a_recommender_must_bring_dense_features_to_the_width_of_embeddings() -> None:
    with pytest.raises(SpecError, match="must end in the width of an embedding, 8"):
        Recommender(dense_features=1, tables=(5,), embedding=8, bottom=(4,), top=(1,))

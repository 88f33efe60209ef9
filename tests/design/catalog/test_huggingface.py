"""Hugging Face configs: the same parameters as transformers counts, and one sentence for whatever is wrong.

The files in data/ hold the keys of released configs that shape the model. The counts are of the class under
``architectures`` in transformers 5.22, built from these configs on PyTorch's meta device, tied weights once.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cosmic.base.errors import SpecError, UnknownName
from cosmic.design import catalog_entries, schema
from cosmic.design.huggingface import architectures, model_from_config
from cosmic.design.model_layer import Recommender, Transformer, count_parameters, served_model
from tests.batches import check_all
from tests.commands import output

Tree = dict[str, Any]
MODELS = catalog_entries.CATALOG_FOLDER / "models"
CONFIGS: dict[str, Tree] = {
    path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "data").glob("*.json")
}
PARAMETERS = {
    "bert-base": 110106428,
    "bert-large": 336226108,
    "bloom-176b": 176247271424,
    "bloom-560m": 559214592,
    "deepseek-v2": 235741434880,
    "deepseek-v2-lite": 15706484224,
    "deepseek-v3": 671026404352,
    "deepseek-v4-flash": 284330809664,  # our count: without offsets of blocks, scales of streams and tables of tokens
    "falcon-40b": 41303293952,
    "falcon-7b": 6921720704,
    "falcon-rw-1b": 1311625216,
    "falcon-h1-7b": 7585513568,
    "falcon2-11b": 11102822400,
    "gemma-2b": 2506172416,
    "gemma-7b": 8537680896,
    "gemma2-9b": 9241705984,
    "gemma3-1b": 999885952,
    "gemma3-4b": 3880263168,  # Gemma3ForCausalLM: the language model alone
    "gpt-neox-20b": 20554567680,
    "gpt-oss-120b": 116829156672,
    "gpt-oss-20b": 20914757184,
    "gpt2": 124439808,
    "jamba-1.5-mini": 51570323328,
    "kimi-k2": 1026408209408,
    "llama3-405b": 405853388800,
    "llama3-8b": 8030261248,
    "mamba-2.8b": 2768345600,
    "mamba-codestral-7b": 7285403648,
    "mistral-7b": 7241732096,
    "mixtral-8x7b": 46702792704,
    "nemotron-3-super": 120668687360,
    "opt-125m": 125239296,
    "opt-66b": 65719701504,
    "phi-2": 2779683840,
    "phi3-mini": 3821079552,
    "qwen1.5-moe-a2.7b": 14315784192,
    "qwen2-0.5b": 494032768,
    "qwen2-7b": 7615616512,
    "qwen3-0.6b": 596049920,
    "qwen3-30b-a3b": 30532122624,
    "qwen3-8b": 8190735360,
    "qwen3-next-80b-a3b": 79674391296,
    "t5-11b": 11307321344,
    "t5-base": 222903552,
    "vit-base": 86567656,
    "vit-huge": 632045800,
}
SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
SEQUENCES = {
    "llama3-405b": 8192,
    "deepseek-v3": 4096,
    "gpt-oss-20b": 4096,
    "gpt2": 1024,
    "bloom-560m": 2048,
    "falcon-7b": 2048,
    "gemma3-4b": 131072,
    "bert-base": 512,
    "t5-base": 512,
    "vit-base": 197,
    "qwen3-8b": 40960,
}


def read(config: Tree) -> Transformer:
    """Return the model that *config* describes."""
    tree = model_from_config(config, "config.json")["model"]
    model = schema.read_value(Transformer | Recommender, tree, "model")
    assert isinstance(model, Transformer)
    return model


def refusal(config: Any) -> str:
    """Return the sentence with which *config* is refused."""
    with pytest.raises(SpecError) as caught:
        model_from_config(config, "config.json")
    return str(caught.value)


@check_all("name", sorted(CONFIGS))
def test_a_released_config_has_exactly_the_parameters_that_transformers_counts(name: str) -> None:
    assert count_parameters(read(CONFIGS[name])) == PARAMETERS[name]


def test_every_architecture_has_a_released_config_here() -> None:
    covered = {config["model_type"] for config in CONFIGS.values()}
    assert set(architectures) == covered


@check_all("name", sorted(name for name in CONFIGS if (MODELS / f"{name}.yaml").exists()))
def test_a_model_of_the_catalog_is_what_its_config_says(name: str) -> None:
    entry = yaml.safe_load((MODELS / f"{name}.yaml").read_text())
    listed, found = (
        served_model(schema.read_value(Transformer | Recommender, entry["model"], "model")),
        read(CONFIGS[name]),
    )
    assert isinstance(listed, Transformer)
    older = [8192] if name == "llama3-8b" else []  # the catalog has the model of 3.1
    assert found.context in (listed.context, None, *older)  # some files leave it out
    assert listed == replace(found, context=listed.context)


@pytest.mark.parametrize(
    ("keys", "tokens"),
    [
        ({}, None),
        ({"max_position_embeddings": 32768}, 32768),
        (
            {
                "max_position_embeddings": 32768,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768},
            },
            131072,
        ),
        (
            {
                "max_position_embeddings": 131072,
                "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192},
            },
            131072,
        ),
    ],
)
def test_the_longest_request_is_read(keys: Tree, tokens: int | None) -> None:
    sizes = {
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "vocab_size": 9,
        "intermediate_size": 16,
    }
    assert read({"model_type": "llama", **sizes, **keys}).context == tokens


@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_sequences_are_as_long_as_in_training(name: str) -> None:
    assert model_from_config(CONFIGS[name], "config.json")["workload"] == {"sequence": SEQUENCES[name]}


@pytest.mark.parametrize(
    ("config", "count"),
    [
        ({"model_type": "llama", "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True}, 87872),
        (
            {
                "model_type": "qwen2_moe",
                "num_hidden_layers": 5,
                "num_key_value_heads": 4,
                "num_experts": 6,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
                "shared_expert_intermediate_size": 48,
                "decoder_sparse_step": 2,
            },
            263168,
        ),
        (
            {
                "model_type": "qwen3_moe",
                "num_hidden_layers": 5,
                "num_key_value_heads": 2,
                "head_dim": 32,
                "num_experts": 6,
                "num_experts_per_tok": 2,
                "moe_intermediate_size": 32,
                "mlp_only_layers": [0, 1],
                "attention_bias": True,
            },
            299200,
        ),
        (
            {
                "model_type": "opt",
                "ffn_dim": 128,
                "max_position_embeddings": 32,
                "do_layer_norm_before": False,
                "enable_bias": False,
            },
            74624,
        ),
        (
            {
                "model_type": "t5",
                "num_layers": 3,
                "num_decoder_layers": 5,
                "d_model": 64,
                "d_kv": 16,
                "d_ff": 128,
                "num_heads": 8,
                "vocab_size": 32128,
                "feed_forward_proj": "gated-gelu",
            },
            2680768,
        ),
        (
            {"model_type": "vit", "image_size": 32, "patch_size": 8, "num_channels": 1, "qkv_bias": False},
            72130,
        ),
    ],
)
def test_rarer_options_count_as_in_transformers(config: Tree, count: int) -> None:
    assert count_parameters(read(SMALL | config)) == count


def test_a_t5_that_states_untied_embeddings_has_a_head_of_its_own() -> None:
    """T5 v1.1 base has 247577856 parameters as released; transformers 5 ties them whatever the file says."""
    shape = {"num_layers": 12, "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_heads": 12, "vocab_size": 32128}
    config = {"model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    assert count_parameters(read(config | shape)) == 247577856


def test_classes_are_counted_from_their_labels() -> None:
    config = SMALL | {"model_type": "vit", "image_size": 32}
    assert read(config).vocab == 2
    assert read(config | {"id2label": {str(label): "a thing" for label in range(7)}}).vocab == 7


def test_a_null_means_what_it_means_in_transformers() -> None:
    mistral = SMALL | {"model_type": "mistral", "num_attention_heads": 16}
    assert (read(mistral).window, read(mistral).kv_heads) == (4096, 8)
    assert read(mistral | {"sliding_window": None}).window is None
    assert read(mistral | {"num_key_value_heads": None}).kv_heads == 16


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["full_attention"] * 4, (None, None)),
        (["sliding_attention"] * 4, (512, None)),
        (["sliding_attention", "full_attention"] * 2, (512, 2)),
        (["sliding_attention"] * 2 + ["full_attention", "sliding_attention"], (512, 3)),
    ],
)
def test_windows_follow_the_types_of_the_layers(types: list[str], expected: tuple[Any, Any]) -> None:
    config = SMALL | {"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 512}
    model = read(config | {"layer_types": types})
    assert (model.window, model.full_attention_every) == expected


def test_gemma_alternates_windows_where_the_file_does_not_say() -> None:
    assert (read(CONFIGS["gemma2-9b"]).window, read(CONFIGS["gemma2-9b"]).full_attention_every) == (4096, 2)
    assert (read(CONFIGS["gemma3-1b"]).window, read(CONFIGS["gemma3-1b"]).full_attention_every) == (512, 6)


def test_qwen_has_windows_only_if_asked() -> None:
    qwen = SMALL | {"model_type": "qwen2", "num_key_value_heads": 4, "sliding_window": 32}
    assert read(qwen).window is None
    assert read(qwen | {"use_sliding_window": True}).window is None  # they would begin at layer 28
    assert read(qwen | {"use_sliding_window": True, "max_window_layers": 0}).window == 32


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ([1, 2], "config.json = [1, 2]: must be a mapping of keys to values"),
        (
            {"model_type": "lama"},
            "config.json.model_type = 'lama': no such architecture; did you mean 'llama'?",
        ),
        ({"model_type": 7}, "config.json.model_type = 7: must be text"),
        (
            {"model_type": "a\x1b"},
            r"config.json.model_type = 'a\x1b': must be printable text on one line, and has U+001B",
        ),
        (
            {"model_type": "llama"},
            "config.json.num_hidden_layers = (missing): must be a whole number",
        ),
        (
            {"model_type": "gpt2", "n_layer": "12"},
            "config.json.n_layer = '12': must be a whole number",
        ),
        (
            SMALL | {"model_type": "llama", "num_hidden_layers": None},
            "config.json.num_hidden_layers = None: must be a whole number",
        ),
        (
            SMALL | {"model_type": "llama", "num_hidden_layers": [2]},
            "config.json.num_hidden_layers = [2]: must be a whole number",
        ),
        (
            SMALL | {"model_type": "llama", "num_hidden_layers": True},
            "config.json.num_hidden_layers = True: must be a whole number",
        ),
        (
            SMALL | {"model_type": "llama", "hidden_size": 64.0},
            "config.json.hidden_size = 64.0: must be a whole number",
        ),
        (
            SMALL | {"model_type": "llama", "num_hidden_layers": -3},
            "config.json.num_hidden_layers = -3: must be at least 1",
        ),
        (
            SMALL | {"model_type": "llama", "tie_word_embeddings": "no"},
            "config.json.tie_word_embeddings = 'no': must be true or false",
        ),
        (
            SMALL | {"model_type": "llama", "rope_scaling": 3},
            "config.json.rope_scaling = 3: must be a mapping of keys to values",
        ),
        (
            SMALL | {"model_type": "opt", "ffn_dim": 128, "word_embed_proj_dim": 32},
            "config.json.word_embed_proj_dim = 32: embeddings must be as wide as hidden_size",
        ),
        (
            SMALL | {"model_type": "phi", "qk_layernorm": True},
            "config.json.qk_layernorm = True: layer norms of queries and keys cannot be expressed",
        ),
        (
            SMALL
            | {
                "model_type": "qwen2",
                "num_key_value_heads": 4,
                "use_sliding_window": True,
                "max_window_layers": 1,
            },
            "config.json.max_window_layers = 1: a window in later layers alone cannot be expressed",
        ),
        (
            SMALL | {"model_type": "gemma2", "layer_types": ["full_attention", "chunked_attention"]},
            "config.json.layer_types = ['full_attention', 'chunked_attention']: "
            "must be full_attention or sliding_attention for each layer",
        ),
        (
            SMALL | {"model_type": "gemma2", "layer_types": ["full_attention", "sliding_attention"]},
            "config.json.layer_types = ['full_attention', 'sliding_attention']: "
            "full attention must come in every n-th layer",
        ),
        (
            SMALL | {"model_type": "qwen3_moe", "mlp_only_layers": [1]},
            "config.json.mlp_only_layers = [1]: layers without experts must be the first ones",
        ),
        (
            {"model_type": "gemma3", "text_config": {"num_hidden_layers": 0}},
            "config.json.text_config.num_hidden_layers = 0: must be at least 1",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_place_and_rule(config: Any, message: str) -> None:
    assert refusal(config) == message


def test_an_architecture_unlike_any_other_is_answered_with_all_that_there_are() -> None:
    with pytest.raises(UnknownName) as caught:
        model_from_config({"model_type": "whisper"}, "config.json")
    assert all(name in str(caught.value) for name in architectures)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.integers(1, 64) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = sorted({key for config in CONFIGS.values() for key in (*config, *config.get("text_config", ()))})
ANYTHING = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), JSON)
TYPED = st.builds(lambda name, rest: {**rest, "model_type": name}, st.sampled_from(sorted(architectures)), ANYTHING)
DAMAGED = st.builds(
    lambda name, changes: CONFIGS[name] | {key: changes[key] for key in changes if key != "model_type"},
    st.sampled_from(sorted(CONFIGS)),
    st.dictionaries(st.sampled_from(NAMES), JSON, min_size=1, max_size=3),
)


@given(JSON | ANYTHING | TYPED | DAMAGED)
def test_any_config_gives_a_model_or_one_sentence(config: Any) -> None:
    try:
        tree = model_from_config(config, "config.json")
        model = schema.read_value(Transformer | Recommender, tree["model"], "model")
    except SpecError:
        return
    assert count_parameters(model) >= 1
    assert tree["workload"]["sequence"] >= 1


# ---- architectures without a name

UNKNOWN = {
    "architectures": ["AcmeForCausalLM"],
    "model_type": "acme",
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "tie_word_embeddings": False,
}


def test_an_unknown_decoder_is_read_from_the_usual_keys_and_that_is_said() -> None:
    model = read(UNKNOWN)
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.head_dim) == (36, 4096, 32, 8, 128)
    assert (model.ffn, model.gated, model.norm, model.tied_embeddings) == (12288, True, "rmsnorm", False)
    entry = model_from_config(UNKNOWN, "config.json")
    assert entry["assumed"][0] == "the architecture acme is not known: a decoder was read from the usual keys"
    assert entry["workload"] == {"sequence": 32768}
    assert "assumed" not in model_from_config({**UNKNOWN, "model_type": "llama"}, "config.json")


def test_an_unknown_mixture_is_what_deepseek_s_own_function_makes_of_the_same_keys() -> None:
    config = CONFIGS["deepseek-v3"]
    named = read(config)
    assert replace(read({**config, "model_type": "deepseek_v9"}), name=named.name) == named


def test_experts_windows_and_other_names_of_sizes_are_found() -> None:
    experts = {"num_local_experts": 16, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 4096}
    found = read({**UNKNOWN, **experts, "decoder_sparse_step": 2, "moe_intermediate_size": 1024}).experts
    assert found is not None
    assert (found.count, found.active, found.ffn, found.shared_ffn, found.every) == (16, 2, 1024, 4096, 2)
    window = read({**UNKNOWN, "sliding_window": 512, "sliding_window_pattern": 6})
    assert (window.window, window.full_attention_every) == (512, 6)
    types = (["sliding_attention"] * 3 + ["full_attention"]) * 9
    assert read({**UNKNOWN, "sliding_window": 512, "layer_types": types}).full_attention_every == 4
    other = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100, "n_inner": 256, "activation_function": "relu"}
    small = read({"model_type": "tiny_gpt", **other})
    assert (small.layers, small.gated) == (2, False)


def test_what_a_model_has_besides_language_is_said_with_its_size() -> None:
    text = {key: value for key, value in UNKNOWN.items() if key != "architectures"} | {"model_type": "qwen2"}
    towers = {
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "intermediate_size": 4304},
        "audio_config": {"d_model": 1280},
    }
    for key in ("text_config", "llm_config"):
        entry = model_from_config({"model_type": "fancy_vl", key: text, **towers}, "config.json")
        assert entry["model"]["biases"] == ["qkv"]  # the function of Qwen2
        assert entry["assumed"] == [
            "a vision tower of about 0.41 B parameters (vision_config) is not modelled",
            "an audio tower of unknown size (audio_config) is not modelled",
        ]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"vocab_size": None}, "config.json.vocab_size = (missing): is needed to read an architecture that is not"),
        ({"intermediate_size": None}, "config.json.intermediate_size = (missing): is needed"),
        ({"num_attention_heads": 24}, "config.json.head_dim = (missing): is needed, as hidden_size 4096"),
        ({"mamba_d_state": 16}, "config.json.mamba_d_state = 16: is of state-space, convolution or linear-attention"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "['linear_attention']: are layers without attention"),
        ({"attn_layer_period": 8}, "config.json.attn_layer_period = 8: is of state-space"),
        ({"model_type": "rwkv7"}, "has state-space or recurrent layers"),
        ({"architectures": ["AcmeForMaskedLM"]}, "its name is not that of a decoder"),
        ({"is_encoder_decoder": True}, "only decoders are read from unknown architectures"),
        ({"num_experts": 8}, "config.json.num_experts_per_tok = (missing): is needed"),
        ({"hidden_size": "4096"}, "config.json.hidden_size = '4096': must be a whole number"),
        ({"hidden_act": 7}, "config.json.hidden_act = 7: must be text"),
    ],
)
def test_what_is_no_decoder_or_lacks_a_size_is_refused(more: dict[str, Any], message: str) -> None:
    assert message in refusal({**UNKNOWN, **more})


@pytest.mark.long
def test_what_was_assumed_is_printed_with_every_evaluation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "config.json").write_text(json.dumps(UNKNOWN))
    design = f"{tmp_path / 'acme'}@dgx-h100:16"
    for command in (("evaluate",), ("design", "show")):
        assert "assumed: the architecture acme is not known" in output(capsys, *command, design)
        found = json.loads(output(capsys, *command, design, "--json"))
        assert found["assumed"][0].startswith("the architecture acme is not known")

"""The models of rows: by their sizes, by many names, or by both."""

from __future__ import annotations

import pytest

from cosmic.accuracy.measured_rows import Fields
from cosmic.accuracy.rows.training_software import model_of_row, sequence_of, shared_out
from cosmic.base.errors import SpecError
from cosmic.design.model_layer import Transformer, count_parameters

SIZES = {"n_layers": "32", "hidden": "4096", "n_heads": "32", "vocab": "32000", "seq_len": "4096"}


def model(**cells: str) -> Transformer:
    return model_of_row(Fields(cells), 1)


def test_without_arch_sizes_tell_the_style() -> None:
    assert not model(**SIZES, ffn="16384").gated
    assert model(**SIZES, ffn="11008").gated
    assert model(**SIZES, ffn="16384", n_kv_heads="8").gated
    assert model(**SIZES, ffn="16384", n_kv_heads="32").biases  # as gpt


def test_the_catalog_s_model_counts_where_a_row_s_sizes_agree() -> None:
    llama = model(model="llama3-8b", hidden="4096")
    assert (llama.layers, llama.kv_heads, llama.vocab) == (32, 8, 128256)
    other = model(model="llama3-8b", **{**SIZES, "hidden": "2048", "n_heads": "16"}, ffn="8192")
    assert other.hidden == 2048
    assert model(model="llama3-8b", n_layers="4").layers == 4


def test_sizes_that_are_not_given_are_usual() -> None:
    found = model(arch="llama", n_layers="32", hidden="4096")
    assert (found.heads, found.kv_heads, found.ffn, found.vocab) == (32, 32, 11008, 32000)
    assert count_parameters(found) == pytest.approx(6.74e9, rel=0.01)  # LLaMA 7B
    assert model(arch="gpt", n_layers="24", hidden="2048").ffn == 8192


def test_experts_follow_from_a_row_s_own_numbers() -> None:
    found = model(
        model="a mixture", arch="moe", **SIZES, n_experts="16", topk="4", moe_ffn="1024", n_shared_experts="2"
    )
    assert found.experts is not None
    assert (found.experts.count, found.experts.active, found.experts.ffn) == (16, 4, 1024)
    assert found.experts.shared_ffn == 2048


@pytest.mark.parametrize(
    ("arch", "parallel", "norm", "positions"), [("gpt-neox", True, False, 0), ("bloom", False, True, 0)]
)
def test_styles_differ(arch: str, parallel: bool, norm: bool, positions: int) -> None:
    found = model(arch=arch, **SIZES, ffn="16384")
    assert (found.parallel_block, found.embedding_norm, found.positions) == (parallel, norm, positions)
    assert model(arch="gpt", **SIZES).positions == 4096


def test_layers_of_other_kinds_are_not_taken_for_attention() -> None:
    with pytest.raises(SpecError, match="no such model of mixed layers"):
        model(model="a hybrid", arch="hybrid-moe", **SIZES)


@pytest.mark.parametrize(
    ("name", "mtp", "next_tokens", "modules"),
    [
        ("deepseek-v3", "", True, 1),
        ("deepseek-v3", "false", True, 0),
        ("deepseek-v3", "", False, 0),
        ("deepseek-v3", "true", False, 1),
        ("nemotron-3-super", "", True, 2),  # as in the catalog
        ("nemotron-3-super", "false", True, 0),
        ("kimi-k2", "", True, 0),
    ],
)
def test_modules_for_further_tokens_train_as_the_row_or_the_framework_says(
    name: str, mtp: str, next_tokens: bool, modules: int
) -> None:
    found = model_of_row(Fields({"model": name, "mtp": mtp}), 1, next_tokens=next_tokens)
    assert found.mtp_layers == modules


def test_interleaved_stages_share_out_what_predicts_further_tokens() -> None:
    deepseek = model_of_row(Fields({"model": "deepseek-v3"}), 1, next_tokens=True)
    shared = shared_out(deepseek, 4, 4)
    assert (shared.layers, shared.mtp_layers) == (62, 0)
    assert shared_out(deepseek, 4, 1) == shared_out(deepseek, 1, 4) == deepseek


def test_sequences_are_as_long_as_the_catalog_s_where_a_row_says_nothing() -> None:
    assert sequence_of(Fields({"model": "deepseek-v3"})) == 4096
    assert sequence_of(Fields({"model": "x"})) == 2048
    assert sequence_of(Fields({"model": "deepseek-v3", "seq_len": "512"})) == 512

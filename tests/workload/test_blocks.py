"""Models as operators: the weights of the graphs are the parameters of the models, and tokens cost what papers say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import catalog_entries, schema
from cosmic.design.huggingface import model_from_config
from cosmic.design.loading import read_model
from cosmic.design.model_layer import Model, Transformer, count_parameters
from cosmic.search.mapping.design_completion import load_design
from cosmic.step.operator_work import model_flop_per_token
from cosmic.workload.model_blocks import blocks, dimensions
from cosmic.workload.operator_graph import Graph, Operator, Tensor, elements
from cosmic.workload.operator_kinds import kept_activations, kinds
from tests.batches import check_all

CONFIGS = sorted((Path(__file__).parents[1] / "design" / "catalog" / "data").glob("*.json"))


def model(name: str) -> Model:
    return read_model(catalog_entries.read_entry("models", name), name)


def weight_count(model: Model) -> int:
    """Return the number of parameters in the graphs of *model*; a tensor that two blocks share counts once."""
    sizes = dimensions(model)
    once: dict[str, float] = {}
    for block in blocks(model):
        for weight in block.graph.weights:
            name = weight.name if block.part != "layers" else f"{block.name} {weight.name}"
            once[name] = block.repeats * float(elements(weight.dims, sizes))
    return round(sum(once.values()))


@check_all("name", catalog_entries.entry_names("models"), tests=2)
def test_the_weights_of_the_graphs_are_the_parameters_of_the_model(name: str) -> None:
    assert weight_count(model(name)) == count_parameters(model(name))


@check_all("path", CONFIGS)
def test_so_they_are_for_hugging_face_configurations(path: Path) -> None:
    tree = model_from_config(json.loads(path.read_text()), path.name)
    read: Model = schema.read_value(Model, tree["model"], "model")
    assert weight_count(read) == count_parameters(read)


@check_all("name", catalog_entries.entry_names("models"), tests=2)
def test_every_operator_is_of_a_known_kind_and_every_dimension_has_a_size(name: str) -> None:
    workload = ("batch", "sequence", "context", "source", "samples", "tokens", "index_context")
    sizes = {*dimensions(model(name)), *workload}
    for block in blocks(model(name), dropout=True):
        for operator in block.graph.operators:
            assert operator.kind in kinds
            assert set(operator.dims) <= sizes


def test_a_layer_of_gpt_keeps_sixteen_hidden_widths_and_one_of_llama_twenty_and_a_half() -> None:
    """x, n1, q, k, v, o, y, n2 and twice 4h; or x, n1, q, o, y, n2, an eighth each of k and v, and four times 3.5h."""
    for name, widths in (("gpt3-175b", 16), ("llama3-8b", 6 + 2 * 0.25 + 4 * 3.5)):
        found = model(name)
        assert isinstance(found, Transformer)
        layer = next(block for block in blocks(found) if block.name == "layer")
        tensors = {tensor.name: tensor for operator in layer.graph.operators for tensor in kept_activations(operator)}
        sizes = {**dimensions(found), "batch": 1, "sequence": 1, "context": 1}
        total = 0.0
        assert tensors.pop("leaving").dims == tensors["attention"].dims  # the same numbers under another name
        for tensor in tensors.values():
            product = 1.0
            for dim in tensor.dims:
                product *= sizes[dim]
            total += product
        assert total == widths * found.hidden


@pytest.mark.parametrize(
    ("name", "sequence", "published", "tolerance", "source"),
    [
        (
            "gpt3-175b",
            2048,
            3.14e23 / 300e9,
            0.03,
            "Brown et al., table D.1: 6 per parameter and token, attention left out",
        ),
        ("llama3-405b", 8192, 3.8e25 / 15.6e12, 0.05, "Llama 3 herd, section 3.2: 3.8e25 for 15.6T tokens"),
        ("llama3-405b", 4096, 2448e9, 0.02, "DeepSeek-V3 insights, ISCA 2025, table 2"),
        ("deepseek-v3", 4096, 250e9, 0.02, "DeepSeek-V3 insights, ISCA 2025, table 2"),
        ("deepseek-v2", 4096, 155e9, 0.03, "DeepSeek-V3 insights, ISCA 2025, table 2"),
        ("deepseek-v4-flash", 4096, 748e12 / 8224, 0.01, "Megatron-Bridge 26.08: TFLOP/s over tokens/s of a GB300"),
        ("nemotron-3-super", 8192, 831e12 / 9856, 0.02, "Megatron-Bridge 26.08: TFLOP/s over tokens/s of a GB300"),
        ("nemotron-3-5-lightning", 8192, 807e12 / 28672, 0.05, "Megatron-Bridge 26.08, on a GB200"),
    ],
)
def test_a_token_costs_what_was_published(
    name: str, sequence: int, published: float, tolerance: float, source: str
) -> None:
    assert model_flop_per_token(model(name), sequence) == pytest.approx(published, rel=tolerance), source


def test_moe_models_cost_their_active_experts_only() -> None:
    dense, mixture = model("mistral-7b"), model("mixtral-8x7b")
    ratio = model_flop_per_token(mixture, 4096) / model_flop_per_token(dense, 4096)
    assert 1.7 < ratio < 1.9  # two experts of eight instead of one network


def test_a_graph_refuses_a_tensor_with_two_shapes_or_two_makers() -> None:
    x, y, z = Tensor("x", ("batch",)), Tensor("x", ("hidden",)), Tensor("z", ("batch",))
    with pytest.raises(SpecError, match="elsewhere"):
        Graph((Operator("a", "add", (x,), (z,)), Operator("b", "add", (y,), (Tensor("w", ("hidden",)),))))
    with pytest.raises(SpecError, match="made by another"):
        Graph((Operator("a", "add", (x,), (z,)), Operator("b", "add", (x,), (z,))))


def test_an_operator_knows_what_it_sums_over() -> None:
    product = Operator(
        "u",
        "einsum",
        (Tensor("x", ("batch", "hidden")), Tensor("w", ("hidden", "ffn"))),
        (Tensor("u", ("batch", "ffn")),),
    )
    assert product.dims == ("batch", "hidden", "ffn")
    assert product.summed == ("hidden",)


def test_decoding_and_prefill_cost_a_third_of_training() -> None:
    llama = load_design("llama3-8b@dgx-h100:8").model
    assert model_flop_per_token(llama, 4096, training=False) == pytest.approx(model_flop_per_token(llama, 4096) / 3)

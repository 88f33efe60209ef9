"""JAX functions as programs, beside JAX's own count of flop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cosmic.base.errors import SpecError
from cosmic.design import schema
from cosmic.search.mapping.design_completion import load_design
from cosmic.workload.operator_kinds import operator_flop, unsharded_elements
from cosmic.workload.user_programs.jax_programs import from_jax
from cosmic.workload.user_programs.program_graph import Program, read_annotations
from cosmic.workload.user_programs.program_models import load_program, model_of
from tests.workload.user_programs.test_models import EXAMPLES, MESH, PLAIN, design, sent

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install '.[jax]'")
jnp = jax.numpy
NAMES = {"batch": "1:0", "sequence": "1:1"}
MEGATRON = {
    "embedding": ["tp", "_"],
    "head": ["tp", "_"],
    **{f"layers_w{name}": ["_", "tp", "_"] for name in "qkv"},
    "layers_wo": ["tp", "_", "_"],
    "layers_w1": ["_", "tp"],
    "layers_w2": ["tp", "_"],
}


def work(program: Program) -> float:
    """Return the forward flop of a program, with all keys of attention."""
    repeat = {name: part.repeat for part in program.parts for name in part.operators}
    sizes = {**program.sizes, "visible": 1.0}
    return sum(
        repeat.get(each.name, 1) * float(operator_flop(each, unsharded_elements(sizes), sizes))
        for each in program.graph.operators
    )


def counted(function: Any, *arguments: Any) -> float:
    """Return the flop that XLA counts."""
    found = jax.jit(function).lower(*arguments).compile().cost_analysis()
    return float((found[0] if isinstance(found, list) else found)["flops"])


def of(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_a_gpt_in_jax_is_the_one_in_yaml() -> None:
    program = load_program(f"{EXAMPLES / 'gpt_jax.py'}:gpt", dims=NAMES)
    model = model_of(read_annotations(program, MEGATRON))
    yaml = design("gpt", **MESH, **PLAIN)
    assert model.parameters == yaml.model.parameters  # type: ignore[union-attr]
    assert [(part.repeat, len(part.carries)) for part in program.parts] == [(1, 0), (24, 1), (1, 0)]
    point = load_design({"model": schema.write_value(model), "system": "dgx-h100:64"}, {**MESH, **PLAIN})
    assert sent(point) == sent(yaml)


def test_flop_of_a_perceptron_are_those_that_xla_counts() -> None:
    def perceptron(w: Any, x: Any) -> Any:
        return jnp.maximum(x @ w["a"], 0) @ w["b"]

    given = ({"a": of(256, 1024), "b": of(1024, 256)}, of(64, 256))
    assert work(from_jax(perceptron, *given)) == pytest.approx(counted(perceptron, *given), rel=0.002)


def test_flop_of_a_convolution_are_those_that_xla_counts() -> None:
    def convolution(w: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w["f"], (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    given = ({"f": of(3, 3, 16, 32)}, of(8, 33, 33, 16))
    program = from_jax(convolution, *given, dims={"batch": "1:0", "height": "1:1"})
    assert work(program) == pytest.approx(counted(convolution, *given), rel=0.002)
    assert program.graph.operators[0].halo[0] == ("height", 0, 1)


def test_flop_of_attention_are_those_that_xla_counts() -> None:
    def attention(w: Any, x: Any) -> Any:
        q, k, v = (jnp.einsum("bsm,mhd->bshd", x, w[name]) for name in "qkv")
        scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k), axis=-1)
        return jnp.einsum("bhqk,bkhd->bqhd", scores, v)

    given = ({name: of(128, 4, 32) for name in "qkv"}, of(2, 256, 128))
    program = from_jax(attention, *given, dims=NAMES)
    assert [each.kind for each in program.graph.operators][-1] == "attention"
    assert program.graph.operators[-1].inputs[1].dims[1] == "source"  # nothing is masked
    softmax = 2 * 4 * 256 * 256 * 8
    assert work(program) == pytest.approx(counted(attention, *given), abs=softmax)


def test_a_scan_over_time_runs_step_by_step_and_one_over_weights_is_a_repeated_part() -> None:
    def cell(state: Any, x: Any, w: Any) -> Any:
        made = jnp.tanh(x @ w["x"] + state @ w["h"])
        return made, made

    def network(w: Any, x: Any) -> Any:
        first = jnp.zeros((x.shape[1], 64))
        return jax.lax.scan(lambda state, each: cell(state, each, w), first, x)[1]

    program = from_jax(network, {"x": of(32, 64), "h": of(64, 64)}, of(16, 8, 32), dims={"batch": "1:1", "time": "1:0"})
    products = [each for each in program.graph.operators if each.kind == "einsum"]
    assert [each.serial for each in products] == [("time",), ("time",)]
    assert work(program) == pytest.approx(16 * 2 * 8 * (32 * 64 + 64 * 64), rel=0.02)


def test_a_scan_over_weights_and_activations_takes_a_row_of_each() -> None:
    """Six products of 32 × 48 and 48 × 64, each of them added to 32 × 64: 6 (2 · 32 · 48 · 64 + 32 · 64) flop."""

    def network(w: Any, x: Any, more: Any) -> Any:
        return jax.lax.scan(lambda state, each: (state + each[1] @ each[0], None), x, (w["w"], more))[0]

    program = from_jax(network, {"w": of(6, 48, 64)}, of(32, 64), of(6, 32, 48))
    (product,) = (each for each in program.graph.operators if each.kind == "einsum")
    assert [program.sizes[dim] for dim in product.outputs[0].dims] == [32, 64]
    assert [program.sizes[dim] for dim in product.summed] == [48]
    assert work(program) == 6 * (2 * 32 * 48 * 64 + 32 * 64)


def test_a_merged_dimension_has_the_factors_that_a_reshape_gives_it() -> None:
    program = from_jax(lambda w, x: (x @ w["q"]).reshape(8, 4, 16).sum(1), {"q": of(32, 64)}, of(8, 32))
    assert [program.sizes[dim] for dim in program.graph.operators[0].inputs[1].dims] == [32, 4, 16]


def test_an_unknown_operator_is_an_error_that_names_it() -> None:
    with pytest.raises(SpecError, match="cholesky"):
        from_jax(jnp.linalg.cholesky, of(8, 8))
    with pytest.raises(SpecError, match="while"):
        from_jax(lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y + 1, x), of(8))


def test_a_name_of_no_dimension_is_an_error() -> None:
    with pytest.raises(SpecError, match="2 dimensions"):
        from_jax(lambda x: x * 2, of(8, 8), dims={"batch": "0:2"})


def test_a_function_is_found_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def double(w, x):\n    return (x @ w['a']) * 2\n")
    program = load_program(f"{file}:double", shapes=["{a: 32x64}", "8x32"], dims={"batch": "1:0"})
    assert program.graph.tensors["a"].role == "weight"
    with pytest.raises(SpecError, match="--shape"):
        load_program(f"{file}:double")


def test_runs_of_a_loop_share_the_weights_that_they_share() -> None:
    def shared(w: Any, x: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, y: jnp.tanh(y @ w["w"]), x)

    program = from_jax(shared, {"w": of(16, 16)}, of(8, 16))
    assert model_of(program).parameters == 16 * 16
    assert [each.kind for each in program.graph.operators].count("einsum") == 5

    def endless(w: Any, x: Any) -> Any:
        return jax.lax.fori_loop(0, 100_000, lambda _, y: jnp.tanh(y @ w["w"]), x)

    with pytest.raises(SpecError, match=r"scan of 100,000 runs.*shares weights"):
        from_jax(endless, {"w": of(16, 16)}, of(8, 16))


def test_weights_of_layers_and_one_that_they_share() -> None:
    def both(w: Any, x: Any) -> Any:
        def layer(y: Any, own: Any) -> Any:
            return jnp.tanh(y @ own) @ w["all"], y.sum()

        made, sums = jax.lax.scan(layer, x, w["each"])
        return made.sum() + sums.sum()

    program = from_jax(both, {"all": of(16, 16), "each": of(3, 16, 16)}, of(8, 16))
    assert model_of(program).parameters == (1 + 3) * 16 * 16
    assert [each.kind for each in program.graph.operators].count("einsum") == 6


def test_arrays_around_a_function_are_weights_if_they_are_numbers() -> None:
    mask, scale = jnp.zeros((16, 16), bool), jnp.ones((16, 16))
    program = from_jax(lambda w, x: jnp.where(mask, 0.0, x @ w["w"]) * scale, {"w": of(16, 16)}, of(16, 16))
    assert model_of(program).parameters == 2 * 16 * 16


def test_groups_by_batch_are_refused_and_parts_of_no_rows_are_none() -> None:
    def grouped(w: Any, x: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w["w"], (1, 1), "SAME", batch_group_count=2)

    with pytest.raises(SpecError, match="batch_group_count"):
        from_jax(grouped, {"w": of(8, 4, 3, 3)}, of(4, 4, 8, 8))

    def scanned(w: Any, x: Any) -> Any:
        return jax.lax.associative_scan(jnp.add, x @ w["w"], axis=0)

    program = from_jax(scanned, {"w": of(16, 16)}, of(7, 16))
    assert model_of(program).parameters == 16 * 16


def test_a_sort_makes_values_and_places_at_once() -> None:
    def best(w: Any, x: Any) -> Any:
        values, places = jax.lax.top_k(x @ w["w"], 2)
        return values * places

    program = from_jax(best, {"w": of(16, 32)}, of(8, 16))
    (found,) = (each for each in program.graph.operators if each.kind == "sort")
    assert [[program.sizes[dim] for dim in each.dims] for each in found.outputs] == [[8, 2], [8, 2]]
    assert found.flop_per_element == 5 / 2  # a logarithm of 32 for each of the two


def test_rows_are_added_at_an_index() -> None:
    def added(w: Any, x: Any) -> Any:
        return jnp.zeros((4, 16)).at[jnp.arange(8) % 4].add(x @ w["w"])

    program = from_jax(added, {"w": of(16, 16)}, of(8, 16))
    assert [each.kind for each in program.graph.operators] == ["einsum", "scatter"]


def test_what_converts_a_format_is_no_operator() -> None:
    def converted(w: Any, x: Any) -> Any:
        return (x.astype(jnp.bfloat16) @ w["w"].astype(jnp.bfloat16)).astype(jnp.float32)

    program = from_jax(converted, {"w": of(16, 16)}, of(8, 16))
    assert [each.kind for each in program.graph.operators] == ["einsum"]
